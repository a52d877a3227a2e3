/* linear_tile.cuh - tiles of products of many rows (linear_large.cu, linear_fp8_large.cu): the order in which they are taken, and how
 * a warp rounds and stores its 16 rows of one. */
#ifndef KERNELS_CUDA_LINEAR_TILE_CUH
#define KERNELS_CUDA_LINEAR_TILE_CUH

#include <algorithm>

#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/hopper.cuh"

namespace
{

enum {
    TILE_ALIGNMENT = 8, /* of its first row of x, whose scales are copied 16 bytes at a time */
    OUT_ROWS = 16,      /* of a warp */
    OUT_COLUMNS = 64,
    OUT_ROW_BYTES = OUT_COLUMNS * 2,
    OUT_BYTES = OUT_ROWS * OUT_ROW_BYTES,
    OUT_BUFFERS = 2
};

/* The result's tiles. */
struct tile_grid {
    int32_t num_rows, num_columns; /* in tiles, of a cluster */
    int32_t band; /* rows of tiles that are walked column by column: x stays in the L2 while W passes by */
};

struct tile_place {
    int32_t row, column;
};

__host__ __device__ __forceinline__ int32_t num_tiles_of(const struct tile_grid &g)
{
    return g.num_rows * g.num_columns;
}

/* Tiles in the order in which clusters take them. */
__device__ __forceinline__ struct tile_place place_of(const struct tile_grid &g, int32_t index)
{
    int32_t first = index / (g.band * g.num_columns) * g.band;
    int32_t within = index - first * g.num_columns, rows = min(g.band, g.num_rows - first);
    return {first + within % rows, within / rows};
}

/* What results become as they are stored. */
struct tile_output {
    const float *bias; /* [n] or NULL */
    int32_t n;
};

/* Columns n and n + 1. */
__device__ __forceinline__ uint32_t plain_pair(const struct tile_output &o, int32_t n, float x, float y)
{
    uint32_t sums = pack_bf16(x, y);
    if (!o.bias || n >= o.n) return sums;
    float2 rounded = unpack_bf16(sums);
    return pack_bf16(rounded.x + o.bias[n], rounded.y + o.bias[n + 1]);
}

/* Of gate and up, whose sums s[0], s[1] and s[4], s[5] are: rows n and n + 1, n + 8 and n + 9 of W. */
__device__ __forceinline__ uint32_t gated_pair(const tile_output &, int32_t, const float *s)
{
    return silu_mul(pack_bf16(s[0], s[1]), pack_bf16(s[4], s[5]));
}

/* Boxes of 64 columns in which a tile's results are stored. */
template <int WIDTH, bool SILU_MUL>
constexpr int OUT_BOXES = ((SILU_MUL ? WIDTH / 2 : WIDTH) + OUT_COLUMNS - 1) / OUT_COLUMNS;

/* A warp's 16 rows from row on, 64 columns of the result at a time; where they do not divide a tile, the last
 * ones overlap those before, with the same values. Gate and up alternate in groups of 8 columns. The buffers take turns
 * across tiles: num_stored counts the boxes of those before, so that what is written is never what the newest store
 * still reads. OUTPUT: has a plain_pair and a gated_pair, as tile_output. */
template <int WIDTH, bool SILU_MUL, typename OUTPUT = tile_output>
__device__ __forceinline__ void store_tile(const OUTPUT &o, const CUtensorMap *out_map,
                                           const float (&d)[WIDTH / 2], uint32_t buffers, int32_t num_stored,
                                           int32_t row, int32_t first_n)
{
    constexpr int SUMS = SILU_MUL ? 8 : 4; /* of a group of 8 columns of the result: a thread's share */
    constexpr int COLUMNS = SILU_MUL ? WIDTH / 2 : WIDTH;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int box = 0; box < OUT_BOXES<WIDTH, SILU_MUL>; box++) {
        const int first = min(box * OUT_COLUMNS, COLUMNS - OUT_COLUMNS);
        uint32_t buffer = buffers + (num_stored + box) % OUT_BUFFERS * OUT_BYTES;
        if (lane == 0) bulk_wait_read<OUT_BUFFERS - 1>();
        __syncwarp();
#pragma unroll
        for (int j = 0; j < 8; j += 2) { /* two groups of columns, rows 0..7 and 8..15 of each */
            uint32_t packed[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int group = first / 8 + j + i / 2;
                const float *s = d + group * SUMS + i % 2 * 2;
                packed[i] = SILU_MUL ? gated_pair(o, first_n + group * 16 + lane % 4 * 2, s)
                                     : plain_pair(o, first_n + group * 8 + lane % 4 * 2, s[0], s[1]);
            }
            store_matrix(buffer + lane % 16 * OUT_ROW_BYTES + (((j + lane / 16) ^ lane % 8) << 4), packed);
        }
        shared_writes_fence();
        __syncwarp();
        if (lane == 0) {
            tensor_store_2d(out_map, buffer, (SILU_MUL ? first_n / 2 : first_n) + first, row);
            bulk_commit();
        }
    }
}

} // namespace

#endif
