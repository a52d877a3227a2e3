/* moe_small.cu - products of experts that few tokens chose, on sm_90a, bound by the bytes of W: linear_small.cu's, for a list of tiles that
 * is found on the device.
 *
 * A CTA computes tiles of ROWS rows of an expert's W, the M side of wgmma in groups of 64, by up to CAP rows of x, the N side, which is as
 * narrow as the tile's rows allow; of x a wide tile of W has half as much to fetch for each of its rows. One thread fills a ring of stages of STAGE_K columns that runs on across tiles. The experts' W lie one after
 * another: a box that ends beyond an expert's rows reads the next one's, whose results are not stored. Sums go along K in order. */
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_store.cuh"
#include "kernels/cuda/moe_bias.cuh"
#include "kernels/cuda/moe_ring.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace
{

enum {
    BOX_K = 64, /* columns of a box: 128 bytes */
    BOX_ROW_BYTES = BOX_K * 2,
    BOXES = 2, /* a stage */
    STAGE_K = BOXES * BOX_K,
    WARPS = 4, /* that multiply */
    THREADS = (WARPS + 1) * 32,
    GROUP_ROWS = 64, /* of wgmma's M side */
    WIDE_PAIRS = 4,  /* an expert, on average: from so many on tiles of W are wide */
    STAGES_MAX = 32
};

struct small_args : moe_ring_args {
    __nv_bfloat16 *out;
    const float *bias; /* [E][n] where the epilogue wants it */
};

template <int ROWS, int CAP> struct small_traits {
    static constexpr int GROUPS = ROWS > GROUP_ROWS ? ROWS / GROUP_ROWS : 1; /* one behind the other */
    static constexpr int W_BYTES = ROWS * BOXES * BOX_ROW_BYTES, X_BYTES = CAP * BOXES * BOX_ROW_BYTES;
    static constexpr int BYTES_BEHIND =
        (GROUPS * GROUP_ROWS - ROWS) * BOX_ROW_BYTES; /* of W, read beyond the ring's end */
    static constexpr int STAGE_BYTES = W_BYTES + X_BYTES;
};

/* What the roles of a CTA share. Addresses of shared memory. */
struct ring {
    uint32_t w, x;               /* [stage][box][ROWS or CAP][64], swizzled */
    uint32_t full, empty;        /* barriers of the stages */
    struct moe_ring_tile *tiles; /* [stage]: the tile that begins there */
};

/* Columns that are multiplied for so many rows of x: those that were not fetched are nobody's. */
__device__ __forceinline__ int32_t width_of(int32_t rows)
{
    return rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
}

/* The one thread that fetches. */
template <int ROWS, int CAP> struct producer {
    using T = small_traits<ROWS, CAP>;
    const small_args &a;
    const ring &r;
    const CUtensorMap *w_map, *x_map;

    /* And how many bytes the stage gets in all. */
    __device__ __forceinline__ void load_w(int32_t stage, const moe_cursor<ROWS> &c) const
    {
        uint32_t full = r.full + 8 * stage;
        if (c.k == 0) r.tiles[stage] = c.tile;
        barrier_arrive_expect(full,
                              T::W_BYTES + moe_rows_in_boxes(c.tile.rows.count) * (BOXES * BOX_ROW_BYTES));
#pragma unroll
        for (int i = 0; i < BOXES; i++)
            tensor_stream_2d(r.w + stage * T::W_BYTES + i * ROWS * BOX_ROW_BYTES, w_map, full,
                             c.k * STAGE_K + i * BOX_K, c.tile.rows.expert * a.n + c.tile.first_n);
    }

    __device__ __forceinline__ void load_x(int32_t stage, const struct moe_tile &rows, int32_t k) const
    {
        const int32_t first = a.shares_x ? 0 : rows.first, num_rows = moe_rows_in_boxes(rows.count);
#pragma unroll 1
        for (int32_t row = 0; row < num_rows; row += MOE_X_BOX_ROWS)
#pragma unroll
            for (int i = 0; i < BOXES; i++)
                tensor_load_2d(r.x + stage * T::X_BYTES + (i * CAP + row) * BOX_ROW_BYTES, x_map,
                               r.full + 8 * stage, k * STAGE_K + i * BOX_K, first + row);
    }
};

/* The warps that multiply. */
template <int ROWS, int CAP> struct consumer {
    using T = small_traits<ROWS, CAP>;
    const small_args &a;
    const ring &r;
    pipeline_state p;
    int32_t before; /* the stage that the products under way read */

    __device__ __forceinline__ void release(void) const
    {
        if (threadIdx.x % 32 == 0) barrier_arrive(r.empty + 8 * before);
    }

    template <int WIDTH> __device__ __forceinline__ void multiply(float (&d)[T::GROUPS][WIDTH / 2], int32_t k)
    {
        barrier_wait(r.full + 8 * p.stage, p.parity);
        constexpr uint32_t x_box = CAP * BOX_ROW_BYTES / 16, w_box = ROWS * BOX_ROW_BYTES / 16,
                           group = GROUP_ROWS * BOX_ROW_BYTES / 16;
        uint32_t x = wgmma_descriptor_low(r.x) + p.stage * BOXES * x_box;
        uint32_t w = wgmma_descriptor_low(r.w) + p.stage * BOXES * w_box;
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < STAGE_K / 16; i++)
#pragma unroll
            for (int g = 0; g < T::GROUPS; g++)
                wgmma_shared(d[g], wgmma_descriptor_of(w + i / 4 * w_box + i % 4 * 2 + g * group),
                             wgmma_descriptor_of(x + i / 4 * x_box + i % 4 * 2), k > 0 || i > 0);
        wgmma_commit();
        if (k > 0) {
            wgmma_wait<1>();
            release();
        }
        before = p.stage;
        p.advance(a.num_stages);
    }

    /* Of a group's, where this warp's rows of W begin. */
    __device__ __forceinline__ static int32_t row_of(int group)
    {
        return group * GROUP_ROWS + (int32_t)threadIdx.x / 32 * 16;
    }

    /* Ahead of the products: those of the last warps may be of no row. */
    __device__ __forceinline__ struct lane_bias find_bias(int32_t expert, int32_t first_n, int group) const
    {
        int32_t row = row_of(group);
        return load_lane_bias(a.bias + (size_t)expert * a.n, row < ROWS ? first_n + row : a.n, a.n);
    }

    template <enum moe_epilogue EPILOGUE, int WIDTH>
    __device__ __forceinline__ void run_tile(const struct moe_tile &tile, int32_t first_n)
    {
        float d[T::GROUPS][WIDTH / 2];
        struct lane_bias bias[T::GROUPS] = {};
#pragma unroll
        for (int g = 0; g < T::GROUPS && moe_has_bias(EPILOGUE); g++)
            bias[g] = find_bias(tile.expert, first_n, g);
        for (int32_t k = 0; k < a.num_k; k++) multiply<WIDTH>(d, k);
        wgmma_wait<0>();
#pragma unroll
        for (int g = 0; g < T::GROUPS; g++) wgmma_hold(d[g]);
        release();
        const struct store_args to = {a.out, NULL, tile.first + tile.count, a.n};
#pragma unroll
        for (int g = 0; g < T::GROUPS; g++) {
            const int32_t row = row_of(g);
            if (row >= ROWS) continue;
            if constexpr (moe_has_bias(EPILOGUE)) {
                store_columns_biased<WIDTH, EPILOGUE, 2>(to, d[g], bias[g], tile.first, first_n + row);
            } else {
                store_columns<WIDTH, moe_store_of(EPILOGUE), 2>(to, d[g], tile.first, first_n + row);
            }
        }
    }

    template <enum moe_epilogue EPILOGUE> __device__ __forceinline__ void run(void)
    {
        int32_t num_all = __ldcg(a.num_tiles) * a.num_columns;
        for (int32_t index = blockIdx.x; index < num_all; index += gridDim.x) {
            barrier_wait(r.full + 8 * p.stage, p.parity);
            const struct moe_ring_tile tile = r.tiles[p.stage];
            const int32_t width = warp_uniform(width_of(tile.rows.count));
            /* in one chain: behind branches one after another the compiler takes the ring's stage for the lanes' own (warp_uniform) */
            if (CAP == 8 || width == 8)
                run_tile<EPILOGUE, 8>(tile.rows, tile.first_n);
            else if (width == 16)
                run_tile<EPILOGUE, CAP >= 16 ? 16 : 8>(tile.rows, tile.first_n);
            else if (CAP == 32 || width == 32)
                run_tile<EPILOGUE, CAP >= 32 ? 32 : 8>(tile.rows, tile.first_n);
            else
                run_tile<EPILOGUE, CAP >= 64 ? 64 : 8>(tile.rows, tile.first_n);
        }
    }
};

