/* request_slots.h - what front and engine share of each sequence: one flat region of slots.
 *
 * A slot is one sequence: one prompt and one stream of generated tokens (a request with n = 3 takes three).
 * Slots are named by index and hold no pointers; their arrays are found by offset. The region lies in memory
 * that two processes may share (link.h); struct request_slots is one side's view of it.
 *
 *   loop    acquire -> fill in -> link_submit                 (submit ring, release)
 *   engine  tokens[num_prompt + k] = t; num_published = k+1   (store-release, cumulative)
 *   engine  finish_reason = why                               (store-release: the loop owns the slot again)
 *           with pooling: no tokens; the row, then FINISH_LENGTH
 *   loop    reads below num_published; may set cancel; after the finish: release
 *
 * Publishing is a count over an array, so merged wake-ups lose nothing, nothing can overflow, and a slow
 * client costs no more than its slot. Memory is reserved for max_model_len tokens a slot, but committed by
 * the system only as it is touched, and given back when a slot is released (madvise).
 *
 * What is published outlives the engine: should it die, the next one goes on behind the last published token.
 *
 * Why no lock is needed: each plain field has one writer at a time, and each hand-over is one release store
 * that the other side reads with acquire, so that all that was written before it is seen after it.
 *
 * - loop to engine, input, payload and prompt: the tail of the submit ring (base/ring.h).
 * - engine to loop, tokens and log probabilities: the published counts. An entry is written before the count
 *   passes it and never again, so that reading below the count races with nothing.
 * - engine to loop, everything else, the row too: finish_reason, the engine's last access to the slot. The loop loads it
 *   before num_published; the other way round it could see the finish with an older count and lose tokens.
 * - mask threads to engine, the mask: mask_state. It says for which token the mask is, and is written again only
 *   after that token was published. So are a guess (guess_state) and the masks behind its tokens (num_masks_ahead).
 * - cancel carries no data: a late look costs one step. It is set before its bit in the engine's cancel words
 *   (release), which the engine takes with acquire.
 *
 * Sleeping and waking, where two flags must not pass each other, are seq_cst: link_calls.c.
 *
 * Threads: functions marked [loop] and [engine] belong to that thread alone. Mask threads read tokens and write
 * masks of slots whose loop lets them (server/masks.h). */
#ifndef LINK_REQUEST_SLOTS_H
#define LINK_REQUEST_SLOTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "link/sampling.h"

enum finish_reason {
    FINISH_NONE,      /* still the engine's */
    FINISH_STOP,      /* end-of-sequence or a stop token id; stop_token_id says which */
    FINISH_LENGTH,    /* max_tokens or the context is used up */
    FINISH_CANCELLED, /* the loop asked for it */
    FINISH_ERROR,     /* the engine failed this request alone (e.g. NaN logits); error_text says why */
    FINISH_DEVICE,    /* the device failed: the process will exit */
};

enum { STOP_TOKEN_IDS_MAX = 64, CACHE_SALT_BYTES = 32, STEPS_IN_FLIGHT_MAX = 2 };
enum { DRAFT_TOKENS_MAX = 32 }; /* behind the published ones: what the engine expects of a step */
enum { GUESS_TOKENS_MAX = 7 };  /* what mask threads expect of an answer that must have a form */

/* What the loop fills in before submit; constant until release. Every id is below the logits' width, every
 * number in the range that its comment gives: the API's validator is the one place that guarantees it. */
