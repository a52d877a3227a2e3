/* kv_pool.cu - the K/V pool: its memory, and copies of its blocks to the host and back. */
#include "kernels/cuda/kv_pool.cuh"

uint64_t cuda_kv_pool_bytes(struct device *device, const struct kv_shape *shape)
{
    (void)device;
    return (uint64_t)shape->num_layers * (uint64_t)shape->num_blocks * 2 * (uint64_t)shape->num_kv_heads *
           BLOCK_SIZE * (uint64_t)shape->head_dim * 2;
}

int cuda_kv_pool_create(struct device *device, const struct kv_shape *shape, struct kv_pool **out,
                        struct error *err)
{
    struct kv_pool *pool = new struct kv_pool();
    pool->shape = *shape;
    pool->block_elements = (size_t)2 * shape->num_kv_heads * BLOCK_SIZE * shape->head_dim;
    pool->layer_elements = ((size_t)shape->num_blocks + 1) * pool->block_elements;
    size_t bytes = pool->layer_elements * shape->num_layers * 2;
    /* kernels count it in groups of 8 rows of a head */
    assert_always(bytes / ((size_t)8 * shape->head_dim * 2) < INT32_MAX);
    pool->data = (__nv_bfloat16 *)device->ops->alloc(device, bytes, "K/V cache");
    if (!pool->data) {
        delete pool;
        return error_set(err, STATUS_NO_MEMORY,
                         "the GPU has no room for a K/V cache of %.1f GiB: lower "
                         "--kv-cache-memory-bytes or --gpu-memory-utilization",
                         (double)bytes / (1 << 30));
    }
    cuda_steps_set_spare_block(cuda_of(device), shape->num_blocks);
    *out = pool;
    return STATUS_OK;
}

namespace
{

/* Host layout of a saved block: [layer][block_elements]. A copy for each layer: they lie further apart than a
 * two-dimensional copy may step. */
int copy_blocks(struct cuda_device *d, struct kv_pool *pool, const int32_t *block_ids,
                const int32_t *host_ids, int num_blocks, void *host, bool save)
{
    size_t bytes = pool->block_elements * 2, num_layers = pool->shape.num_layers;
    for (int i = 0; i < num_blocks; i++)
        for (size_t layer = 0; layer < num_layers; layer++) {
            __nv_bfloat16 *block =
                pool->data + layer * pool->layer_elements + block_ids[i] * pool->block_elements;
            char *at = (char *)host + (host_ids[i] * num_layers + layer) * bytes;
            CUDA_CHECK(d, save ? cudaMemcpyAsync(at, block, bytes, cudaMemcpyDeviceToHost, d->stream)
                               : cudaMemcpyAsync(block, at, bytes, cudaMemcpyHostToDevice, d->stream));
        }
    return CUDA_CHECK(d, cudaStreamSynchronize(d->stream)) ? STATUS_OK : STATUS_DEVICE;
}

} // namespace

int cuda_kv_blocks_save(struct device *device, struct kv_pool *pool, const int32_t *block_ids,
                        const int32_t *host_ids, int num_blocks, void *host)
{
    return copy_blocks(cuda_enter(device), pool, block_ids, host_ids, num_blocks, host, true);
}

int cuda_kv_blocks_load(struct device *device, struct kv_pool *pool, const int32_t *block_ids,
                        const int32_t *host_ids, int num_blocks, const void *host)
{
    return copy_blocks(cuda_enter(device), pool, block_ids, host_ids, num_blocks, (void *)host, false);
}