template <int ROWS, int CAP, enum moe_epilogue EPILOGUE>
__global__ void __launch_bounds__(THREADS, 1)
    small_kernel(small_args a, const __grid_constant__ CUtensorMap w_map,
                 const __grid_constant__ CUtensorMap x_map)
{
    using T = small_traits<ROWS, CAP>;
    extern __shared__ unsigned char shared[];
    __shared__ uint64_t barriers[2 * STAGES_MAX];
    __shared__ struct moe_ring_tile tiles[STAGES_MAX];
    ring r;
    r.x = (shared_address(shared) + 1023) & ~1023u; /* swizzled boxes want 1024-byte alignment */
    r.w = r.x + a.num_stages * T::X_BYTES;
    r.full = shared_address(barriers);
    r.empty = r.full + 8 * STAGES_MAX;
    r.tiles = tiles;
    if (threadIdx.x == 0) {
        tensor_map_prefetch(&w_map);
        tensor_map_prefetch(&x_map);
        ring_init(r.full, r.empty, a.num_stages, WARPS);
    }
    __syncthreads();
    if (warp_uniform(threadIdx.x / 32) == WARPS) {
        if (elect_lane()) fill_moe_ring<ROWS>(producer<ROWS, CAP>{a, r, &w_map, &x_map});
        return;
    }
    dependency_wait();
    consumer<ROWS, CAP>{a, r, {}, 0}.template run<EPILOGUE>();
}

