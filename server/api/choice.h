/* choice.h - one answer in the making: the loop's side of one request slot.
 *
 *   slot (engine publishes tokens) -> pull -> text_stream -> ready text -> an event, or the whole response
 *
 * Tokens that were not pulled wait in the slot, so a client that reads slowly costs nothing more. A choice is
 * complete once its finish is known and all its text and log probabilities stand ready. Thread: the loop's.
 */
#ifndef SERVER_API_CHOICE_H
#define SERVER_API_CHOICE_H

#include "server/api/logprobs_text.h"
#include "server/api/params.h"
#include "server/api/prompts.h"
#include "server/api/text_stream.h"

struct choice {
    int index, prompt_idx;
    int32_t slot_idx; /* -1: none, or given back */
    int32_t num_prompt_tokens, num_cached_tokens;
    int32_t max_tokens;        /* as submitted */
    int32_t num_pulled;        /* generated tokens that were decoded: what usage counts */
    int32_t num_reported;      /* positions of the sequence whose log probabilities were written */
    const char *finish_reason; /* "stop", "length"; NULL: not yet */
    bool failed;               /* the engine ended it otherwise; see failure, and the slot's error_text */
    enum finish_reason failure;
    bool ended;          /* stream: the finish chunk was written */
    bool prompt_counted; /* in the metrics */
    struct text_stream text;
    struct buffer ready;                                  /* text for the client, not written yet */
    struct logprobs_text logprobs;                        /* likewise */
    uint64_t scheduled_ns, first_token_ns, last_token_ns; /* 0: not yet */
    uint64_t ttft_ns; /* since arrival, at the write of the first token; 0: not yet */
};

/* What all choices of a request share. Of params, input is only read by choice_init. */
struct choice_context {
    struct server *server;
    const struct params *params;
};

bool choice_init(struct choice *c, const struct choice_context *context, const struct prompt *prompt,
                 struct arena *arena);
void choice_deinit(struct choice *c);

/* Takes at most max_tokens more tokens out of the slot, and log probabilities with them. Returns how many
 * tokens it took. Cancels the slot when a stop string ends the answer. */
int choice_pull(struct choice *c, const struct choice_context *context, int max_tokens);

/* Nothing more will come out of the slot. */
bool choice_is_complete(const struct choice *c, const struct choice_context *context);

/* Memory ran out and text is missing: it must not be sent. */
bool choice_is_broken(const struct choice *c);

/* Gives the slot back if the engine is done with it. False: not yet. */
bool choice_release_slot(struct choice *c, const struct choice_context *context);

#endif
