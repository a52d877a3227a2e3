#include "kernels/cpu/kv_pool.h"

#include <string.h>

#include "base/check.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/kv_codes.h"

static size_t chunk_bytes(enum dtype dtype, int32_t head_dim)
{
    size_t values = 2 * (size_t)kv_pool_dim(head_dim) * BLOCK_SIZE;
    size_t scales = dtype_is_code(dtype) ? 2 * BLOCK_SIZE : 0;
    return values * (size_t)dtype_infos[dtype].block_bytes + scales * sizeof(float);
}

/* Of a block of layers that are alike. */
static uint64_t layers_bytes(enum dtype dtype, int32_t num_layers, int32_t num_kv_heads, int32_t head_dim)
{
    uint64_t bytes = chunk_bytes(dtype, head_dim);
    if (!checked_mul(bytes, (uint64_t)num_kv_heads, &bytes) ||
        !checked_mul(bytes, (uint64_t)num_layers, &bytes))
        return UINT64_MAX;
    return bytes;
}

static uint64_t block_bytes(const struct kv_shape *s)
{
    const struct kv_other_layers *o = &s->others;
    uint64_t bytes = layers_bytes(s->dtype, s->num_layers, s->num_kv_heads, s->head_dim);
    return o->num_layers > 0
               ? max_of(bytes, layers_bytes(s->dtype, o->num_layers, o->num_kv_heads, o->head_dim))
               : bytes;
}

uint64_t kv_pool_bytes(const struct kv_shape *shape)
{
    uint64_t bytes = block_bytes(shape);
    return checked_mul(bytes, (uint64_t)shape->num_blocks, &bytes) ? bytes : UINT64_MAX;
}

static bool holds(enum dtype dtype)
{
    return dtype == DTYPE_BF16 || dtype == DTYPE_F32 || dtype == DTYPE_F8_E4M3 || dtype == DTYPE_I8;
}

int kv_pool_create(struct device_memory *memory, const struct kv_shape *shape, struct kv_pool **out,
                   struct error *err)
{
    if (!holds(shape->dtype))
        return error_set(err, STATUS_UNSUPPORTED, "the CPU keeps K/V in BF16, F32, F8_E4M3 or I8, not in %s",
                         dtype_infos[shape->dtype].text);
    uint64_t bytes = kv_pool_bytes(shape);
    struct kv_pool *p = device_memory_alloc(memory, sizeof *p);
    char *blocks = device_memory_alloc(memory, bytes);
    char *saved = device_memory_alloc_array(memory, (uint64_t)shape->num_host_blocks, block_bytes(shape));
    if (!p || !blocks || !saved)
        return error_set(err, STATUS_NO_MEMORY,
                         "no memory for a K/V pool of %d blocks (%.1f MiB) and %d saved ones",
                         shape->num_blocks, (double)bytes / (1 << 20), shape->num_host_blocks);
    *p = (struct kv_pool){
        .shape = *shape,
        .block_bytes = block_bytes(shape),
        .blocks = blocks,
        .saved = saved,
    };
    *out = p;
    return STATUS_OK;
}

struct kv_layer kv_pool_layer(const struct kv_pool *p, int32_t layer, int32_t num_kv_heads, int32_t head_dim)
{
    const struct kv_layer l = {
        .num_kv_heads = num_kv_heads,
        .head_dim = head_dim,
        .dim = kv_pool_dim(head_dim),
        .chunk_bytes = chunk_bytes(p->shape.dtype, head_dim),
        .first = layers_bytes(p->shape.dtype, layer, num_kv_heads, head_dim),
    };
    assert_always(layer >= 0 && l.first + l.chunk_bytes * (size_t)num_kv_heads <= p->block_bytes);
    return l;
}

static void write_codes(enum dtype dtype, const struct kv_layer *l, void *chunk, int32_t offset,
                        const float *k, const float *v)
{
    uint8_t *to_k = (uint8_t *)chunk + offset, *to_v = (uint8_t *)chunk + (BLOCK_SIZE + offset) * l->dim;
    float *scales = (float *)((char *)chunk + 2 * (size_t)l->dim * BLOCK_SIZE);
    scales[offset] = kv_codes_store(to_k, BLOCK_SIZE, k, l->head_dim, dtype);
    scales[BLOCK_SIZE + offset] = kv_codes_store(to_v, 1, v, l->head_dim, dtype);
    for (int32_t d = l->head_dim; d < l->dim; d++) to_k[d * BLOCK_SIZE] = to_v[d] = 0;
}

static void write_bf16(const struct kv_layer *l, uint16_t *chunk, int32_t offset, const float *k,
                       const float *v)
{
    uint16_t *to_k = chunk + offset, *to_v = chunk + (BLOCK_SIZE + offset) * l->dim;
    for (int32_t d = 0; d < l->head_dim; d++) to_k[d * BLOCK_SIZE] = bf16_from_f32(k[d]);
    for (int32_t d = 0; d < l->head_dim; d++) to_v[d] = bf16_from_f32(v[d]);
    for (int32_t d = l->head_dim; d < l->dim; d++) to_k[d * BLOCK_SIZE] = to_v[d] = 0;
}

static void write_f32(const struct kv_layer *l, float *chunk, int32_t offset, const float *k, const float *v)
{
    float *to_k = chunk + offset, *to_v = chunk + (BLOCK_SIZE + offset) * l->dim;
    for (int32_t d = 0; d < l->head_dim; d++) to_k[d * BLOCK_SIZE] = k[d];
    memcpy(to_v, v, (size_t)l->head_dim * sizeof *v);
    for (int32_t d = l->head_dim; d < l->dim; d++) to_k[d * BLOCK_SIZE] = to_v[d] = 0;
}

void kv_pool_write(struct kv_pool *p, const struct kv_layer *l, int32_t slot, int32_t kv_head, const float *k,
                   const float *v)
{
    assert_debug(slot >= 0);
    void *chunk = kv_pool_chunk(p, l, slot / BLOCK_SIZE, kv_head);
    int32_t offset = slot % BLOCK_SIZE;
    if (p->shape.dtype == DTYPE_BF16)
        write_bf16(l, chunk, offset, k, v);
    else if (dtype_is_code(p->shape.dtype))
        write_codes(p->shape.dtype, l, chunk, offset, k, v);
    else
        write_f32(l, chunk, offset, k, v);
}

static char *saved_block(const struct kv_pool *p, int32_t host_id)
{
    assert_debug(host_id >= 0 && host_id < p->shape.num_host_blocks);
    return p->saved + (size_t)host_id * p->block_bytes;
}

static char *block_at(const struct kv_pool *p, int32_t block_id)
{
    assert_debug(block_id >= 0 && block_id < p->shape.num_blocks);
    return p->blocks + (size_t)block_id * p->block_bytes;
}

void kv_pool_save(struct kv_pool *p, const int32_t *block_ids, const int32_t *host_ids, int num_blocks)
{
    for (int i = 0; i < num_blocks; i++)
        memcpy(saved_block(p, host_ids[i]), block_at(p, block_ids[i]), p->block_bytes);
}

void kv_pool_load(struct kv_pool *p, const int32_t *block_ids, const int32_t *host_ids, int num_blocks)
{
    for (int i = 0; i < num_blocks; i++)
        memcpy(block_at(p, block_ids[i]), saved_block(p, host_ids[i]), p->block_bytes);
}
