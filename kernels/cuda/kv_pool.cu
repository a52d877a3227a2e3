/* kv_pool.cu - the K/V pool: its memory, and copies of its blocks to the host and back. */
#include "kernels/cuda/kv_pool.cuh"
#include "kernels/cuda/attention_prefill.cuh"
#include "kernels/cuda/kv_codes.cuh"
#include "kernels/cuda/launch.cuh"

namespace
{

/* A piece is pinned in the middle of a step: 64 MiB take some 20 ms. */
enum { PIECE_BYTES = 64 << 20, COPY_THREADS = 256, COPY_VECTORS = 8, COPIES_MAX = 128 };

/* What columns of a token's K, or V, are rounded up to where layers differ: whole numbers of heads of each size that a copy engine
 * fetches there (cuda_attention_is_masked). */
enum { DIFFERENT_COLUMNS = 256 };

/* Of one layer, or of all where layers differ, which are kept as bf16. What latents have for V is in K. */
size_t block_bytes(const struct cuda_device *d, const struct kv_shape *shape)
{
    const struct kv_other_layers *o = &shape->others;
    const size_t token_bytes = (size_t)2 * BLOCK_SIZE * 2;
    if (o->num_layers > 0)
        return token_bytes * DIFFERENT_COLUMNS *
               div_up(max_of((size_t)shape->num_layers * shape->num_kv_heads * shape->head_dim,
                             (size_t)o->num_layers * o->num_kv_heads * o->head_dim),
                      (size_t)DIFFERENT_COLUMNS);
    size_t head = shape->dtype == DTYPE_F8_E4M3
                      ? kv_chunk_bytes(shape->head_dim)
                      : (size_t)(d->latent_rotary_dim > 0 ? 1 : 2) * BLOCK_SIZE * shape->head_dim * 2;
    return (size_t)shape->num_kv_heads * head;
}

int32_t num_copied(const struct kv_shape *shape)
{
    return shape->others.num_layers > 0 ? 1 : shape->num_layers;
}

size_t saved_bytes(const struct kv_pool *pool)
{
    return pool->block_elements * 2 * pool->num_copied;
}

void create_pieces(struct kv_pool *pool)
{
    pool->blocks_per_piece = (int32_t)max_of(PIECE_BYTES / max_of(saved_bytes(pool), (size_t)1), (size_t)1);
    pool->pieces = new char *[div_up(pool->shape.num_host_blocks, pool->blocks_per_piece)]();
}

} // namespace

uint64_t cuda_kv_pool_bytes(struct device *device, const struct kv_shape *shape)
{
    const struct cuda_device *d = cuda_of(device);
    const uint64_t num_blocks = (uint64_t)shape->num_blocks + SPARE_BLOCKS;
    return (uint64_t)num_copied(shape) * num_blocks * block_bytes(d, shape) + cuda_kv_widened_bytes(d, shape);
}

int cuda_kv_pool_create(struct device *device, const struct kv_shape *shape, struct kv_pool **out,
                        struct error *err)
{
    if (shape->dtype != DTYPE_BF16 && shape->dtype != DTYPE_F8_E4M3)
        return error_set(err, STATUS_UNSUPPORTED, "the CUDA device keeps K/V in BF16 or F8_E4M3, not in %s",
                         dtype_infos[shape->dtype].text);
    if (shape->dtype == DTYPE_F8_E4M3 && cuda_of(device)->needs_masked)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the CUDA device keeps K/V of this model's attention in BF16 alone");
    if (shape->dtype == DTYPE_F8_E4M3 && !cuda_of(device)->is_hopper)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "the CUDA device keeps K/V in F8_E4M3 on a Hopper GPU alone, and not with --cuda-path portable");
    struct kv_pool *pool = new struct kv_pool();
    pool->shape = *shape;
    pool->num_copied = num_copied(shape);
    pool->block_elements = block_bytes(cuda_of(device), shape) / 2;
    pool->layer_elements = (size_t)kv_pool_layer_blocks(pool) * pool->block_elements;
    size_t bytes = pool->layer_elements * pool->num_copied * 2;
    /* kernels count it in groups of 8 rows of a head */
    const int32_t least_dim =
        shape->others.num_layers > 0 ? min(shape->head_dim, shape->others.head_dim) : shape->head_dim;
    assert_always(bytes / ((size_t)8 * least_dim * 2) < INT32_MAX);
    pool->data = (__nv_bfloat16 *)device->ops->alloc(device, bytes, "K/V cache");
    if (!pool->data) {
        delete pool;
        return error_set(err, STATUS_NO_MEMORY,
                         "the GPU has no room for a K/V cache of %.1f GiB: lower "
                         "--kv-cache-memory-bytes or --gpu-memory-utilization",
                         (double)bytes / (1 << 30));
    }
    create_pieces(pool);
    device->decode_bundle =
        (uint8_t)cuda_decode_bundle_max(&cuda_of(device)->attention, kv_pool_has_codes(pool));
    cuda_steps_set_spare_blocks(cuda_of(device), shape->num_blocks, shape->num_blocks + 1);
    int status = cuda_kv_widen_prepare(cuda_of(device), pool, err);
    if (!status) *out = pool;
    return status;
}

