/* choice.h - one answer in the making: the loop's side of one request slot.
 *
 *   slot (engine publishes tokens) -> pull -> text_stream -> ready text -> an event, or the whole response
 *
 * Tokens that were not pulled wait in the slot, so a client that reads slowly costs nothing more. Once the
 * engine has finished it, a slot is given back at once: what is unread of it is copied out and read from the
 * copy, as far as the copies of all choices stay within a quarter of --max-buffered-bytes. Log probabilities stay in the
 * engine's form until they are written. A choice is complete once its finish is known and all its text stands
 * ready. Thread: the loop's. */
#ifndef SERVER_API_CHOICE_H
#define SERVER_API_CHOICE_H

#include "base/check.h"
#include "base/digest.h"
#include "server/api/logprobs_text.h"
#include "server/api/params.h"
#include "server/api/pieces.h"
#include "server/api/prompts.h"
#include "server/api/text_stream.h"

enum { TRANSCRIPT_TOKENS_MAX = 4096 };

/* All that came of a choice, for its receipt. */
struct transcript {
    struct sha256_ctx tokens; /* of every token that was pulled, 4 bytes each, */
    struct sha256_ctx text;   /* and of their text, before it is taken apart */
    struct buffer ids;        /* int32_t each: the first TRANSCRIPT_TOKENS_MAX */
};

struct unread; /* the copy of a slot's unread part */

struct choice {
    int index, prompt_idx;
    int32_t slot_idx; /* -1: none, or given back */
    int32_t num_prompt_tokens, num_cached_tokens;
    struct cache_miss cache_miss;
    int32_t max_tokens;        /* as submitted */
    int32_t num_pulled;        /* generated tokens that were decoded: what usage counts */
    int32_t num_reasoning;     /* those of them behind which the answer was still reasoning */
    int32_t num_reported;      /* positions of the sequence whose log probabilities were written, */
    int32_t num_ids_told;      /* and whose ids were, where they are told; 0: not the prompt's either */
    const char *finish_reason; /* "stop", "tool_calls", "length"; NULL: not yet */
    bool failed;               /* the engine ended it otherwise; see failure, and the slot's error_text */
    enum finish_reason failure;
    bool keeps_slot;         /* the engine has finished it, and what is unread found no room elsewhere */
    bool ended;              /* stream: the chunk with the finish_reason was written */
    bool prompt_counted;     /* in the metrics */
    int32_t num_preemptions; /* once the engine has finished it */
    int32_t num_predicted_accepted,
        num_predicted_rejected; /* likewise: the engine's count, as of when it was pulled last */
    uint64_t energy_uj;         /* as far as the engine had measured when it was pulled last */
    struct unread *unread;      /* NULL: nothing, or still in the slot */
    double score;               /* of API_SCORING, once it has ended */
    double sum_logprob;         /* of the tokens that were pulled, where the likeliest answers are wanted */
    struct text_stream text;
    struct buffer ready;           /* text for the client, not written yet */
    struct pieces *pieces;         /* what ready is taken apart into; NULL: it is not */
    struct token_offsets *offsets; /* NULL: none are told */
    struct transcript *transcript; /* in the arena; NULL: nobody wants a receipt */
    /* at the engine, the last of those that were pulled; 0: not yet */
    uint64_t scheduled_ns, first_token_ns, last_token_ns;
    uint64_t last_write_ns; /* of tokens to a stream; 0: none yet */
};

/* What all choices of a request share. Of params, input is only read by choice_init. */
struct choice_context {
    struct server *server;
    const struct params *params;
};

bool choice_init(struct choice *c, const struct choice_context *context, const struct prompt *prompt,
                 struct arena *arena);
void choice_deinit(struct choice *c, const struct choice_context *context);

/* Takes at most max_tokens more tokens. Returns how many it took. The token that ends the answer is not taken
 * before its finish is known, so that both can leave in one chunk. Cancels the slot when a stop string ends
 * the answer. */
int choice_pull(struct choice *c, const struct choice_context *context, int max_tokens);

/* Whether count more tokens can be taken, or all that there will be. */
bool choice_has(const struct choice *c, const struct choice_context *context, int32_t count);

/* The ids from a position of the sequence on, up to the last that was pulled; where ids are told, of none that were. */
const int32_t *choice_tokens(const struct choice *c, const struct choice_context *context, int32_t position);

/* The log probabilities of the next positions, at most max_positions of those whose tokens were pulled;
 * empty when none are wanted. They count as written once num_reported says so. */
struct logprobs_part choice_next_logprobs(const struct choice *c, const struct choice_context *context,
                                          int32_t max_positions);
/* Of a complete choice, for prompt_logprobs. */
struct logprobs_part choice_prompt_logprobs(const struct choice *c, const struct choice_context *context);

/* Those that may be in what was pulled: a stop string ends an answer before the engine does. */
static inline int32_t choice_num_predicted_accepted(const struct choice *c)
{
    return min_of(c->num_predicted_accepted, c->num_pulled);
}

/* Memory ran out and text is missing: it must not be sent. */
bool choice_is_broken(const struct choice *c);

/* Gives the slot back if the engine is done with it and what is unread fits into the budget. */
void choice_let_go(struct choice *c, const struct choice_context *context);

/* Gives the slot back if the engine is done with it, whatever is unread. False: not yet. */
bool choice_release_slot(struct choice *c, const struct choice_context *context);

#endif
