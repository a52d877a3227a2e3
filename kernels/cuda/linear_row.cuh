/* linear_row.cuh - a product's only row, made by each of its CTAs: the norm of the residual stream, codes of that or of a row as it is.
 * As kernels of their own, of one CTA, they would cost what they store, their end, and the fetch of what they stored.
 *
 * The row lies in shared memory as it is. It is the N side of wgmma without a swizzle, whose other seven rows begin 16 bytes later each:
 * what they give is not stored. */
#ifndef KERNELS_CUDA_LINEAR_ROW_CUH
#define KERNELS_CUDA_LINEAR_ROW_CUH

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/norm_row.cuh"
#include "kernels/cuda/quantise.cuh"
#include "kernels/cuda/wgmma.cuh"

enum {
    ROW_NORM_MAX = 8192,    /* columns of a row that can be normed here */
    ROW_VALUES_MAX = 16384, /* of one that is not */
    ROW_BYTES_BEHIND = 128  /* of other rows, read behind the last column */
};

struct row_args {
    const __nv_bfloat16 *row; /* [K], where there is no norm */
    /* The norm of x + delta * delta_scale, which one of the CTAs writes to sum: sum is not x. */
    const float *x;             /* [K]; NULL: no norm */
    const __nv_bfloat16 *delta; /* [K] or NULL */
    float *sum;
    const float *weight; /* [K] */
    float delta_scale, eps;
    int32_t k;
    float inverse_k; /* 1 / k */
};

namespace
{

enum { ROW_WARPS = NORM_WARPS, ROW_BARRIER = 4 };

/* What kernels are compiled for instead of a number of rows of x: 1 and 2 are one row that the CTA makes, a short one and any. What is
 * compiled for more than there is takes time: code that runs once is fetched for each launch. */
__host__ __device__ constexpr bool is_row(int cols)
{
    return cols == 1 || cols == 2;
}
__host__ __device__ constexpr int row_vectors(int cols)
{
    return 4 * cols;
}
constexpr int row_norm_max(int cols)
{
    return row_vectors(cols) * 4 * NORM_THREADS;
}
static_assert((int)ROW_NORM_MAX == row_norm_max(2), "the longest");
/* Columns of a row as it is. */
__host__ __device__ constexpr int row_max(int cols)
{
    return cols == 1 ? ROW_VALUES_MAX / 4 : ROW_VALUES_MAX;
}

/* Of a row of so many columns of bf16, in front of a ring whose boxes are swizzled. */
__host__ __device__ __forceinline__ int32_t row_place_bytes(int32_t columns)
{
    return (columns * 2 + ROW_BYTES_BEHIND + 1023) / 1024 * 1024;
}

/* By the CTA's first WARPS warps; of fewer than ROW_WARPS each has the threads of several. block_scales: pairs in shared memory, of which the first counts, one for each 128 columns. */
template <int COLS, int WARPS = ROW_WARPS> struct row_maker {
    static constexpr int THREADS = WARPS * 32, PARTS = ROW_WARPS / WARPS;
    static constexpr int VECTORS = row_vectors(COLS) * PARTS;            /* of four values, of a norm */
    static constexpr int ROW_VECTORS = row_max(COLS) / 8 / NORM_THREADS; /* of eight, of a row as it is */
    const row_args &a;
    unsigned char *to; /* shared: the row, of K rounded up to filled columns */
    int32_t filled;
    float (&partial)[2][ROW_WARPS];
    float4 weight[VECTORS], v[VECTORS];

    static __device__ __forceinline__ void meet(void) { named_barrier_sync(ROW_BARRIER, THREADS); }

    /* call(j, i) for the thread's j-th vector of four, which is the row's i-th, of those that there are. */
    template <typename CALL> __device__ __forceinline__ void for_each(CALL call) const
    {
#pragma unroll
        for (int j = 0; j < VECTORS; j++) {
            int32_t i = (int32_t)threadIdx.x + j * THREADS;
            if (i < a.k / 4) call(j, i);
        }
    }

    /* Ahead of the dependency. */
    __device__ __forceinline__ void load_weight(void)
    {
        for_each([&](int j, int32_t i) { weight[j] = load_kept((const float4 *)a.weight + i); });
    }

    /* Adds delta, and gives what the sums are to be multiplied by. */
    __device__ __forceinline__ float norm(void)
    {
        uint2 delta[VECTORS] = {};
        float squares[PARTS] = {};
        for_each([&](int j, int32_t i) {
            v[j] = ((const float4 *)a.x)[i];
            if (a.delta) delta[j] = ((const uint2 *)a.delta)[i];
        });
        __syncwarp(); /* or the compiler keeps a load for later, one latency behind another */
        for_each([&](int j, int32_t) {
            if (a.delta) v[j] = add_delta(v[j], unpack_bf16x4(delta[j]), a.delta_scale);
            squares[j % PARTS] = add_squares(squares[j % PARTS], v[j]);
        });
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            float sum = sum_of_warp(squares[part]);
            if (threadIdx.x % 32 == 0) partial[0][part * WARPS + threadIdx.x / 32] = sum;
        }
        meet();
        return norm_scale(sum_of_warps(partial[0]), a.inverse_k, a.eps);
    }