namespace
{

/* The host's memory of a saved block, which kernels reach by the same address. NULL: there is none left. */
uint4 *saved_block(struct cuda_device *d, struct kv_pool *pool, int32_t host_id)
{
    assert_always(host_id >= 0 && host_id < pool->shape.num_host_blocks);
    char **piece = &pool->pieces[host_id / pool->blocks_per_piece];
    if (!*piece && !CUDA_CHECK(d, cudaHostAlloc((void **)piece, saved_bytes(pool) * pool->blocks_per_piece,
                                                cudaHostAllocDefault)))
        return NULL;
    return (uint4 *)(*piece + saved_bytes(pool) * (host_id % pool->blocks_per_piece));
}

struct copy_list {
    uint4 *saved[COPIES_MAX];
    int32_t block_ids[COPIES_MAX];
};

/* Grid: a CTA for a layer of a block, of block_vectors vectors of 16 bytes; a thread has COPY_VECTORS of them under way. */
template <bool SAVE>
__global__ void __launch_bounds__(COPY_THREADS)
    copy_kernel(uint4 *pool, size_t layer_vectors, int32_t block_vectors, const struct copy_list list)
{
    size_t layer = blockIdx.x, i = blockIdx.y;
    uint4 *block = pool + layer * layer_vectors + (size_t)list.block_ids[i] * block_vectors;
    uint4 *saved = list.saved[i] + layer * block_vectors;
    const uint4 *from = SAVE ? block : saved;
    uint4 *to = SAVE ? saved : block;
    for (int32_t first = threadIdx.x; first < block_vectors; first += COPY_VECTORS * COPY_THREADS) {
        uint4 held[COPY_VECTORS];
#pragma unroll
        for (int k = 0; k < COPY_VECTORS; k++)
            if (first + k * COPY_THREADS < block_vectors) held[k] = from[first + k * COPY_THREADS];
#pragma unroll
        for (int k = 0; k < COPY_VECTORS; k++)
            if (first + k * COPY_THREADS < block_vectors) to[first + k * COPY_THREADS] = held[k];
    }
}

template <bool SAVE>
bool copy_some(struct cuda_device *d, struct kv_pool *pool, const int32_t *block_ids, const int32_t *host_ids,
               int num_blocks)
{
    struct copy_list list = {};
    for (int i = 0; i < num_blocks; i++) {
        list.block_ids[i] = block_ids[i];
        list.saved[i] = saved_block(d, pool, host_ids[i]);
        if (!list.saved[i]) return false;
    }
    return launch_after_all(d, copy_kernel<SAVE>, dim3(pool->num_copied, num_blocks), dim3(COPY_THREADS),
                            (uint4 *)pool->data, pool->layer_elements / 8,
                            (int32_t)(pool->block_elements / 8), list);
}

template <bool SAVE>
int copy_blocks(struct cuda_device *d, struct kv_pool *pool, const int32_t *block_ids,
                const int32_t *host_ids, int num_blocks)
{
    for (int first = 0; first < num_blocks; first += COPIES_MAX)
        if (!copy_some<SAVE>(d, pool, block_ids + first, host_ids + first,
                             min_of(num_blocks - first, (int)COPIES_MAX)))
            return STATUS_DEVICE;
    return CUDA_CHECK(d, cudaStreamSynchronize(d->stream)) ? STATUS_OK : STATUS_DEVICE;
}

} // namespace

int cuda_kv_blocks_save(struct device *device, struct kv_pool *pool, const int32_t *block_ids,
                        const int32_t *host_ids, int num_blocks)
{
    return copy_blocks<true>(cuda_enter(device), pool, block_ids, host_ids, num_blocks);
}

int cuda_kv_blocks_load(struct device *device, struct kv_pool *pool, const int32_t *block_ids,
                        const int32_t *host_ids, int num_blocks)
{
    return copy_blocks<false>(cuda_enter(device), pool, block_ids, host_ids, num_blocks);
}
