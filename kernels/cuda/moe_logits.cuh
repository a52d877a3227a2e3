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
    LOGIT_STEP = LOGIT_SLICES * LOGIT_BLOCK, /* from block to block of a slice */
    LOGIT_ROWS = 16,
    LOGIT_EXPERTS = 8,
    LOGIT_BATCH = 16,     /* blocks of a warp that are asked for at a time: 2,048 columns of x */
    LOGIT_BATCH_LONG = 24 /* of one token */
};

struct logit_args {
    float *logits;                           /* [T][num_experts] */
    const __nv_bfloat16 *x, *router;         /* [T][H], [num_experts][H] */
    int32_t num_tokens, num_experts, hidden; /* the shared expert's gate is one of them */
};

/* What a thread reads of a row of a matrix: 8 columns of every LOGIT_SLICES-th block, zeros beyond the matrix. */
struct logit_row {
    const uint4 *from;
    int32_t left; /* columns from there on */

    __device__ __forceinline__ logit_row(const __nv_bfloat16 *m, int32_t row, int32_t num_rows,
                                         int32_t column, int32_t hidden)
        : from((const uint4 *)(m + (size_t)row * hidden + column)), left(row < num_rows ? hidden - column : 0)
    {
    }

    __device__ __forceinline__ uint4 load(int32_t i) const
    {
        return i * LOGIT_STEP < left ? from[i * (LOGIT_STEP / 8)] : make_uint4(0, 0, 0, 0);
    }
};

/* Adds the products of a block's columns, of which a thread has 8: x of rows g and g + 8, w of row g. */
__device__ __forceinline__ void add_logit_block(float (&sums)[4], const uint4 (&x)[2], const uint4 &w)
{
    const uint32_t low[4] = {x[0].x, x[1].x, x[0].y, x[1].y}, high[4] = {x[0].z, x[1].z, x[0].w, x[1].w};
    mma_bf16(sums, low, w.x, w.y);
    mma_bf16(sums, high, w.z, w.w);
}

/* Of a slice, where its i-th block's columns of this thread begin. */
__device__ __forceinline__ int32_t logit_column(int32_t slice, int32_t i)
{
    return (i * LOGIT_SLICES + slice) * LOGIT_BLOCK + threadIdx.x % 4 * 8;
}

/* What a thread has of 8 experts in a batch of a slice, from its first-th block on. */
template <int BATCH>
__device__ __forceinline__ void load_logit_weights(uint4 (&w)[BATCH], const logit_args &a, int32_t slice,
                                                   int32_t first_expert, int32_t first)
{
    const logit_row row(a.router, first_expert + threadIdx.x % 32 / 4, a.num_experts,
                        logit_column(slice, first), a.hidden);
#pragma unroll
    for (int i = 0; i < BATCH; i++) w[i] = row.load(i);
}

/* A warp's slice of the sums of 16 tokens and 8 experts. Few tokens wait for latencies: a batch of x is under way at a time. w: the first
 * batch. */
__device__ __forceinline__ void sum_logit_slice(float (&sums)[1][1][4], const logit_args &a, int32_t slice,
                                                int32_t first_token, int32_t first_expert,
                                                uint4 (&w)[LOGIT_BATCH])
{
    const int32_t token = first_token + threadIdx.x % 32 / 4;
    for (int32_t first = 0;;) {
        uint4 x[LOGIT_BATCH][2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const logit_row row(a.x, token + 8 * half, a.num_tokens, logit_column(slice, first), a.hidden);
#pragma unroll
            for (int i = 0; i < LOGIT_BATCH; i++) x[i][half] = row.load(i);
        }
        __syncwarp(); /* the compiler would move loads to where they are used, one latency behind another */
#pragma unroll
        for (int i = 0; i < LOGIT_BATCH; i++) add_logit_block(sums[0][0], x[i], w[i]);
        first += LOGIT_BATCH;
        if (first * LOGIT_STEP >= a.hidden) return;
        load_logit_weights(w, a, slice, first_expert, first);
    }
}

/* Columns of x, in whole batches. */
template <int BATCH> __host__ __device__ int32_t logit_columns_padded(int32_t hidden)
{
    return (hidden + BATCH * LOGIT_STEP - 1) / (BATCH * LOGIT_STEP) * (BATCH * LOGIT_STEP);
}

