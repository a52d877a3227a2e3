#include "kernels/cpu/kv_pool.h"

#include <string.h>

#include "base/check.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/kv_codes.h"

static size_t chunk_bytes(const struct kv_shape *shape)
{
    size_t values = 2 * (size_t)kv_pool_dim(shape->head_dim) * BLOCK_SIZE;
    size_t scales = dtype_is_code(shape->dtype) ? 2 * BLOCK_SIZE : 0;
    return values * (size_t)dtype_infos[shape->dtype].block_bytes + scales * sizeof(float);
}

uint64_t kv_pool_bytes(const struct kv_shape *shape)
{
    uint64_t bytes = chunk_bytes(shape);
    if (!checked_mul(bytes, (uint64_t)shape->num_kv_heads, &bytes) ||
        !checked_mul(bytes, (uint64_t)shape->num_layers, &bytes) ||
        !checked_mul(bytes, (uint64_t)shape->num_blocks, &bytes))
        return UINT64_MAX;
    return bytes;
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
    char *chunks = device_memory_alloc(memory, bytes);
    char *saved = device_memory_alloc_array(memory, (uint64_t)shape->num_host_blocks,
                                            bytes / (uint64_t)max_of(shape->num_blocks, 1));
    if (!p || !chunks || !saved)
        return error_set(err, STATUS_NO_MEMORY,
                         "no memory for a K/V pool of %d blocks (%.1f MiB) and %d saved ones",
                         shape->num_blocks, (double)bytes / (1 << 20), shape->num_host_blocks);
    *p = (struct kv_pool){
        .shape = *shape,
        .dim = kv_pool_dim(shape->head_dim),
        .chunk_bytes = chunk_bytes(shape),
        .chunks = chunks,
        .saved = saved,
    };
    *out = p;
    return STATUS_OK;
}

static void write_codes(const struct kv_pool *p, void *chunk, int32_t offset, const float *k, const float *v)
{
    uint8_t *to_k = (uint8_t *)chunk + offset, *to_v = (uint8_t *)chunk + (BLOCK_SIZE + offset) * p->dim;
    float *scales = (float *)((char *)chunk + 2 * (size_t)p->dim * BLOCK_SIZE);
    scales[offset] = kv_codes_store(to_k, BLOCK_SIZE, k, p->shape.head_dim, p->shape.dtype);
    scales[BLOCK_SIZE + offset] = kv_codes_store(to_v, 1, v, p->shape.head_dim, p->shape.dtype);
}

void kv_pool_write(struct kv_pool *p, int32_t layer, int32_t slot, int32_t kv_head, const float *k,
                   const float *v)
{
    assert_debug(slot >= 0);
    void *chunk = kv_pool_chunk(p, layer, slot / BLOCK_SIZE, kv_head);
    int32_t offset = slot % BLOCK_SIZE, head_dim = p->shape.head_dim;
    if (p->shape.dtype == DTYPE_BF16) {
        uint16_t *to_k = (uint16_t *)chunk + offset,
                 *to_v = (uint16_t *)chunk + (BLOCK_SIZE + offset) * p->dim;
        for (int32_t d = 0; d < head_dim; d++) to_k[d * BLOCK_SIZE] = bf16_from_f32(k[d]);
        for (int32_t d = 0; d < head_dim; d++) to_v[d] = bf16_from_f32(v[d]);
    } else if (dtype_is_code(p->shape.dtype)) {
        write_codes(p, chunk, offset, k, v);
    } else {
        float *to_k = (float *)chunk + offset, *to_v = (float *)chunk + (BLOCK_SIZE + offset) * p->dim;
        for (int32_t d = 0; d < head_dim; d++) to_k[d * BLOCK_SIZE] = k[d];
        memcpy(to_v, v, (size_t)head_dim * sizeof *v);
    }
}

/* A block's chunks of one layer lie together. */
static size_t layer_bytes(const struct kv_pool *p)
{
    return p->chunk_bytes * (size_t)p->shape.num_kv_heads;
}

static char *saved_layer(const struct kv_pool *p, int32_t host_id, int32_t layer)
{
    assert_debug(host_id >= 0 && host_id < p->shape.num_host_blocks);
    return p->saved + ((size_t)host_id * (size_t)p->shape.num_layers + (size_t)layer) * layer_bytes(p);
}

void kv_pool_save(struct kv_pool *p, const int32_t *block_ids, const int32_t *host_ids, int num_blocks)
{
    for (int i = 0; i < num_blocks; i++)
        for (int32_t layer = 0; layer < p->shape.num_layers; layer++)
            memcpy(saved_layer(p, host_ids[i], layer), kv_pool_chunk(p, layer, block_ids[i], 0),
                   layer_bytes(p));
}

void kv_pool_load(struct kv_pool *p, const int32_t *block_ids, const int32_t *host_ids, int num_blocks)
{
    for (int i = 0; i < num_blocks; i++)
        for (int32_t layer = 0; layer < p->shape.num_layers; layer++)
            memcpy(kv_pool_chunk(p, layer, block_ids[i], 0), saved_layer(p, host_ids[i], layer),
                   layer_bytes(p));
}
