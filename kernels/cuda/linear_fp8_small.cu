/* linear_fp8_small.cu - products of few rows of e4m3 on sm_90a, bound by the bytes of W.
 *
 * The ring, the queue of tiles and the fetching ahead of the dependency are those of linear_small.cu. W is the M side of wgmma, 64
 * rows for each group of four warps, x the N side:
 *
 *      W [ROWS][K]         -> |s0|s1|s2|s3| ... ring in shared memory ... -> wgmma, 128 columns -> * scales, + sums -> out[m][n]
 *      x [M][K]            -> |s0|s1|s2|s3|
 *      scales of x [K/128][M] (of blocks)
 *
 * Of one row the CTAs make what they multiply, e4m3 of a row of bf16 or of the norm of the residual stream (linear_row.cuh): then the
 * ring has W alone.
 *
 * The scales of W come from global memory, 32 blocks of columns at a time, one a lane. */
#include <algorithm>

#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_fp8.cuh"
#include "kernels/cuda/linear_ring.cuh"
#include "kernels/cuda/linear_row.cuh"
#include "kernels/cuda/linear_store.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace
{

enum {
    BOX_ROW_BYTES = FP8_BLOCK,
    GROUP_WARPS = 4,
    GROUP_ROWS = 64,
    WIDEST = 112, /* rows of W in a tile */
    STAGES_MAX = 32,
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

/* COLS: rows of x at most, 8 or more; 1, 2: one row that the CTA makes (is_row). */
template <int ROWS, int COLS> struct small_traits {
    static constexpr bool IS_ROW = is_row(COLS);
    static constexpr int BOXES = ROWS > 64 || COLS > 64 ? 1
                                 : COLS > 16            ? 2
                                                        : 4; /* blocks of 128 columns a stage */
    static constexpr int W_BYTES = ROWS * BOXES * BOX_ROW_BYTES;
    /* Groups of warps: W's rows by 64, x's rows by COLUMNS. Adding what blocks give is the work of many. */
    static constexpr int W_GROUPS = (ROWS + GROUP_ROWS - 1) / GROUP_ROWS,
                         X_GROUPS = COLS <= 16   ? 1
                                    : COLS <= 64 ? 2
                                                 : 4 / W_GROUPS,
                         COLUMNS = IS_ROW ? 8 : COLS / X_GROUPS;
    static constexpr int WARPS = W_GROUPS * X_GROUPS * GROUP_WARPS;
    /* Of the CTA, but the producer's, which is the last. */
    static constexpr int OTHERS = IS_ROW ? (int)ROW_WARPS : WARPS;
    static constexpr int THREADS = (OTHERS + 1) * 32;
    /* Stages whose products may be under way at a time, as far as registers suffice. */
    static constexpr int BUFFERS = COLUMNS > 32 ? 1 : 2;
    /* of W, read beyond the ring's end */
    static constexpr int BYTES_BEHIND = (W_GROUPS * GROUP_ROWS - ROWS) * BOX_ROW_BYTES;
    __host__ __device__ static constexpr int x_bytes(int x_rows) { return x_rows * BOXES * BOX_ROW_BYTES; }
    __host__ __device__ static constexpr int scale_bytes(int x_rows) { return x_rows * BOXES * 4; }
    /* Of a row's place in front of the ring, and of its scales behind it. */
    __host__ __device__ static constexpr int row_bytes(int num_k)
    {
        return IS_ROW ? (num_k * BOXES * FP8_BLOCK + ROW_BYTES_BEHIND + 1023) / 1024 * 1024 : 0;
    }
    __host__ __device__ static constexpr int row_scale_bytes(int num_k)
    {
        return IS_ROW ? num_k * BOXES * (int)sizeof(float2) : 0;
    }
};

/* Addresses of shared memory. */
struct ring {
    uint32_t w, x;        /* [stage][box][ROWS or x_rows][128], swizzled; x of IS_ROW: the row */
    uint32_t scales;      /* [stage][box][x_rows]; of IS_ROW [block][2], of which the first counts */
    uint32_t full, empty; /* barriers of the stages */
    int32_t *tiles;       /* [stage]: the tile that begins there, or NO_TILE */
    int32_t *is_over;     /* the dependency */
};

/* What the one thread that fetches puts into a stage (linear_ring.cuh). */
template <int ROWS, int COLS, bool BLOCKS> struct producer {
    using T = small_traits<ROWS, COLS>;
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
                             (k * T::BOXES + i) * (FP8_BLOCK / 2), tile * ROWS);
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

__device__ __forceinline__ float2 load_shared_pair(uint32_t address)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address));
    return v;
}

