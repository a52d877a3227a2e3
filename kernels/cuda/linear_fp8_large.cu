/* linear_fp8_large.cu - products of many rows of e4m3 on sm_90a, bound by the tensor cores and by the machine's power.
 *
 * A CTA computes tiles of 128 rows of x times WIDTH rows of W, 64 of the rows in each of two groups of four warps. A stage of the
 * ring is a block of 128 columns and, where scales are of blocks, those of x and W; a warp of its own fills it:
 *
 *   x [128][K], its scales    -> |s0|s1|s2|s3|  ring in shared memory
 *   W [WIDTH][K], its scales  -> |s0|s1|s2|s3|
 *                                   |-> group 0: wgmma m64 nWIDTH k32, four times -> * scales, + sums of rows 0..63
 *                                   `-> group 1: the same                         -> rows 64..127
 *
 * While a group adds what a stage has given to its sums, the other's products run; so too while it stores a tile. */
#include <algorithm>

#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_fp8.cuh"
#include "kernels/cuda/linear_tile.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace
{

enum {
    ROW_BYTES = FP8_BLOCK,
    GROUPS = 2,
    GROUP_ROWS = 64,
    TILE_M = GROUPS * GROUP_ROWS,
    WARPS = GROUPS * 4,
    THREADS = (WARPS + 4) *
              32, /* registers are dealt out to groups of four warps: the producer has one to itself */
    PRODUCER_REGISTERS = 40,
    CONSUMER_REGISTERS = 232,
    X_BYTES = TILE_M * ROW_BYTES,
    X_SCALE_BYTES = TILE_M * 4,
    W_SCALE_BYTES = 128, /* at most */
    SCALE_BYTES = X_SCALE_BYTES + W_SCALE_BYTES,
    RING_BYTES_MAX = 193 << 10,
    BAND_ROWS_MIN = 2048,
    BAND_ROWS_MAX = 4096,
    BAND_BYTES = 36 << 20 /* of x: most of an H200's L2 */
};

template <int WIDTH> struct large_traits {
    static constexpr int W_BYTES = WIDTH * ROW_BYTES, STAGE_BYTES = X_BYTES + W_BYTES + SCALE_BYTES,
                         STAGES = RING_BYTES_MAX / STAGE_BYTES,
                         SHARED_BYTES = 1024 + STAGES * STAGE_BYTES + WARPS * OUT_BUFFERS * OUT_BYTES;
};

struct large_args {
    struct fp8_product p;
    struct tile_grid tiles;
    int32_t num_k; /* stages of a tile */
};

/* Addresses of shared memory. */
struct ring {
    uint32_t x, w;        /* [stage], swizzled */
    uint32_t scales;      /* [stage]: TILE_M of x, WIDTH / 8 of W */
    uint32_t full, empty; /* barriers of the stages */
};

/* Fills the ring: stages over all tiles of the CTA, one after another. */
template <int WIDTH, bool IN_BLOCKS> struct producer {
    using T = large_traits<WIDTH>;
    const large_args &a;
    const CUtensorMap *x_map, *w_map;
    const ring &r;

    __device__ __forceinline__ void load_w(int32_t stage, struct tile_place tile, int32_t k) const
    {
        uint32_t full = r.full + 8 * stage;
        barrier_arrive_expect(full, X_BYTES + T::W_BYTES + (IN_BLOCKS ? X_SCALE_BYTES + WIDTH / 8 * 4 : 0));
        tensor_load_2d(r.w + stage * T::W_BYTES, w_map, full, k * (ROW_BYTES / 2), tile.column * WIDTH);
        if (IN_BLOCKS)
            bulk_load(r.scales + stage * SCALE_BYTES + X_SCALE_BYTES,
                      a.p.w_scales + (size_t)k * a.p.w_pitch + tile.column * (WIDTH / 8), full,
                      WIDTH / 8 * 4);
    }

    __device__ __forceinline__ void load_x(int32_t stage, struct tile_place tile, int32_t k) const
    {
        uint32_t full = r.full + 8 * stage;
        tensor_load_2d(r.x + stage * X_BYTES, x_map, full, k * (ROW_BYTES / 2), tile.row * TILE_M);
        if (IN_BLOCKS)
            bulk_load(r.scales + stage * SCALE_BYTES,
                      a.p.x_scales + (size_t)k * a.p.x_pitch + tile.row * TILE_M, full, X_SCALE_BYTES);
    }

    /* The weights of the first tile need nothing of the kernel before. */
    __device__ __forceinline__ void run(void) const
    {
        int32_t num_tiles = num_tiles_of(a.tiles), num_ahead = min(T::STAGES, a.num_k);
        struct tile_place first = place_of(a.tiles, (int32_t)blockIdx.x);
        for (int32_t k = 0; k < num_ahead; k++) load_w(k, first, k);
        dependency_wait();
        for (int32_t k = 0; k < num_ahead; k++) load_x(k, first, k);
        pipeline_state p = {num_ahead % T::STAGES, num_ahead < T::STAGES};
        int32_t k = num_ahead;
        for (int32_t index = blockIdx.x; index < num_tiles; index += gridDim.x, k = 0) {
            struct tile_place tile = place_of(a.tiles, index);
            for (; k < a.num_k; k++) {
                barrier_wait(r.empty + 8 * p.stage, p.parity);
                load_w(p.stage, tile, k);
                load_x(p.stage, tile, k);
                p.advance(T::STAGES);
            }
        }
        dependents_launch();
    }
};

__device__ __forceinline__ float load_shared(uint32_t address)
{
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address));
    return v;
}