/* ---- host ---- */

template <int ROWS, int CAP, enum moe_epilogue EPILOGUE>
bool launch(struct cuda_device *d, const struct moe_product *p)
{
    using T = small_traits<ROWS, CAP>;
    small_args a = {moe_ring_args_of(d, p, ROWS, STAGE_K), p->out, p->bias};
    const CUtensorMap *w_map = tensor_map_of_matrix(d, p->weight, p->num_experts * p->n, p->k, ROWS),
                      *x_map = tensor_map_of_matrix(d, p->x, p->x_rows, p->k, MOE_X_BOX_ROWS);
    if (!w_map || !x_map) return false;
    a.num_stages = std::min((moe_ring_bytes(p) - T::BYTES_BEHIND) / T::STAGE_BYTES, (int32_t)STAGES_MAX);
    assert_always(a.num_stages >= 2); /* one is given back when the next one's products are under way */
    return launch_dependent(
        d, small_kernel<ROWS, CAP, EPILOGUE>, dim3((unsigned)std::min(d->num_sms, a.tiles_max)),
        dim3(THREADS), 1024 + (size_t)a.num_stages * T::STAGE_BYTES + T::BYTES_BEHIND, a, *w_map, *x_map);
}

template <int ROWS, int CAP> bool launch_epilogue(struct cuda_device *d, const struct moe_product *p)
{
    switch (moe_epilogue_of(p)) {
    case MOE_SUMS:
        return launch<ROWS, CAP, MOE_SUMS>(d, p);
    case MOE_SUMS_BIAS:
        return launch<ROWS, CAP, MOE_SUMS_BIAS>(d, p);
    case MOE_SILU:
        return launch<ROWS, CAP, MOE_SILU>(d, p);
    case MOE_GELU:
        return launch<ROWS, CAP, MOE_GELU>(d, p);
    case MOE_CLAMPED:
        return launch<ROWS, CAP, MOE_CLAMPED>(d, p);
    }
    return false;
}

} // namespace

bool cuda_moe_small(struct cuda_device *d, int32_t tile_rows, const struct moe_product *p)
{
    /* narrow tiles of W where there are few, so that all SMs get the same share */
    if (tile_rows == 8) return launch_epilogue<32, 8>(d, p);
    const bool is_wide =
        p->num_pairs >= WIDE_PAIRS * p->num_experts && moe_rows_of_sm(d, p, 128) <= moe_rows_of_sm(d, p, 64);
    if (tile_rows == 32) return is_wide ? launch_epilogue<128, 32>(d, p) : launch_epilogue<64, 32>(d, p);
    return is_wide ? launch_epilogue<128, 64>(d, p) : launch_epilogue<64, 64>(d, p);
}
