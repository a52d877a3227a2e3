#include "kernels/cpu/history.h"

#include <string.h>

#include "base/check.h"

void history_set(struct history *h, int32_t slot, const int32_t *token_ids, int32_t num_prompt,
                 int32_t num_tokens)
{
    assert_always(slot >= 0 && slot < h->num_slots && num_prompt >= 0 && num_prompt <= num_tokens);
    int32_t num_kept = min_of(num_tokens, h->max_tokens);
    if (num_kept > 0)
        memcpy(h->tokens + (int64_t)slot * h->max_tokens, token_ids, (size_t)num_kept * sizeof *token_ids);
    h->slots[slot].num_tokens = num_kept;
    h->slots[slot].num_prompt = min_of(num_prompt, num_kept);
}

void history_append(struct history *h, int32_t slot, int32_t token_id, bool keep)
{
    assert_debug(slot >= 0 && slot < h->num_slots && token_id >= 0);
    struct history_slot *s = &h->slots[slot];
    s->last_token = token_id;
    if (keep && s->num_tokens < h->max_tokens)
        h->tokens[(int64_t)slot * h->max_tokens + s->num_tokens++] = token_id;
}
