/* moe_plain.cu - products of experts on any machine: mma.m16n8k16 from a ring that cp.async fills.
 *
 * A CTA computes a tile of TILE_ROWS rows by TILE_COLUMNS rows of the expert's weight. The grid is as large as it could have to be;
 * CTAs that are not needed end at once. Sums go along K in order. */
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/moe.cuh"
#include "kernels/cuda/moe_bias.cuh"

namespace
{

enum {
    WARPS = 4,
    THREADS = WARPS * 32,
    TILE_ROWS = MOE_PLAIN_ROWS, /* 16 a warp */
    TILE_COLUMNS = 64,          /* rows of the weight */
    TILE_K = 64,
    STAGES = 4,
    PITCH = TILE_K * 2 + 16, /* bytes of a row in shared memory: eight rows meet all banks */
    OPERAND_BYTES = TILE_ROWS * PITCH,
    STAGE_BYTES = 2 * OPERAND_BYTES,
};

static_assert(TILE_ROWS == TILE_COLUMNS, "both operands of a stage are loaded alike");

/* What a thread copies of a stage: one chunk of 16 bytes of every fourth row, of both operands. */
struct stage_rows {
    static constexpr int ROWS = TILE_ROWS / (THREADS / (TILE_K / 8));
    const __nv_bfloat16 *x[ROWS], *w[ROWS];
    bool has_x[ROWS], has_w[ROWS];
};

__device__ __forceinline__ void find_rows(struct stage_rows *r, const moe_product &a,
                                          const struct moe_tile &tile, int32_t first_n)
{
    const __nv_bfloat16 *weight = a.weight + (size_t)tile.expert * a.n * a.k;
#pragma unroll
    for (int j = 0; j < stage_rows::ROWS; j++) {
        int32_t row = threadIdx.x / (TILE_K / 8) + j * (THREADS / (TILE_K / 8)), n = first_n + row;
        r->has_x[j] = row < tile.count;
        r->has_w[j] = n < a.n;
        r->x[j] = a.x + (size_t)(tile.first + (r->has_x[j] ? row : 0)) * a.k;
        r->w[j] = weight + (size_t)(r->has_w[j] ? n : 0) * a.k;
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

template <enum moe_epilogue EPILOGUE>
__device__ __forceinline__ void store_sums(const float (&sums)[TILE_COLUMNS / 8][4], const moe_product &a,
                                           const struct moe_tile &tile, int32_t first_n)
{
    constexpr bool GATED = moe_is_gated(EPILOGUE);
    const float *bias = a.bias + (size_t)tile.expert * a.n;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int32_t row = threadIdx.x / 32 * 16 + lane / 4 + 8 * half;
        if (row >= tile.count) continue;
        int32_t width = GATED ? a.n / 2 : a.n;
        __nv_bfloat16 *out = a.out + (size_t)(tile.first + row) * width;
#pragma unroll
        for (int j = 0; j < TILE_COLUMNS / 8; j += GATED ? 2 : 1) {
            int32_t n = first_n + 8 * j;
            if (n >= a.n) break;
            const float *s = &sums[j][2 * half], *up = &sums[GATED ? j + 1 : j][2 * half];
            const float2 *of_pair = (const float2 *)(bias + n + lane % 4 * 2), none = {};
            *(uint32_t *)(out + (GATED ? n / 2 : n) + lane % 4 * 2) = finish_pair<EPILOGUE>(
                make_float2(s[0], s[1]), make_float2(up[0], up[1]),
                moe_has_bias(EPILOGUE) ? of_pair[0] : none, EPILOGUE == MOE_CLAMPED ? of_pair[4] : none);
        }
    }
}

template <enum moe_epilogue EPILOGUE> __global__ void __launch_bounds__(THREADS) product_kernel(moe_product a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    dependency_wait();
    if ((int32_t)blockIdx.x >= *a.num_tiles) return;
    struct moe_tile tile = a.tiles[blockIdx.x];
    int32_t first_n = blockIdx.y * TILE_COLUMNS, num_k = (a.k + TILE_K - 1) / TILE_K;
    uint32_t ring = shared_address(shared);
    bool has_rows = (int32_t)threadIdx.x / 32 * 16 < tile.count;
    float sums[TILE_COLUMNS / 8][4] = {};
    struct stage_rows rows;
    find_rows(&rows, a, tile, first_n);
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < num_k) load_stage(rows, ring + s * STAGE_BYTES, s * TILE_K, a.k);
        copy_commit();
    }
    for (int32_t i = 0; i < num_k; i++) {
        copy_wait<STAGES - 2>();
        __syncthreads(); /* stage i is there, and all have read stage i - 1, whose place is filled next */
        int32_t next = i + STAGES - 1;
        if (next < num_k) load_stage(rows, ring + next % STAGES * STAGE_BYTES, next * TILE_K, a.k);
        copy_commit();
        if (has_rows) multiply_stage(sums, ring + i % STAGES * STAGE_BYTES);
    }
    copy_wait<0>();
    store_sums<EPILOGUE>(sums, a, tile, first_n);
}

template <enum moe_epilogue EPILOGUE> void launch(struct cuda_device *d, const struct moe_product *p)
{
    dim3 grid((unsigned)p->tiles_max, (unsigned)((p->n + TILE_COLUMNS - 1) / TILE_COLUMNS));
    launch_dependent(d, product_kernel<EPILOGUE>, grid, dim3(THREADS), STAGES * STAGE_BYTES, *p);
}

} // namespace

void cuda_moe_plain(struct cuda_device *d, const struct moe_product *p)
{
    switch (moe_epilogue_of(p)) {
    case MOE_SUMS:
        return launch<MOE_SUMS>(d, p);
    case MOE_SUMS_BIAS:
        return launch<MOE_SUMS_BIAS>(d, p);
    case MOE_SILU:
        return launch<MOE_SILU>(d, p);
    case MOE_GELU:
        return launch<MOE_GELU>(d, p);
    case MOE_CLAMPED:
        return launch<MOE_CLAMPED>(d, p);
    }
}
