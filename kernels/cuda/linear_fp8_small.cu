/* linear_fp8_small.cu - products of few rows of bytes on sm_90a, bound by the bytes of W.
 *
 * The ring, the queue of tiles and the fetching ahead of the dependency are those of linear_small.cu. W is the M side of wgmma, 64
 * rows for each group of four warps, x the N side:
 *
 *      W [ROWS][K]         -> |s0|s1|s2|s3| ... ring in shared memory ... -> wgmma, 128 columns -> * scales, + sums -> out[m][n]
 *      x [M][K]            -> |s0|s1|s2|s3|
 *      scales of x [K/128][M] (of blocks)
 *
 * Of one row the CTAs make what they multiply, codes of a row of bf16 or of the norm of the residual stream (linear_row.cuh): then the
 * ring has W alone. */
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_fp8_small.cuh"
#include "kernels/cuda/linear_ring.cuh"
#include "kernels/cuda/linear_store.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace
{

enum {
    WIDEST = 112, /* rows of W in a tile */
    RING_BYTES = 224 << 10
};

struct small_args {
    struct fp8_product p;
    int32_t x_rows;           /* rows rounded up to 8: of x in a stage */
    int32_t num_tiles, num_k; /* tiles of ROWS rows of W; stages that one fills */
    int32_t num_blocks;       /* K / 128 */
    int32_t num_dealt;        /* the first so many tiles are not in the queue */
    int32_t pause;            /* between stages ahead of the dependency */
    int32_t num_stages;
    int32_t *tiles_taken;
};

struct ring : fp8_ring {
    int32_t *tiles;   /* [stage]: the tile that begins there, or NO_TILE */
    int32_t *is_over; /* the dependency */
};

/* What the one thread that fetches puts into a stage (linear_ring.cuh). */
template <int ROWS, int COLS, int FORM> struct producer {
    static constexpr bool BLOCKS = FORM == E4M3_OF_BLOCKS;
    using T = fp8_traits<ROWS, COLS>;
    const small_args &a;
    const ring &r;
    const CUtensorMap *w_map, *x_map;

    __device__ __forceinline__ int32_t blocks_of(int32_t k) const
    {
        return min(T::BOXES, a.num_blocks - k * T::BOXES);
    }

    __device__ __forceinline__ void load_w(int32_t stage, int32_t tile, int32_t k) const
    {
        if (k == 0) r.tiles[stage] = tile;
        barrier_arrive_expect(r.full + 8 * stage,
                              T::W_BYTES + T::x_bytes(a.x_rows) + (BLOCKS ? blocks_of(k) * a.x_rows * 4 : 0));
#pragma unroll
        for (int i = 0; i < T::BOXES; i++)
            tensor_stream_2d(r.w + stage * T::W_BYTES + i * ROWS * BOX_ROW_BYTES, w_map, r.full + 8 * stage,
                             (k * T::BOXES + i) * (FP8_BLOCK / 2),
                             tile_begin(tile, ROWS, a.p.n, W_TILE_ALIGNMENT));
    }

    /* A row is made by others. */
    __device__ __forceinline__ void load_x(int32_t stage, int32_t k) const
    {
#pragma unroll
        for (int i = 0; i < (T::IS_ROW ? 0 : T::BOXES); i++) {
            int32_t block = k * T::BOXES + i;
            tensor_load_2d(r.x + stage * T::x_bytes(a.x_rows) + i * a.x_rows * BOX_ROW_BYTES, x_map,
                           r.full + 8 * stage, block * (FP8_BLOCK / 2), 0);
            if (BLOCKS && i < blocks_of(k))
                bulk_load(r.scales + stage * T::scale_bytes(a.x_rows) + i * a.x_rows * 4,
                          a.p.x_scales + (size_t)block * a.p.x_pitch, r.full + 8 * stage, a.x_rows * 4);
        }
    }
};

/* The warps that multiply. */
template <int ROWS, int COLS, int FORM> struct consumer : fp8_consumer<small_args, ROWS, COLS, FORM, false> {
    using T = fp8_traits<ROWS, COLS>;

    __device__ __forceinline__ void store(int32_t first_n) const
    {
        if (16 * this->warp >= ROWS) return;
        const struct fp8_product &p = this->a.p;
        const store_args out = {p.out, p.bias, p.rows, p.n};
        if (p.silu_mul)
            store_columns<T::COLUMNS, EPILOGUE_SILU_MUL, 2>(out, this->sums, this->first_m,
                                                            this->row_of(first_n));
        else
            store_columns<T::COLUMNS, EPILOGUE_BF16, 2>(out, this->sums, this->first_m,
                                                        this->row_of(first_n));
    }

    __device__ __forceinline__ void run(const int32_t *tiles)
    {
        if (FORM != E4M3_OF_BLOCKS && !T::IS_ROW) this->load_x_scales(0);
        for (;;) {
            barrier_wait(this->r.full + 8 * this->p.stage, this->p.parity);
            int32_t tile = warp_uniform(tiles[this->p.stage]);
            if (tile == NO_TILE) return;
            const int32_t first_n = tile_begin(tile, ROWS, this->a.p.n, W_TILE_ALIGNMENT);
            this->begin(first_n);
            this->multiply_all(first_n);
            if constexpr (FORM != E4M3_OF_BLOCKS) this->scale();
            store(first_n);
        }
    }
};

/* By all but the producer. Returns the row's scale, where blocks have none. */
template <int COLS, int FORM>
__device__ __forceinline__ float make_row(const row_args &row, unsigned char *to, int32_t filled,
                                          float2 *block_scales, int32_t *is_over)
{
    __shared__ float partial[2][ROW_WARPS];
    row_maker<COLS> maker{row, to, filled, partial};
    if (!row.x) {
        dependency_wait_and_tell(is_over);
        return maker.template make_codes<FORM>(block_scales);
    }
    maker.load_weight();
    dependency_wait_and_tell(is_over);
    return maker.template make_normed_codes<FORM>(block_scales);
}

/* What a CTA does. row, or x_map. */
template <int ROWS, int COLS, int FORM>
__device__ __forceinline__ void multiply_tiles(const small_args &a, const CUtensorMap *w_map,
                                               const CUtensorMap *x_map, const row_args *row)
{
    using T = fp8_traits<ROWS, COLS>;
    extern __shared__ unsigned char shared[];
    __shared__ uint64_t barriers[2 * STAGES_MAX];
    __shared__ int32_t tiles[STAGES_MAX], is_over;
    ring r;
    r.x = (shared_address(shared) + 1023) & ~1023u; /* swizzled boxes want 1024-byte alignment */
    /* W behind x: products read on behind the rows that there are */
    r.w = r.x + T::row_bytes(a.num_k) + a.num_stages * T::x_bytes(a.x_rows);
    r.scales = r.w + a.num_stages * T::W_BYTES + T::BYTES_BEHIND;
    r.full = shared_address(barriers);
    r.empty = r.full + 8 * STAGES_MAX;
    r.tiles = tiles;
    r.is_over = &is_over;
    if (threadIdx.x == 0) {
        is_over = 0;
        tensor_map_prefetch(w_map);
        if (!T::IS_ROW) tensor_map_prefetch(x_map);
        ring_init(r.full, r.empty, a.num_stages, T::WARPS);
    }
    __syncthreads();
    int32_t warp = warp_uniform(threadIdx.x / 32);
    if (warp == T::OTHERS) {
        if (elect_lane()) fill_ring(producer<ROWS, COLS, FORM>{a, r, w_map, x_map});
        return;
    }
    float row_scale = 0;
    if constexpr (T::IS_ROW) {
        row_scale = make_row<COLS, FORM>(*row, shared + (r.x - shared_address(shared)),
                                         a.num_k * T::BOXES * FP8_BLOCK,
                                         (float2 *)(shared + (r.scales - shared_address(shared))), &is_over);
        if (warp >= T::WARPS) return;
    } else {
        dependency_wait_and_tell(&is_over); /* the results overwrite what kernels before may still read */
    }
    constexpr int W_WARPS = T::W_GROUPS * GROUP_WARPS;
    consumer<ROWS, COLS, FORM> c{
        {a, r, warp % W_WARPS, warp / W_WARPS * T::COLUMNS, {}, 0, {}, {}, {}, {}, {}, {}}};
    c.of_x[0] = c.of_x[1] = row_scale; /* of IS_ROW */
    c.run(tiles);
}

template <int ROWS, int COLS, int FORM>
__global__ void __launch_bounds__((fp8_traits<ROWS, COLS>::THREADS), 1)
    small_kernel(small_args a, const __grid_constant__ CUtensorMap w_map,
                 const __grid_constant__ CUtensorMap x_map)
{
    multiply_tiles<ROWS, COLS, FORM>(a, &w_map, &x_map, NULL);
}

template <int ROWS, int COLS, int FORM>
__global__ void __launch_bounds__((fp8_traits<ROWS, COLS>::THREADS), 1)
    row_kernel(small_args a, row_args row, const __grid_constant__ CUtensorMap w_map)
{
    multiply_tiles<ROWS, COLS, FORM>(a, &w_map, NULL, &row);
}

/* ---- host ---- */

template <int ROWS, int COLS>
bool launch(struct cuda_device *d, const struct fp8_product &p, const row_args *row)
{
    using T = fp8_traits<ROWS, COLS>;
    small_args a = {};
    a.p = p;
    a.x_rows = T::IS_ROW ? 0 : (p.rows + 7) / 8 * 8;
    a.num_tiles = (p.n + ROWS - 1) / ROWS;
    a.num_blocks = p.k / FP8_BLOCK;
    a.num_k = (a.num_blocks + T::BOXES - 1) / T::BOXES;
    a.tiles_taken = &d->queues->linear_tiles;
    int32_t stage_bytes = T::W_BYTES + T::x_bytes(a.x_rows) + T::scale_bytes(a.x_rows),
            grid = std::min(d->num_sms, a.num_tiles);
    int32_t other_bytes = T::BYTES_BEHIND + T::row_bytes(a.num_k) + T::row_scale_bytes(a.num_k);
    a.num_stages = std::min((RING_BYTES - other_bytes) / stage_bytes, (int32_t)STAGES_MAX);
    a.num_dealt = num_tiles_dealt(a.num_tiles, grid);
    a.pause = cuda_pause_ahead(d, T::W_BYTES);
    size_t shared_bytes = (size_t)a.num_stages * stage_bytes + other_bytes + 1024;
    /* pairs of values are what bf16's map moves */
    const CUtensorMap *w_map = tensor_map_of_matrix(d, p.w, p.n, p.k / 2, ROWS);
    if (!w_map) return false;
    if constexpr (T::IS_ROW) {
        auto kernel = p.form == E4M3_OF_BLOCKS ? row_kernel<ROWS, COLS, E4M3_OF_BLOCKS>
                      : p.form == INT8_OF_ROWS ? row_kernel<ROWS, COLS, INT8_OF_ROWS>
                                               : row_kernel<ROWS, COLS, E4M3_OF_ROWS>;
        return launch_dependent(d, kernel, dim3((unsigned)grid), dim3(T::THREADS), shared_bytes, a, *row,
                                *w_map);
    } else {
        auto kernel = p.form == E4M3_OF_BLOCKS ? small_kernel<ROWS, COLS, E4M3_OF_BLOCKS>
                      : p.form == INT8_OF_ROWS ? small_kernel<ROWS, COLS, INT8_OF_ROWS>
                                               : small_kernel<ROWS, COLS, E4M3_OF_ROWS>;
        const CUtensorMap *x_map = tensor_map_of_matrix(d, p.x, p.rows, p.k / 2, a.x_rows);
        return x_map && launch_dependent(d, kernel, dim3((unsigned)grid), dim3(T::THREADS), shared_bytes, a,
                                         *w_map, *x_map);
    }
}

template <int ROWS>
bool launch_columns(struct cuda_device *d, const struct fp8_product &p, const row_args *row)
{
    if (row)
        return p.k <= (row->x ? row_norm_max(1) : row_max(1)) ? launch<ROWS, 1>(d, p, row)
                                                              : launch<ROWS, 2>(d, p, row);
    if (p.rows <= 8) return launch<ROWS, 8>(d, p, row);
    if (p.rows <= 16) return launch<ROWS, 16>(d, p, row);
    if (p.rows <= 32) return launch<ROWS, 32>(d, p, row);
    if (p.rows <= 64) return launch<ROWS, 64>(d, p, row);
    if (p.rows <= 128) return launch<ROWS, 128>(d, p, row);
    return false;
}

} // namespace

bool cuda_linear_fp8_small(struct cuda_device *d, int32_t tile_rows, const struct fp8_product *p,
                           const struct row_args *row)
{
    switch (tile_rows) {
    case 32:
        return launch_columns<32>(d, *p, row);
    case 48:
        return launch_columns<48>(d, *p, row);
    default:
        return launch_columns<WIDEST>(d, *p, row);
    }
}
