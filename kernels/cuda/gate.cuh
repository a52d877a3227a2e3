/* gate.cuh - f(gate) * up of a product's sums: the same bits in the epilogue of a product and in a pass of its own. */
#ifndef KERNELS_CUDA_GATE_CUH
#define KERNELS_CUDA_GATE_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/mma.cuh"

/* x / (1 + 2^(-x log2 e)), two instructions of the special unit; below -88 it is 0. */
static __device__ __forceinline__ float silu(float x)
{
    return x * reciprocal_fast(1.0f + exp2_fast(-1.44269504f * x));
}

/* Of two neighbouring columns, gate and up rounded to bf16. */
static __device__ __forceinline__ uint32_t silu_mul(uint32_t gate, uint32_t up)
{
    float2 g = unpack_bf16(gate), u = unpack_bf16(up);
    return pack_bf16(silu(g.x) * u.x, silu(g.y) * u.y);
}

/* x / (1 + e^-y), y = sqrt(8 / pi) (x + 0.044715 x^3): GELU approximated with tanh. */
static __device__ __forceinline__ float gelu_tanh(float x)
{
    float y = 1.59576912f * (x + 0.044715f * x * x * x);
    return x * reciprocal_fast(1.0f + exp2_fast(-1.44269504f * y));
}

/* GELU itself. */
static __device__ __forceinline__ float gelu(float x)
{
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
}

/* v: a, b and c. Where x is so small that e^x - 1 - x has lost its digits, c x is what counts. */
static __device__ __forceinline__ float xielu(float x, float3 v)
{
    return (x > 0 ? v.x * x * x : v.y * (expm1f(x) - x)) + v.z * x;
}

/* What a gate, or an MLP without one, becomes where it is not SiLU; values: of xIELU alone. */
template <enum gate_function GATE> static __device__ __forceinline__ float gate_alone(float x, float3 values)
{
    if (GATE == GATE_XIELU) return xielu(x, values);
    if (GATE == GATE_GELU_TANH) return gelu_tanh(x);
    if (GATE == GATE_GELU) return gelu(x);
    if (GATE == GATE_RELU) return fmaxf(x, 0);
    return x > 0 ? x * x : 0; /* GATE_RELU_SQUARED */
}

/* Of two neighbouring columns, gate and up rounded to bf16. */
template <enum gate_function GATE>
static __device__ __forceinline__ uint32_t gate_mul(uint32_t gate, uint32_t up)
{
    if (GATE == GATE_SILU) return silu_mul(gate, up);
    float2 g = unpack_bf16(gate), u = unpack_bf16(up);
    return pack_bf16(gate_alone<GATE>(g.x, {}) * u.x, gate_alone<GATE>(g.y, {}) * u.y);
}

#endif
