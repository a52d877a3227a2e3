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

/* Adds the products of a block's columns, of which a thread has 8. */
template <int ROWS, int COLS>
__device__ __forceinline__ void add_logit_block(float (&sums)[ROWS][COLS][4], const logit_args &a,
                                                int32_t first_token, int32_t column, const uint4 (&w)[COLS])
{
    int g = threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        int32_t token = first_token + LOGIT_ROWS * i + g;
        uint4 x[2] = {logit_columns(a.x, token, a.num_tokens, column, a.hidden),
                      logit_columns(a.x, token + 8, a.num_tokens, column, a.hidden)};
        const uint32_t low[4] = {x[0].x, x[1].x, x[0].y, x[1].y}, high[4] = {x[0].z, x[1].z, x[0].w, x[1].w};
#pragma unroll
        for (int j = 0; j < COLS; j++) {
            mma_bf16(sums[i][j], low, w[j].x, w[j].y);
            mma_bf16(sums[i][j], high, w[j].z, w[j].w);
        }
    }
}

/* Of a warp's slice, where its i-th block's columns of this thread begin. */
__device__ __forceinline__ int32_t logit_column(int i)
{
    return (i * LOGIT_SLICES + (int32_t)threadIdx.x / 32) * LOGIT_BLOCK + threadIdx.x % 4 * 8;
}

/* What a warp has of the router ahead of the dependency: AHEAD blocks of its slice of 8 experts. */
template <int AHEAD> struct router_ahead {
    uint4 w[AHEAD][1];

    __device__ __forceinline__ void load(const logit_args &a, int32_t first_expert)
    {
        int32_t expert = first_expert + threadIdx.x % 32 / 4;
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            w[i][0] = logit_columns(a.router, expert, a.num_experts, logit_column(i), a.hidden);
    }
};

/* A warp's slice of the sums of 16 ROWS tokens and 8 COLS experts, from its first-th block on. */
template <int ROWS, int COLS>
__device__ __forceinline__ void sum_logit_slice(float (&sums)[ROWS][COLS][4], const logit_args &a,
                                                int32_t first_token, int32_t first_expert, int first)
{
    int32_t expert = first_expert + threadIdx.x % 32 / 4;
#pragma unroll 4
    for (int32_t k = logit_column(first); k - threadIdx.x % 4 * 8 < a.hidden;
         k += LOGIT_SLICES * LOGIT_BLOCK) {
        uint4 w[COLS];
#pragma unroll
        for (int j = 0; j < COLS; j++)
            w[j] = logit_columns(a.router, expert + LOGIT_EXPERTS * j, a.num_experts, k, a.hidden);
        add_logit_block<ROWS, COLS>(sums, a, first_token, k, w);
    }
}

/* Adds up the slices of a CTA's LOGIT_SLICES warps: 16 ROWS tokens of block x, 8 COLS experts of block y. */
template <int ROWS, int COLS>
__device__ __forceinline__ void store_logits_tile(const float (&sums)[ROWS][COLS][4], const logit_args &a)
{
    constexpr int TOKENS = LOGIT_ROWS * ROWS, EXPERTS = LOGIT_EXPERTS * COLS;
    __shared__ __align__(8) float slices[LOGIT_SLICES][TOKENS][EXPERTS]; /* stored in pairs */
    int slice = threadIdx.x / 32, lane = threadIdx.x % 32;
    int32_t first_token = blockIdx.x * TOKENS, first_expert = blockIdx.y * EXPERTS;
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