__device__ __forceinline__ float4 load_shared_4(uint32_t address)
{
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address));
    return v;
}

/* A group of four warps. Sums as wgmma.cuh has them. */
template <int WIDTH, bool IN_BLOCKS> struct consumer {
    using T = large_traits<WIDTH>;
    const large_args &a;
    const ring &r;
    int warp;
    pipeline_state p;
    float sums[WIDTH / 2], part[WIDTH / 2];

    /* Of the tile: this thread's first row; the second is 8 behind. */
    __device__ __forceinline__ int32_t row(void) const { return warp * 16 + (int32_t)threadIdx.x % 32 / 4; }

    __device__ __forceinline__ void add_scaled(void)
    {
        uint32_t scales = r.scales + p.stage * SCALE_BYTES;
        float of_x[] = {load_shared(scales + row() * 4), load_shared(scales + (row() + 8) * 4)};
#pragma unroll
        for (int j = 0; j < WIDTH / 8; j += 4) {
            float4 four = load_shared_4(scales + X_SCALE_BYTES + j * 4);
            const float of_w[] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int i = 0; i < 16; i++) {
                int at = 4 * j + i;
                sums[at] = __fmaf_rn(part[at], of_x[i / 2 % 2] * of_w[i / 4], sums[at]);
            }
        }
    }

    __device__ __forceinline__ void multiply(void)
    {
        barrier_wait(r.full + 8 * p.stage, p.parity);
        uint32_t x = wgmma_descriptor_low(r.x + warp / 4 * GROUP_ROWS * ROW_BYTES) + p.stage * (X_BYTES / 16);
        uint32_t w = wgmma_descriptor_low(r.w) + p.stage * (T::W_BYTES / 16);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < FP8_BLOCK / 32; i++)
            wgmma_e4m3(part, wgmma_descriptor_of(x + 2 * i), wgmma_descriptor_of(w + 2 * i), i > 0);
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_hold(part);
        if (IN_BLOCKS) {
            add_scaled();
        } else {
#pragma unroll
            for (int i = 0; i < WIDTH / 2; i++) sums[i] += part[i];
        }
        /* scales are read by ordinary loads, and each lane says that its own are over */
        if (!IN_BLOCKS) __syncwarp();
        if (IN_BLOCKS || threadIdx.x % 32 == 0) barrier_arrive(r.empty + 8 * p.stage);
        p.advance(T::STAGES);
    }

    /* Scales of rows. */
    __device__ __forceinline__ void scale(int32_t first_m, int32_t first_n)
    {
        float of_x[2];
#pragma unroll
        for (int i = 0; i < 2; i++) of_x[i] = a.p.x_scales[min(first_m + row() + 8 * i, a.p.rows - 1)];
#pragma unroll
        for (int j = 0; j < WIDTH / 8; j++) {
            int32_t n = min(first_n + 8 * j + (int32_t)threadIdx.x % 4 * 2, a.p.n - 2);
            float2 of_w = *(const float2 *)(a.p.w_scales + n);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float *s = sums + 4 * j + 2 * i;
                s[0] = s[0] * of_x[i] * of_w.x;
                s[1] = s[1] * of_x[i] * of_w.y;
            }
        }
    }
};

