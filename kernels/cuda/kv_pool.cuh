/* kv_pool.cuh - the K/V pool in device memory: [layer][block][K or V][kv_head][BLOCK_SIZE][head_dim] of bf16, of latents K alone, or
 * [layer][block][kv_head] chunks of e4m3 (kv_codes.cuh); where groups of layers differ in their heads [block][layer], of whichever group has
 * the block. Two blocks more than asked for are kept, behind the others: the place where
 * padding tokens write, and zeros, which nobody writes to and which stand in tables for blocks that no token sees. */
#ifndef KERNELS_CUDA_KV_POOL_CUH
#define KERNELS_CUDA_KV_POOL_CUH

#include "kernels/cuda/device.cuh"

enum { SPARE_BLOCKS = 2, WIDENED_KEYS_MIN = 65536 };

struct kv_pool {
    struct kv_shape shape;
    __nv_bfloat16 *data;
    size_t
        block_elements; /* of 2 bytes, of one layer: of bf16 2 * Hk * BLOCK_SIZE * D; or of all, where layers differ */
    size_t layer_elements; /* kv_pool_layer_blocks * block_elements */
    int32_t
        num_copied; /* parts of a block that lie layer_elements apart: its layers, or 1 where layers differ */
    /* Host blocks [layer][block_elements], blocks_per_piece in a piece of pinned memory; a piece is NULL until one of its
     * blocks is needed. */
    char **pieces;
    int32_t blocks_per_piece;
    /* Of e4m3, where prompts want bf16 (kv_widen.cu), and of latents that they have expanded (latent_prompts.cu): room for all K
     * and V that the prompts of a step see, of one layer, and the numbers of its blocks one after another. NULL: they do not. */
    struct kv_pool *widened;
    int32_t *widened_table;
};

/* Of one layer, with the spare ones. */
static inline int32_t kv_pool_layer_blocks(const struct kv_pool *pool)
{
    return pool->shape.num_blocks + SPARE_BLOCKS;
}

/* Where a layer's part of block 0 is. */
static inline __nv_bfloat16 *kv_pool_layer(const struct kv_pool *pool, int32_t layer, int32_t num_kv_heads,
                                           int32_t head_dim)
{
    size_t own = pool->shape.others.num_layers > 0 ? (size_t)2 * num_kv_heads * BLOCK_SIZE * head_dim
                                                   : pool->layer_elements;
    return pool->data + layer * own;
}

/* A pool of bf16 as the copy engine sees it for heads of one kind: boxes of BLOCK_SIZE rows of a head. Where layers differ, blocks are
 * whole numbers of boxes of any kind that it is asked for. */
struct kv_boxes {
    int32_t first, per_block; /* K of a layer's head 0 in block 0, from one block to the next */
    int32_t num;              /* of the whole pool: the first one outside of it */
};

static inline struct kv_boxes kv_boxes_of(const struct kv_pool *pool, int32_t layer, int32_t num_kv_heads,
                                          int32_t head_dim)
{
    const size_t box = (size_t)BLOCK_SIZE * head_dim;
    const size_t first = (size_t)(kv_pool_layer(pool, layer, num_kv_heads, head_dim) - pool->data);
    return kv_boxes{(int32_t)(first / box), (int32_t)(pool->block_elements / box),
                    (int32_t)(pool->layer_elements * pool->num_copied / box)};
}

/* K and V are e4m3, else bf16. */
static inline bool kv_pool_has_codes(const struct kv_pool *pool)
{
    return pool->shape.dtype == DTYPE_F8_E4M3;
}

/* Address of K (which = 0) or V (1) of a block and head: BLOCK_SIZE rows of head_dim. */
__host__ __device__ inline size_t kv_offset(size_t layer_elements, size_t block_elements, int32_t layer,
                                            int32_t block, int which, int32_t head, int32_t num_kv_heads,
                                            int32_t head_dim)
{
    return layer * layer_elements + block * block_elements +
           ((size_t)which * num_kv_heads + head) * BLOCK_SIZE * head_dim;
}

/* Keys of the pool that prompts read in the place of what is kept: of one sequence of the greatest length, as its scheduler counts
 * it, or of many shorter ones. */
static inline int32_t cuda_kv_widened_keys(const struct cuda_device *d)
{
    const int32_t longest = d->limits.max_model_len + 2 * BLOCK_SIZE;
    return longest > WIDENED_KEYS_MIN ? longest : (int32_t)WIDENED_KEYS_MIN;
}

/* Of what cuda_kv_widen_prepare takes; 0 for a pool that prompts read as it is. */
uint64_t cuda_kv_widened_bytes(const struct cuda_device *d, const struct kv_shape *shape);
/* Makes pool->widened, before steps are planned, where prompts want it. */
int cuda_kv_widen_prepare(struct cuda_device *d, struct kv_pool *pool, struct error *err);
/* What the step's prompts see of a layer, as bf16 in pool->widened: entry i of the group's tables is its block i - prompts_begin. */
bool cuda_kv_widen(struct cuda_device *d, const struct batch *b, const struct kv_pool *pool, int32_t layer,
                   int32_t kv_group);

/* See kernels/device.h. The pool lives until the device is closed. */
uint64_t cuda_kv_pool_bytes(struct device *d, const struct kv_shape *shape);
int cuda_kv_pool_create(struct device *d, const struct kv_shape *shape, struct kv_pool **out,
                        struct error *err);
int cuda_kv_blocks_save(struct device *d, struct kv_pool *pool, const int32_t *block_ids,
                        const int32_t *host_ids, int num_blocks);
int cuda_kv_blocks_load(struct device *d, struct kv_pool *pool, const int32_t *block_ids,
                        const int32_t *host_ids, int num_blocks);

#endif
