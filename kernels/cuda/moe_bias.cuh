/* moe_bias.cuh - sums of experts that have biases: the same bits wherever a product ends. A bias is added in f32, before anything is
 * rounded. */
#ifndef KERNELS_CUDA_MOE_BIAS_CUH
#define KERNELS_CUDA_MOE_BIAS_CUH

#include "kernels/cuda/linear_store.cuh"
#include "kernels/cuda/moe.cuh"

/* min(x, 7); a NaN for infinities, which it would hide otherwise, and for NaN. */
static __device__ __forceinline__ float at_most_7(float x)
{
    return __fmaf_rn(x, 0.0f, fminf(x, 7.0f));
}

/* GATE_CLAMPED_SWISH (kernels/device.h) of gate and up: far below 0 the gate is 0. */
static __device__ __forceinline__ float clamped_swish_mul(float gate, float up)
{
    float g = at_most_7(gate), u = fmaxf(fminf(up, 7.0f), -7.0f),
          inverse = reciprocal_fast(__fadd_rn(1.0f, exp2_fast(__fmul_rn(-1.702f * 1.44269504f, g))));
    return __fmul_rn(__fmul_rn(g, inverse), __fmaf_rn(up, 0.0f, __fadd_rn(u, 1.0f)));
}

static __device__ __forceinline__ float2 add_bias(float x, float y, float2 bias)
{
    return make_float2(__fadd_rn(x, bias.x), __fadd_rn(y, bias.y));
}

/* Of two neighbouring columns of gate and up. */
static __device__ __forceinline__ uint32_t clamped_pair(float2 gate, float2 up)
{
    return pack_bf16(clamped_swish_mul(gate.x, up.x), clamped_swish_mul(gate.y, up.y));
}

/* What two sums become, in bf16; of a gate s goes on with up. The biases are there where the epilogue has them. */
template <enum moe_epilogue EPILOGUE>
static __device__ __forceinline__ uint32_t finish_pair(float2 s, float2 up, float2 bias, float2 up_bias)
{
    constexpr enum gate_function GATE = EPILOGUE == MOE_GELU ? GATE_GELU_TANH : GATE_SILU;
    if (EPILOGUE == MOE_SILU || EPILOGUE == MOE_GELU)
        return gate_mul<GATE>(pack_bf16(s.x, s.y), pack_bf16(up.x, up.y));
    if (EPILOGUE == MOE_SUMS) return pack_bf16(s.x, s.y);
    s = add_bias(s.x, s.y, bias);
    if (EPILOGUE == MOE_SUMS_BIAS) return pack_bf16(s.x, s.y);
    return clamped_pair(s, add_bias(up.x, up.y, up_bias));
}

/* In store_columns, of those without biases. */
static __host__ __device__ constexpr int moe_store_of(enum moe_epilogue e)
{
    return e == MOE_SILU ? EPILOGUE_SILU_MUL : e == MOE_GELU ? EPILOGUE_GELU_MUL : EPILOGUE_BF16;
}

/* Of a lane's columns in store_columns (linear_store.cuh): n + 8 i + pair and its neighbour. */
struct lane_bias {
    float2 of[2];
};

/* bias: an expert's, of so many columns. */
static __device__ __forceinline__ struct lane_bias load_lane_bias(const float *bias, int32_t n, int32_t num)
{
    struct lane_bias b;
    int32_t column = n + threadIdx.x % 32 / 8 * 2;
#pragma unroll
    for (int i = 0; i < 2; i++)
        b.of[i] = column + 8 * i < num ? *(const float2 *)(bias + column + 8 * i) : make_float2(0, 0);
    return b;
}

/* Columns n + 8 i + pair of row m of the product, and their neighbours. */
template <enum moe_epilogue EPILOGUE, int HALVES>
static __device__ __forceinline__ void store_biased(const store_args &a, int32_t m, int32_t n, int32_t pair,
                                                    const float2 (&v)[HALVES])
{
    __nv_bfloat16 *out = (__nv_bfloat16 *)a.out;
    if (m >= a.m) return;
    if constexpr (EPILOGUE == MOE_CLAMPED) {
        if (n < a.n) *(uint32_t *)(out + (size_t)m * (a.n / 2) + n / 2 + pair) = clamped_pair(v[0], v[1]);
    } else {
#pragma unroll
        for (int i = 0; i < HALVES; i++)
            if (n + 8 * i < a.n)
                *(uint32_t *)(out + (size_t)m * a.n + n + 8 * i + pair) = pack_bf16(v[i].x, v[i].y);
    }
}

/* As store_columns: sums, or what the clamped gate makes of them. */
template <int COLS, enum moe_epilogue EPILOGUE, int HALVES>
static __device__ __forceinline__ void store_columns_biased(const store_args &a, const float (&d)[COLS / 2],
                                                            const struct lane_bias &bias, int32_t first_m,
                                                            int32_t n)
{
    int lane = threadIdx.x % 32, odd = lane / 4 % 2;
#pragma unroll
    for (int j = 0; j < COLS / 8; j++) {
        float2 v[HALVES];
#pragma unroll
        for (int i = 0; i < HALVES; i++) {
            const float *own = d + 4 * j + 2 * i;
            float other = __shfl_xor_sync(0xffffffffu, odd ? own[0] : own[1], 4);
            v[i] = add_bias(odd ? other : own[0], odd ? own[1] : other, bias.of[i]);
        }
        store_biased<EPILOGUE, HALVES>(a, first_m + 8 * j + lane % 4 * 2 + odd, n, lane / 8 * 2, v);
    }
}

#endif
