/* moe_fp8_small.cu - products of experts of bytes that few tokens chose, on sm_90a, bound by the bytes of W: the warps of
 * linear_fp8_small.cuh for the list of tiles and the ring of moe_ring.cuh.
 *
 * A CTA computes tiles of ROWS rows of an expert's W, the M side of wgmma, by up to COLS rows of x, of which those that the tile has are
 * fetched. The experts' W lie one after another, and so do their scales: a box that ends beyond an expert's rows reads the next one's,
 * whose results are not stored. */
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_fp8_small.cuh"
#include "kernels/cuda/linear_store.cuh"
#include "kernels/cuda/moe_ring.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace
{

struct small_args : moe_ring_args {
    struct fp8_product p;
    int32_t x_rows;     /* COLS */
    int32_t num_blocks; /* K / 128 */
};

struct ring : fp8_ring {
    struct moe_ring_tile *tiles; /* [stage]: the tile that begins there */
};

template <int ROWS, int COLS> constexpr int stage_bytes(void)
{
    using T = fp8_traits<ROWS, COLS>;
    static_assert(T::BOXES * ROWS / 8 * 4 <= W_SCALE_BYTES, "a stage's scales of W");
    return T::W_BYTES + T::x_bytes(COLS) + T::scale_bytes(COLS) + W_SCALE_BYTES;
}

/* Boxes of x that one copy brings: where it has more rows than a copy, boxes are not one behind the other. */
template <int ROWS, int COLS>
constexpr int X_BOXES = COLS == MOE_X_BOX_ROWS ? (int)fp8_traits<ROWS, COLS>::BOXES : 1;

/* Copies are few: of 16 for a stage, one thread would take longer than the memory. */
struct maps {
    CUtensorMap w, x, w_scales, x_scales; /* the last two where scales are of blocks */
};

/* The one thread that fetches. What lies beyond K comes as zeros. */
template <int ROWS, int COLS, int FORM> struct producer {
    static constexpr bool BLOCKS = FORM == E4M3_OF_BLOCKS;
    using T = fp8_traits<ROWS, COLS>;
    const small_args &a;
    const ring &r;
    const maps &m;

    /* And how many bytes the stage gets in all. */
    __device__ __forceinline__ void load_w(int32_t stage, const moe_cursor<ROWS> &c) const
    {
        const int32_t x_rows = moe_rows_in_boxes(c.tile.rows.count), block = c.k * T::BOXES,
                      row = c.tile.rows.expert * a.n + c.tile.first_n;
        const uint32_t full = r.full + 8 * stage;
        constexpr int SCALE_BYTES = T::BOXES * (COLS + ROWS / 8) * 4;
        if (c.k == 0) r.tiles[stage] = c.tile;
        barrier_arrive_expect(full, T::W_BYTES + T::x_bytes(x_rows) + (BLOCKS ? SCALE_BYTES : 0));
        tensor_stream_3d(r.w + stage * T::W_BYTES, &m.w, full, 0, row, block);
        if (BLOCKS) tensor_load_2d(r.w_scales + stage * W_SCALE_BYTES, &m.w_scales, full, row / 8 * 2, block);
    }

    __device__ __forceinline__ void load_x(int32_t stage, const struct moe_tile &rows, int32_t k) const
    {
        constexpr int COPY = X_BOXES<ROWS, COLS>;
        const int32_t first = a.shares_x ? 0 : rows.first, x_rows = moe_rows_in_boxes(rows.count),
                      block = k * T::BOXES;
        const uint32_t full = r.full + 8 * stage, x = r.x + stage * T::x_bytes(COLS);
#pragma unroll 1
        for (int32_t row = 0; row < x_rows; row += MOE_X_BOX_ROWS)
#pragma unroll
            for (int i = 0; i < T::BOXES; i += COPY)
                tensor_load_3d(x + (i * COLS + row) * BOX_ROW_BYTES, &m.x, full, 0, first + row, block + i);
        if (BLOCKS)
            tensor_load_2d(r.scales + stage * T::scale_bytes(COLS), &m.x_scales, full, first * 2, block);
    }
};

/* The warps that multiply. */
template <int ROWS, int COLS, int FORM, bool GATED>
struct consumer : fp8_consumer<small_args, ROWS, COLS, FORM, FORM == E4M3_OF_BLOCKS> {
    using T = fp8_traits<ROWS, COLS>;

    __device__ __forceinline__ void store(const struct moe_ring_tile &tile) const
    {
        constexpr int STORE = GATED ? EPILOGUE_SILU_MUL : EPILOGUE_BF16;
        if (16 * this->warp >= ROWS) return;
        const store_args out = {this->a.p.out, NULL, tile.rows.first + tile.rows.count, this->a.n};
        store_columns<T::COLUMNS, STORE, 2>(out, this->sums, tile.rows.first + this->first_m,
                                            this->row_of(tile.first_n));
    }

    __device__ __forceinline__ void run(const struct moe_ring_tile *tiles)
    {
        const int32_t num_all = __ldcg(this->a.num_tiles) * this->a.num_columns;
        for (int32_t index = blockIdx.x; index < num_all; index += gridDim.x) {
            barrier_wait(this->r.full + 8 * this->p.stage, this->p.parity);
            const struct moe_ring_tile tile = tiles[this->p.stage];
            const int32_t first_n = warp_uniform(tile.rows.expert * this->a.n + tile.first_n);
            if (FORM != E4M3_OF_BLOCKS) this->load_x_scales(this->a.shares_x ? 0 : tile.rows.first);
            this->begin(first_n);
            this->multiply_all(first_n);
            if constexpr (FORM != E4M3_OF_BLOCKS) this->scale();
            store(tile);
        }
    }
};

template <int ROWS, int COLS, int FORM, bool GATED>
__global__ void __launch_bounds__((fp8_traits<ROWS, COLS>::THREADS), 1)
    small_kernel(const __grid_constant__ small_args a, const __grid_constant__ maps m)
{
    using T = fp8_traits<ROWS, COLS>;
    extern __shared__ unsigned char shared[];
    __shared__ uint64_t barriers[2 * STAGES_MAX];
    __shared__ struct moe_ring_tile tiles[STAGES_MAX];
    ring r;
    r.x = (shared_address(shared) + 1023) & ~1023u; /* swizzled boxes want 1024-byte alignment */
    r.w = r.x + a.num_stages * T::x_bytes(COLS);
    r.scales = r.w + a.num_stages * T::W_BYTES + T::BYTES_BEHIND;
    r.w_scales = r.scales + a.num_stages * T::scale_bytes(COLS);
    r.full = shared_address(barriers);
    r.empty = r.full + 8 * STAGES_MAX;
    r.tiles = tiles;
    if (threadIdx.x == 0) {
        tensor_map_prefetch(&m.w);
        tensor_map_prefetch(&m.x);
        if (FORM == E4M3_OF_BLOCKS) tensor_map_prefetch(&m.w_scales);
        if (FORM == E4M3_OF_BLOCKS) tensor_map_prefetch(&m.x_scales);
        ring_init(r.full, r.empty, a.num_stages, T::WARPS);
    }
    __syncthreads();
    const int32_t warp = warp_uniform(threadIdx.x / 32);
    if (warp == T::WARPS) {
        if (elect_lane()) fill_moe_ring<ROWS>(producer<ROWS, COLS, FORM>{a, r, m});
        return;
    }
    dependency_wait();
    constexpr int W_WARPS = T::W_GROUPS * GROUP_WARPS;
    consumer<ROWS, COLS, FORM, GATED> c{
        {a, r, warp % W_WARPS, warp / W_WARPS * T::COLUMNS, {}, 0, {}, {}, {}, {}, {}, {}}};
    c.run(tiles);
}

/* ---- host ---- */

/* False where the driver cannot. Pairs of values are what maps of bf16 move, a block of columns as wide as a box. */
template <int ROWS, int COLS> bool make_maps(struct cuda_device *d, const struct fp8_product &p, maps *m)
{
    constexpr int BOXES = fp8_traits<ROWS, COLS>::BOXES;
    const CUtensorMap *w = tensor_map_of_blocks(d, p.w, p.n, p.k / 2, ROWS, BOXES),
                      *x = tensor_map_of_blocks(d, p.x, p.rows, p.k / 2, MOE_X_BOX_ROWS, X_BOXES<ROWS, COLS>);
    if (!w || !x) return false;
    m->w = *w;
    m->x = *x;
    if (p.form != E4M3_OF_BLOCKS) return true;
    w = tensor_map_of_floats(d, p.w_scales, p.k / FP8_BLOCK, p.w_pitch, BOXES, ROWS / 8);
    x = tensor_map_of_floats(d, p.x_scales, p.k / FP8_BLOCK, p.x_pitch, BOXES, COLS);
    if (!w || !x) return false;
    m->w_scales = *w;
    m->x_scales = *x;
    return true;
}

template <int ROWS, int COLS, int FORM, bool GATED>
bool launch(struct cuda_device *d, const struct moe_product *p)
{
    using T = fp8_traits<ROWS, COLS>;
    small_args a = {moe_ring_args_of(d, p, ROWS, T::BOXES * FP8_BLOCK), p->fp8, COLS, p->k / FP8_BLOCK};
    maps m = {};
    if (!make_maps<ROWS, COLS>(d, p->fp8, &m)) return false;
    a.num_stages =
        std::min((moe_ring_bytes(p) - T::BYTES_BEHIND) / stage_bytes<ROWS, COLS>(), (int32_t)STAGES_MAX);
    return launch_dependent(d, small_kernel<ROWS, COLS, FORM, GATED>,
                            dim3((unsigned)std::min(d->num_sms, a.tiles_max)), dim3(T::THREADS),
                            1024 + (size_t)a.num_stages * stage_bytes<ROWS, COLS>() + T::BYTES_BEHIND, a, m);
}

template <int ROWS, int COLS, bool GATED> bool launch_form(struct cuda_device *d, const struct moe_product *p)
{
    if (p->fp8.form == E4M3_OF_BLOCKS) return launch<ROWS, COLS, E4M3_OF_BLOCKS, GATED>(d, p);
    if (p->fp8.form == INT8_OF_ROWS) return launch<ROWS, COLS, INT8_OF_ROWS, GATED>(d, p);
    return launch<ROWS, COLS, E4M3_OF_ROWS, GATED>(d, p);
}

template <int ROWS, int COLS> bool launch_kind(struct cuda_device *d, const struct moe_product *p)
{
    return p->is_gated ? launch_form<ROWS, COLS, true>(d, p) : launch_form<ROWS, COLS, false>(d, p);
}

} // namespace

bool cuda_moe_fp8_small(struct cuda_device *d, int32_t tile_rows, const struct moe_product *p)
{
    /* a tile's end takes as long whatever its rows, but SMs want equal shares */
    if (tile_rows == 8)
        return moe_rows_of_sm(d, p, 64) <= moe_rows_of_sm(d, p, 32) ? launch_kind<64, 8>(d, p)
                                                                    : launch_kind<32, 8>(d, p);
    /* and many rows of x are as many bytes as the rows of W that share them */
    return tile_rows == 32 ? launch_kind<128, 32>(d, p) : launch_kind<128, 64>(d, p);
}
