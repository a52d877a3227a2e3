/* linear_large.cu - products of many rows on sm_90a, bound by the tensor cores and, for long, by the
 * machine's power.
 *
 * A CTA computes tiles of 128 rows of x times up to 256 rows of W (WIDTH), 64 of the rows in each of two
 * groups of four warps, whose sums stay in registers. The CTAs of a cluster have the same rows of W: each
 * fetches a part of them for all, which saves the energy of moving them from the L2 more than once. A ring of
 * stages of 64 columns runs on across tiles; the producer, the thread that fills it, is one of a group, since filling a
 * stage again waits for what the groups have just computed anyway:
 *
 *   x [128][K], own            -> |s0|s1|s2|s3|  ring in shared memory
 *   W [WIDTH][K], parts of it  -> |s0|s1|s2|s3|  of all CTAs
 *                                     |-> group 0: wgmma m64 nWIDTH k16 -> rows 0..63
 *                                     `-> group 1: the same             -> rows 64..127
 *
 * While a group rounds its sums, multiplies SiLU(gate) by up and stores, the other's products run. A warp
 * stores for itself: 16 rows of 64 columns through shared memory and the copy engine.
 *
 * The order over K is the plain one, so the bits equal those of any product of the same rows that does not
 * split K. What lies outside the matrices reads as zeros and is not written. */
#include <math.h>