struct request_slot_input {
    uint64_t request_id;       /* for logs: the HTTP request that it belongs to */
    uint64_t arrival_ns;       /* monotonic */
    uint64_t deadline_ns;      /* nobody waits for it later; 0: none */
    uint64_t tenant_id;        /* whose it is: tenants take turns, */
    uint64_t owner_id;         /* and before them who has named them; 0: nobody has */
    double weight;             /* an owner's, in shares like these; > 0, 0: 1 */
    bool leaves_places;        /* its owner may have other tenants: this one's do not take every place */
    bool owner_leaves_places;  /* other owners may come: no more do all of this one's */
    int32_t priority;          /* among its tenant's, -100 to 100: the lower, the earlier */
    int32_t num_prompt_tokens; /* >= 1 */
    int64_t num_tokens_beside; /* of its request's other prompts, each once */
    int32_t
        max_tokens; /* >= 0; prompt + max_tokens <= max_model_len. 0: the prompt is computed, and that is all */
    int32_t min_tokens; /* until then eos and stop_token_ids cannot be drawn */
    bool ignore_eos;
    bool constrained;     /* draws from masks */
    bool prompt_logprobs; /* report every prompt token but the first, too (echo with logprobs) */
    uint8_t lora;         /* the adapter that it is computed with (config/lora_modules.h); 0: none */
    enum pooling pooling; /* a row instead of tokens: max_tokens is 0, and there is nothing else to report */
    bool
        scores_pair; /* with the pooling that the head of a model that scores pairs gets: the row is the one number that its head gives */
    int32_t second_begin;   /* prompt tokens from there on are of the second text's type; 0: none */
    int32_t num_row_logits; /* with POOLING_LOGITS: 1 to ROW_LOGITS_MAX, in the payload */
    struct sampling sampling;
    int32_t num_logprob_ids; /* in the payload, at most TOP_LOGPROBS_MAX; 0: generated tokens have the best
                                beside them */
    int32_t num_stop_token_ids;
    int32_t stop_token_ids[STOP_TOKEN_IDS_MAX];
    uint8_t cache_salt[CACHE_SALT_BYTES]; /* blocks are shared only between equal salts */
    int32_t num_logit_bias;               /* in the payload */
    int32_t num_predicted; /* tokens of the client's own guess at the answer; 0: it made none */
};

/* What few requests have, and what is long: as constant as the input. Pages that nobody touches cost nothing.
 */
struct request_payload {
    struct logit_bias logit_bias[LOGIT_BIAS_MAX]; /* sorted by id, no duplicates */
    int32_t row_logits[ROW_LOGITS_MAX];           /* the tokens of POOLING_LOGITS */
    int32_t logprob_ids[TOP_LOGPROBS_MAX];        /* those whose log probabilities are reported */
};

/* What is known of the next token of a constrained slot. k + 1: the mask of generated token k is there. */
enum mask_state {
    MASK_NONE = 0,    /* of no token yet */
    MASK_ENDED = -1,  /* nothing may be drawn: the answer is whole */
    MASK_FAILED = -2, /* there will be no mask */
};

/* What a constrained slot probably goes on with, where its form leaves little choice, or else what the engine offers: told as
 * soon as the token before it is known, by whoever makes masks. The masks of the tokens behind it follow one by one. */
struct slot_guess {
    /* [engine] tokens that are wanted, at most; 0: none, as in a slot that is new */
    _Atomic int32_t num_wanted;
    /* [engine] k + 1: offered[0] is for generated token k. Who looks late finds parts of a later offer. */
    _Atomic int32_t offer_state, num_offered, offered[GUESS_TOKENS_MAX];
    /* [mask] k + 1: tokens[0] is guessed for generated token k. Some are taken back where the form does not let them through. */
    _Atomic int32_t state, num_tokens;
    /* [mask] of tokens k + 1 and on, where mask_state is k + 1 and the guess comes true */
    _Atomic int32_t num_masks_ahead;
    int32_t tokens[GUESS_TOKENS_MAX];
    bool is_offered; /* it is what was offered */
};

/* What a step was to compute of a sequence. */
struct step_part {
    _Atomic uint64_t step; /* its number, link_counters.num_steps_begun; 0: none */
    _Atomic int32_t begin, end;
};

