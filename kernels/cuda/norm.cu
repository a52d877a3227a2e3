/* norm.cu - RMSNorm: one CTA a row, sums in an order that is a function of H alone. */
#include "kernels/cuda/bf16.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"

namespace
{

enum { NORM_THREADS = 256, NORM_VECTORS_MAX = HIDDEN_MAX / 4 / NORM_THREADS };

/* Sum over the CTA, the same bits in every thread: lanes by xor-shuffle, then warps in order. partial: of the CTA, and of
 * this sum alone. */
__device__ float sum_over_block(float x, float (&partial)[NORM_THREADS / 32])
{
    for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = 0;
    for (int w = 0; w < NORM_THREADS / 32; w++) sum += partial[w];
    return sum;
}

/* Of this thread's values. */
template <int VECTORS> __device__ float sum_of_squares(const float4 (&a)[VECTORS], int32_t num_vectors)
{
    float sum = 0;
#pragma unroll
    for (int j = 0; j < VECTORS; j++)
        if (threadIdx.x + j * NORM_THREADS < num_vectors)
            sum += a[j].x * a[j].x + a[j].y * a[j].y + a[j].z * a[j].z + a[j].w * a[j].w;
    return sum;
}

/* The norm of what the product before has made. */
template <int VECTORS>
__device__ void norm_delta(float4 (&a)[VECTORS], const struct norm_args &args, float sum)
{
    float scale = rsqrtf(sum / args.hidden_size + args.eps);
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        int i = threadIdx.x + j * NORM_THREADS;
        if (i >= args.hidden_size / 4) continue;
        float4 w = ((const float4 *)args.delta_weight)[i];
        a[j] = make_float4(a[j].x * scale * w.x, a[j].y * scale * w.y, a[j].z * scale * w.z,
                           a[j].w * scale * w.w);
    }
}

/* out = norm(x) * weight. ADD: delta is added to x first. H is a multiple of 4; a thread keeps its VECTORS values of 4 in
 * registers, all of them loaded at once, and the weights ahead of the dependency: a row is a chain of latencies. The last
 * row comes first: of many rows the L2 still holds those that the product before wrote last, and leaves to the product after
 * those that it reads first. DELTA_NORM: delta has a norm of its own, or x goes on without one. */
template <int VECTORS, bool ADD, bool DELTA_NORM>
__global__ void __launch_bounds__(NORM_THREADS)
    rms_norm_kernel(__nv_bfloat16 *out, float *x, const __nv_bfloat16 *delta, struct norm_args args)
{
    __shared__ float partial[NORM_THREADS / 32], delta_partial[NORM_THREADS / 32];
    const int32_t hidden_size = args.hidden_size;
    float4 w[VECTORS], v[VECTORS], a[VECTORS];
    int num_vectors = hidden_size / 4;
    dependents_launch();
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        int i = threadIdx.x + j * NORM_THREADS;
        if (i < num_vectors && (!DELTA_NORM || args.weight)) w[j] = ((const float4 *)args.weight)[i];
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
    if (DELTA_NORM && ADD && args.delta_weight)
        norm_delta(a, args, sum_over_block(sum_of_squares(a, num_vectors), delta_partial));
    float sum = 0;
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        int i = threadIdx.x + j * NORM_THREADS;
        if (i >= num_vectors) continue;
        if (ADD)
            v[j] = make_float4(
                __fmaf_rn(a[j].x, args.delta_scale, v[j].x), __fmaf_rn(a[j].y, args.delta_scale, v[j].y),
                __fmaf_rn(a[j].z, args.delta_scale, v[j].z), __fmaf_rn(a[j].w, args.delta_scale, v[j].w));
        if (ADD) row[i] = v[j];
        sum += v[j].x * v[j].x + v[j].y * v[j].y + v[j].z * v[j].z + v[j].w * v[j].w;
    }
    float scale = rsqrtf(sum_over_block(sum, partial) / hidden_size + args.eps);
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        int i = threadIdx.x + j * NORM_THREADS;
        if (i >= num_vectors) continue;
        if (DELTA_NORM && !args.weight) {
            store_bf16x4(out + first + 4 * i, v[j]);
            continue;
        }
        store_bf16x4(out + first + 4 * i, make_float4(v[j].x * scale * w[j].x, v[j].y * scale * w[j].y,
                                                      v[j].z * scale * w[j].z, v[j].w * scale * w[j].w));
    }
}

/* The number of vectors is a function of H, so rows have the same bits in every step. */
template <bool ADD, bool DELTA_NORM>
void launch_norm(struct cuda_device *d, int32_t num_rows, void *out, void *x, const void *delta,
                 const struct norm_args &args)
{
    auto launch = [&](auto kernel) {
        launch_dependent(d, kernel, dim3((unsigned)num_rows), dim3(NORM_THREADS), 0, (__nv_bfloat16 *)out,
                         (float *)x, (const __nv_bfloat16 *)delta, args);
    };
    int32_t vectors = (args.hidden_size / 4 + NORM_THREADS - 1) / NORM_THREADS;
    if (vectors <= 1)
        launch(rms_norm_kernel<1, ADD, DELTA_NORM>);
    else if (vectors <= 2)
        launch(rms_norm_kernel<2, ADD, DELTA_NORM>);
    else if (vectors <= 4)
        launch(rms_norm_kernel<4, ADD, DELTA_NORM>);
    else if (vectors <= 8)
        launch(rms_norm_kernel<8, ADD, DELTA_NORM>);
    else
        launch(rms_norm_kernel<NORM_VECTORS_MAX, ADD, DELTA_NORM>);
}

} // namespace

void cuda_rms_norm(struct device *d, const struct batch *b, enum row_set rows, void *out, void *x,
                   const void *delta, const struct norm_args *args)
{
    int32_t num_rows = batch_num_rows(b, rows);
    bool is_plain = args->weight && !args->delta_weight;
    if (delta && is_plain)
        launch_norm<true, false>(cuda_of(d), num_rows, out, x, delta, *args);
    else if (delta)
        launch_norm<true, true>(cuda_of(d), num_rows, out, x, delta, *args);
    else if (is_plain)
        launch_norm<false, false>(cuda_of(d), num_rows, out, x, NULL, *args);
    else
        launch_norm<false, true>(cuda_of(d), num_rows, out, x, NULL, *args);
}
