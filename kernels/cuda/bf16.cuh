/* bf16.cuh - two and four values of bf16 in a word and in two. */
#ifndef KERNELS_CUDA_BF16_CUH
#define KERNELS_CUDA_BF16_CUH

#include <cuda_bf16.h>
#include <stdint.h>

static __device__ __forceinline__ uint32_t pack_bf16(float low, float high)
{
    __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *(uint32_t *)&v;
}

static __device__ __forceinline__ float2 unpack_bf16(uint32_t pair)
{
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

static __device__ __forceinline__ float4 unpack_bf16x4(uint2 pairs)
{
    float2 low = unpack_bf16(pairs.x), high = unpack_bf16(pairs.y);
    return make_float4(low.x, low.y, high.x, high.y);
}

static __device__ float4 load_bf16x4(const __nv_bfloat16 *from)
{
    return unpack_bf16x4(*(const uint2 *)from);
}

static __device__ void store_bf16x4(__nv_bfloat16 *out, float4 v)
{
    __nv_bfloat162 low = __floats2bfloat162_rn(v.x, v.y), high = __floats2bfloat162_rn(v.z, v.w);
    uint2 raw = {*(uint32_t *)&low, *(uint32_t *)&high};
    *(uint2 *)out = raw;
}

#endif
