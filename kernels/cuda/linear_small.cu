/* linear_small.cu - products of few rows (M <= 256) on sm_90a, bound by the bytes of W.
 *
 * Both operands come straight from shared memory, so a group of four warps, or a few, keep up with an SM's share of the memory.
 * One thread, the producer, fills a ring of stages of STAGE_K columns through the bulk copy engine, running on across tiles:
 *
 *      W [ROWS][K]  -> |s0|s1|s2|s3| ... ring in shared memory ... -> wgmma -> out[m][n]
 *      x [M][K]     -> |s0|s1|s2|s3|
 *
 * Few rows of x (COLS of them at most) are the N side of wgmma, and W the M side, 64 rows at a time: what is multiplied
 * in vain costs power, and under its limit the memory becomes slower. More rows are the M side, padded to 64 for each group
 * of warps, and the ROWS rows of W the N side. Only the rows of x that exist (rounded up to 8) are fetched; what is missing of an
 * operand is whatever lies behind it in shared memory, and its results are not stored.
 *
 * SMs get unequal shares of the memory. So the CTAs, one an SM, know their first tiles by their number and take the last
 * ones from a queue.
 *
 * Of one row the CTAs can make what they multiply, the norm of the residual stream (linear_row.cuh): then the ring has W alone.
 *
 * The order over K is the plain one, so the bits equal those of any product of the same rows that does not split K
 * (cuBLASLt's included). Filling the ring with weights needs nothing of the kernel before: it begins ahead of the
 * dependency, so that the memory does not idle between kernels. */
#include <algorithm>

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_ring.cuh"
#include "kernels/cuda/linear_row.cuh"
#include "kernels/cuda/linear_small.cuh"
#include "kernels/cuda/linear_store.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace
{

enum {
    BOX_K = 64, /* columns of a box: 128 bytes */
    BOX_ROW_BYTES = BOX_K * 2,
    GROUP_WARPS = 4, /* that multiply together */
    GROUP_ROWS = 64, /* of wgmma's M side */
    ROWS_MAX = 112,  /* of W in a tile */
    STAGES_MAX = 32,
    RING_BYTES = 225 << 10
};

struct small_args : store_args {
    int32_t x_rows;           /* m rounded up to 8: rows of x in a stage */
    int32_t num_tiles, num_k; /* tiles of ROWS rows of W; stages that one fills */
    int32_t num_dealt;        /* the first so many tiles are not in the queue */
    int32_t pause;            /* between stages ahead of the dependency */
    int32_t num_stages;       /* stages in the ring */
    int32_t *tiles_taken;     /* the queue */
};

template <int ROWS> struct small_traits {
    static constexpr int BOXES = ROWS <= 64 ? 2 : 1; /* of 64 columns a stage */
    static constexpr int STAGE_K = BOXES * BOX_K;
    static constexpr int W_BYTES = ROWS * BOXES * BOX_ROW_BYTES;
    __host__ __device__ static constexpr int x_bytes(int x_rows) { return x_rows * BOXES * BOX_ROW_BYTES; }
};

/* What COLS is when x is the M side: 0, -1, -2, -3 for one, two, three, four groups. */
constexpr int x_first(int groups)
{
    return 1 - groups;
}

/* COLS of 1, 2: one row, the norm that the CTA makes (is_row). Which operand is the M side. */
template <int ROWS, int COLS> struct side_traits {
    static constexpr bool W_FIRST = COLS > 0, IS_ROW = is_row(COLS);
    static constexpr int N = IS_ROW ? 8 : COLS; /* of W_FIRST */
    static constexpr int GROUPS = W_FIRST ? (ROWS + GROUP_ROWS - 1) / GROUP_ROWS : 1 - COLS;
    static constexpr int WARPS = GROUPS * GROUP_WARPS;
    /* Of the CTA, but the producer's, which is the last. */
    static constexpr int OTHERS = IS_ROW ? (int)ROW_WARPS : WARPS;
    static constexpr int THREADS = (OTHERS + 1) * 32;
    static constexpr int SUMS = (W_FIRST ? N : ROWS) / 2; /* a thread */
    /* of W, read beyond the ring's end */
    static constexpr int BYTES_BEHIND = W_FIRST ? (GROUPS * GROUP_ROWS - ROWS) * BOX_ROW_BYTES : 0;
};

/* Gate and up alternate in groups of 8 columns.
 * x on the M side, d[4 j + 2 i + k]: row 16 warp + g + 8 i of x, column 8 j + 2 t + k. */
template <int ROWS, int EPILOGUE>
__device__ __forceinline__ void store_tile(const small_args &a, const float (&d)[ROWS / 2], int32_t first_n)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int32_t m = warp * 16 + lane / 4 + 8 * i;
        const float *row = d + 2 * i;
#pragma unroll
        for (int j = 0; j < ROWS / 8; j += EPILOGUE == EPILOGUE_SILU_MUL ? 2 : 1) {
            const float *v = row + 4 * j;
            int32_t pair = lane % 4 * 2;
            if (EPILOGUE == EPILOGUE_SILU_MUL)
                store_gate_mul<GATE_SILU>(a, m, first_n / 2 + 4 * j + pair, pack_bf16(v[0], v[1]),
                                          pack_bf16(v[4], v[5]));
            else
                store_pair<EPILOGUE>(a, m, first_n + 8 * j + pair, v[0], v[1]);
        }
    }
}

