/* fp8.cuh - e4m3 and integers of eight bits: products of a warp group on sm_90a.
 *
 * Tiles in shared memory are those of wgmma.cuh byte for byte: 128 columns of bytes where 64 of bf16 would be. Of e4m3 the tensor cores
 * add the products of an instruction, and what has been added before, to some 14 bits: sums of many columns
 * are made in f32. Of integers sums are exact. */
#ifndef KERNELS_CUDA_FP8_CUH
#define KERNELS_CUDA_FP8_CUH

#include <cuda_fp8.h>

#include <type_traits>

#include "kernels/cuda/linear_fp8.cuh"
#include "kernels/cuda/wgmma.cuh"

static const float FP8_MAX = 448, INT8_MAX_CODE = 127; /* what the largest of a row becomes */

/* What the tensor cores add. */
template <int FORM> using byte_sum = typename std::conditional<FORM == INT8_OF_ROWS, int32_t, float>::type;

/* A (64 x 32) and B (32 x N), as wgmma_shared. */
#define DEFINE_WGMMA_E4M3(...)                                                                               \
    DEFINE_WGMMA(wgmma_e4m3, float, "+f", "k32.f32.e4m3.e4m3", ", 1, 1", __VA_ARGS__)
DEFINE_WGMMA_E4M3(8, 4, 4, 5, 6)
DEFINE_WGMMA_E4M3(16, 8, 8, 9, 10)
DEFINE_WGMMA_E4M3(32, 16, 16, 17, 18)
DEFINE_WGMMA_E4M3(64, 32, 32, 33, 34)
DEFINE_WGMMA_E4M3(128, 64, 64, 65, 66)
DEFINE_WGMMA_E4M3(192, 96, 96, 97, 98)

/* The same of integers. */
#define DEFINE_WGMMA_INT8(...) DEFINE_WGMMA(wgmma_int8, int32_t, "+r", "k32.s32.s8.s8", "", __VA_ARGS__)
DEFINE_WGMMA_INT8(8, 4, 4, 5, 6)
DEFINE_WGMMA_INT8(16, 8, 8, 9, 10)
DEFINE_WGMMA_INT8(32, 16, 16, 17, 18)
DEFINE_WGMMA_INT8(64, 32, 32, 33, 34)
DEFINE_WGMMA_INT8(128, 64, 64, 65, 66)
DEFINE_WGMMA_INT8(192, 96, 96, 97, 98)

/* Of either: sums say of which. */
template <int N>
static __device__ __forceinline__ void wgmma_bytes(float (&d)[N], uint64_t a, uint64_t b, int add)
{
    wgmma_e4m3(d, a, b, add);
}

template <int N>
static __device__ __forceinline__ void wgmma_bytes(int32_t (&d)[N], uint64_t a, uint64_t b, int add)
{
    wgmma_int8(d, a, b, add);
}

#endif
