/* history.h - for each sequence slot: the token last sampled, and the tokens that count for penalties.
 *
 * Thread: the engine's; sampling threads only read. */
#ifndef KERNELS_CPU_HISTORY_H
#define KERNELS_CPU_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

struct history_slot {
    int32_t last_token;
    int32_t num_prompt; /* these tokens first, generated ones after them */
};

struct history {
    int32_t num_slots, max_tokens; /* a slot's capacity */
    struct history_slot *slots;
    int32_t *tokens; /* [num_slots][max_tokens] */
};

/* Replaces the slot's tokens: num_prompt <= num_tokens <= max_tokens. */
void history_set(struct history *h, int32_t slot, const int32_t *token_ids, int32_t num_prompt,
                 int32_t num_tokens);
/* A token was sampled that stands at position < max_tokens. It joins the tokens only when keep is set (the request has
 * penalties): otherwise nobody reads them, and a slot's memory stays untouched. */
void history_put(struct history *h, int32_t slot, int32_t position, int32_t token_id, bool keep);

static inline const int32_t *history_tokens(const struct history *h, int32_t slot)
{
    return h->tokens + (int64_t)slot * h->max_tokens;
}

#endif
