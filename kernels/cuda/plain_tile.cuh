/* plain_tile.cuh - a tile of a product of bf16 on any machine: TILE_ROWS rows of x by TILE_COLUMNS rows of W, by mma.m16n8k16 from a ring
 * that cp.async fills. A CTA is one such tile. Sums go along K in order. */
#ifndef KERNELS_CUDA_PLAIN_TILE_CUH
#define KERNELS_CUDA_PLAIN_TILE_CUH

#include "kernels/cuda/mma.cuh"

namespace
{

enum {
    WARPS = 4,
    THREADS = WARPS * 32,
    TILE_ROWS = 64,    /* 16 a warp */
    TILE_COLUMNS = 64, /* rows of the weight */
    TILE_K = 64,
    STAGES = 4,
    PITCH = TILE_K * 2 + 16, /* bytes of a row in shared memory: eight rows meet all banks */
    OPERAND_BYTES = TILE_ROWS * PITCH,
    STAGE_BYTES = 2 * OPERAND_BYTES,
    RING_BYTES = STAGES * STAGE_BYTES,
};

static_assert(TILE_ROWS == TILE_COLUMNS, "both operands of a stage are loaded alike");

/* What a thread copies of a stage: one chunk of 16 bytes of every fourth row, of both operands. */
struct stage_rows {
    static constexpr int ROWS = TILE_ROWS / (THREADS / (TILE_K / 8));
    const __nv_bfloat16 *x[ROWS], *w[ROWS]; /* those that are not there: any others */
    bool has_x[ROWS], has_w[ROWS];
};

/* x_of, w_of: from the number of a row in the tile to where it begins; NULL: it is not there. */
template <typename X_OF, typename W_OF>
__device__ __forceinline__ void find_rows(struct stage_rows *r, const X_OF &x_of, const W_OF &w_of)
{
#pragma unroll
    for (int j = 0; j < stage_rows::ROWS; j++) {
        const int32_t row = threadIdx.x / (TILE_K / 8) + j * (THREADS / (TILE_K / 8));
        const __nv_bfloat16 *x = x_of(row), *w = w_of(row);
        r->has_x[j] = x != NULL;
        r->has_w[j] = w != NULL;
        r->x[j] = x ? x : x_of(0);
        r->w[j] = w ? w : w_of(0);
    }
}

__device__ __forceinline__ void load_stage(const struct stage_rows &r, uint32_t stage, int32_t first_k,
                                           int32_t k)
{
    int chunk = threadIdx.x % (TILE_K / 8), column = first_k + chunk * 8;
    bool inside = column < k;
#pragma unroll
    for (int j = 0; j < stage_rows::ROWS; j++) {
        uint32_t to =
            stage + (threadIdx.x / (TILE_K / 8) + j * (THREADS / (TILE_K / 8))) * PITCH + chunk * 16;
        copy_async(to, r.x[j] + (inside ? column : 0), inside && r.has_x[j]);
        copy_async(to + OPERAND_BYTES, r.w[j] + (inside ? column : 0), inside && r.has_w[j]);
    }
}

__device__ __forceinline__ void multiply_stage(float (&sums)[TILE_COLUMNS / 8][4], uint32_t stage)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t x = stage + (warp * 16 + lane % 16) * PITCH + lane / 16 * 16,
             w = stage + OPERAND_BYTES + (lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2 * 16;
#pragma unroll
    for (int k = 0; k < TILE_K / 16; k++) {
        uint32_t rows[4];
        load_matrix(rows, x + k * 32);
#pragma unroll
        for (int n = 0; n < TILE_COLUMNS / 16; n++) {
            uint32_t columns[4];
            load_matrix(columns, w + n * 16 * PITCH + k * 32);
            mma_bf16(sums[2 * n], rows, columns[0], columns[1]);
            mma_bf16(sums[2 * n + 1], rows, columns[2], columns[3]);
        }
    }
}

/* d[n][i]: as a warp's C of columns 8 n (mma.cuh), of its 16 rows, some of which are there if has_rows. ring: RING_BYTES. */
__device__ __forceinline__ void multiply_tile(float (&sums)[TILE_COLUMNS / 8][4],
                                              const struct stage_rows &rows, int32_t k, bool has_rows,
                                              uint32_t ring)
{
    const int32_t num_k = (k + TILE_K - 1) / TILE_K;
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < num_k) load_stage(rows, ring + s * STAGE_BYTES, s * TILE_K, k);
        copy_commit();
    }
    for (int32_t i = 0; i < num_k; i++) {
        copy_wait<STAGES - 2>();
        __syncthreads(); /* stage i is there, and all have read stage i - 1, whose place is filled next */
        int32_t next = i + STAGES - 1;
        if (next < num_k) load_stage(rows, ring + next % STAGES * STAGE_BYTES, next * TILE_K, k);
        copy_commit();
        if (has_rows) multiply_stage(sums, ring + i % STAGES * STAGE_BYTES);
    }
    copy_wait<0>();
}

} // namespace

#endif
