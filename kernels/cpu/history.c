#include "kernels/cpu/history.h"

#include <string.h>

#include "base/check.h"

void history_set(struct history *h, int32_t slot, const int32_t *token_ids, int32_t num_prompt,
                 int32_t num_tokens)
{
    assert_always(slot >= 0 && slot < h->num_slots);
    assert_always(num_prompt >= 0 && num_prompt <= num_tokens && num_tokens <= h->max_tokens);
    if (num_tokens > 0)
        memcpy(h->tokens + (int64_t)slot * h->max_tokens, token_ids, (size_t)num_tokens * sizeof *token_ids);
    h->slots[slot].num_prompt = num_prompt;
}

void history_put(struct history *h, int32_t slot, int32_t position, int32_t token_id, bool keep)
{
    assert_debug(slot >= 0 && slot < h->num_slots && token_id >= 0);
    h->slots[slot].last_token = token_id;
    if (!keep) return;
    assert_always(position >= 0 && position < h->max_tokens);
    h->tokens[(int64_t)slot * h->max_tokens + position] = token_id;
}
