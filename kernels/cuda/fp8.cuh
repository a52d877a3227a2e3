/* fp8.cuh - e4m3: products of a warp group on sm_90a, and values rounded to it.
 *
 * Tiles in shared memory are those of wgmma.cuh byte for byte: 128 columns of e4m3 where 64 of bf16 would be. The tensor cores
 * add the products of an instruction, and what has been added before, to some 14 bits: sums of more than FP8_BLOCK columns
 * are made in f32. */
#ifndef KERNELS_CUDA_FP8_CUH
#define KERNELS_CUDA_FP8_CUH

#include <cuda_fp8.h>

#include "kernels/cuda/linear_fp8.cuh"
#include "kernels/cuda/wgmma.cuh"

static const float FP8_MAX = 448;

/* d (64 x N) = or += A (64 x 32) B (32 x N), as wgmma_shared. */
#define DEFINE_WGMMA_E4M3(N, COUNT, A, B, ADD)                                                               \
    static __device__ __forceinline__ void wgmma_e4m3(float(&d)[COUNT], uint64_t a, uint64_t b, int add)     \
    {                                                                                                        \
        WGMMA_BODY(asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #ADD ", 0;\n\t"                     \
                                "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" NAMES_##COUNT   \
                                "}, %" #A ", %" #B ", p, 1, 1;\n\t}"                                         \
                                : SUMS_##COUNT                                                               \
                                : "l"(a), "l"(b), "r"(add)));                                                \
    }
DEFINE_WGMMA_E4M3(8, 4, 4, 5, 6)
DEFINE_WGMMA_E4M3(16, 8, 8, 9, 10)
DEFINE_WGMMA_E4M3(32, 16, 16, 17, 18)
DEFINE_WGMMA_E4M3(64, 32, 32, 33, 34)
DEFINE_WGMMA_E4M3(128, 64, 64, 65, 66)
DEFINE_WGMMA_E4M3(192, 96, 96, 97, 98)

#endif