    __device__ __forceinline__ void store_sum(void) const
    {
        if (!a.delta || blockIdx.x > 0) return;
        for_each([&](int j, int32_t i) { ((float4 *)a.sum)[i] = v[j]; });
    }

    /* The largest of all threads'. */
    __device__ __forceinline__ float largest(float most)
    {
        most = largest_of_warp(most, 32);
        if (threadIdx.x % 32 == 0) partial[1][threadIdx.x / 32] = most;
        meet();
        for (float of_warp : partial[1]) most = fmaxf(most, of_warp);
        return most;
    }

    /* What products read behind the last column is zeros; the row is there for all. */
    template <int VALUE_BYTES> __device__ __forceinline__ void finish(void) const
    {
        int32_t i = a.k * VALUE_BYTES / 16 + (int32_t)threadIdx.x;
        for (; i < filled * VALUE_BYTES / 16; i += THREADS) ((uint4 *)to)[i] = make_uint4(0, 0, 0, 0);
        shared_writes_fence();
        meet();
    }

    /* The norm in bf16. */
    __device__ __forceinline__ void make_normed(void)
    {
        const float scale = norm();
        for_each([&](int j, int32_t i) { ((uint2 *)to)[i] = pack_bf16x4(scale_by(v[j], scale, weight[j])); });
        finish<2>();
        store_sum();
    }

    /* The norm in codes, a warp's 128 columns or all with one scale. Returns that of all. */
    template <int FORM> __device__ __forceinline__ float make_normed_codes(float2 *block_scales)
    {
        constexpr bool BLOCKS = FORM == E4M3_OF_BLOCKS, INT8 = FORM == INT8_OF_ROWS;
        const float scale = norm();
        uint2 words[VECTORS] = {};
        float most[VECTORS], all = 0;
        for_each([&](int j, int32_t) { words[j] = pack_bf16x4(scale_by(v[j], scale, weight[j])); });
#pragma unroll
        for (int j = 0; j < VECTORS; j++) {
            most[j] = largest_of_pair(larger_pair(words[j].x, words[j].y), 0);
            if (BLOCKS) most[j] = largest_of_warp(most[j], 32);
            all = fmaxf(all, most[j]);
        }
        if (!BLOCKS) all = largest(all);
        const float inverse_all = BLOCKS ? 0 : inverse_of<INT8>(all);
        for_each([&](int j, int32_t i) {
            const float inverse = BLOCKS ? inverse_of<INT8>(most[j]) : inverse_all;
            ((uint32_t *)to)[i] = quantise_pairs<INT8>(words[j].x, words[j].y, inverse);
            if (BLOCKS && threadIdx.x % 32 == 0) block_scales[i / 32].x = scale_of<INT8>(most[j]);
        });
        finish<1>();
        store_sum();
        return scale_of<INT8>(all);
    }

    /* A row as it is, to codes, eight values at a time; 16 threads have 128 columns. */
    template <int FORM> __device__ __forceinline__ float make_codes(float2 *block_scales)
    {
        constexpr bool BLOCKS = FORM == E4M3_OF_BLOCKS, INT8 = FORM == INT8_OF_ROWS;
        uint4 row[ROW_VECTORS];
        float most[ROW_VECTORS], all = 0;
#pragma unroll
        for (int j = 0; j < ROW_VECTORS; j++) {
            int32_t i = (int32_t)threadIdx.x + j * NORM_THREADS;
            row[j] = i < a.k / 8 ? ((const uint4 *)a.row)[i] : make_uint4(0, 0, 0, 0);
        }
        __syncwarp();
#pragma unroll
        for (int j = 0; j < ROW_VECTORS; j++) {
            most[j] = largest_of(row[j]);
            if (BLOCKS) most[j] = largest_of_warp(most[j], 16);
            all = fmaxf(all, most[j]);
        }
        if (!BLOCKS) all = largest(all);
        const float inverse_all = BLOCKS ? 0 : inverse_of<INT8>(all);
#pragma unroll
        for (int j = 0; j < ROW_VECTORS; j++) {
            int32_t i = (int32_t)threadIdx.x + j * NORM_THREADS;
            if (i >= a.k / 8) break;
            const float inverse = BLOCKS ? inverse_of<INT8>(most[j]) : inverse_all;
            ((uint2 *)to)[i] = quantise_vector<INT8>(row[j], inverse);
            if (BLOCKS && threadIdx.x % 16 == 0) block_scales[i / 16].x = scale_of<INT8>(most[j]);
        }
        finish<1>();
        return scale_of<INT8>(all);
    }
};

} // namespace

#endif
