/* kv_pool.h - keys and values of all layers in host memory, in blocks of BLOCK_SIZE tokens.
 *
 *   pool    [block] of as many bytes as its layers need, whichever group has it
 *   block   [layer][kv_head] chunks, of a group's layers, which are all alike
 *   chunk   K as [dim][BLOCK_SIZE], then V as [BLOCK_SIZE][dim]; bf16, f32 or codes of 8 bits (kv_codes.h); dim is
 *           head_dim rounded up to a multiple of 16, and what lies between them is zero where a token was written. Behind
 *           codes stand their scales in f32: K's [BLOCK_SIZE], then V's [BLOCK_SIZE]
 *
 * With head_dim 64 in bf16 a chunk is 4 KiB: what attention reads for one block and head is one page.
 * attention_kernels.h says why K lies transposed. Thread: different slots may be written at once. */
#ifndef KERNELS_CPU_KV_POOL_H
#define KERNELS_CPU_KV_POOL_H

#include "base/check.h"
#include "kernels/cpu/device_memory.h"
#include "kernels/device.h"

struct kv_pool {
    struct kv_shape shape;
    size_t block_bytes;
    char *blocks;
    char *saved; /* [num_host_blocks] */
};

/* Where the chunks of one layer are in the blocks of its group. */
struct kv_layer {
    int32_t num_kv_heads, head_dim, dim;
    size_t chunk_bytes, first; /* first: bytes of a block before them */
};

/* head_dim with its padding. */
static inline int32_t kv_pool_dim(int32_t head_dim)
{
    return (head_dim + 15) / 16 * 16;
}

/* layer: of the group's blocks, whose layers all have such heads. */
struct kv_layer kv_pool_layer(const struct kv_pool *p, int32_t layer, int32_t num_kv_heads, int32_t head_dim);

static inline void *kv_pool_chunk(const struct kv_pool *p, const struct kv_layer *l, int32_t block_id,
                                  int32_t kv_head)
{
    assert_debug(block_id >= 0 && block_id < p->shape.num_blocks);
    assert_debug(kv_head >= 0 && kv_head < l->num_kv_heads);
    return p->blocks + (size_t)block_id * p->block_bytes + l->first + (size_t)kv_head * l->chunk_bytes;
}

/* Of a chunk of codes; NULL: it holds none. */
static inline const float *kv_pool_scales(const struct kv_pool *p, const struct kv_layer *l,
                                          const void *chunk)
{
    if (!dtype_is_code(p->shape.dtype)) return NULL;
    return (const float *)((const char *)chunk + 2 * (size_t)l->dim * BLOCK_SIZE);
}

/* UINT64_MAX when the product does not fit. */
uint64_t kv_pool_bytes(const struct kv_shape *shape);

int kv_pool_create(struct device_memory *memory, const struct kv_shape *shape, struct kv_pool **out,
                   struct error *err) must_check;

/* Stores one token's k[head_dim] and v[head_dim] at slot (block_id * BLOCK_SIZE + offset). */
void kv_pool_write(struct kv_pool *p, const struct kv_layer *l, int32_t slot, int32_t kv_head, const float *k,
                   const float *v);

void kv_pool_save(struct kv_pool *p, const int32_t *block_ids, const int32_t *host_ids, int num_blocks);
void kv_pool_load(struct kv_pool *p, const int32_t *block_ids, const int32_t *host_ids, int num_blocks);

#endif
