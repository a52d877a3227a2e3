/* silu.cuh - silu(gate) * up of a product's sums: the same bits in the epilogue of a product and in a pass of
 * its own. */
#ifndef KERNELS_CUDA_SILU_CUH
#define KERNELS_CUDA_SILU_CUH

#include "kernels/cuda/mma.cuh"

/* x / (1 + 2^(-x log2 e)), two instructions of the special unit; below -88 it is 0. */
static __device__ __forceinline__ float silu(float x)
{
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + exp2_fast(-1.44269504f * x)));
    return x * inverse;
}

/* Of two neighbouring columns, gate and up rounded to bf16. */
static __device__ __forceinline__ uint32_t silu_mul(uint32_t gate, uint32_t up)
{
    float2 g = unpack_bf16(gate), u = unpack_bf16(up);
    return pack_bf16(silu(g.x) * u.x, silu(g.y) * u.y);
}

#endif
