/* kv_widen.cu - K and V of e4m3 as bf16, for the prompts of a step. The Hopper kernel for prompts has its tiles from the copy engine
 * straight to the tensor cores; nobody stands between who could widen codes. So all that prompts see of a layer becomes bf16 first, laid out as
 * the pool of bf16 is, one page after another in the order of the step's tables: 6 bytes of traffic for an element, most of it in the L2,
 * where its products are 4 flops for each row of each query head. */
#include "kernels/cuda/attention_prefill.cuh"
#include "kernels/cuda/bf16.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/kv_codes.cuh"
#include "kernels/cuda/kv_pool.cuh"
#include "kernels/cuda/launch.cuh"

namespace
{

enum { THREADS = 128 };

/* 16 codes times their scale. */
__device__ __forceinline__ void widen_codes(uint4 *to, uint4 codes, float scale)
{
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
    uint32_t pairs[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float2 v = kv_code_pair(words[i / 2] >> i % 2 * 16);
        pairs[i] = pack_bf16(__fmul_rn(v.x, scale), __fmul_rn(v.y, scale));
    }
    to[0] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    to[1] = make_uint4(pairs[4], pairs[5], pairs[6], pairs[7]);
}

/* Grid: pages of the prompts' tables, K/V heads. pool: of the layer. */
template <int D>
__global__ void __launch_bounds__(THREADS)
    widen_kernel(const uint8_t *pool, size_t block_bytes, const int32_t *tables, __nv_bfloat16 *out)
{
    constexpr int GROUPS = D / 16, ROWS = BLOCK_SIZE * GROUPS;
    dependency_wait();
    int32_t head = (int32_t)blockIdx.y, num_heads = (int32_t)gridDim.y;
    const uint8_t *chunk = pool + tables[blockIdx.x] * block_bytes + (size_t)head * kv_chunk<D>::BYTES;
    const float *scales = (const float *)(chunk + kv_chunk<D>::SCALES_OFFSET);
    for (int i = (int)threadIdx.x; i < 2 * ROWS; i += THREADS) {
        int v = i / ROWS, at = i % ROWS, token = v ? at / GROUPS : at % BLOCK_SIZE,
            group = v ? at % GROUPS : at / BLOCK_SIZE;
        const uint8_t *from = chunk + (v ? kv_chunk<D>::V_OFFSET + kv_value_offset(D, token, group * 16)
                                         : kv_key_offset(token, group * 16));
        __nv_bfloat16 *to = out +
                            kv_offset(0, (size_t)2 * num_heads * BLOCK_SIZE * D, 0, (int32_t)blockIdx.x, v,
                                      head, num_heads, D) +
                            token * D + group * 16;
        widen_codes((uint4 *)to, *(const uint4 *)from, scales[v * BLOCK_SIZE + token]);
    }
}

template <int D>
bool launch(struct cuda_device *d, const struct batch_kv_group *group, const int32_t *tables,
            const struct kv_pool *pool, int32_t layer)
{
    dim3 grid((unsigned)(group->prompts_end - group->prompts_begin), (unsigned)pool->shape.num_kv_heads);
    return launch_dependent(d, widen_kernel<D>, grid, dim3(THREADS), 0,
                            (const uint8_t *)(pool->data + layer * pool->layer_elements),
                            pool->block_elements * 2, tables + group->prompts_begin, pool->widened->data);
}

/* 0, 1, 2 ... */
bool make_table(struct cuda_device *d, struct kv_pool *pool, int32_t num_blocks)
{
    std::vector<int32_t> numbers((size_t)num_blocks);
    for (int32_t i = 0; i < num_blocks; i++) numbers[(size_t)i] = i;
    pool->widened_table = (int32_t *)cuda_alloc(&d->base, numbers.size() * 4, "attention");
    return pool->widened_table &&
           cuda_upload(&d->base, pool->widened_table, numbers.data(), numbers.size() * 4) == STATUS_OK;
}

/* Of one layer, without its memory. No blocks: prompts want none. Of latents K and V are those of all heads. */
struct kv_pool widened_pool(const struct cuda_device *d, const struct kv_shape *shape)
{
    struct kv_pool w = {};
    w.shape = *shape;
    if (d->expands_latents) {
        w.shape.num_kv_heads = d->prompt_attention.num_kv_heads;
        w.shape.head_dim = d->prompt_attention.head_dim;
    } else if (shape->dtype != DTYPE_F8_E4M3 || !prefill_hopper_rows_per_tile(d, shape->head_dim)) {
        return kv_pool{};
    }
    w.shape.dtype = DTYPE_BF16;
    w.shape.num_layers = 1;
    w.shape.num_blocks = (int32_t)div_up(cuda_kv_widened_keys(d), BLOCK_SIZE);
    w.block_elements = (size_t)2 * w.shape.num_kv_heads * BLOCK_SIZE * w.shape.head_dim;
    w.layer_elements = (size_t)kv_pool_layer_blocks(&w) * w.block_elements;
    w.num_copied = 1;
    return w;
}

} // namespace

uint64_t cuda_kv_widened_bytes(const struct cuda_device *d, const struct kv_shape *shape)
{
    const struct kv_pool w = widened_pool(d, shape);
    return w.layer_elements * 2 + (uint64_t)w.shape.num_blocks * 4;
}

int cuda_kv_widen_prepare(struct cuda_device *d, struct kv_pool *pool, struct error *err)
{
    struct kv_pool w = widened_pool(d, &pool->shape);
    if (w.shape.num_blocks == 0) return STATUS_OK;
    w.data = (__nv_bfloat16 *)cuda_alloc(&d->base, w.layer_elements * 2, "attention");
    if (!w.data || !make_table(d, pool, w.shape.num_blocks))
        return error_set(err, STATUS_NO_MEMORY,
                         "the GPU has no room for %.1f GiB of keys that prompts see: lower "
                         "--kv-cache-memory-bytes or --gpu-memory-utilization",
                         (double)w.layer_elements * 2 / (1 << 30));
    pool->widened = new struct kv_pool(w);
    d->base.prefill_keys_max = w.shape.num_blocks * BLOCK_SIZE;
    return STATUS_OK;
}

bool cuda_kv_widen(struct cuda_device *d, const struct batch *b, const struct kv_pool *pool, int32_t layer,
                   int32_t kv_group)
{
    const struct batch_kv_group *group = &b->kv_groups[kv_group];
    if (group->prompts_end - group->prompts_begin > pool->widened->shape.num_blocks)
        return cuda_check(d, cudaErrorInvalidValue, "more keys for a step's prompts than prefill_keys_max");
    return pool->shape.head_dim == 64    ? launch<64>(d, group, b->prefill_tables, pool, layer)
           : pool->shape.head_dim == 128 ? launch<128>(d, group, b->prefill_tables, pool, layer)
                                         : launch<256>(d, group, b->prefill_tables, pool, layer);
}
