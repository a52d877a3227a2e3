/* norm.cu - RMSNorm and LayerNorm: one CTA a row, sums in an order that is a function of H alone. */
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_fp8.cuh"
#include "kernels/cuda/norm_row.cuh"
#include "kernels/cuda/quantise.cuh"

namespace
{

enum { NORM_VECTORS_MAX = HIDDEN_MAX / 4 / NORM_THREADS };

/* Of this thread's values. */
template <int VECTORS> __device__ float sum_of_squares(const float4 (&a)[VECTORS], int32_t num_vectors)
{
    float sum = 0;
#pragma unroll
    for (int j = 0; j < VECTORS; j++)
        if (threadIdx.x + j * NORM_THREADS < num_vectors) sum = add_squares(sum, a[j]);
    return sum;
}

/* The norm of what the product before has made. */
template <int VECTORS>
__device__ void norm_delta(float4 (&a)[VECTORS], const struct norm_args &args, float sum)
{
    float scale = norm_scale(sum, 1.0f / args.hidden_size, args.delta_eps > 0 ? args.delta_eps : args.eps);
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        int i = threadIdx.x + j * NORM_THREADS;
        if (i >= args.hidden_size / 4) continue;
        a[j] = scale_by(a[j], scale, ((const float4 *)args.delta_weight)[i]);
    }
}

__device__ __forceinline__ float4 scale_all(float4 x, float by)
{
    return make_float4(x.x * by, x.y * by, x.z * by, x.w * by);
}

enum quantise { QUANTISE_NOT, QUANTISE_ROWS, QUANTISE_BLOCKS, QUANTISE_INT8 };

/* Largest of the CTA. */
__device__ float largest_of_block(float most, float (&partial)[NORM_WARPS])
{
    most = largest_of_warp(most, 32);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = most;
    __syncthreads();
    for (float other : partial) most = fmaxf(most, other);
    return most;
}

/* This thread's normed values to codes. Its warp has 128 columns in each vector. */
template <int VECTORS, int QUANTISE>
__device__ void store_quantised(const struct fp8_target &to, size_t row, const uint2 (&words)[VECTORS],
                                int32_t num_vectors, float (&partial)[NORM_WARPS])
{
    constexpr bool IN_BLOCKS = QUANTISE == QUANTISE_BLOCKS, INT8 = QUANTISE == QUANTISE_INT8;
    float most[VECTORS], all = 0;
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        most[j] = largest_of_pair(words[j].x, largest_of_pair(words[j].y, 0));
        if (IN_BLOCKS) most[j] = largest_of_warp(most[j], 32);
        all = fmaxf(all, most[j]);
    }
    if (!IN_BLOCKS) all = largest_of_block(all, partial);
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        int i = threadIdx.x + j * NORM_THREADS;
        float largest = IN_BLOCKS ? most[j] : all;
        if (i >= num_vectors) continue;
        ((uint32_t *)to.codes)[row * num_vectors + i] =
            quantise_pairs<INT8>(words[j].x, words[j].y, inverse_of<INT8>(largest));
        if (IN_BLOCKS && threadIdx.x % 32 == 0)
            to.scales[(size_t)(i / 32) * to.pitch + row] = scale_of<INT8>(largest);
    }
    if (!IN_BLOCKS && threadIdx.x == 0) to.scales[row] = scale_of<INT8>(all);
}

/* out = norm(x) * weight. ADD: delta is added to x first. H is a multiple of 4; a thread keeps its VECTORS values of 4 in
 * registers, all of them loaded at once, and the weights ahead of the dependency: a row is a chain of latencies. The last
 * row comes first: of many rows the L2 still holds those that the product before wrote last, and leaves to the product after
 * those that it reads first. DELTA_NORM: delta has a norm of its own, or x goes on without one, or becomes it. */
