/* linear_packed_tile.cuh - what the products of one matrix with weights of four bits share (linear_packed.cu, linear_relay.cu): who
 * fetches a tile's stages, and how many there are. */
#ifndef KERNELS_CUDA_LINEAR_PACKED_TILE_CUH
#define KERNELS_CUDA_LINEAR_PACKED_TILE_CUH

#include <algorithm>

#include "kernels/cuda/linear_tile.cuh"
#include "kernels/cuda/packed_ring.cuh"

namespace
{

struct linear_packed_args : packed_args {
    bool silu_mul;
    int32_t row_bytes; /* of the row that the CTA makes; 0: none */
};

/* A CTA's first row of x. */
template <typename T> __device__ __forceinline__ int32_t first_row_of(const linear_packed_args &a)
{
    return tile_begin((int32_t)blockIdx.y, T::COLS, a.m, TILE_ALIGNMENT);
}

/* A CTA's ring, x or the row in front of it. By all threads. */
template <typename T>
__device__ __forceinline__ packed_ring ring_of_tile(const linear_packed_args &a, unsigned char *shared,
                                                    uint64_t *barriers, int32_t *is_over,
                                                    const CUtensorMap *x_map, int32_t num_readers)
{
    const packed_ring r =
        packed_ring_init(shared, barriers, is_over, x_map, a.num_stages,
                         T::IS_ROW ? a.row_bytes : a.num_stages * T::x_bytes(a.x_rows), num_readers);
    __syncthreads();
    return r;
}

/* By the CTA's first WARPS warps, those that multiply: when x is there, or their row. */
template <typename T, int WARPS>
__device__ __forceinline__ void wait_or_make_row(const linear_packed_args &a, const packed_ring &r,
                                                 unsigned char *shared, const row_args *row)
{
    if constexpr (T::IS_ROW) {
        __shared__ float partial[2][ROW_WARPS];
        row_maker<T::COLS, WARPS> maker{*row, shared + (r.x - shared_address(shared)),
                                        a.num_blocks * PACKED_COLUMNS, partial};
        maker.load_weight();
        dependency_wait_and_tell(r.is_over);
        maker.make_normed();
    } else {
        dependency_wait_and_tell(r.is_over); /* the results overwrite what kernels before may still read */
    }
}

/* The one thread that fetches. */
template <typename T> struct packed_producer {
    const linear_packed_args &a;
    const packed_ring &r;
    const CUtensorMap *x_map;

    __device__ __forceinline__ void load_w(int32_t stage, int32_t k) const
    {
        barrier_arrive_expect(r.full + 8 * stage, T::W_BYTES + T::x_bytes(a.x_there));
#pragma unroll
        for (int i = 0; i < T::QUADS; i++) {
            size_t block = ((size_t)blockIdx.x * T::QUADS + i) * a.num_blocks + k * T::STAGE_BLOCKS;
            bulk_stream(r.w + stage * T::W_BYTES + i * T::QUAD_BYTES,
                        a.packed + block * (PACKED_STRIPS * T::BLOCK_BYTES), r.full + 8 * stage,
                        T::QUAD_BYTES);
        }
    }

    __device__ __forceinline__ void load_x(int32_t stage, int32_t k) const
    {
        constexpr int BOXES = T::STAGE_BLOCKS * BLOCK_BOXES;
#pragma unroll
        for (int i = 0; i < (T::IS_ROW ? 0 : BOXES); i++) /* a row is made by others */
            tensor_load_2d(r.x + stage * T::x_bytes(a.x_rows) + i * a.x_rows * BOX_ROW_BYTES, x_map,
                           r.full + 8 * stage, (k * BOXES + i) * BOX_K, first_row_of<T>(a));
    }
};

inline linear_packed_args packed_args_of(int32_t rows, void *out, const struct linear *w, bool silu_mul)
{
    linear_packed_args a = {};
    a.out = out;
    a.bias = w->bias;
    a.m = rows;
    a.n = w->n;
    a.packed = w->packed;
    a.silu_mul = silu_mul;
    return a;
}

/* Of a->m rows of x: fills in what a says of the ring, of so many bytes at most, and gives the dynamic shared memory: x, and W behind
 * it, since products read on behind the rows of x that there are. */
template <typename T> size_t fit_packed_ring(linear_packed_args *a, const struct linear *w, int32_t bytes)
{
    a->x_rows = T::IS_ROW ? 0 : std::min((a->m + 7) / 8 * 8, T::COLS);
    a->x_there = T::IS_ROW ? 0 : std::min(a->m, T::COLS);
    a->num_blocks = (w->k + 2 * PACKED_COLUMNS - 1) / (2 * PACKED_COLUMNS) * 2;
    a->row_bytes = T::IS_ROW ? row_place_bytes(a->num_blocks * PACKED_COLUMNS) : 0;
    a->num_k = a->num_blocks / T::STAGE_BLOCKS;
    a->num_stages = std::min(
        {(bytes - a->row_bytes) / (T::W_BYTES + T::x_bytes(a->x_rows)), (int32_t)STAGES_MAX, a->num_k});
    size_t behind = T::IS_ROW ? 0 : (size_t)(T::COLS - a->x_rows) * BOX_ROW_BYTES,
           w_bytes = (size_t)a->num_stages * T::W_BYTES;
    return (size_t)a->row_bytes + (size_t)a->num_stages * T::x_bytes(a->x_rows) + std::max(w_bytes, behind) +
           1024;
}

} // namespace

#endif
