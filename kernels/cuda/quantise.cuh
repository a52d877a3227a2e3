/* quantise.cuh - values of bf16 to e4m3 whose largest becomes 448, or to integers whose largest becomes 127: in a pass of its own
 * (quantise.cu) and as a norm is stored. INT8: integers. */
#ifndef KERNELS_CUDA_QUANTISE_CUH
#define KERNELS_CUDA_QUANTISE_CUH

#include "kernels/cuda/bf16.cuh"
#include "kernels/cuda/fp8.cuh"

/* Of a pair's magnitudes and most. */
static __device__ __forceinline__ float largest_of_pair(uint32_t word, float most)
{
    float2 pair = unpack_bf16(word);
    return fmaxf(most, fmaxf(fabsf(pair.x), fabsf(pair.y)));
}

/* The larger magnitudes of two pairs. */
static __device__ __forceinline__ uint32_t larger_pair(uint32_t a, uint32_t b)
{
    a &= 0x7fff7fffu;
    b &= 0x7fff7fffu;
    __nv_bfloat162 larger = __hmax2(*(__nv_bfloat162 *)&a, *(__nv_bfloat162 *)&b);
    return *(uint32_t *)&larger;
}

/* Of eight values. */
static __device__ __forceinline__ float largest_of(uint4 v)
{
    return largest_of_pair(larger_pair(larger_pair(v.x, v.y), larger_pair(v.z, v.w)), 0);
}

/* Of as many lanes, a power of two, as lie together. */
static __device__ __forceinline__ float largest_of_warp(float most, int lanes)
{
    for (int mask = lanes / 2; mask > 0; mask /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, mask));
    return most;
}

/* What the codes of values, of which most is the largest magnitude, stand for times. */
template <bool INT8> static __device__ __forceinline__ float scale_of(float most)
{
    return most * (1.0f / (INT8 ? INT8_MAX_CODE : FP8_MAX));
}

template <bool INT8> static __device__ __forceinline__ float inverse_of(float most)
{
    return most > 0 ? (INT8 ? INT8_MAX_CODE : FP8_MAX) / most : 0;
}

/* To the nearest, of two the even one. A NaN becomes 0. */
static __device__ __forceinline__ uint32_t int8_of(float x)
{
    return (uint32_t)min(max(__float2int_rn(x), -127), 127) & 0xff;
}

template <bool INT8> static __device__ __forceinline__ uint32_t quantise_pair(uint32_t word, float inverse)
{
    const float2 pair = unpack_bf16(word), v = make_float2(pair.x * inverse, pair.y * inverse);
    if (INT8) return int8_of(v.x) | int8_of(v.y) << 8;
    return __nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, __NV_E4M3);
}

/* Four values. */
template <bool INT8>
static __device__ __forceinline__ uint32_t quantise_pairs(uint32_t low, uint32_t high, float inverse)
{
    return quantise_pair<INT8>(low, inverse) | quantise_pair<INT8>(high, inverse) << 16;
}

/* Eight. */
template <bool INT8> static __device__ __forceinline__ uint2 quantise_vector(uint4 v, float inverse)
{
    return make_uint2(quantise_pairs<INT8>(v.x, v.y, inverse), quantise_pairs<INT8>(v.z, v.w, inverse));
}

#endif
