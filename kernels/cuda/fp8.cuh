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

/* A (64 x 32) and B (32 x N), as wgmma_shared. */
#define DEFINE_WGMMA_E4M3(...) DEFINE_WGMMA(wgmma_e4m3, "k32.f32.e4m3.e4m3", "", __VA_ARGS__)
DEFINE_WGMMA_E4M3(8, 4, 4, 5, 6)
DEFINE_WGMMA_E4M3(16, 8, 8, 9, 10)
DEFINE_WGMMA_E4M3(32, 16, 16, 17, 18)
DEFINE_WGMMA_E4M3(64, 32, 32, 33, 34)
DEFINE_WGMMA_E4M3(128, 64, 64, 65, 66)
DEFINE_WGMMA_E4M3(192, 96, 96, 97, 98)

#endif