/* The only token to shared memory, zeros behind it, as the thread-th of LOGIT_SLICES warps. */
template <int BATCH>
__device__ __forceinline__ void copy_token(uint4 *to, const logit_args &a, int32_t thread)
{
    const uint32_t shared = shared_address(to);
#pragma unroll 1
    for (int32_t k = 8 * thread; k < logit_columns_padded<BATCH>(a.hidden); k += 8 * LOGIT_SLICES * 32)
        copy_async(shared + 2 * k, a.x + min(k, a.hidden - 8), k < a.hidden);
    copy_commit();
    copy_wait<0>();
}

/* The sums of one token, x in shared memory: the other rows of products have the same. */
template <int BATCH>
__device__ __forceinline__ void sum_token_slice(float (&sums)[1][1][4], const logit_args &a, const uint4 *x,
                                                int32_t slice, int32_t first_expert, uint4 (&w)[BATCH])
{
#pragma unroll 1
    for (int32_t first = 0;;) {
        const uint4 *from = x + logit_column(slice, first) / 8;
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const uint4 rows[2] = {from[i * (LOGIT_STEP / 8)], make_uint4(0, 0, 0, 0)};
            add_logit_block(sums[0][0], rows, w[i]);
        }
        first += BATCH;
        if (first * LOGIT_STEP >= a.hidden) return;
        load_logit_weights(w, a, slice, first_expert, first);
    }
}

/* The same for 16 ROWS tokens and 8 COLS experts, block by block: warp s has slice s. */
template <int ROWS, int COLS>
__device__ __forceinline__ void sum_wide_logit_slice(float (&sums)[ROWS][COLS][4], const logit_args &a,
                                                     int32_t first_token, int32_t first_expert)
{
    const int32_t g = threadIdx.x % 32 / 4;
    const int32_t column = logit_column(threadIdx.x / 32, 0);
#pragma unroll 4
    for (int32_t i = 0; i * LOGIT_STEP < a.hidden; i++) {
        uint4 w[COLS];
#pragma unroll
        for (int j = 0; j < COLS; j++)
            w[j] = logit_row(a.router, first_expert + LOGIT_EXPERTS * j + g, a.num_experts, column, a.hidden)
                       .load(i);
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            const int32_t token = first_token + LOGIT_ROWS * j + g;
            const uint4 x[2] = {logit_row(a.x, token, a.num_tokens, column, a.hidden).load(i),
                                logit_row(a.x, token + 8, a.num_tokens, column, a.hidden).load(i)};
#pragma unroll
            for (int l = 0; l < COLS; l++) add_logit_block(sums[j][l], x, w[l]);
        }
    }
}

/* Of a CTA's slices: 16 ROWS tokens of block x, 8 COLS experts of block y. */
template <int ROWS, int COLS> struct logit_tile {
    static constexpr int TOKENS = LOGIT_ROWS * ROWS, EXPERTS = LOGIT_EXPERTS * COLS;
    float slices[LOGIT_SLICES][TOKENS][EXPERTS]; /* stored in pairs */

    __device__ __forceinline__ void put(int32_t slice, const float (&sums)[ROWS][COLS][4])
    {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLS; j++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    *(float2 *)&slices[slice][LOGIT_ROWS * i + 8 * half + lane / 4][8 * j + lane % 4 * 2] =
                        make_float2(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
    }

    /* Adds up the slices, as the thread-th of LOGIT_SLICES warps: store(token, expert, logit). */
    template <typename STORE>
    __device__ __forceinline__ void add(const logit_args &a, int32_t thread, STORE store) const
    {
        const int32_t first_token = blockIdx.x * TOKENS, first_expert = blockIdx.y * EXPERTS;
        const int32_t num = min(TOKENS, a.num_tokens - first_token) * EXPERTS;
#pragma unroll 1
        for (int32_t at = thread; at < num; at += LOGIT_SLICES * 32) {
            int32_t token = first_token + at / EXPERTS, expert = first_expert + at % EXPERTS;
            const float *sum = &slices[0][0][0] + at;
            float total = sum[0];
#pragma unroll
            for (int s = 1; s < LOGIT_SLICES; s++) total += sum[s * TOKENS * EXPERTS];
            if (expert < a.num_experts) store(token, expert, total);
        }
    }
};

} // namespace

#endif
