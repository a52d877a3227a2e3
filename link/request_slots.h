/* request_slots.h - the link between the loop thread and the engine thread: one flat region of slots.
 *
 * A slot is one sequence: one prompt and one stream of generated tokens (a request with n = 3 takes three).
 * Slots are named by index and hold no pointers that cross threads; their arrays are found by offset, so that
 * the engine can become a process of its own behind shared memory without a redesign.
 *
 *   loop    acquire -> fill in -> submit                      (submit ring, release)
 *   engine  tokens[num_prompt + k] = t; num_published = k+1   (store-release, cumulative)
 *   engine  finish_reason = why                               (store-release: the loop owns the slot again)
 *   loop    reads below num_published; may set cancel; after the finish: release
 *
 * Publishing is a count over an array, so merged wake-ups lose nothing, nothing can overflow, and a slow
 * client costs no more than its slot. Memory is reserved for max_model_len tokens a slot, but committed by
 * the system only as it is touched, and given back when a slot is released (madvise).
 *
 * Why no lock is needed: each plain field has one writer at a time, and each hand-over is one release store
 * that the other side reads with acquire, so that all that was written before it is seen after it.
 *
 * - loop to engine, input and prompt: the tail of the submit ring (base/ring.h).
 * - engine to loop, tokens and log probabilities: the published counts. An entry is written before the count
 *   passes it and never again, so that reading below the count races with nothing.
 * - engine to loop, everything else: finish_reason, the engine's last access to the slot. The loop loads it
 *   before num_published; the other way round it could see the finish with an older count and lose tokens.
 * - cancel carries no data: a late look costs one step. It is set before its bit in the engine's cancel words
 *   (release), which the engine takes with acquire.
 *
 * Sleeping and waking, where two flags must not pass each other, are seq_cst: engine.c.
 *
 * Threads: functions marked [loop] and [engine] belong to that thread alone. */
#ifndef LINK_REQUEST_SLOTS_H
#define LINK_REQUEST_SLOTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/step.h"

enum finish_reason {
    FINISH_NONE,      /* still the engine's */
    FINISH_STOP,      /* end-of-sequence or a stop token id; stop_token_id says which */
    FINISH_LENGTH,    /* max_tokens or the context is used up */
    FINISH_CANCELLED, /* the loop asked for it */
    FINISH_ERROR,     /* the engine failed this request alone (e.g. NaN logits); error_text says why */
    FINISH_DEVICE,    /* the device failed: the process will exit */
};

enum { STOP_TOKEN_IDS_MAX = 64, CACHE_SALT_BYTES = 32 };

/* What the loop fills in before submit; constant until release. Every id is below the logits' width, every
 * number in the range that its comment gives: the API's validator is the one place that guarantees it. */
struct request_slot_input {
    uint64_t request_id;       /* for logs: the HTTP request that it belongs to */
    uint64_t arrival_ns;       /* monotonic */
    int32_t num_prompt_tokens; /* >= 1 */
    int32_t max_tokens;        /* >= 0; prompt + max_tokens <= max_model_len. 0 only with prompt_logprobs */
    int32_t min_tokens;        /* until then eos and stop_token_ids cannot be drawn */
    bool ignore_eos;
    bool prompt_logprobs; /* report every prompt token but the first, too (echo with logprobs) */
    int32_t num_logprobs; /* -1: none; 0..TOP_LOGPROBS_MAX alternatives beside the token itself */
    float temperature, top_p, min_p;
    int32_t top_k;
    float presence_penalty, frequency_penalty, repetition_penalty;
    uint64_t seed;
    int32_t num_stop_token_ids;
    int32_t stop_token_ids[STOP_TOKEN_IDS_MAX];
    uint8_t cache_salt[CACHE_SALT_BYTES]; /* blocks are shared only between equal salts */
    int32_t num_logit_bias;
    struct logit_bias logit_bias[LOGIT_BIAS_MAX]; /* sorted by id, no duplicates. Last, and not touched beyond
                                                   * num_logit_bias: most requests have none */
};

/* Into a fresh slot, without the pages of biases that are not there. */
void request_slot_input_copy(struct request_slot_input *to, const struct request_slot_input *from);

/* The log probabilities of one position. */
struct token_logprobs {
    float logprob;
    int32_t num_top;
    int32_t top_ids[TOP_LOGPROBS_MAX];
    float top_logprobs[TOP_LOGPROBS_MAX];
};

struct request_slot {
    _Atomic bool cancel;                        /* [loop] sets; the engine looks once a step */
    _Alignas(64) _Atomic int32_t num_published; /* generated tokens that the loop may read */
    _Atomic int32_t num_prompt_published;       /* prompt positions whose logprobs the loop may read */
    _Atomic int32_t num_prompt_computed;        /* progress of the prefill, for pings and logs */
    _Atomic int finish_reason;                  /* enum finish_reason; the last store of the engine */
    /* written by the engine before finish_reason, or before the first published token */
    int32_t num_cached_tokens; /* prompt tokens found in the prefix cache, counted once */
    int32_t stop_token_id;     /* -1: none */
    int32_t num_preemptions;
    uint64_t scheduled_ns, first_token_ns, finish_ns; /* monotonic; 0: not yet */
    char error_text[160];
    struct request_slot_input input; /* [loop] writes before submit; last, as its biases are */
};

struct request_slots;

/* Reserves num_slots slots. max_logprob_positions: as max_model_len. */
int request_slots_create(int32_t num_slots, int32_t max_model_len, struct request_slots **out,
                         struct error *err) must_check;
void request_slots_destroy(struct request_slots *s);

int32_t request_slots_count(const struct request_slots *s);
struct request_slot *request_slots_get(struct request_slots *s, int32_t slot_idx);
/* Prompt tokens, then generated ones: [max_model_len]. */
int32_t *request_slots_tokens(struct request_slots *s, int32_t slot_idx);
/* Log probabilities by position in the sequence (entry p describes tokens[p]): [max_model_len]. */
struct token_logprobs *request_slots_logprobs(struct request_slots *s, int32_t slot_idx);

/* [loop] All count slots or none (STATUS_NO_SLOT). Every field of an acquired slot is in its initial state.
 */
int request_slots_acquire(struct request_slots *s, int32_t count, int32_t *slot_ids) must_check;
/* [loop] After the finish reason was read, or for a slot that was never submitted. */
void request_slots_release(struct request_slots *s, int32_t slot_idx);
int32_t request_slots_num_free(const struct request_slots *s); /* [loop] */

#endif
