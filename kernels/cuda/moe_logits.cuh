/* moe_logits.cuh - logits of experts, x router^T in f32, by tensor cores where the router is of bf16.
 *
 * The columns of x are cut into blocks of 32, which four warps take in turns: each has the sums of a slice of K, and the four are
 * added in order. Within a block a thread has 8 neighbouring columns of its rows, 16 bytes of a load, and the products of
 * 16 columns take whichever two pairs each thread has next: an order like any other, and the same for every number of tokens. */
#ifndef KERNELS_CUDA_MOE_LOGITS_CUH
#define KERNELS_CUDA_MOE_LOGITS_CUH

#include "kernels/cuda/mma.cuh"

namespace
{

enum { LOGIT_SLICES = 4, LOGIT_BLOCK = 32, LOGIT_ROWS = 16, LOGIT_EXPERTS = 8 };

struct logit_args {
    float *logits;                           /* [T][num_experts] */
    const __nv_bfloat16 *x, *router;         /* [T][H], [num_experts][H] */
    int32_t num_tokens, num_experts, hidden; /* the shared expert's gate is one of them */
};

/* 8 columns from column on, zeros beyond the matrix. */
__device__ __forceinline__ uint4 logit_columns(const __nv_bfloat16 *m, int32_t row, int32_t num_rows,
                                               int32_t column, int32_t hidden)
{
    if (row >= num_rows || column >= hidden) return make_uint4(0, 0, 0, 0);
    return *(const uint4 *)(m + (size_t)row * hidden + column);
}

/* A warp's slice of the sums of 16 ROWS tokens and 8 COLS experts. */
template <int ROWS, int COLS>
__device__ __forceinline__ void sum_logit_slice(float (&sums)[ROWS][COLS][4], const logit_args &a,
                                                int32_t first_token, int32_t first_expert, int slice)
{
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll 4
    for (int32_t k = slice * LOGIT_BLOCK + 8 * t; k - 8 * t < a.hidden; k += LOGIT_SLICES * LOGIT_BLOCK) {
        uint4 x[ROWS][2], w[COLS];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                x[i][half] = logit_columns(a.x, first_token + LOGIT_ROWS * i + 8 * half + g, a.num_tokens, k,
                                           a.hidden);
#pragma unroll
        for (int j = 0; j < COLS; j++)
            w[j] = logit_columns(a.router, first_expert + LOGIT_EXPERTS * j + g, a.num_experts, k, a.hidden);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const uint32_t low[4] = {x[i][0].x, x[i][1].x, x[i][0].y, x[i][1].y},
                           high[4] = {x[i][0].z, x[i][1].z, x[i][0].w, x[i][1].w};
#pragma unroll
            for (int j = 0; j < COLS; j++) {
                mma_bf16(sums[i][j], low, w[j].x, w[j].y);
                mma_bf16(sums[i][j], high, w[j].z, w[j].w);
            }
        }
    }
}

/* Logits of a CTA of LOGIT_SLICES warps: 16 ROWS tokens of block x, 8 COLS experts of block y. */
template <int ROWS, int COLS> __device__ __forceinline__ void compute_logits_tile(const logit_args &a)
{
    constexpr int TOKENS = LOGIT_ROWS * ROWS, EXPERTS = LOGIT_EXPERTS * COLS;
    __shared__ __align__(8) float slices[LOGIT_SLICES][TOKENS][EXPERTS]; /* stored in pairs */
    int slice = threadIdx.x / 32, lane = threadIdx.x % 32;
    int32_t first_token = blockIdx.x * TOKENS, first_expert = blockIdx.y * EXPERTS;
    float sums[ROWS][COLS][4] = {};
    sum_logit_slice<ROWS, COLS>(sums, a, first_token, first_expert, slice);
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLS; j++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *(float2 *)&slices[slice][LOGIT_ROWS * i + 8 * half + lane / 4][8 * j + lane % 4 * 2] =
                    make_float2(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
    __syncthreads();
    for (int at = threadIdx.x; at < TOKENS * EXPERTS; at += LOGIT_SLICES * 32) {
        int32_t token = first_token + at / EXPERTS, expert = first_expert + at % EXPERTS;
        const float *sum = &slices[0][0][0] + at;
        float total = sum[0];
#pragma unroll
        for (int s = 1; s < LOGIT_SLICES; s++) total += sum[s * TOKENS * EXPERTS];
        if (token < a.num_tokens && expert < a.num_experts)
            a.logits[(size_t)token * a.num_experts + expert] = total;
    }
}

} // namespace

#endif