/* The warps that multiply. Sums as wgmma.cuh has them: [4 j + 2 i + k] is row 16 warp + g + 8 i of the tile, row 8 j + 2 t + k of
 * x. */
template <int ROWS, int COLS, bool BLOCKS> struct consumer {
    using T = small_traits<ROWS, COLS>;
    static constexpr int COLUMNS = T::COLUMNS;
    const small_args &a;
    const ring &r;
    int32_t warp;    /* of those that have the same rows of x */
    int32_t first_m; /* of these */
    pipeline_state p;
    int32_t oldest; /* stage whose products have not joined the sums */
    float sums[COLUMNS / 2], parts[T::BUFFERS][T::BOXES][COLUMNS / 2];
    float2 scales,
        next_scales; /* of blocks of W, for two groups of 8 rows: lane l has those of block l of 32 */
    float of_w[2], of_x[COLUMNS / 4]; /* scales of rows, asked for long before they are wanted */

    /* Rows of W of this warp, the first of them. */
    __device__ __forceinline__ int32_t row_of(int32_t tile) const { return tile * ROWS + 16 * warp; }

    __device__ __forceinline__ float2 scales_from(int32_t tile, int32_t first_block) const
    {
        int32_t block = min(first_block + (int32_t)threadIdx.x % 32, a.num_blocks - 1),
                row = min(row_of(tile),
                          a.p.n - 16); /* what lies beyond is not used, nor are there branches of lanes */
        return *(const float2 *)(a.p.w_scales + (size_t)block * a.p.w_pitch + row / 8);
    }

    __device__ __forceinline__ void begin(int32_t tile)
    {
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sums[i] = 0;
        if (BLOCKS) next_scales = scales_from(tile, 0);
#pragma unroll
        for (int i = 0; i < 2 && !BLOCKS; i++)
            of_w[i] = a.p.w_scales[min(row_of(tile) + (int32_t)threadIdx.x % 32 / 4 + 8 * i, a.p.n - 1)];
    }

    __device__ __forceinline__ void load_x_scales(void)
    {
#pragma unroll
        for (int i = 0; i < COLUMNS / 4; i++)
            of_x[i] =
                a.p.x_scales[min(first_m + 8 * (i / 2) + (int32_t)threadIdx.x % 4 * 2 + i % 2, a.p.rows - 1)];
    }

    /* What a block of columns adds where rows have scales. */
    __device__ __forceinline__ void add(const float (&part)[COLUMNS / 2])
    {
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sums[i] += part[i];
        wgmma_hold(sums); /* or the compiler adds elsewhere, and has the products wait for each other */
    }

    /* Where blocks have. */
    __device__ __forceinline__ void add_scaled(int32_t tile, int32_t block, const float (&part)[COLUMNS / 2],
                                               uint32_t x_scales)
    {
        if (block >= a.num_blocks) return;
        if (block % 32 == 0) {
            scales = next_scales;
            next_scales = scales_from(tile, block + 32);
        }
        const float of_w[] = {__shfl_sync(0xffffffffu, scales.x, block % 32),
                              __shfl_sync(0xffffffffu, scales.y, block % 32)};
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; j++) {
            if (!T::IS_ROW && first_m + 8 * j >= a.x_rows) break;
            float2 of_x =
                load_shared_pair(T::IS_ROW ? r.scales + block * (int32_t)sizeof(float2)
                                           : x_scales + (first_m + 8 * j + (int)threadIdx.x % 4 * 2) * 4);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float *s = sums + 4 * j + 2 * i;
                const float *v = part + 4 * j + 2 * i;
                s[0] = __fmaf_rn(v[0], of_x.x * of_w[i], s[0]);
                s[1] = __fmaf_rn(v[1], of_x.y * of_w[i], s[1]);
            }
        }
    }

    /* The products of the tile's k-th stage begin. */
    __device__ __forceinline__ void multiply(int32_t k, float (&into)[T::BOXES][COLUMNS / 2])
    {
        const int32_t stage = warp_uniform(p.stage);
        barrier_wait(r.full + 8 * p.stage, p.parity);
        const uint32_t x_box = (T::IS_ROW ? FP8_BLOCK : a.x_rows * BOX_ROW_BYTES) / 16,
                       w_box = ROWS * BOX_ROW_BYTES / 16;
        uint32_t x = T::IS_ROW ? wgmma_row_descriptor_low(r.x) + k * T::BOXES * x_box
                               : wgmma_descriptor_low(r.x + (T::X_GROUPS > 1 ? first_m * BOX_ROW_BYTES : 0)) +
                                     stage * T::BOXES * x_box;
        uint32_t w = wgmma_descriptor_low(r.w) + stage * T::BOXES * w_box +
                     (T::W_GROUPS > 1 ? warp / GROUP_WARPS * GROUP_ROWS * BOX_ROW_BYTES / 16 : 0);
        wgmma_fence();
        /* boxes take turns: a product waits for the one before it with the same sums */
#pragma unroll
        for (int i = 0; i < T::BOXES * FP8_BLOCK / 32; i++) {
            const int box = i % T::BOXES, part = i / T::BOXES;
            const uint32_t x_part = x + box * x_box + part * 2;
            wgmma_e4m3(into[box], wgmma_descriptor_of(w + box * w_box + part * 2),
                       T::IS_ROW ? wgmma_row_descriptor_of(x_part) : wgmma_descriptor_of(x_part), part > 0);
        }
        wgmma_commit();
        p.advance(a.num_stages);
    }

    /* Those of the oldest stage under way are over: they join the sums. */
    __device__ __forceinline__ void finish(int32_t tile, int32_t k, float (&from)[T::BOXES][COLUMNS / 2])
    {
#pragma unroll
        for (int box = 0; box < T::BOXES; box++) {
            wgmma_hold(from[box]);
            if constexpr (BLOCKS)
                add_scaled(tile, k * T::BOXES + box, from[box],
                           r.scales + oldest * T::scale_bytes(a.x_rows) + box * a.x_rows * 4);
            else
                add(from[box]);
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(r.empty + 8 * oldest);
        if (++oldest == a.num_stages) oldest = 0;
    }

    /* A tile's stages, the next one's products queued while one's are added. */
    __device__ __forceinline__ void multiply_all(int32_t tile)
    {
        if constexpr (T::BUFFERS == 1) {
            for (int32_t k = 0; k < a.num_k; k++) {
                multiply(k, parts[0]);
                wgmma_wait<0>();
                finish(tile, k, parts[0]);
            }
        } else {
            int32_t k = 0;
            multiply(0, parts[0]);
            for (; k + 2 < a.num_k; k += 2) {
                multiply(k + 1, parts[1]);
                wgmma_wait<1>();
                finish(tile, k, parts[0]);
                multiply(k + 2, parts[0]);
                wgmma_wait<1>();
                finish(tile, k + 1, parts[1]);
            }
            if (k + 1 < a.num_k) {
                multiply(k + 1, parts[1]);
                wgmma_wait<1>();
                finish(tile, k, parts[0]);
                wgmma_wait<0>();
                finish(tile, k + 1, parts[1]);
            } else {
                wgmma_wait<0>();
                finish(tile, k, parts[0]);
            }
        }
    }

    /* By scales of rows. */
    __device__ __forceinline__ void scale(void)
    {
#pragma unroll
        for (int i = 0; i < COLUMNS / 4; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float *s = sums + 4 * (i / 2) + 2 * half + i % 2;
                *s = *s * of_x[i] * of_w[half];
            }
    }

    __device__ __forceinline__ void store(int32_t tile) const
    {
        if (16 * warp >= ROWS) return;
        const store_args out = {a.p.out, a.p.bias, a.p.rows, a.p.n};
        if (a.p.silu_mul)
            store_columns<COLUMNS, EPILOGUE_SILU_MUL, 2>(out, sums, first_m, row_of(tile));
        else
            store_columns<COLUMNS, EPILOGUE_BF16, 2>(out, sums, first_m, row_of(tile));
    }

    __device__ __forceinline__ void run(void)
    {
        if (!BLOCKS && !T::IS_ROW) load_x_scales();
        for (;;) {
            barrier_wait(r.full + 8 * p.stage, p.parity);
            int32_t tile = warp_uniform(r.tiles[p.stage]);
            if (tile == NO_TILE) return;
            begin(tile);
            multiply_all(tile);
            if constexpr (!BLOCKS) scale();
            store(tile);
        }
    }
};

