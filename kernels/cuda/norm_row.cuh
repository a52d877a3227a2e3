/* norm_row.cuh - the arithmetic of RMSNorm over a row, the same bits wherever it is computed: by a CTA of 256 threads (norm.cu), or by
 * as many in each CTA of the product behind it (linear_row.cuh).
 *
 * Of vectors of four values thread t has t, t + 256, ... ; sums go over a thread's values in order, over the lanes of a warp by
 * xor-shuffle, and over the warps in order. */
#ifndef KERNELS_CUDA_NORM_ROW_CUH
#define KERNELS_CUDA_NORM_ROW_CUH

#include "kernels/cuda/bf16.cuh"
#include "kernels/cuda/load_kept.cuh"

enum { NORM_THREADS = 256, NORM_WARPS = NORM_THREADS / 32 };

/* Joins the sum of a thread. */
static __device__ __forceinline__ float add_squares(float sum, float4 v)
{
    return sum + __fmaf_rn(v.w, v.w, __fmaf_rn(v.z, v.z, __fmaf_rn(v.y, v.y, v.x * v.x)));
}

static __device__ __forceinline__ float sum_of_warp(float x)
{
    for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
    return x;
}

static __device__ __forceinline__ float sum_of_warps(const float (&partial)[NORM_WARPS])
{
    float sum = 0;
    for (float of_warp : partial) sum += of_warp;
    return sum;
}

/* Over a CTA of NORM_THREADS, the same bits in every thread. partial: of the CTA, and of this sum alone. */
static __device__ __forceinline__ float sum_over_block(float x, float (&partial)[NORM_WARPS])
{
    x = sum_of_warp(x);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
    __syncthreads();
    return sum_of_warps(partial);
}

/* inverse_size: of the number of values. */
static __device__ __forceinline__ float norm_scale(float squares, float inverse_size, float eps)
{
    return rsqrtf(__fmaf_rn(squares, inverse_size, eps));
}

/* x + delta * scale. */
static __device__ __forceinline__ float4 add_delta(float4 x, float4 delta, float scale)
{
    return make_float4(__fmaf_rn(delta.x, scale, x.x), __fmaf_rn(delta.y, scale, x.y),
                       __fmaf_rn(delta.z, scale, x.z), __fmaf_rn(delta.w, scale, x.w));
}

static __device__ __forceinline__ float4 scale_by(float4 v, float scale, float4 weight)
{
    return make_float4(v.x * scale * weight.x, v.y * scale * weight.y, v.z * scale * weight.z,
                       v.w * scale * weight.w);
}

static __device__ __forceinline__ uint2 pack_bf16x4(float4 v)
{
    return make_uint2(pack_bf16(v.x, v.y), pack_bf16(v.z, v.w));
}

#endif
