/* norm.cu - embedding rows and RMSNorm: one CTA a row, sums in an order that is a function of H alone. */
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/hopper.cuh"

enum { NORM_THREADS = 256 };

/* Sum over the CTA, the same bits in every thread: lanes by xor-shuffle, then warps in order. */
static __device__ float sum_over_block(float x)
{
    __shared__ float partial[NORM_THREADS / 32];
    for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = 0;
    for (int w = 0; w < NORM_THREADS / 32; w++) sum += partial[w];
    return sum;
}

static __device__ float4 load_delta(const __nv_bfloat16 *delta)
{
    uint2 raw = *(const uint2 *)delta;
    float2 low = __bfloat1622float2(*(const __nv_bfloat162 *)&raw.x);
    float2 high = __bfloat1622float2(*(const __nv_bfloat162 *)&raw.y);
    return make_float4(low.x, low.y, high.x, high.y);
}

static __device__ void store_bf16x4(__nv_bfloat16 *out, float4 v)
{
    __nv_bfloat162 low = __floats2bfloat162_rn(v.x, v.y), high = __floats2bfloat162_rn(v.z, v.w);
    uint2 raw = {*(uint32_t *)&low, *(uint32_t *)&high};
    *(uint2 *)out = raw;
}

/* out[r] = norm(x[row] (+ delta[row])) * weight. update: the sum is written back to x. rows: NULL = all of them.
 * H is a multiple of 4; a thread keeps its values in registers when they are few, else reads them again. */
template <bool ADD, bool UPDATE>
static __global__ void rms_norm_kernel(__nv_bfloat16 *out, float *x, const __nv_bfloat16 *delta, const float *weight,
                                       const int32_t *rows, float eps, int32_t hidden_size)
{
    dependents_launch();
    dependency_wait();
    size_t from = rows ? rows[blockIdx.x] : blockIdx.x;
    float4 *row = (float4 *)(x + from * hidden_size);
    const __nv_bfloat16 *add = ADD ? delta + from * hidden_size : nullptr;
    constexpr int KEEP = 8; /* up to 8192 values a row stay in registers */
    float4 kept[KEEP];
    float sum = 0;
    int num_vectors = hidden_size / 4;
    for (int i = threadIdx.x, j = 0; i < num_vectors; i += NORM_THREADS, j++) {
        float4 v = row[i];
        if (ADD) {
            float4 a = load_delta(add + 4 * i);
            v = make_float4(v.x + a.x, v.y + a.y, v.z + a.z, v.w + a.w);
        }
        if (UPDATE) row[i] = v;
#pragma unroll
        for (int k = 0; k < KEEP; k++)
            if (k == j) kept[k] = v;
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    float scale = rsqrtf(sum_over_block(sum) / hidden_size + eps);
    for (int i = threadIdx.x, j = 0; i < num_vectors; i += NORM_THREADS, j++) {
        float4 v;
        if (j < KEEP) {
#pragma unroll
            for (int k = 0; k < KEEP; k++)
                if (k == j) v = kept[k];
        } else {
            v = row[i];
            if (ADD && !UPDATE) {
                float4 a = load_delta(add + 4 * i);
                v = make_float4(v.x + a.x, v.y + a.y, v.z + a.z, v.w + a.w);
            }
        }
        float4 w = ((const float4 *)weight)[i];
        store_bf16x4(out + (size_t)blockIdx.x * hidden_size + 4 * i,
                     make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w));
    }
}

void cuda_rms_norm(struct device *d, const struct batch *b, void *out, const void *x, const float *weight, float eps,
                   int32_t hidden_size)
{
    launch_dependent(cuda_of(d), rms_norm_kernel<false, false>, dim3((unsigned)b->num_tokens), dim3(NORM_THREADS), 0, (__nv_bfloat16 *)out, (float *)x, (const __nv_bfloat16 *)NULL, weight, (const int32_t *)NULL, eps, hidden_size);
}

void cuda_add_rms_norm(struct device *d, const struct batch *b, void *out, void *x, const void *delta,
                       const float *weight, float eps, int32_t hidden_size)
{
    launch_dependent(cuda_of(d), rms_norm_kernel<true, true>, dim3((unsigned)b->num_tokens), dim3(NORM_THREADS), 0, (__nv_bfloat16 *)out, (float *)x, (const __nv_bfloat16 *)delta, weight, (const int32_t *)NULL, eps, hidden_size);
}

void cuda_add_rms_norm_logit_rows(struct device *d, const struct batch *b, void *out, const void *x, const void *delta,
                                  const float *weight, float eps, int32_t hidden_size)
{
    if (b->num_logits == 0) return;
    launch_dependent(cuda_of(d), rms_norm_kernel<true, false>, dim3((unsigned)b->num_logits), dim3(NORM_THREADS), 0, (__nv_bfloat16 *)out, (float *)x, (const __nv_bfloat16 *)delta, weight, b->logit_rows, eps, hidden_size);
}

/* A negative id names a sequence slot whose last sampled token is meant. */
static __global__ void embed_kernel(float *out, const __nv_bfloat16 *table, const int32_t *token_ids,
                                    const int32_t *last_tokens, int32_t hidden_size)
{
    dependents_launch();
    dependency_wait();
    int32_t id = token_ids[blockIdx.x];
    if (id < 0) id = last_tokens[~id];
    const __nv_bfloat16 *from = table + (size_t)id * hidden_size;
    float *to = out + (size_t)blockIdx.x * hidden_size;
    for (int i = threadIdx.x; i < hidden_size / 4; i += blockDim.x) ((float4 *)to)[i] = load_delta(from + 4 * i);
}

void cuda_embed(struct device *d, const struct batch *b, void *out, const struct linear *table)
{
    launch_dependent(cuda_of(d), embed_kernel, dim3((unsigned)b->num_tokens), dim3(NORM_THREADS), 0, (float *)out, table->weight, b->token_ids, cuda_of(d)->last_tokens, table->k);
}