template <int WIDTH, bool IN_BLOCKS, bool SILU_MUL>
__global__ void __launch_bounds__(THREADS, 1)
    large_kernel(large_args a, const __grid_constant__ CUtensorMap x_map,
                 const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap out_map)
{
    using T = large_traits<WIDTH>;
    extern __shared__ unsigned char shared[];
    __shared__ uint64_t barriers[2 * T::STAGES];
    ring r;
    r.x = (shared_address(shared) + 1023) & ~1023u; /* swizzled boxes want 1024-byte alignment */
    r.w = r.x + T::STAGES * X_BYTES;
    uint32_t outs = r.w + T::STAGES * T::W_BYTES;
    r.scales = outs + WARPS * OUT_BUFFERS * OUT_BYTES;
    r.full = shared_address(barriers);
    r.empty = r.full + 8 * T::STAGES;
    if (threadIdx.x == 0) {
        tensor_map_prefetch(&x_map);
        tensor_map_prefetch(&w_map);
        tensor_map_prefetch(&out_map);
        ring_init(r.full, r.empty, T::STAGES, IN_BLOCKS ? WARPS * 32 : WARPS);
    }
    __syncthreads();
    int warp = warp_uniform(threadIdx.x / 32);
    if (warp >= WARPS) {
        registers_lower<PRODUCER_REGISTERS>();
        if (warp == WARPS && elect_lane()) producer<WIDTH, IN_BLOCKS>{a, &x_map, &w_map, r}.run();
        return;
    }
    registers_raise<CONSUMER_REGISTERS>();
    dependency_wait(); /* the results overwrite what kernels before may still read */
    consumer<WIDTH, IN_BLOCKS> c = {a, r, warp, {}, {}, {}};
    int32_t num_stored = 0, num_tiles = num_tiles_of(a.tiles);
    for (int32_t index = blockIdx.x; index < num_tiles; index += gridDim.x) {
        struct tile_place tile = place_of(a.tiles, index);
        int32_t first_m = tile.row * TILE_M, first_n = tile.column * WIDTH;
#pragma unroll
        for (int i = 0; i < WIDTH / 2; i++) c.sums[i] = 0;
        for (int32_t k = 0; k < a.num_k; k++) c.multiply();
        if (!IN_BLOCKS) c.scale(first_m, first_n);
        store_tile<WIDTH, SILU_MUL>({a.p.bias, a.p.n}, &out_map, c.sums,
                                    outs + warp * OUT_BUFFERS * OUT_BYTES, num_stored,
                                    first_m + warp * OUT_ROWS, first_n);
        num_stored = (num_stored + OUT_BOXES<WIDTH, SILU_MUL>) % OUT_BUFFERS;
    }
    if (threadIdx.x % 32 == 0) bulk_wait_read<0>();
}

/* ---- host ---- */

template <int WIDTH, bool IN_BLOCKS, bool SILU_MUL>
bool launch(struct cuda_device *d, const struct fp8_product &p)
{
    using T = large_traits<WIDTH>;
    CUtensorMap x_map, w_map, out_map;
    /* pairs of values are what bf16's map moves */
    if (!tensor_map_encode_matrix(d, &x_map, p.x, p.rows, p.k / 2, TILE_M) ||
        !tensor_map_encode_matrix(d, &w_map, p.w, p.n, p.k / 2, WIDTH) ||
        !tensor_map_encode_matrix(d, &out_map, p.out, p.rows, SILU_MUL ? p.n / 2 : p.n, OUT_ROWS))
        return false;
    large_args a = {};
    a.p = p;
    a.num_k = p.k / FP8_BLOCK;
    a.tiles.num_rows = (p.rows + TILE_M - 1) / TILE_M;
    a.tiles.num_columns = (p.n + WIDTH - 1) / WIDTH;
    a.tiles.band = ((size_t)BAND_ROWS_MAX * p.k <= BAND_BYTES ? BAND_ROWS_MAX : BAND_ROWS_MIN) / TILE_M;
    assert_always(a.num_k > 0 && (int64_t)a.tiles.band * a.tiles.num_columns <= INT32_MAX);
    return launch_dependent(d, large_kernel<WIDTH, IN_BLOCKS, SILU_MUL>,
                            dim3((unsigned)std::min(d->num_sms, num_tiles_of(a.tiles))), dim3(THREADS),
                            T::SHARED_BYTES, a, x_map, w_map, out_map);
}

template <int WIDTH> bool launch_kind(struct cuda_device *d, const struct fp8_product &p)
{
    if (p.in_blocks) return p.silu_mul ? launch<WIDTH, true, true>(d, p) : launch<WIDTH, true, false>(d, p);
    return p.silu_mul ? launch<WIDTH, false, true>(d, p) : launch<WIDTH, false, false>(d, p);
}

} // namespace

bool cuda_linear_fp8_large(struct cuda_device *d, int32_t width, const struct fp8_product *p)
{
    return width == 128 ? launch_kind<128>(d, *p) : launch_kind<192>(d, *p);
}
