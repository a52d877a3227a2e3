/* kv_groups.h - layers whose K and V are needed equally long: a group.
 *
 * All layers of a group see the same tokens, so they share block tables. A block has BLOCK_SIZE tokens of as many layers
 * as the model's layout says (model/kv_layout.h), equally many in every group: blocks of all groups come from one pool,
 * and each is free, cached or held (block_manager.h) whoever has it. Plain data. */
#ifndef KVCACHE_KV_GROUPS_H
#define KVCACHE_KV_GROUPS_H

#include "base/check.h"
#include "kernels/step.h"

struct kv_group {
    int32_t window; /* tokens that a query sees at most, itself included; 0: all */
    bool is_chunk;  /* it does not slide, but begins at multiples of its size */
};

struct kv_groups {
    int32_t count; /* 1 to KV_GROUPS_MAX */
    int32_t
        num_ahead; /* tokens of one sequence that steps in flight may compute at most; matters with windows */
    struct kv_group groups[KV_GROUPS_MAX];
};

/* The first block of a sequence that its token at position, or one behind it, sees. */
static inline int32_t kv_group_first_block(const struct kv_group *g, int32_t position)
{
    return mask_first_key(g->is_chunk ? 0 : g->window, g->is_chunk ? g->window : 0, position) / BLOCK_SIZE;
}

/* Blocks that it can ever hold at one time of a sequence of so many tokens: of a window, what the first token in flight
 * sees up to the last one in flight, wherever they lie. */
static inline int32_t kv_group_num_blocks_max(const struct kv_groups *all, int32_t group, int32_t num_tokens)
{
    int64_t whole = div_up(num_tokens, BLOCK_SIZE), window = all->groups[group].window;
    int64_t reach = div_up(window - 1 + all->num_ahead, BLOCK_SIZE) + 1;
    return (int32_t)(window > 0 ? min_of(whole, reach) : whole);
}

static inline int32_t kv_groups_num_blocks_max(const struct kv_groups *all, int32_t num_tokens)
{
    int32_t count = 0;
    for (int32_t g = 0; g < all->count; g++) count += kv_group_num_blocks_max(all, g, num_tokens);
    return count;
}

/* Blocks of a sequence of which num_computed tokens are computed that the next token sees. */
static inline int32_t kv_groups_num_seen(const struct kv_groups *all, int32_t num_computed)
{
    int32_t num_blocks = (int32_t)div_up(num_computed, BLOCK_SIZE), count = 0;
    for (int32_t g = 0; g < all->count; g++)
        count += max_of(num_blocks - kv_group_first_block(&all->groups[g], num_computed), 0);
    return count;
}

#endif