#include <algorithm>

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_large.cuh"
#include "kernels/cuda/linear_tile.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace
{

enum {
    STAGE_K = 64, /* columns: 128 bytes */
    ROW_BYTES = STAGE_K * 2,
    GROUPS = 2,
    GROUP_ROWS = 64,
    TILE_M = GROUPS * GROUP_ROWS,
    WIDTH_MAX = 256,
    THREADS = GROUPS * 128,
    WARPS = THREADS / 32,
    X_BYTES = TILE_M * ROW_BYTES,
    RING_BYTES_MAX = 194 << 10, /* of the 227 KB that a CTA can have, besides the results */
    BAND_ROWS_MIN = 2048,
    BAND_ROWS_MAX = 4096,
    BAND_BYTES = 36 << 20 /* of x: most of an H200's L2 */
};

/* Of tiles WIDTH rows of W wide. */
template <int WIDTH> struct large_traits {
    static constexpr int W_BYTES = WIDTH * ROW_BYTES, STAGES = RING_BYTES_MAX / (X_BYTES + W_BYTES),
                         SHARED_BYTES = 1024 + STAGES * (X_BYTES + W_BYTES) + WARPS * OUT_BUFFERS * OUT_BYTES;
};

struct large_args {
    struct tile_output out;
    struct tile_grid tiles;
    int32_t num_rows, num_k; /* of x; stages of a tile */
};

struct ring {
    uint32_t x, w, full, empty;
};

/* Fills the ring: stages over all tiles of the CTA, one after another. */
template <int WIDTH, int CLUSTER> struct producer {
    using T = large_traits<WIDTH>;
    const large_args &a;
    const CUtensorMap *x_map, *w_map;
    const ring &r;
    int32_t rank;
    struct tile_place tile;
    int32_t index, k;

    __device__ __forceinline__ void begin(void)
    {
        index = (int32_t)blockIdx.x / CLUSTER;
        k = 0;
        tile = place_of(a.tiles, index);
    }

    __device__ __forceinline__ bool is_done(void) const { return index >= num_tiles_of(a.tiles); }

    __device__ __forceinline__ void load_w(int32_t stage) const
    {
        constexpr int PART_ROWS = WIDTH / CLUSTER;
        uint32_t to = r.w + stage * T::W_BYTES + rank * PART_ROWS * ROW_BYTES, full = r.full + 8 * stage;
        barrier_arrive_expect(full, X_BYTES + T::W_BYTES);
        if (CLUSTER > 1)
            tensor_multicast_2d(to, w_map, full, k * STAGE_K, tile.column * WIDTH + rank * PART_ROWS,
                                (1 << CLUSTER) - 1);
        else
            tensor_load_2d(to, w_map, full, k * STAGE_K, tile.column * WIDTH);
    }

    __device__ __forceinline__ void load_x(int32_t stage) const
    {
        tensor_load_2d(r.x + stage * X_BYTES, x_map, r.full + 8 * stage, k * STAGE_K,
                       tile_begin(tile.row * CLUSTER + rank, TILE_M, a.num_rows, TILE_ALIGNMENT));
    }

    __device__ __forceinline__ void advance(void)
    {
        if (++k < a.num_k) return;
        k = 0;
        index += gridDim.x / CLUSTER;
        if (is_done())
            dependents_launch();
        else
            tile = place_of(a.tiles, index);
    }

    /* W needs nothing of the kernel before. */
    __device__ __forceinline__ void fill(void)
    {
        begin();
        for (int32_t stage = 0; stage < T::STAGES && !is_done(); stage++, advance()) load_w(stage);
        dependency_wait();
        begin();
        for (int32_t stage = 0; stage < T::STAGES && !is_done(); stage++, advance()) load_x(stage);
    }

    __device__ __forceinline__ void refill(int32_t stage, uint32_t parity)
    {
        if (is_done()) return;
        barrier_wait(r.empty + 8 * stage, parity);
        load_w(stage);
        load_x(stage);
        advance();
    }
};

/* A warp has read a stage to the end: it tells all CTAs that fetch for it. */
template <int CLUSTER> __device__ __forceinline__ void release(uint32_t barrier)
{
    uint32_t lane = threadIdx.x % 32;
    if (lane >= CLUSTER) return;
    if (CLUSTER > 1)
        barrier_arrive_at(barrier, lane);
    else
        barrier_arrive(barrier);
}

template <int WIDTH, bool SILU_MUL, int CLUSTER>
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
    r.full = shared_address(barriers);
    r.empty = r.full + 8 * T::STAGES;
    int warp = warp_uniform(threadIdx.x / 32);
    int32_t rank = (int32_t)blockIdx.x % CLUSTER;
    producer<WIDTH, CLUSTER> producer = {a, &x_map, &w_map, r, rank};
    if (threadIdx.x == 0) {
        tensor_map_prefetch(&x_map);
        tensor_map_prefetch(&w_map);
        tensor_map_prefetch(&out_map);
        ring_init(r.full, r.empty, T::STAGES, CLUSTER * WARPS);
    }
    __syncwarp();
    if (CLUSTER > 1)
        cluster_sync();
    else
        __syncthreads();
    if (warp == 0 && elect_lane()) producer.fill();
    __syncwarp();
    const uint32_t x_first = wgmma_descriptor_low(r.x + warp / 4 * GROUP_ROWS * ROW_BYTES),
                   w_first = wgmma_descriptor_low(r.w);
    const uint32_t buffers = r.w + T::STAGES * T::W_BYTES + warp * OUT_BUFFERS * OUT_BYTES;
    int32_t num_stored = 0, stage = 0, before = -1, num_tiles = num_tiles_of(a.tiles);
    uint32_t parity = 0, x = x_first, w = w_first;
    float d[WIDTH / 2];
    for (int32_t index = blockIdx.x / CLUSTER; index < num_tiles; index += gridDim.x / CLUSTER) {
        for (int32_t k = 0; k < a.num_k; k++) {
            barrier_wait(r.full + 8 * stage, parity);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < STAGE_K / 16; i++)
                wgmma_shared(d, wgmma_descriptor_of(x + 2 * i), wgmma_descriptor_of(w + 2 * i),
                             k > 0 || i > 0);
            wgmma_commit();
            if (k > 0) {
                wgmma_wait<1>();
                release<CLUSTER>(r.empty + 8 * before);
            }
            /* the last stage of a tile is let go before its sums are stored, and filled again after that */
            if (warp == 0 && before >= 0 && elect_lane())
                producer.refill(before, stage > 0 ? parity : parity ^ 1);
            __syncwarp();
            before = stage;
            x += X_BYTES / 16;
            w += T::W_BYTES / 16;
            if (++stage == T::STAGES) {
                stage = 0;
                parity ^= 1;
                x = x_first;
                w = w_first;
            }
        }
        wgmma_wait<0>();
        wgmma_hold(d);
        release<CLUSTER>(r.empty + 8 * before);
        struct tile_place tile = place_of(a.tiles, index);
        store_tile<WIDTH, SILU_MUL>(
            a.out, &out_map, d, buffers, num_stored,
            tile_begin(tile.row * CLUSTER + rank, TILE_M, a.num_rows, TILE_ALIGNMENT) + warp * OUT_ROWS,
            tile.column * WIDTH);
        num_stored = (num_stored + OUT_BOXES<WIDTH, SILU_MUL>) % OUT_BUFFERS;
    }
    if (threadIdx.x % 32 == 0) bulk_wait_read<0>();
    __syncwarp();
    if (CLUSTER > 1) cluster_sync(); /* nobody leaves while another may still tell it something */
}

/* ---- host ---- */

/* Shared memory is read and written at 128 bytes a cycle at most: narrow tiles need more of it for their
 * products. */