template <int VECTORS, bool ADD, bool DELTA_NORM, int QUANTISE>
__global__ void __launch_bounds__(NORM_THREADS)
    rms_norm_kernel(__nv_bfloat16 *out, float *x, const __nv_bfloat16 *delta, struct norm_args args,
                    struct fp8_target quantised)
{
    __shared__ float partial[NORM_WARPS], other_partial[NORM_WARPS];
    const int32_t hidden_size = args.hidden_size;
    const float inverse_size = 1.0f / hidden_size;
    float4 w[VECTORS], v[VECTORS], a[VECTORS];
    uint2 added[VECTORS];
    int num_vectors = hidden_size / 4;
    dependents_launch();
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        int i = threadIdx.x + j * NORM_THREADS;
        if (i < num_vectors && (!DELTA_NORM || args.weight))
            w[j] = load_kept((const float4 *)args.weight + i);
    }
    const size_t first = (size_t)(gridDim.x - 1 - blockIdx.x) * hidden_size;
    float4 *row = (float4 *)(x + first);
    dependency_wait();
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        int i = threadIdx.x + j * NORM_THREADS;
        if (i >= num_vectors) continue;
        v[j] = row[i];
        if (ADD) added[j] = *(const uint2 *)(delta + first + 4 * i);
    }
    __syncwarp(); /* or the compiler keeps a load for later, one latency behind another */
#pragma unroll
    for (int j = 0; ADD && j < VECTORS; j++) a[j] = unpack_bf16x4(added[j]);
    if (DELTA_NORM && ADD && args.delta_weight)
        norm_delta(a, args, sum_over_block(sum_of_squares(a, num_vectors), other_partial));
    float sum = 0;
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        int i = threadIdx.x + j * NORM_THREADS;
        if (i >= num_vectors) continue;
        if (DELTA_NORM && ADD && args.begins) v[j] = make_float4(0, 0, 0, 0);
        if (ADD) v[j] = add_delta(v[j], a[j], args.delta_scale);
        if (DELTA_NORM && ADD && args.sum_scale != 0) v[j] = scale_all(v[j], args.sum_scale);
        if (ADD) row[i] = v[j];
        sum = add_squares(sum, v[j]);
    }
    float scale = norm_scale(sum_over_block(sum, partial), inverse_size, args.eps);
    uint2 words[VECTORS] = {};
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        int i = threadIdx.x + j * NORM_THREADS;
        if (i >= num_vectors) continue;
        if (!DELTA_NORM || args.weight) v[j] = scale_by(v[j], scale, w[j]);
        if (DELTA_NORM && args.replaces) row[i] = v[j];
        words[j] = pack_bf16x4(v[j]);
        *(uint2 *)(out + first + 4 * i) = words[j];
    }
    if (QUANTISE != QUANTISE_NOT)
        store_quantised<VECTORS, QUANTISE>(quantised, gridDim.x - 1 - blockIdx.x, words, num_vectors,
                                           other_partial);
}

/* The number of vectors is a function of H, so rows have the same bits in every step. */
template <bool ADD, bool DELTA_NORM, int QUANTISE = QUANTISE_NOT>
void launch_norm(struct cuda_device *d, int32_t num_rows, void *out, void *x, const void *delta,
                 const struct norm_args &args, const struct fp8_target &quantised = {})
{
    auto launch = [&](auto kernel) {
        launch_dependent(d, kernel, dim3((unsigned)num_rows), dim3(NORM_THREADS), 0, (__nv_bfloat16 *)out,
                         (float *)x, (const __nv_bfloat16 *)delta, args, quantised);
    };
    int32_t vectors = (args.hidden_size / 4 + NORM_THREADS - 1) / NORM_THREADS;
    if (vectors <= 1)
        launch(rms_norm_kernel<1, ADD, DELTA_NORM, QUANTISE>);
    else if (vectors <= 2)
        launch(rms_norm_kernel<2, ADD, DELTA_NORM, QUANTISE>);
    else if (vectors <= 4)
        launch(rms_norm_kernel<4, ADD, DELTA_NORM, QUANTISE>);
    else if (vectors <= 8)
        launch(rms_norm_kernel<8, ADD, DELTA_NORM, QUANTISE>);
    else
        launch(rms_norm_kernel<NORM_VECTORS_MAX, ADD, DELTA_NORM, QUANTISE>);
}

