/* kv_layout.h - in which group (kvcache/kv_groups.h), and where in the group's blocks, each layer has its K and V.
 *
 * Layers that see all tokens, and then those with a window, are dealt out in their order to groups of layers_per_block and
 * of windowed_per_block each; the last group of a kind may have fewer. A block is as large whichever group has it: where both
 * kinds have the same heads these numbers are the same, else each is what has room where the other fills a block. Of all
 * numbers that make few enough groups those are taken that leave the least room empty:
 *
 *   12 full, 12 windowed      12 a block: 1 + 1 groups
 *   8 full, 40 windowed        8 a block: 1 + 5 groups
 *   4 full, 22 windowed        4 a block: 1 + 6 groups, 2 places empty
 *   3 full, 12 of half the size    3 or 6 a block: 1 + 2 groups
 *
 * Plain data; pure functions. */
#ifndef MODEL_KV_LAYOUT_H
#define MODEL_KV_LAYOUT_H

#include "model/model_config.h"

enum { KV_LAYOUT_GROUPS_MAX = 8 };

struct kv_layout {
    int32_t layers_per_block, windowed_per_block;
    int32_t num_full, num_windowed; /* groups */
    int32_t window;                 /* of the latter; 0: there are none */
    bool is_chunk;                  /* kv_groups.h */
};

/* One group of all layers that have K and V; but as for sequences of any length where layers differ in their heads. */
struct kv_layout kv_layout_single(const struct model_config *c);
/* For sequences of at most max_model_len tokens: a window that none of them leaves is none where layers are alike, nor
 * is any of a model with states. */
struct kv_layout kv_layout_of(const struct model_config *c, int32_t max_model_len);

static inline int32_t kv_layout_num_groups(const struct kv_layout *l)
{
    return l->num_full + l->num_windowed;
}

/* Of a block, for each of its tokens. */
uint64_t kv_layout_block_bytes(const struct kv_layout *l, const struct model_config *c, enum dtype kv_dtype);

struct kv_place {
    int32_t group,
        layer; /* layer: of the group's blocks; of a layer with fewer heads counted in places of its own size */
};

/* Of a layer with a state: that of the next layer that has K and V. Of one that shares others' theirs. */
struct kv_place kv_layout_place(const struct kv_layout *l, const struct model_config *c, int32_t layer);

#endif
