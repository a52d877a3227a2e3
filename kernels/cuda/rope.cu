/* rope.cu - between the QKV product and attention, in one pass: q/k norm, rotation, K and V into the pool.
 *
 * One warp a head. Rows of qkv are [Hq q | Hk k | Hk v] heads of D. q and k are rotated in place; attention reads k and v
 * from the pool. */
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/hopper.cuh"

enum { ROPE_WARPS = 4 };

struct rope_kernel_args {
    __nv_bfloat16 *qkv, *pool;
    const float *cos_sin, *q_norm, *k_norm;
    const int32_t *positions, *slot_mapping;
    size_t layer_elements, block_elements;
    int32_t layer, num_heads, num_kv_heads, head_dim, rotary_dim, style;
    float eps;
};

/* Multiplier of the RMSNorm over one head, or 1. */
static __device__ float head_scale(const __nv_bfloat16 *head, int32_t head_dim, float eps, int lane)
{
    float sum = 0;
    for (int i = lane; i < head_dim; i += 32) {
        float v = __bfloat162float(head[i]);
        sum += v * v;
    }
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    return rsqrtf(sum / head_dim + eps);
}

static __device__ void rotate_head(const rope_kernel_args &a, const __nv_bfloat16 *from, __nv_bfloat16 *to,
                                   const float *norm, int32_t position, int lane)
{
    float scale = norm ? head_scale(from, a.head_dim, a.eps, lane) : 1.0f;
    int half = a.rotary_dim / 2;
    const float2 *cos_sin = (const float2 *)a.cos_sin + (size_t)position * half;
    for (int p = lane; p < half; p += 32) {
        int i = a.style == ROPE_HALVES ? p : 2 * p, j = a.style == ROPE_HALVES ? p + half : 2 * p + 1;
        float x = __bfloat162float(from[i]), y = __bfloat162float(from[j]);
        if (norm) {
            x = x * scale * norm[i];
            y = y * scale * norm[j];
        }
        float2 cs = cos_sin[p];
        to[i] = __float2bfloat16_rn(x * cs.x - y * cs.y);
        to[j] = __float2bfloat16_rn(y * cs.x + x * cs.y);
    }
    for (int i = a.rotary_dim + lane; i < a.head_dim; i += 32) {
        float x = __bfloat162float(from[i]);
        to[i] = __float2bfloat16_rn(norm ? x * scale * norm[i] : x);
    }
}

static __device__ void prefetch_row(const rope_kernel_args &a, int32_t position, int lane)
{
    const char *row = (const char *)(a.cos_sin + (size_t)position * a.rotary_dim);
    if (lane * 128 < a.rotary_dim * 4) asm volatile("prefetch.global.L1 [%0];" ::"l"(row + lane * 128));
}

static __global__ void rope_kv_write_kernel(rope_kernel_args a)
{
    dependents_launch();
    int lane = threadIdx.x % 32, head = blockIdx.y * ROPE_WARPS + threadIdx.x / 32;
    int32_t num_rows = a.num_heads + 2 * a.num_kv_heads;
    if (head >= num_rows) return;
    __nv_bfloat16 *from = a.qkv + ((size_t)blockIdx.x * num_rows + head) * a.head_dim;
    /* the step's arrays were there before its first kernel; the row of cosines is on its way while this one waits */
    int32_t position = a.positions[blockIdx.x], slot = a.slot_mapping[blockIdx.x];
    prefetch_row(a, position, lane);
    dependency_wait();
    if (head < a.num_heads) {
        rotate_head(a, from, from, a.q_norm, position, lane);
        return;
    }
    int which = head >= a.num_heads + a.num_kv_heads;
    int32_t kv_head = head - a.num_heads - which * a.num_kv_heads;
    __nv_bfloat16 *to = a.pool +
                        kv_offset(a.layer_elements, a.block_elements, a.layer, slot / BLOCK_SIZE, which, kv_head,
                                  a.num_kv_heads, a.head_dim) +
                        (size_t)(slot % BLOCK_SIZE) * a.head_dim;
    if (which == 0) {
        rotate_head(a, from, from, a.k_norm, position, lane);
        __syncwarp();
    }
    for (int i = lane; i < a.head_dim / 2; i += 32) ((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
}

void cuda_rope_kv_write(struct device *d, const struct batch *b, void *qkv, struct kv_pool *pool, int32_t layer,
                        const struct rope_args *args)
{
    rope_kernel_args a = {};
    a.qkv = (__nv_bfloat16 *)qkv;
    a.pool = pool->data;
    a.cos_sin = args->cos_sin;
    a.q_norm = args->q_norm;
    a.k_norm = args->k_norm;
    a.positions = b->positions;
    a.slot_mapping = b->slot_mapping;
    a.layer_elements = pool->layer_elements;
    a.block_elements = pool->block_elements;
    a.layer = layer;
    a.num_heads = args->num_heads;
    a.num_kv_heads = args->num_kv_heads;
    a.head_dim = args->head_dim;
    a.rotary_dim = args->rotary_dim;
    a.style = args->style;
    a.eps = args->norm_eps;
    int32_t num_rows = a.num_heads + 2 * a.num_kv_heads;
    dim3 grid((unsigned)b->num_tokens, (unsigned)((num_rows + ROPE_WARPS - 1) / ROPE_WARPS));
    launch_dependent(cuda_of(d), rope_kv_write_kernel, grid, dim3(ROPE_WARPS * 32), 0, a);
}