/* By all but the producer. Returns the row's scale, where blocks have none. */
template <int COLS, bool BLOCKS>
__device__ __forceinline__ float make_row(const row_args &row, unsigned char *to, int32_t filled,
                                          float2 *block_scales, int32_t *is_over)
{
    __shared__ float partial[2][ROW_WARPS];
    row_maker<COLS> maker{row, to, filled, partial};
    if (!row.x) {
        dependency_wait_and_tell(is_over);
        return maker.template make_codes<BLOCKS>(block_scales);
    }
    maker.load_weight();
    dependency_wait_and_tell(is_over);
    return maker.template make_normed_codes<BLOCKS>(block_scales);
}

/* What a CTA does. row, or x_map. */
template <int ROWS, int COLS, bool BLOCKS>
__device__ __forceinline__ void multiply_tiles(const small_args &a, const CUtensorMap *w_map,
                                               const CUtensorMap *x_map, const row_args *row)
{
    using T = small_traits<ROWS, COLS>;
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
        if (elect_lane()) fill_ring(producer<ROWS, COLS, BLOCKS>{a, r, w_map, x_map});
        return;
    }
    float row_scale = 0;
    if constexpr (T::IS_ROW) {
        row_scale = make_row<COLS, BLOCKS>(
            *row, shared + (r.x - shared_address(shared)), a.num_k * T::BOXES * FP8_BLOCK,
            (float2 *)(shared + (r.scales - shared_address(shared))), &is_over);
        if (warp >= T::WARPS) return;
    } else {
        dependency_wait_and_tell(&is_over); /* the results overwrite what kernels before may still read */
    }
    constexpr int W_WARPS = T::W_GROUPS * GROUP_WARPS;
    consumer<ROWS, COLS, BLOCKS> c{a,  r, warp % W_WARPS, warp / W_WARPS * T::COLUMNS, {}, 0, {}, {}, {}, {},
                                   {}, {}};
    c.of_x[0] = c.of_x[1] = row_scale; /* of IS_ROW */
    c.run();
}