struct request_slot {
    _Atomic bool cancel;                        /* [loop] sets; the engine looks once a step */
    _Alignas(64) _Atomic int32_t num_published; /* generated tokens that the loop may read */
    _Atomic int32_t num_prompt_published;       /* prompt positions whose logprobs the loop may read */
    _Atomic int32_t num_prompt_computed;        /* progress of the prefill, for pings and logs */
    _Atomic int finish_reason;                  /* enum finish_reason; the last store of the engine */
    _Atomic int32_t mask_state;                 /* [mask] enum mask_state, or k + 1 */
    struct slot_guess guess;
    /* Of the last steps, by their number: those that have not ended are what the engine died at. */
    struct step_part parts[STEPS_IN_FLIGHT_MAX];
    /* written by the engine before finish_reason, or before the first published token */
    int32_t num_cached_tokens;    /* prompt tokens found in the prefix cache, counted once, */
    struct cache_miss cache_miss; /* and why no more were */
    int32_t stop_token_id;        /* with FINISH_STOP */
    int32_t num_preemptions;
    int32_t num_row_floats;                           /* of the row, written before it; 0: none */
    uint64_t scheduled_ns, first_token_ns, finish_ns; /* monotonic; 0: not yet */
    _Atomic uint64_t last_token_ns; /* of the last published token, or one that follows it at once */
    /* drafted tokens that the client had predicted, and that were verified: those that came true, and the others */
    _Atomic int32_t num_predicted_accepted, num_predicted_rejected;
    _Atomic uint64_t
        energy_uj; /* its share of what the device has used, as far as it was read; 0: not measured */
    char error_text[160];
    /* the loop's own */
    uint64_t serial;                 /* order of submission; 0: not submitted */
    bool with_engine;                /* false: waits at the front, as after an engine's death */
    struct request_slot_input input; /* [loop] writes before submit */
};

struct request_slots;

/* What the region is for. */
struct request_slots_sizes {
    int32_t num_slots, max_model_len, vocab_size;
    int32_t num_guess_tokens; /* a slot has so many masks more than one; at most GUESS_TOKENS_MAX */
};

/* Bytes of the region; 0: more than 63 bits can say. */
uint64_t request_slots_bytes(const struct request_slots_sizes *sizes);
/* A view of a region, which stays the caller's: zeros are slots in their initial state. Log probabilities
 * have as many positions as tokens. Only the loop's view acquires and releases. */
int request_slots_create(void *region, const struct request_slots_sizes *sizes, struct request_slots **out,
                         struct error *err) must_check;
void request_slots_destroy(struct request_slots *s);

/* The last store into a slot, by whoever has it: the loop owns it afterwards. error_text: NULL for none. */
void request_slot_finish(struct request_slot *slot, enum finish_reason reason, const char *error_text);

int32_t request_slots_count(const struct request_slots *s);
struct request_slot *request_slots_get(struct request_slots *s, int32_t slot_idx);
/* Prompt tokens, then generated ones: [max_model_len]. */
int32_t *request_slots_tokens(struct request_slots *s, int32_t slot_idx);
/* What the client expects of the answer: [max_model_len], num_predicted of them. As constant as the input. */
int32_t *request_slots_predicted(struct request_slots *s, int32_t slot_idx);
/* Log probabilities by position in the sequence (entry p describes tokens[p]): [max_model_len]. */
struct token_logprobs *request_slots_logprobs(struct request_slots *s, int32_t slot_idx);
struct request_payload *request_slots_payload(struct request_slots *s, int32_t slot_idx);
/* What pooling has left: [ROW_FLOATS_MAX], num_row_floats of them. */
float *request_slots_row(struct request_slots *s, int32_t slot_idx);
/* Which ids generated token k may be, bit id % 64 of word id / 64: [request_slots_mask_words]. There is place for those of
 * num_guess_tokens + 1 tokens in a row. */
uint64_t *request_slots_mask(struct request_slots *s, int32_t slot_idx, int32_t k);
int32_t request_slots_mask_words(const struct request_slots *s);
int32_t request_slots_num_guess_tokens(const struct request_slots *s);

/* [loop] All count slots or none (STATUS_NO_SLOT). Every field of an acquired slot is in its initial state.
 */
int request_slots_acquire(struct request_slots *s, int32_t count, int32_t *slot_ids) must_check;
/* [loop] After the finish reason was read, or for a slot that was never submitted. */
void request_slots_release(struct request_slots *s, int32_t slot_idx);
int32_t request_slots_num_free(const struct request_slots *s); /* [loop] */

#endif