/* What the roles of a CTA share. Addresses of shared memory. */
struct ring {
    uint32_t w, x;        /* [stage][box][ROWS or x_rows][64], swizzled; x of IS_ROW: the row */
    uint32_t full, empty; /* barriers of the stages */
    int32_t *tiles;       /* [stage]: the tile that begins there, or NO_TILE */
    int32_t *is_over;     /* the dependency */
};

/* What the one thread that fetches puts into a stage (linear_ring.cuh). */
template <int ROWS, bool IS_ROW> struct producer {
    using T = small_traits<ROWS>;
    const small_args &a;
    const ring &r;
    const CUtensorMap *w_map, *x_map;

    __device__ __forceinline__ void load_w(int32_t stage, int32_t tile, int32_t k) const
    {
        if (k == 0) r.tiles[stage] = tile;
        barrier_arrive_expect(r.full + 8 * stage, T::W_BYTES + T::x_bytes(a.x_rows));
#pragma unroll
        for (int i = 0; i < T::BOXES; i++)
            tensor_stream_2d(r.w + stage * T::W_BYTES + i * ROWS * BOX_ROW_BYTES, w_map, r.full + 8 * stage,
                             k * T::STAGE_K + i * BOX_K, tile_begin(tile, ROWS, a.n, W_TILE_ALIGNMENT));
    }

    /* A row is made by others. */
    __device__ __forceinline__ void load_x(int32_t stage, int32_t k) const
    {
#pragma unroll
        for (int i = 0; i < (IS_ROW ? 0 : T::BOXES); i++)
            tensor_load_2d(r.x + stage * T::x_bytes(a.x_rows) + i * a.x_rows * BOX_ROW_BYTES, x_map,
                           r.full + 8 * stage, k * T::STAGE_K + i * BOX_K, 0);
    }
};

/* The warps that multiply. */
template <int ROWS, int COLS> struct consumer {
    using T = small_traits<ROWS>;
    using S = side_traits<ROWS, COLS>;
    const small_args &a;
    const ring &r;
    int32_t group;
    pipeline_state p;
    int32_t before; /* the stage that the products under way read */
    float d[S::SUMS];

    __device__ __forceinline__ void release(void) const
    {
        if (threadIdx.x % 32 == 0) barrier_arrive(r.empty + 8 * before);
    }

    /* The products of a tile's k-th stage; those of the stage before it are over when this returns. */
    __device__ __forceinline__ void multiply(int32_t k)
    {
        barrier_wait(r.full + 8 * p.stage, p.parity);
        const uint32_t x_box = a.x_rows * BOX_ROW_BYTES / 16, w_box = ROWS * BOX_ROW_BYTES / 16;
        uint32_t x = S::IS_ROW ? wgmma_row_descriptor_low(r.x) + k * (T::STAGE_K / 8)
                               : wgmma_descriptor_low(r.x) + p.stage * T::BOXES * x_box;
        uint32_t w = wgmma_descriptor_low(r.w) + p.stage * T::BOXES * w_box;
        if (S::GROUPS > 1) (S::W_FIRST ? w : x) += group * GROUP_ROWS * BOX_ROW_BYTES / 16;
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < T::STAGE_K / 16; i++) {
            uint64_t x_part = S::IS_ROW ? wgmma_row_descriptor_of(x + i * 2)
                                        : wgmma_descriptor_of(x + i / 4 * x_box + i % 4 * 2);
            uint64_t w_part = wgmma_descriptor_of(w + i / 4 * w_box + i % 4 * 2);
            wgmma_shared(d, S::W_FIRST ? w_part : x_part, S::W_FIRST ? x_part : w_part, k > 0 || i > 0);
        }
        wgmma_commit();
        if (k > 0) {
            wgmma_wait<1>();
            release();
        }
        before = p.stage;
        p.advance(a.num_stages);
    }

    template <int EPILOGUE> __device__ __forceinline__ void run(void)
    {
        for (;;) {
            barrier_wait(r.full + 8 * p.stage, p.parity);
            int32_t tile = warp_uniform(r.tiles[p.stage]);
            if (tile == NO_TILE) return;
            for (int32_t k = 0; k < a.num_k; k++) multiply(k);
            wgmma_wait<0>();
            wgmma_hold(d);
            release();
            if constexpr (S::W_FIRST) {
                int32_t row = (int32_t)threadIdx.x / 32 * 16;
                if (row < ROWS)
                    store_columns<S::N, EPILOGUE, 2>(a, d, 0,
                                                     tile_begin(tile, ROWS, a.n, W_TILE_ALIGNMENT) + row);
            } else
                store_tile<ROWS, EPILOGUE>(a, d, tile_begin(tile, ROWS, a.n, W_TILE_ALIGNMENT));
        }
    }
};

