/* norm.cu - RMSNorm: one CTA a row, sums in an order that is a function of H alone. */
#include "kernels/cuda/bf16.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"

namespace
{

enum { NORM_THREADS = 256, NORM_VECTORS_MAX = HIDDEN_MAX / 4 / NORM_THREADS };

/* Sum over the CTA, the same bits in every thread: lanes by xor-shuffle, then warps in order. */
__device__ float sum_over_block(float x)
{
    __shared__ float partial[NORM_THREADS / 32];
    for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = 0;
    for (int w = 0; w < NORM_THREADS / 32; w++) sum += partial[w];
    return sum;
}

/* out = norm(x) * weight. ADD: delta is added to x first. H is a multiple of 4; a thread keeps its VECTORS values of 4 in
 * registers, all of them loaded at once, and the weights ahead of the dependency: a row is a chain of latencies. The last
 * row comes first: of many rows the L2 still holds those that the product before wrote last, and leaves to the product after
 * those that it reads first. */
template <int VECTORS, bool ADD>
__global__ void __launch_bounds__(NORM_THREADS)
    rms_norm_kernel(__nv_bfloat16 *out, float *x, const __nv_bfloat16 *delta, const float *weight, float eps,
                    int32_t hidden_size)
{
    float4 w[VECTORS], v[VECTORS], a[VECTORS];
    int num_vectors = hidden_size / 4;
    dependents_launch();
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        int i = threadIdx.x + j * NORM_THREADS;
        if (i < num_vectors) w[j] = ((const float4 *)weight)[i];
    }
    const size_t first = (size_t)(gridDim.x - 1 - blockIdx.x) * hidden_size;
    float4 *row = (float4 *)(x + first);
    dependency_wait();
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        int i = threadIdx.x + j * NORM_THREADS;
        if (i >= num_vectors) continue;
        v[j] = row[i];
        if (ADD) a[j] = load_bf16x4(delta + first + 4 * i);
    }
    float sum = 0;
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        int i = threadIdx.x + j * NORM_THREADS;
        if (i >= num_vectors) continue;
        if (ADD) v[j] = make_float4(v[j].x + a[j].x, v[j].y + a[j].y, v[j].z + a[j].z, v[j].w + a[j].w);
        if (ADD) row[i] = v[j];
        sum += v[j].x * v[j].x + v[j].y * v[j].y + v[j].z * v[j].z + v[j].w * v[j].w;
    }
    float scale = rsqrtf(sum_over_block(sum) / hidden_size + eps);
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        int i = threadIdx.x + j * NORM_THREADS;
        if (i >= num_vectors) continue;
        store_bf16x4(out + first + 4 * i, make_float4(v[j].x * scale * w[j].x, v[j].y * scale * w[j].y,
                                                      v[j].z * scale * w[j].z, v[j].w * scale * w[j].w));
    }
}

/* The number of vectors is a function of H, so rows have the same bits in every step. */
template <bool ADD>
void launch_norm(struct cuda_device *d, int32_t num_rows, void *out, void *x, const void *delta,
                 const float *weight, float eps, int32_t hidden_size)
{
    auto launch = [&](auto kernel) {
        launch_dependent(d, kernel, dim3((unsigned)num_rows), dim3(NORM_THREADS), 0, (__nv_bfloat16 *)out,
                         (float *)x, (const __nv_bfloat16 *)delta, weight, eps, hidden_size);
    };
    int32_t vectors = (hidden_size / 4 + NORM_THREADS - 1) / NORM_THREADS;
    if (vectors <= 1)
        launch(rms_norm_kernel<1, ADD>);
    else if (vectors <= 2)
        launch(rms_norm_kernel<2, ADD>);
    else if (vectors <= 4)
        launch(rms_norm_kernel<4, ADD>);
    else if (vectors <= 8)
        launch(rms_norm_kernel<8, ADD>);
    else
        launch(rms_norm_kernel<NORM_VECTORS_MAX, ADD>);
}

} // namespace

void cuda_rms_norm(struct device *d, const struct batch *b, enum row_set rows, void *out, void *x,
                   const void *delta, const float *weight, float eps, int32_t hidden_size)
{
    int32_t num_rows = batch_num_rows(b, rows);
    if (delta)
        launch_norm<true>(cuda_of(d), num_rows, out, x, delta, weight, eps, hidden_size);
    else
        launch_norm<false>(cuda_of(d), num_rows, out, x, NULL, weight, eps, hidden_size);
}
