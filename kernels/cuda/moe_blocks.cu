/* moe_blocks.cu - products of experts that few tokens chose with weights in a GGUF file's blocks, on any machine from sm_80 on:
 * linear_blocks.cu's (linear_blocks_tile.cuh), for a list of tiles that is found on the device.
 *
 * A share of the work is a tile's rows and some strips of its expert's W. There are as many CTAs as the SMs hold at a time, and each
 * has one share after another. The experts' W lie one after another. */
#include <algorithm>

#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_blocks_tile.cuh"
#include "kernels/cuda/moe.cuh"
#include "kernels/cuda/moe_bias.cuh"

namespace
{

enum { SHORT_CHUNKS = 4 /* of a W that has no more columns two warps take turns at a strip, else four */ };

struct moe_blocks_args {
    blocks_shape shape; /* of an expert's W */
    const unsigned char *packed;
    size_t expert_bytes;
    const __nv_bfloat16 *x;
    __nv_bfloat16 *out;
    const float *biases; /* [E][n] where the epilogue wants it */
    const struct moe_tile *tiles;
    const int32_t *num_tiles;
    int32_t n, num_columns; /* rows of an expert's W, shares of them */
    enum moe_epilogue epilogue;
    bool knows_tiles; /* ahead of the dependency */
};

/* Past the L1, which may have the list of another layer. */
__device__ __forceinline__ struct moe_tile tile_at(const moe_blocks_args &a, int32_t index)
{
    const int32_t *tile = (const int32_t *)(a.tiles + index);
    return {__ldcg(tile), __ldcg(tile + 1), __ldcg(tile + 2)};
}

/* Sums of a row of W, or of gate and up, and two rows of x. */
__device__ __forceinline__ uint32_t finish(enum moe_epilogue epilogue, float2 s, float2 up, float bias,
                                           float up_bias)
{
    const float2 twice = make_float2(bias, bias), up_twice = make_float2(up_bias, up_bias);
    switch (epilogue) {
    case MOE_SUMS:
        return finish_pair<MOE_SUMS>(s, up, twice, up_twice);
    case MOE_SUMS_BIAS:
        return finish_pair<MOE_SUMS_BIAS>(s, up, twice, up_twice);
    case MOE_SILU:
        return finish_pair<MOE_SILU>(s, up, twice, up_twice);
    case MOE_GELU:
        return finish_pair<MOE_GELU>(s, up, twice, up_twice);
    default:
        return finish_pair<MOE_CLAMPED>(s, up, twice, up_twice);
    }
}

/* Rows m and m + 1 of the tile, column n of num. */
__device__ __forceinline__ void store_two(const moe_blocks_args &a, const struct moe_tile &tile, int32_t m,
                                          int32_t n, int32_t num, uint32_t two)
{
    __nv_bfloat16 *out = a.out + (size_t)(tile.first + m) * num + n;
    if (m < tile.count) out[0] = __ushort_as_bfloat16((unsigned short)two);
    if (m + 1 < tile.count) out[num] = __ushort_as_bfloat16((unsigned short)(two >> 16));
}

template <int COLS>
__device__ __forceinline__ void store_strip(const moe_blocks_args &a, const struct moe_tile &tile,
                                            int32_t strip, const float (&sums)[COLS / 8][4])
{
    const int32_t lane = threadIdx.x % 32, n = strip * STRIP_ROWS + lane / 4;
    const bool is_there[2] = {n < a.n, n + HALF_ROWS < a.n};
    float bias[2] = {};
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (a.biases && is_there[i]) bias[i] = a.biases[(size_t)tile.expert * a.n + n + i * HALF_ROWS];
#pragma unroll
    for (int j = 0; j < COLS / 8; j++) {
        const int32_t m = 8 * j + lane % 4 * 2;
        const float2 s[2] = {make_float2(sums[j][0], sums[j][1]), make_float2(sums[j][2], sums[j][3])};
        if (moe_is_gated(a.epilogue)) {
            store_two(a, tile, m, strip * HALF_ROWS + lane / 4, a.n / 2,
                      finish(a.epilogue, s[0], s[1], bias[0], bias[1]));
            continue;
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (is_there[i])
                store_two(a, tile, m, n + i * HALF_ROWS, a.n, finish(a.epilogue, s[i], s[i], bias[i], 0));
    }
}

template <int COLS>
__global__ void __launch_bounds__(warps_max(COLS) * 32, 1)
    moe_blocks_kernel(const __grid_constant__ moe_blocks_args a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ uint64_t turns[WARPS_MAX];
    struct blocks_operands o;
    turns_init(turns);
    strip_warp<COLS> s(a.shape, o, shared, turns, warp_uniform(threadIdx.x / 32));
    if (!a.knows_tiles) dependency_wait();
    const int32_t num_shares = __ldcg(a.num_tiles) * a.num_columns;
    for (int32_t i = (int32_t)blockIdx.x; i < num_shares; i += (int32_t)gridDim.x) {
        const struct moe_tile tile = tile_at(a, i / a.num_columns);
        /* a strip too many does the last one again: the same bits to the same places */
        const int32_t strip =
            min(i % a.num_columns * a.shape.strips + s.strip_of_cta, a.shape.num_strips - 1);
        o = {a.packed + tile.expert * a.expert_bytes, a.x + (size_t)tile.first * a.shape.k, tile.count};
        s.run(strip, [&] { store_strip<COLS>(a, tile, strip, s.sums); });
        __syncthreads(); /* all stages are free */
    }
    dependency_wait();
}

/* ---- host ---- */

/* Strips and teams of a CTA: eight warps, or of 32 columns, which want more shared memory for x, all that an SM holds; fewer where
 * there is not enough of it. */
bool choose_cta(const struct cuda_device *d, blocks_shape *a, int32_t columns)
{
    const int32_t warps = columns == 32 ? WARPS_MAX : WARPS_MAX / 2,
                  teams = columns >= 32 || a->num_chunks <= SHORT_CHUNKS ? 2 : 4;
    for (a->strips = warps / teams; a->strips > 0; a->strips /= 2) {
        a->teams = teams;
        if (choose_stages(d, a, columns, warps_max(columns) / warps)) return true;
    }
    return false;
}

template <int COLS> bool launch(struct cuda_device *d, moe_blocks_args a, int32_t tiles_max)
{
    if (!choose_cta(d, &a.shape, COLS)) return false;
    const int32_t warps = a.shape.strips * a.shape.teams, shared_bytes = shared_bytes_of(a.shape, COLS);
    int32_t num_ctas = warps_max(COLS) / warps; /* of an SM */
    while (num_ctas > 1 && shared_bytes > room_of_each(d, num_ctas)) num_ctas--;
    a.num_columns = (a.shape.num_strips + a.shape.strips - 1) / a.shape.strips;
    const int64_t num_shares = (int64_t)tiles_max * a.num_columns;
    assert_always(num_shares <= INT32_MAX);
    return launch_dependent(d, moe_blocks_kernel<COLS>,
                            dim3((unsigned)std::min(num_shares, (int64_t)d->num_sms * num_ctas)),
                            dim3((unsigned)warps * 32), (size_t)shared_bytes, a);
}

} // namespace

bool cuda_moe_blocks(struct cuda_device *d, int32_t tile_rows, const struct moe_product *p)
{
    moe_blocks_args a = {};
    a.shape = blocks_shape_of(p->packed);
    a.packed = p->packed->packed;
    a.expert_bytes = blocks_bytes(p->packed);
    a.x = p->x;
    a.out = p->out;
    a.biases = p->bias;
    a.tiles = p->tiles;
    a.num_tiles = p->num_tiles;
    a.n = p->n;
    a.epilogue = moe_epilogue_of(p);
    a.knows_tiles = p->knows_tiles;
    return tile_rows == 8    ? launch<8>(d, a, p->tiles_max)
           : tile_rows == 16 ? launch<16>(d, a, p->tiles_max)
           : tile_rows == 32 ? launch<32>(d, a, p->tiles_max)
                             : launch<64>(d, a, p->tiles_max);
}