/* Of a row's place in front of the ring. */
template <int ROWS> __host__ __device__ __forceinline__ int32_t row_bytes(int32_t num_k)
{
    return row_place_bytes(num_k * small_traits<ROWS>::STAGE_K);
}

/* What a CTA does. row, or x_map. */
template <int ROWS, int COLS, int EPILOGUE>
__device__ __forceinline__ void multiply_tiles(const small_args &a, const CUtensorMap *w_map,
                                               const CUtensorMap *x_map, const row_args *row)
{
    using T = small_traits<ROWS>;
    using S = side_traits<ROWS, COLS>;
    constexpr int WARPS = S::WARPS;
    extern __shared__ unsigned char shared[];
    __shared__ uint64_t barriers[2 * STAGES_MAX];
    __shared__ int32_t tiles[STAGES_MAX], is_over;
    ring r;
    r.x = (shared_address(shared) + 1023) & ~1023u; /* swizzled boxes want 1024-byte alignment */
    /* W behind x: products read on behind the rows that there are */
    r.w = r.x + (S::IS_ROW ? row_bytes<ROWS>(a.num_k) : a.num_stages * T::x_bytes(a.x_rows));
    r.full = shared_address(barriers);
    r.empty = r.full + 8 * STAGES_MAX;
    r.tiles = tiles;
    r.is_over = &is_over;
    if (threadIdx.x == 0) {
        is_over = 0;
        tensor_map_prefetch(w_map);
        if (!S::IS_ROW) tensor_map_prefetch(x_map);
        ring_init(r.full, r.empty, a.num_stages, WARPS);
    }
    __syncthreads();
    int32_t warp = warp_uniform(threadIdx.x / 32);
    if (warp == S::OTHERS) {
        if (elect_lane()) fill_ring(producer<ROWS, S::IS_ROW>{a, r, w_map, x_map});
        return;
    }
    if constexpr (S::IS_ROW) {
        __shared__ float partial[2][ROW_WARPS];
        row_maker<COLS> maker{*row, shared + (r.x - shared_address(shared)), a.num_k * T::STAGE_K, partial};
        maker.load_weight();
        dependency_wait_and_tell(&is_over);
        maker.make_normed();
        if (warp >= WARPS) return;
    } else {
        dependency_wait_and_tell(&is_over); /* the results overwrite what kernels before may still read */
    }
    consumer<ROWS, COLS>{a, r, warp / GROUP_WARPS, {}, 0, {}}.template run<EPILOGUE>();
}

template <int ROWS, int COLS, int EPILOGUE>
__global__ void __launch_bounds__(side_traits<ROWS, COLS>::THREADS, 1)
    small_kernel(small_args a, const __grid_constant__ CUtensorMap w_map,
                 const __grid_constant__ CUtensorMap x_map)
{
    multiply_tiles<ROWS, COLS, EPILOGUE>(a, &w_map, &x_map, NULL);
}

template <int ROWS, int COLS, int EPILOGUE>
__global__ void __launch_bounds__(side_traits<ROWS, COLS>::THREADS, 1)
    row_kernel(small_args a, row_args row, const __grid_constant__ CUtensorMap w_map)
{
    multiply_tiles<ROWS, COLS, EPILOGUE>(a, &w_map, NULL, &row);
}

/* ---- host ---- */

