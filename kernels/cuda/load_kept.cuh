/* load_kept.cuh - loads of small data that every layer, or every step, reads again. In the L2 it is the last to go, while weights of products,
 * which are read once, pass by: a line that has left it comes behind all weights that are asked for by then, microseconds later. */
#ifndef KERNELS_CUDA_LOAD_KEPT_CUH
#define KERNELS_CUDA_LOAD_KEPT_CUH

#include <stdint.h>

#define LOAD_KEPT(type)                                                                                      \
    "{\n\t.reg .b64 policy;\n\tcreatepolicy.fractional.L2::evict_last.b64 policy, "                          \
    "1.0;\n\tld.global.L2::cache_hint." type ", policy;\n\t}"

static __device__ __forceinline__ float4 load_kept(const float4 *from)
{
    float4 v;
    asm volatile(LOAD_KEPT("v4.f32 {%0, %1, %2, %3}, [%4]")
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(from));
    return v;
}

static __device__ __forceinline__ int4 load_kept(const int4 *from)
{
    int4 v;
    asm volatile(LOAD_KEPT("v4.s32 {%0, %1, %2, %3}, [%4]")
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

static __device__ __forceinline__ float load_kept(const float *from)
{
    float v;
    asm volatile(LOAD_KEPT("f32 %0, [%1]") : "=f"(v) : "l"(from));
    return v;
}

static __device__ __forceinline__ int32_t load_kept(const int32_t *from)
{
    int32_t v;
    asm volatile(LOAD_KEPT("s32 %0, [%1]") : "=r"(v) : "l"(from));
    return v;
}

#undef LOAD_KEPT

#endif
