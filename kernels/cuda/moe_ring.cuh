/* moe_ring.cuh - the ring of a product of experts that few tokens chose, whose list of tiles is found on the device: moe_small.cu,
 * moe_fp8_small.cu. One thread fills stage after stage, on across tiles; what a stage holds its source knows:
 *
 *   a (moe_ring_args), r.empty (barriers of the stages), r.tiles (of each stage: the tile that begins there)
 *   load_w(stage, cursor), which also says how many bytes will come and which tile begins there; load_x(stage, rows, k) */
#ifndef KERNELS_CUDA_MOE_RING_CUH
#define KERNELS_CUDA_MOE_RING_CUH

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/moe.cuh"

namespace
{

enum {
    SECOND_RING_BYTES = 128 << 10, /* moe_ring_bytes */
    BESIDE_RING_BYTES = 4 << 10    /* of a CTA, at most */
};

struct moe_ring_args {
    const struct moe_tile *tiles;
    const int32_t *num_tiles;
    int32_t n, num_columns, num_k; /* rows of W of an expert, tiles of them, stages of a tile */
    int32_t num_stages;            /* in the ring */
    int32_t tiles_max;             /* of W and x, that the list has room for */
    bool shares_x;
    bool knows_tiles; /* ahead of the dependency */
};

/* A tile of W by rows of x. */
struct moe_ring_tile {
    struct moe_tile rows;
    int32_t first_n; /* of the expert's W */
};

/* What comes next in a ring: stage k of a tile. The list is asked one tile ahead, so that its latency is under the stages of the tile
 * before. */
template <int ROWS> struct moe_cursor {
    const moe_ring_args &a;
    int32_t num_all, index, k;
    struct moe_ring_tile tile, next;

    __device__ __forceinline__ bool is_done(void) const { return index >= num_all; }
    __device__ __forceinline__ bool is_last(void) const { return index + (int32_t)gridDim.x >= num_all; }

    /* Past the L1, which may have the list of another layer. */
    __device__ __forceinline__ struct moe_ring_tile find_tile(int32_t at) const
    {
        const int32_t *rows = (const int32_t *)(a.tiles + min(at, a.tiles_max - 1) / a.num_columns);
        return {{__ldcg(rows), __ldcg(rows + 1), __ldcg(rows + 2)}, at % a.num_columns * ROWS};
    }

    __device__ __forceinline__ void begin(void)
    {
        index = (int32_t)blockIdx.x;
        k = 0;
        tile = find_tile(index);
        next = find_tile(index + (int32_t)gridDim.x);
        num_all = __ldcg(a.num_tiles) * a.num_columns;
    }

    __device__ __forceinline__ void advance(void)
    {
        if (++k < a.num_k) return;
        k = 0;
        index += (int32_t)gridDim.x;
        tile = next;
        next = find_tile(index + (int32_t)gridDim.x);
    }
};

/* The second of a layer's products knows the tiles: the first one began when they were there. So it fetches weights ahead of the
 * dependency. ROWS: of W in a tile. */
template <int ROWS, typename Source> __device__ __forceinline__ void fill_moe_ring(const Source &s)
{
    moe_cursor<ROWS> c = {s.a};
    int32_t num_ahead = 0;
    if (!s.a.knows_tiles) dependency_wait();
    for (c.begin(); s.a.knows_tiles && num_ahead < s.a.num_stages && !c.is_done(); num_ahead++, c.advance())
        s.load_w(num_ahead, c);
    bool launched = c.is_last();
    if (launched) dependents_launch();
    dependency_wait();
    for (int32_t i = 0; i < num_ahead; i++) s.load_x(i, s.r.tiles[i - i % s.a.num_k].rows, i % s.a.num_k);
    pipeline_state p = {num_ahead % s.a.num_stages, num_ahead < s.a.num_stages};
    for (; !c.is_done(); c.advance(), p.advance(s.a.num_stages)) {
        if (!launched && c.is_last()) {
            launched = true;
            dependents_launch();
        }
        barrier_wait(s.r.empty + 8 * p.stage, p.parity);
        s.load_w(p.stage, c);
        s.load_x(p.stage, c.tile.rows, c.k);
    }
}

/* ---- host ---- */

/* The first of two short products leaves the second one's CTA room on its SM, which fetches weights beside it then. */
inline int32_t moe_ring_bytes(const struct moe_product *p)
{
    if (!p->is_short) return MOE_RING_BYTES;
    return p->knows_tiles ? SECOND_RING_BYTES : MOE_RING_BYTES - SECOND_RING_BYTES - BESIDE_RING_BYTES;
}

/* Rows of W that an SM has at most, of tiles of so many rows of as many experts as there could be. */
inline int32_t moe_rows_of_sm(const struct cuda_device *d, const struct moe_product *p, int32_t rows)
{
    const int32_t num_tiles = min(p->num_pairs, p->num_experts) * ((p->n + rows - 1) / rows);
    return (num_tiles + d->num_sms - 1) / d->num_sms * rows;
}

/* Of tiles of so many rows of W, stages of stage_k columns. Without num_stages. */
inline moe_ring_args moe_ring_args_of(const struct cuda_device *d, const struct moe_product *p,
                                      int32_t tile_rows, int32_t stage_k)
{
    moe_ring_args a = {};
    a.tiles = p->tiles;
    a.num_tiles = p->num_tiles;
    a.n = p->n;
    a.num_columns = (p->n + tile_rows - 1) / tile_rows;
    a.num_k = (p->k + stage_k - 1) / stage_k;
    a.shares_x = p->shares_x;
    a.knows_tiles = p->knows_tiles;
    assert_always((int64_t)p->num_experts * p->n <= INT32_MAX);
    assert_always((int64_t)p->tiles_max * a.num_columns + d->num_sms <= INT32_MAX);
    a.tiles_max = p->tiles_max * a.num_columns;
    return a;
}

} // namespace

#endif