const struct {
    int32_t width;
    float cycles; /* of a tile, over those of its products */
} widths[] = {{256, 1.0f}, {240, 1.01f}, {224, 1.02f}, {192, 1.06f}, {160, 1.13f}, {128, 1.22f}};

} // namespace

int32_t linear_large_width(int32_t num_sms, int32_t rows, int32_t n)
{
    int32_t best = WIDTH_MAX;
    float least = HUGE_VALF;
    for (const auto &w : widths) {
        int32_t num_tiles = (rows + TILE_M - 1) / TILE_M * ((n + w.width - 1) / w.width);
        float cycles = (float)((num_tiles + num_sms - 1) / num_sms * w.width) * w.cycles;
        if (cycles < least) best = w.width;
        least = std::min(least, cycles);
    }
    return best;
}

namespace
{

template <int WIDTH, bool SILU_MUL, int CLUSTER>
bool launch(struct cuda_device *d, int32_t rows, void *out, const void *x, const struct linear *w)
{
    using T = large_traits<WIDTH>;
    CUtensorMap x_map, w_map, out_map;
    if (!tensor_map_encode_matrix(d, &x_map, x, rows, w->k, TILE_M) ||
        !tensor_map_encode_matrix(d, &w_map, w->weight, w->n, w->k, WIDTH / CLUSTER) ||
        !tensor_map_encode_matrix(d, &out_map, out, rows, SILU_MUL ? w->n / 2 : w->n, OUT_ROWS))
        return false;
    large_args a = {};
    a.out = {w->bias, w->n};
    a.num_k = (w->k + STAGE_K - 1) / STAGE_K;
    a.num_rows = rows;
    a.tiles.num_rows = (rows + CLUSTER * TILE_M - 1) / (CLUSTER * TILE_M);
    a.tiles.num_columns = (w->n + WIDTH - 1) / WIDTH;
    a.tiles.band =
        ((size_t)BAND_ROWS_MAX * w->k * 2 <= BAND_BYTES ? BAND_ROWS_MAX : BAND_ROWS_MIN) / (CLUSTER * TILE_M);

    assert_always(a.num_k > 0 && a.tiles.band > 0);
    assert_always((int64_t)a.tiles.band * a.tiles.num_columns <= INT32_MAX); /* place_of divides by it */

    auto kernel = large_kernel<WIDTH, SILU_MUL, CLUSTER>;
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = !w->is_rewritten; /* W is read ahead of that */
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {CLUSTER, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(d->num_sms / CLUSTER * CLUSTER));
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = T::SHARED_BYTES;
    config.stream = d->stream;
    config.attrs = attributes;
    config.numAttrs = 2;
    if (!cuda_allow_shared(d, (const void *)kernel, T::SHARED_BYTES)) return false;
    int32_t num_clusters = cuda_clusters_max(d, (const void *)kernel, &config);
    if (num_clusters == 0) return false;
    config.gridDim = dim3((unsigned)(std::min(num_clusters, num_tiles_of(a.tiles)) * CLUSTER));
    return CUDA_CHECK(d, cudaLaunchKernelEx(&config, kernel, a, x_map, w_map, out_map));
}

} // namespace

bool cuda_linear_large_fits(const struct cuda_device *d, const struct linear *w)
{
    return d->is_hopper && !w->wide_output && w->k % 8 == 0 && w->n % 16 == 0;
}

namespace
{

template <bool SILU_MUL>
bool launch_width(struct cuda_device *d, int32_t width, int32_t rows, void *out, const void *x,
                  const struct linear *w)
{
    switch (width) {
    case 128:
        return launch<128, SILU_MUL, 1>(d, rows, out, x, w);
    case 160:
        return launch<160, SILU_MUL, 1>(d, rows, out, x, w);
    case 192:
        return launch<192, SILU_MUL, 1>(d, rows, out, x, w);
    case 224:
        return launch<224, SILU_MUL, 1>(d, rows, out, x, w);
    case 240:
        return launch<240, SILU_MUL, 1>(d, rows, out, x, w);
    default:
        return launch<256, SILU_MUL, 1>(d, rows, out, x, w);
    }
}

} // namespace

bool cuda_linear_large(struct cuda_device *d, int32_t cluster, int32_t width, int32_t rows, void *out,
                       const void *x, const struct linear *w, bool silu_mul)
{
    if (cluster == 2)
        return silu_mul ? launch<WIDTH_MAX, true, 2>(d, rows, out, x, w)
                        : launch<WIDTH_MAX, false, 2>(d, rows, out, x, w);
    if (width == 0) width = linear_large_width(d->num_sms, rows, w->n);
    return silu_mul ? launch_width<true>(d, width, rows, out, x, w)
                    : launch_width<false>(d, width, rows, out, x, w);
}
