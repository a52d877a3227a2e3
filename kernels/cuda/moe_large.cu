/* moe_large.cu - products of experts that many tokens chose, on sm_90a: linear_large.cu's, for a list of tiles that is found on
 * the device.
 *
 * A CTA computes tiles of 128 rows times WIDTH rows of an expert's W, 64 of the rows in each of two groups of four warps. A group
 * without rows computes nothing. The experts' W lie one after another, and a box that ends beyond an expert's rows reads the
 * next one's, whose results are not stored. Tiles of an expert follow each other, so that its W comes from the memory once and then
 * from the L2. */
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_tile.cuh"
#include "kernels/cuda/moe.cuh"
#include "kernels/cuda/moe_bias.cuh"
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
    WIDTH = 256,
    THREADS = GROUPS * 128,
    WARPS = THREADS / 32,
    X_BYTES = TILE_M * ROW_BYTES,
    W_BYTES = WIDTH * ROW_BYTES,
    STAGES = (194 << 10) / (X_BYTES + W_BYTES),
    SHARED_BYTES = 1024 + STAGES * (X_BYTES + W_BYTES) + WARPS * OUT_BUFFERS * OUT_BYTES
};

static_assert((int)TILE_M == (int)MOE_LARGE_ROWS, "a tile of the list is a CTA's");
static_assert((int)MOE_GROUP_ROWS % (int)OUT_ROWS == 0, "a warp stores rows of one expert");

struct large_args {
    const struct moe_tile *tiles;
    const int32_t *num_tiles;
    int32_t n, num_columns, num_k; /* rows of W of an expert, tiles of them, stages of a tile */
    const float *bias;             /* [E][n] where the epilogue wants it */
};

struct ring {
    uint32_t x, w, full, empty;
};

/* Fills the ring: stages over all tiles of the CTA, one after another. */
struct producer {
    const large_args &a;
    const CUtensorMap *x_map, *w_map;
    const ring &r;
    int32_t num_all;
    int32_t index, k;
    int32_t x_row, w_row; /* of the tile */

    __device__ __forceinline__ bool is_done(void) const { return index >= num_all; }

    __device__ __forceinline__ void find_tile(void)
    {
        if (is_done()) return;
        struct moe_tile tile = a.tiles[index / a.num_columns];
        x_row = tile.first;
        w_row = tile.expert * a.n + index % a.num_columns * WIDTH;
    }

    __device__ __forceinline__ void load(int32_t stage)
    {
        uint32_t full = r.full + 8 * stage;
        barrier_arrive_expect(full, X_BYTES + W_BYTES);
        tensor_load_2d(r.w + stage * W_BYTES, w_map, full, k * STAGE_K, w_row);
        tensor_load_2d(r.x + stage * X_BYTES, x_map, full, k * STAGE_K, x_row);
        if (++k < a.num_k) return;
        k = 0;
        index += gridDim.x;
        if (is_done()) dependents_launch();
        find_tile();
    }

    __device__ __forceinline__ void fill(void)
    {
        find_tile();
        for (int32_t stage = 0; stage < STAGES && !is_done(); stage++) load(stage);
    }

    __device__ __forceinline__ void refill(int32_t stage, uint32_t parity)
    {
        if (is_done()) return;
        barrier_wait(r.empty + 8 * stage, parity);
        load(stage);
    }
};

