/* quantise.cu - activations to e4m3: a row, or 128 columns of it, has the scale that makes its largest value 448; or to integers, a row
 * with the scale that makes it 127. */
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_fp8.cuh"
#include "kernels/cuda/quantise.cuh"

namespace
{

enum {
    THREADS_MAX = 512,
    VECTOR = 8, /* values of a thread: 16 bytes of bf16 */
    BLOCK_LANES = FP8_BLOCK / VECTOR,
    VECTORS_MAX = 4 /* that a thread keeps: beyond, they are read again */
};

/* The row of CTA blockIdx.x. */
template <bool LISTED> __device__ __forceinline__ size_t row_of(const int32_t *list)
{
    return LISTED ? (size_t)list[blockIdx.x] : (size_t)blockIdx.x;
}

template <bool LISTED>
__global__ void __launch_bounds__(THREADS_MAX)
    quantise_blocks_kernel(uint8_t *out, float *scales, const __nv_bfloat16 *x, const int32_t *list,
                           int32_t num_vectors, int32_t pitch)
{
    const int32_t i = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x);
    const bool inside = i < num_vectors;
    dependents_launch();
    dependency_wait();
    const size_t row = row_of<LISTED>(list);
    uint4 v = inside ? ((const uint4 *)x)[row * num_vectors + i] : uint4{};
    float most = largest_of_warp(largest_of(v), BLOCK_LANES);
    if (!inside) return;
    ((uint2 *)out)[row * num_vectors + i] = quantise_vector<false>(v, inverse_of<false>(most));
    if (i % BLOCK_LANES == 0) scales[(size_t)(i / BLOCK_LANES) * pitch + row] = scale_of<false>(most);
}

template <bool LISTED, bool INT8>
__global__ void __launch_bounds__(THREADS_MAX)
    quantise_rows_kernel(uint8_t *out, float *scales, const __nv_bfloat16 *x, const int32_t *list,
                         int32_t num_vectors)
{
    __shared__ float of_warps[THREADS_MAX / 32];
    const int32_t num_threads = (int32_t)blockDim.x;
    uint4 kept[VECTORS_MAX];
    float most = 0;
    dependents_launch();
    dependency_wait();
    const size_t row = row_of<LISTED>(list);
    const uint4 *from = (const uint4 *)x + row * num_vectors;
    uint2 *to = (uint2 *)out + row * num_vectors;
#pragma unroll
    for (int j = 0; j < VECTORS_MAX; j++) {
        int32_t i = j * num_threads + (int32_t)threadIdx.x;
        kept[j] = i < num_vectors ? from[i] : uint4{};
    }
#pragma unroll
    for (int j = 0; j < VECTORS_MAX; j++) most = fmaxf(most, largest_of(kept[j]));
    for (int32_t i = VECTORS_MAX * num_threads + (int32_t)threadIdx.x; i < num_vectors; i += num_threads)
        most = fmaxf(most, largest_of(from[i]));
    most = largest_of_warp(most, 32);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = most;
    __syncthreads();
    for (int w = 0; w < num_threads / 32; w++) most = fmaxf(most, of_warps[w]);
    const float inverse = inverse_of<INT8>(most);
#pragma unroll
    for (int j = 0; j < VECTORS_MAX; j++) {
        int32_t i = j * num_threads + (int32_t)threadIdx.x;
        if (i < num_vectors) to[i] = quantise_vector<INT8>(kept[j], inverse);
    }
    for (int32_t i = VECTORS_MAX * num_threads + (int32_t)threadIdx.x; i < num_vectors; i += num_threads)
        to[i] = quantise_vector<INT8>(from[i], inverse);
    if (threadIdx.x == 0) scales[row] = scale_of<INT8>(most);
}

} // namespace

bool cuda_quantise_rows(struct cuda_device *d, int32_t rows, int32_t k, const void *x, uint8_t *out,
                        float *scales, int32_t pitch, enum byte_form form, const int32_t *list)
{
    const int32_t num_vectors = k / VECTOR;
    if (form == E4M3_OF_BLOCKS)
        return launch_dependent(
            d, list ? quantise_blocks_kernel<true> : quantise_blocks_kernel<false>,
            dim3((unsigned)rows, (unsigned)((num_vectors + THREADS_MAX - 1) / THREADS_MAX)),
            dim3(THREADS_MAX), 0, out, scales, (const __nv_bfloat16 *)x, list, num_vectors, pitch);
    int32_t num_warps = (num_vectors + 32 * VECTORS_MAX - 1) / (32 * VECTORS_MAX);
    auto kernel = form == INT8_OF_ROWS
                      ? list ? quantise_rows_kernel<true, true> : quantise_rows_kernel<false, true>
                  : list ? quantise_rows_kernel<true, false>
                         : quantise_rows_kernel<false, false>;
    return launch_dependent(d, kernel, dim3((unsigned)rows),
                            dim3((unsigned)min(num_warps * 32, (int32_t)THREADS_MAX)), 0, out, scales,
                            (const __nv_bfloat16 *)x, list, num_vectors);
}