template <int ROWS, int COLS, bool BLOCKS>
__global__ void __launch_bounds__((small_traits<ROWS, COLS>::THREADS), 1)
    small_kernel(small_args a, const __grid_constant__ CUtensorMap w_map,
                 const __grid_constant__ CUtensorMap x_map)
{
    multiply_tiles<ROWS, COLS, BLOCKS>(a, &w_map, &x_map, NULL);
}

template <int ROWS, int COLS, bool BLOCKS>
__global__ void __launch_bounds__((small_traits<ROWS, COLS>::THREADS), 1)
    row_kernel(small_args a, row_args row, const __grid_constant__ CUtensorMap w_map)
{
    multiply_tiles<ROWS, COLS, BLOCKS>(a, &w_map, NULL, &row);
}

/* ---- host ---- */

template <int ROWS, int COLS>
bool launch(struct cuda_device *d, const struct fp8_product &p, const row_args *row)
{
    using T = small_traits<ROWS, COLS>;
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
        auto kernel = p.in_blocks ? row_kernel<ROWS, COLS, true> : row_kernel<ROWS, COLS, false>;
        return launch_dependent(d, kernel, dim3((unsigned)grid), dim3(T::THREADS), shared_bytes, a, *row,
                                *w_map);
    } else {
        auto kernel = p.in_blocks ? small_kernel<ROWS, COLS, true> : small_kernel<ROWS, COLS, false>;
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