/* A warp has read a stage to the end. */
__device__ __forceinline__ void release(uint32_t barrier)
{
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

/* What results become as they are stored (linear_tile.cuh), with biases. */
struct biased_output {
    const float *bias; /* the expert's */
    int32_t n;
};

/* Of columns n and n + 1; n is even. */
__device__ __forceinline__ float2 bias_at(const biased_output &o, int32_t n)
{
    return n < o.n ? *(const float2 *)(o.bias + n) : make_float2(0, 0);
}

__device__ __forceinline__ uint32_t plain_pair(const biased_output &o, int32_t n, float x, float y)
{
    float2 sums = add_bias(x, y, bias_at(o, n));
    return pack_bf16(sums.x, sums.y);
}

__device__ __forceinline__ uint32_t gated_pair(const biased_output &o, int32_t n, const float *s)
{
    return clamped_pair(add_bias(s[0], s[1], bias_at(o, n)), add_bias(s[4], s[5], bias_at(o, n + 8)));
}

/* As tile_output, with another gate. */
struct gelu_output : tile_output {
};

__device__ __forceinline__ uint32_t gated_pair(const gelu_output &, int32_t, const float *s)
{
    return gate_mul<GATE_GELU_TANH>(pack_bf16(s[0], s[1]), pack_bf16(s[4], s[5]));
}

template <enum moe_epilogue EPILOGUE>
using output_of = std::conditional_t<moe_has_bias(EPILOGUE), biased_output,
                                     std::conditional_t<EPILOGUE == MOE_GELU, gelu_output, tile_output>>;

template <enum moe_epilogue EPILOGUE>
__global__ void __launch_bounds__(THREADS, 1)
    large_kernel(large_args a, const __grid_constant__ CUtensorMap x_map,
                 const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap out_map)
{
    constexpr bool GATED = moe_is_gated(EPILOGUE), BIASED = moe_has_bias(EPILOGUE);
    extern __shared__ unsigned char shared[];
    __shared__ uint64_t barriers[2 * STAGES];
    ring r;
    r.x = (shared_address(shared) + 1023) & ~1023u; /* swizzled boxes want 1024-byte alignment */
    r.w = r.x + STAGES * X_BYTES;
    r.full = shared_address(barriers);
    r.empty = r.full + 8 * STAGES;
    int warp = warp_uniform(threadIdx.x / 32);
    if (threadIdx.x == 0) {
        tensor_map_prefetch(&x_map);
        tensor_map_prefetch(&w_map);
        tensor_map_prefetch(&out_map);
        ring_init(r.full, r.empty, STAGES, WARPS);
    }
    __syncthreads();
    dependency_wait();
    int32_t num_all = *a.num_tiles * a.num_columns;
    producer producer = {a, &x_map, &w_map, r, num_all, (int32_t)blockIdx.x, 0, 0, 0};
    if (warp == 0 && elect_lane()) producer.fill();
    __syncwarp();
    const uint32_t x_first = wgmma_descriptor_low(r.x + warp / 4 * GROUP_ROWS * ROW_BYTES),
                   w_first = wgmma_descriptor_low(r.w);
    const uint32_t buffers = r.w + STAGES * W_BYTES + warp * OUT_BUFFERS * OUT_BYTES;
    int32_t num_stored = 0, stage = 0, before = -1;
    uint32_t parity = 0;
    float d[WIDTH / 2];
    for (int32_t index = blockIdx.x; index < num_all; index += gridDim.x) {
        struct moe_tile tile = a.tiles[index / a.num_columns];
        int32_t row = warp * OUT_ROWS, column = index % a.num_columns * WIDTH;
        bool has_rows = warp_uniform(tile.count) > warp / 4 * GROUP_ROWS;
        if (!has_rows) { /* of the second group: the first one fills the ring */
            for (int32_t k = 0; k < a.num_k; k++) {
                barrier_wait(r.full + 8 * stage, parity);
                release(r.empty + 8 * stage);
                before = stage;
                if (++stage == STAGES) {
                    stage = 0;
                    parity ^= 1;
                }
            }
            continue;
        }
        for (int32_t k = 0; k < a.num_k; k++) {
            uint32_t x = x_first + stage * (X_BYTES / 16), w = w_first + stage * (W_BYTES / 16);
            barrier_wait(r.full + 8 * stage, parity);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < STAGE_K / 16; i++)
                wgmma_shared(d, wgmma_descriptor_of(x + 2 * i), wgmma_descriptor_of(w + 2 * i),
                             k > 0 || i > 0);
            wgmma_commit();
            if (k > 0) {
                wgmma_wait<1>();
                release(r.empty + 8 * before);
            }
            /* the last stage of a tile is let go before its sums are stored, and filled again after that */
            if (warp == 0 && before >= 0 && elect_lane())
                producer.refill(before, stage > 0 ? parity : parity ^ 1);
            __syncwarp();
            before = stage;
            if (++stage == STAGES) {
                stage = 0;
                parity ^= 1;
            }
        }
        wgmma_wait<0>();
        wgmma_hold(d);
        release(r.empty + 8 * before);
        if (row >= tile.count) continue;
        const output_of<EPILOGUE> output = {BIASED ? a.bias + (size_t)tile.expert * a.n : NULL, a.n};
        store_tile<WIDTH, GATED>(output, &out_map, d, buffers, num_stored, tile.first + row, column);
        num_stored = (num_stored + OUT_BOXES<WIDTH, GATED>) % OUT_BUFFERS;
    }
    if (threadIdx.x % 32 == 0) bulk_wait_read<0>();
}

/* ---- host ---- */

template <enum moe_epilogue EPILOGUE> bool launch(struct cuda_device *d, const struct moe_product *p)
{
    CUtensorMap x_map, w_map, out_map;
    if (!tensor_map_encode_matrix(d, &x_map, p->x, p->x_rows, p->k, TILE_M) ||
        !tensor_map_encode_matrix(d, &w_map, p->weight, p->num_experts * p->n, p->k, WIDTH) ||
        !tensor_map_encode_matrix(d, &out_map, p->out, p->num_rows, moe_is_gated(EPILOGUE) ? p->n / 2 : p->n,
                                  OUT_ROWS))
        return false;
    large_args a = {p->tiles, p->num_tiles, p->n, (p->n + WIDTH - 1) / WIDTH, (p->k + STAGE_K - 1) / STAGE_K,
                    p->bias};
    assert_always((int64_t)p->tiles_max * a.num_columns <= INT32_MAX);
    assert_always((int64_t)p->num_experts * p->n <= INT32_MAX);
    return launch_dependent(d, large_kernel<EPILOGUE>,
                            dim3((unsigned)std::min(d->num_sms, p->tiles_max * a.num_columns)), dim3(THREADS),
                            SHARED_BYTES, a, x_map, w_map, out_map);
}

} // namespace

bool cuda_moe_large(struct cuda_device *d, const struct moe_product *p)
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
    return false;
}
