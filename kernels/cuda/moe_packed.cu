/* moe_packed.cu - products of experts that few tokens chose with weights of four bits, on sm_90a: linear_packed.cu's (packed_ring.cuh), for a
 * list of tiles that is found on the device.
 *
 * A CTA has one tile of rows and one of W, and there are as many CTAs as there could be tiles: those that are not needed end at once. The
 * experts' W lie one after another: a tile that ends beyond an expert's rows reads the next one's, or what is kept free behind the last
 * one's, whose results are not stored. */
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/moe.cuh"
#include "kernels/cuda/moe_bias.cuh"
#include "kernels/cuda/packed_ring.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace
{

struct moe_packed_args : packed_args {
    const struct moe_tile *tiles;
    const int32_t *num_tiles;
    const float *biases; /* [E][n] where the epilogue wants it */
    int32_t num_columns; /* tiles of W of an expert */
    bool shares_x;
    bool knows_tiles; /* ahead of the dependency */
};

/* What a CTA computes. */
struct packed_tile {
    struct moe_tile rows;
    int32_t first_n; /* of the expert's W */
};

/* Past the L1, which may have the list of another layer. False: there is no such tile. */
__device__ __forceinline__ bool find_tile(const moe_packed_args &a, struct packed_tile *t)
{
    int32_t index = (int32_t)blockIdx.x / a.num_columns;
    const int32_t *tile = (const int32_t *)(a.tiles + index); /* the list has room for all CTAs */
    t->rows = {__ldcg(tile), __ldcg(tile + 1), __ldcg(tile + 2)};
    return index < __ldcg(a.num_tiles);
}

/* Of warps: rows of x are more bytes than the rows of W that they meet, so that more of W shares them. */
template <int COLS> constexpr int GROUPS = COLS < 32 ? 1 : 2;

/* Rows of x that come at a time: of many, 8 at a time would take the thread that asks longer than their products. */
template <int COLS> constexpr int32_t X_BOX_ROWS = COLS < 128 ? (int32_t)MOE_X_BOX_ROWS : 32;

/* The one thread that fetches. */
template <typename T, int COLS> struct moe_packed_producer {
    const moe_packed_args &a;
    const packed_ring &r;
    const CUtensorMap *x_map;
    const unsigned char *w; /* of the tile */
    int32_t x_row, x_rows;  /* rounded up to boxes */

    __device__ __forceinline__ void load_w(int32_t stage, int32_t k) const
    {
        barrier_arrive_expect(r.full + 8 * stage, T::W_BYTES + T::x_bytes(x_rows));
#pragma unroll
        for (int i = 0; i < T::QUADS; i++) {
            size_t block = (size_t)i * a.num_blocks + k * T::STAGE_BLOCKS;
            bulk_stream(r.w + stage * T::W_BYTES + i * T::QUAD_BYTES,
                        w + block * (PACKED_STRIPS * T::BLOCK_BYTES), r.full + 8 * stage, T::QUAD_BYTES);
        }
    }

    __device__ __forceinline__ void load_x(int32_t stage, int32_t k) const
    {
        constexpr int BOXES = T::STAGE_BLOCKS * BLOCK_BOXES;
#pragma unroll 1
        for (int32_t row = 0; row < x_rows; row += X_BOX_ROWS<COLS>)
#pragma unroll
            for (int i = 0; i < BOXES; i++)
                tensor_load_2d(r.x + stage * T::x_bytes(COLS) + (i * COLS + row) * BOX_ROW_BYTES, x_map,
                               r.full + 8 * stage, (k * BOXES + i) * BOX_K, x_row + row);
    }
};

template <int HALVES, int COLS, enum moe_epilogue EPILOGUE>
__device__ __forceinline__ void store(const moe_packed_args &a, const float (&d)[COLS / 2],
                                      const struct packed_tile &tile, const struct lane_bias &bias, int32_t n)
{
    struct store_args to = {a.out, NULL, tile.rows.first + tile.rows.count, a.n};
    if constexpr (moe_has_bias(EPILOGUE))
        store_columns_biased<COLS, EPILOGUE, HALVES>(to, d, bias, tile.rows.first, n);
    else
        store_columns<COLS, moe_store_of(EPILOGUE), HALVES>(to, d, tile.rows.first, n);
}

/* A tile of which so many rows are multiplied: those that were not fetched are nobody's. */
template <typename T, int WIDTH> struct narrowed : T {
    static constexpr int N = WIDTH;
};

template <int FORMAT, typename T, enum moe_epilogue EPILOGUE>
__device__ __forceinline__ void multiply(const moe_packed_args &a, const packed_ring &r,
                                         const struct packed_tile &tile, int32_t strip)
{
    const int32_t n = tile.first_n + strip * PACKED_ROWS;
    struct lane_bias bias = {};
    if (moe_has_bias(EPILOGUE)) bias = load_lane_bias(a.biases + (size_t)tile.rows.expert * a.n, n, a.n);
    packed_consumer<FORMAT, T> c{a, r, packed_strip_offset<T>(strip), {}};
    c.run();
    store<T::HALVES, T::N, EPILOGUE>(a, c.d, tile, bias, n);
}

template <int FORMAT, int SCALES, int HALVES, int COLS, enum moe_epilogue EPILOGUE>
__global__ void __launch_bounds__((packed_traits<SCALES, HALVES, GROUPS<COLS>, COLS>::THREADS),
                                  (packed_traits<SCALES, HALVES, GROUPS<COLS>, COLS>::CTAS))
    moe_packed_kernel(moe_packed_args a, const __grid_constant__ CUtensorMap x_map)
{
    using T = packed_traits<SCALES, HALVES, GROUPS<COLS>, COLS>;
    extern __shared__ unsigned char shared[];
    __shared__ uint64_t barriers[2 * STAGES_MAX];
    __shared__ int32_t is_over;
    struct packed_tile tile;
    if (!a.knows_tiles) dependency_wait();
    if (!find_tile(a, &tile)) {
        dependency_wait();
        return;
    }
    tile.first_n = (int32_t)blockIdx.x % a.num_columns * T::ROWS;
    const packed_ring r = packed_ring_init(shared, barriers, &is_over, &x_map, a.num_stages,
                                           a.num_stages * T::x_bytes(COLS), T::WARPS);
    __syncthreads();
    int32_t warp = warp_uniform(threadIdx.x / 32);
    if (warp == T::WARPS) {
        size_t quad = ((size_t)tile.rows.expert * a.n + tile.first_n) / (PACKED_ROWS * PACKED_STRIPS);
        const unsigned char *w = a.packed + quad * a.num_blocks * (PACKED_STRIPS * T::BLOCK_BYTES);
        const int32_t x_rows = moe_rows_in_boxes(tile.rows.count, X_BOX_ROWS<COLS>);
        if (elect_lane())
            fill_packed_ring(
                moe_packed_producer<T, COLS>{a, r, &x_map, w, a.shares_x ? 0 : tile.rows.first, x_rows});
        return;
    }
    dependency_wait_and_tell(&is_over); /* the results overwrite what kernels before may still read */
    if constexpr (COLS == 128) {
        if (tile.rows.count <= 64)
            return multiply<FORMAT, narrowed<T, 64>, EPILOGUE>(a, r, tile, warp * HALVES);
        if (tile.rows.count <= 96)
            return multiply<FORMAT, narrowed<T, 96>, EPILOGUE>(a, r, tile, warp * HALVES);
    }
    multiply<FORMAT, T, EPILOGUE>(a, r, tile, warp * HALVES);
}

/* ---- host ---- */

template <int FORMAT, int SCALES, int HALVES, int COLS, enum moe_epilogue EPILOGUE>
bool launch(struct cuda_device *d, const struct moe_product *p)
{
    using T = packed_traits<SCALES, HALVES, GROUPS<COLS>, COLS>;
    constexpr int STAGE_BYTES = T::W_BYTES + T::x_bytes(COLS);
    const CUtensorMap *x_map = tensor_map_of_matrix(d, p->x, p->x_rows, p->k, X_BOX_ROWS<COLS>);
    moe_packed_args a = {};
    if (!x_map) return false;
    a.out = p->out;
    a.n = p->n;
    a.packed = p->packed->packed;
    a.x_rows = COLS;
    a.num_blocks = (p->k + 2 * PACKED_COLUMNS - 1) / (2 * PACKED_COLUMNS) * 2;
    a.num_k = a.num_blocks / T::STAGE_BLOCKS;
    a.num_stages = std::min({(SHARED_BYTES / (int)T::CTAS - 2048) / STAGE_BYTES, (int)STAGES_MAX, a.num_k});
    a.tiles = p->tiles;
    a.num_tiles = p->num_tiles;
    a.biases = p->bias;
    a.num_columns = (p->n + T::ROWS - 1) / T::ROWS;
    a.shares_x = p->shares_x;
    a.knows_tiles = p->knows_tiles;
    assert_always((int64_t)p->tiles_max * a.num_columns <= INT32_MAX);
    return launch_dependent(d, moe_packed_kernel<FORMAT, SCALES, HALVES, COLS, EPILOGUE>,
                            dim3((unsigned)(p->tiles_max * a.num_columns)), dim3(T::THREADS),
                            1024 + (size_t)a.num_stages * STAGE_BYTES, a, *x_map);
}

/* Few rows of x: then unpacking takes the time, and all warps have a share of the few rows of W in a smaller tile. Gate and up are
 * in one warp. */
template <int FORMAT, int SCALES, int COLS>
bool launch_epilogue(struct cuda_device *d, const struct moe_product *p)
{
    constexpr int HALVES = COLS == 8 ? 1 : 2;
    constexpr bool IS_MXFP4 = FORMAT == LINEAR_E2M1 && SCALES == 4;
    const enum moe_epilogue epilogue = moe_epilogue_of(p);
    if (epilogue == MOE_SUMS) return launch<FORMAT, SCALES, HALVES, COLS, MOE_SUMS>(d, p);
    if (epilogue == MOE_SILU) return launch<FORMAT, SCALES, 2, COLS, MOE_SILU>(d, p);
    if (epilogue == MOE_GELU) return launch<FORMAT, SCALES, 2, COLS, MOE_GELU>(d, p);
    if constexpr (IS_MXFP4) { /* gpt-oss; has_packed_epilogues */
        if (epilogue == MOE_SUMS_BIAS) return launch<FORMAT, SCALES, HALVES, COLS, MOE_SUMS_BIAS>(d, p);
        if (epilogue == MOE_CLAMPED) return launch<FORMAT, SCALES, 2, COLS, MOE_CLAMPED>(d, p);
    }
    return false;
}

} // namespace

bool cuda_moe_packed(struct cuda_device *d, int32_t tile_rows, const struct moe_product *p)
{
    return with_packed_form(p->packed, [&](auto format, auto scales) {
        constexpr int FORMAT = decltype(format)::value, SCALES = decltype(scales)::value;
        return tile_rows == 8    ? launch_epilogue<FORMAT, SCALES, 8>(d, p)
               : tile_rows == 32 ? launch_epilogue<FORMAT, SCALES, 32>(d, p)
               : tile_rows == 64 ? launch_epilogue<FORMAT, SCALES, 64>(d, p)
                                 : launch_epilogue<FORMAT, SCALES, 128>(d, p);
    });
}