/* Of the common kind. */
template <bool ADD>
void launch_plain(struct cuda_device *d, int32_t num_rows, void *out, void *x, const void *delta,
                  const struct norm_args &args)
{
    struct fp8_target quantised = cuda_fp8_target(d, num_rows, args.hidden_size, out);
    if (!quantised.codes)
        launch_norm<ADD, false>(d, num_rows, out, x, delta, args);
    else if (quantised.form == E4M3_OF_BLOCKS)
        launch_norm<ADD, false, QUANTISE_BLOCKS>(d, num_rows, out, x, delta, args, quantised);
    else if (quantised.form == INT8_OF_ROWS)
        launch_norm<ADD, false, QUANTISE_INT8>(d, num_rows, out, x, delta, args, quantised);
    else
        launch_norm<ADD, false, QUANTISE_ROWS>(d, num_rows, out, x, delta, args, quantised);
}

/* LayerNorm of x, or of its sum with delta; without a weight the sum itself. Of few models, so nothing is kept in registers. */
__global__ void __launch_bounds__(NORM_THREADS)
    layer_norm_kernel(__nv_bfloat16 *out, float *x, const __nv_bfloat16 *delta, struct norm_args args)
{
    __shared__ float partial[NORM_WARPS], other_partial[NORM_WARPS];
    const int32_t n = args.hidden_size;
    const size_t first = (size_t)blockIdx.x * n;
    float sum = 0, squares = 0;
    dependents_launch();
    dependency_wait();
    for (int32_t i = threadIdx.x; i < n;
         i += NORM_THREADS) { /* a thread comes back to its own values alone */
        if (delta) x[first + i] = __fmaf_rn((float)delta[first + i], args.delta_scale, x[first + i]);
        sum += x[first + i];
        if (!args.weight) out[first + i] = __float2bfloat16_rn(x[first + i]);
    }
    if (!args.weight) return;
    float mean = sum_over_block(sum, partial) / n;
    for (int32_t i = threadIdx.x; i < n; i += NORM_THREADS) {
        float centred = x[first + i] - mean;
        squares += centred * centred;
    }
    float scale = 1.0f / sqrtf(sum_over_block(squares, other_partial) / n + args.eps);
    for (int32_t i = threadIdx.x; i < n; i += NORM_THREADS) {
        float normed = (x[first + i] - mean) * scale * args.weight[i];
        if (args.bias) normed += args.bias[i];
        if (args.replaces) x[first + i] = normed;
        out[first + i] = __float2bfloat16_rn(normed);
    }
}

} // namespace

void cuda_rms_norm(struct device *d, const struct batch *b, enum row_set rows, void *out, void *x,
                   const void *delta, const struct norm_args *args)
{
    int32_t num_rows = batch_num_rows(b, rows) * max_of(args->num_parts, 1);
    bool is_plain = args->weight && !args->delta_weight && !args->replaces && args->sum_scale == 0;
    if (args->is_layer_norm)
        launch_dependent(cuda_of(d), layer_norm_kernel, dim3((unsigned)num_rows), dim3(NORM_THREADS), 0,
                         (__nv_bfloat16 *)out, (float *)x, (const __nv_bfloat16 *)delta, *args);
    else if (delta && is_plain)
        launch_plain<true>(cuda_of(d), num_rows, out, x, delta, *args);
    else if (delta)
        launch_norm<true, true>(cuda_of(d), num_rows, out, x, delta, *args);
    else if (is_plain)
        launch_plain<false>(cuda_of(d), num_rows, out, x, NULL, *args);
    else
        launch_norm<false, true>(cuda_of(d), num_rows, out, x, NULL, *args);
}
