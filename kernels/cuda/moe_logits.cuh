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

enum {
    LOGIT_SLICES = 4,
    LOGIT_BLOCK = 32,
    LOGIT_ROWS = 16,
    LOGIT_EXPERTS = 8,
    LOGIT_BATCH = 16 /* blocks of a warp that are asked for at a time: 2,048 columns of x */
};

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

/* Adds the products of a block's columns, of which a thread has 8: x of rows g and g + 8, w of row g. */
__device__ __forceinline__ void add_logit_block(float (&sums)[4], const uint4 (&x)[2], const uint4 &w)
{
    const uint32_t low[4] = {x[0].x, x[1].x, x[0].y, x[1].y}, high[4] = {x[0].z, x[1].z, x[0].w, x[1].w};
    mma_bf16(sums, low, w.x, w.y);
    mma_bf16(sums, high, w.z, w.w);
}

/* Of a warp's slice, where its i-th block's columns of this thread begin. */
__device__ __forceinline__ int32_t logit_column(int32_t i)
{
    return (i * LOGIT_SLICES + (int32_t)threadIdx.x / 32) * LOGIT_BLOCK + threadIdx.x % 4 * 8;
}

/* What a thread has of 8 experts in a batch of its warp's slice, from its first-th block on. */
__device__ __forceinline__ void load_logit_weights(uint4 (&w)[LOGIT_BATCH], const logit_args &a,
                                                   int32_t first_expert, int32_t first)
{
#pragma unroll
    for (int i = 0; i < LOGIT_BATCH; i++)
        w[i] = logit_columns(a.router, first_expert + threadIdx.x % 32 / 4, a.num_experts,
                             logit_column(first + i), a.hidden);
}

/* A warp's slice of the sums of 16 tokens and 8 experts. Few tokens wait for latencies: a batch of x is under way at a time. w: the first
 * batch of the experts, which is in no memory of the kernels before. */
__device__ __forceinline__ void sum_logit_slice(float (&sums)[1][1][4], const logit_args &a,
                                                int32_t first_token, int32_t first_expert,
                                                uint4 (&w)[LOGIT_BATCH])
{
    const int32_t token = first_token + threadIdx.x % 32 / 4;
    for (int32_t first = 0;;) {
        uint4 x[LOGIT_BATCH][2];
#pragma unroll
        for (int i = 0; i < LOGIT_BATCH; i++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                x[i][half] =
                    logit_columns(a.x, token + 8 * half, a.num_tokens, logit_column(first + i), a.hidden);
        __syncwarp(); /* the compiler would move loads to where they are used, one latency behind another */
#pragma unroll
        for (int i = 0; i < LOGIT_BATCH; i++) add_logit_block(sums[0][0], x[i], w[i]);
        first += LOGIT_BATCH;
        if (first * LOGIT_SLICES * LOGIT_BLOCK >= a.hidden) return;
        load_logit_weights(w, a, first_expert, first);
    }
}

/* The same for 16 ROWS tokens and 8 COLS experts, block by block. */
template <int ROWS, int COLS>
__device__ __forceinline__ void sum_logit_slice(float (&sums)[ROWS][COLS][4], const logit_args &a,
                                                int32_t first_token, int32_t first_expert)
{
    const int32_t g = threadIdx.x % 32 / 4;
#pragma unroll 4
    for (int32_t k = logit_column(0); k - (int32_t)threadIdx.x % 4 * 8 < a.hidden;
         k += LOGIT_SLICES * LOGIT_BLOCK) {
        uint4 w[COLS];
#pragma unroll
        for (int j = 0; j < COLS; j++)
            w[j] = logit_columns(a.router, first_expert + LOGIT_EXPERTS * j + g, a.num_experts, k, a.hidden);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int32_t token = first_token + LOGIT_ROWS * i + g;
            const uint4 x[2] = {logit_columns(a.x, token, a.num_tokens, k, a.hidden),
                                logit_columns(a.x, token + 8, a.num_tokens, k, a.hidden)};
#pragma unroll
            for (int j = 0; j < COLS; j++) add_logit_block(sums[i][j], x, w[j]);
        }
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