template <int ROWS, int COLS, int EPILOGUE>
bool launch(struct cuda_device *d, small_args a, const void *x, const row_args *row, const struct linear *w)
{
    using T = small_traits<ROWS>;
    using S = side_traits<ROWS, COLS>;
    a.x_rows = S::IS_ROW ? 0 : (a.m + 7) / 8 * 8;
    a.num_tiles = (w->n + ROWS - 1) / ROWS;
    a.num_k = (w->k + T::STAGE_K - 1) / T::STAGE_K;
    int32_t stage_bytes = T::W_BYTES + T::x_bytes(a.x_rows), grid = std::min(d->num_sms, a.num_tiles);
    int32_t other_bytes = S::BYTES_BEHIND + (S::IS_ROW ? row_bytes<ROWS>(a.num_k) : 0);
    a.num_stages = std::min((RING_BYTES - other_bytes) / stage_bytes, (int32_t)STAGES_MAX);
    a.num_dealt = num_tiles_dealt(a.num_tiles, grid);
    a.pause = cuda_pause_ahead(d, T::W_BYTES);
    size_t shared_bytes = (size_t)a.num_stages * stage_bytes + other_bytes + 1024;
    const bool early = !w->is_rewritten; /* W is read ahead of the dependency */
    const CUtensorMap *w_map = tensor_map_of_matrix(d, w->weight, w->n, w->k, ROWS);
    if (!w_map) return false;
    if constexpr (S::IS_ROW)
        return launch_early(d, early, row_kernel<ROWS, COLS, EPILOGUE>, dim3((unsigned)grid),
                            dim3(S::THREADS), shared_bytes, a, *row, *w_map);
    else {
        const CUtensorMap *x_map = tensor_map_of_matrix(d, x, a.m, w->k, a.x_rows);
        return x_map && launch_early(d, early, small_kernel<ROWS, COLS, EPILOGUE>, dim3((unsigned)grid),
                                     dim3(S::THREADS), shared_bytes, a, *w_map, *x_map);
    }
}

/* With 32 rows of x narrow tiles would have as much multiplied in vain on one side as on the other; with more than 128 they
 * would fetch more of x than of W. */
template <int ROWS, int EPILOGUE>
bool launch_side(struct cuda_device *d, const small_args &a, const void *x, const row_args *row,
                 const struct linear *w)
{
    if constexpr (EPILOGUE != EPILOGUE_F32) /* logits are of a norm that others read, too */
        if (row)
            return w->k <= row_norm_max(1) ? launch<ROWS, 1, EPILOGUE>(d, a, x, row, w)
                                           : launch<ROWS, 2, EPILOGUE>(d, a, x, row, w);
    if (a.m <= 8) return launch<ROWS, 8, EPILOGUE>(d, a, x, row, w);
    if (a.m <= 16) return launch<ROWS, 16, EPILOGUE>(d, a, x, row, w);
    if constexpr (ROWS == ROWS_MAX)
        if (a.m <= 32) return launch<ROWS, 32, EPILOGUE>(d, a, x, row, w);
    if (a.m <= GROUP_ROWS) return launch<ROWS, x_first(1), EPILOGUE>(d, a, x, row, w);
    if (a.m <= 2 * GROUP_ROWS) return launch<ROWS, x_first(2), EPILOGUE>(d, a, x, row, w);
    if constexpr (ROWS == ROWS_MAX) {
        if (a.m <= 3 * GROUP_ROWS) return launch<ROWS, x_first(3), EPILOGUE>(d, a, x, row, w);
        if (a.m <= 4 * GROUP_ROWS) return launch<ROWS, x_first(4), EPILOGUE>(d, a, x, row, w);
    }
    return false;
}

template <int EPILOGUE>
bool launch_tiles(struct cuda_device *d, int32_t tile_rows, const small_args &a, const void *x,
                  const row_args *row, const struct linear *w)
{
    switch (tile_rows) {
    case 32:
        return launch_side<32, EPILOGUE>(d, a, x, row, w);
    case 48:
        return launch_side<48, EPILOGUE>(d, a, x, row, w);
    case 64:
        return launch_side<64, EPILOGUE>(d, a, x, row, w);
    default:
        return launch_side<ROWS_MAX, EPILOGUE>(d, a, x, row, w);
    }
}

} // namespace

bool cuda_linear_small_fits(const struct cuda_device *d, const struct linear *w, int32_t rows)
{
    return d->is_hopper && rows <= LINEAR_SMALL_ROWS_MAX && w->k % 8 == 0 && w->n % 16 == 0;
}

bool cuda_linear_small(struct cuda_device *d, int32_t tile_rows, int32_t rows, void *out, const void *x,
                       const struct linear *w, bool silu_mul, const struct row_args *row)
{
    small_args a = {};
    a.out = out;
    a.tiles_taken = &d->queues->linear_tiles;
    a.bias = w->bias;
    a.m = rows;
    a.n = w->n;
    if (silu_mul) return launch_tiles<EPILOGUE_SILU_MUL>(d, tile_rows, a, x, row, w);
    if (w->wide_output) return launch_tiles<EPILOGUE_F32>(d, tile_rows, a, x, row, w);
    return launch_tiles<EPILOGUE_BF16>(d, tile_rows, a, x, row, w);
}
