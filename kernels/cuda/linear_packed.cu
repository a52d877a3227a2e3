/* linear_packed.cu - products of few rows (M <= 256 a CTA, 1,024 in all) with weights of four bits on sm_90a (packed_ring.cuh).
 *
 * One thread fills a ring of stages through the copy engine, W ahead of the kernel's dependency. A CTA has one tile and no
 * more: with several on an SM the machine deals them out, and those of the next kernel fill their rings meanwhile.
 *
 * A tile of 32 rows gives each of the four warps of a group eight, and half of what is multiplied is in vain: where there are
 * few rows of W for an SM, unpacking and not multiplying is what takes time, and all warps have a share in that.
 *
 * Of one row the warps that multiply can make it, the norm of the residual stream (linear_row.cuh): then the ring has W alone. */
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_packed.cuh"
#include "kernels/cuda/linear_packed_tile.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace
{

/* Each CTA makes the row: of many that come to an SM one after another a kernel of its own is worth it. */
enum { ROW_ROUNDS = 2 };

/* What a CTA does. row, or x_map. */
template <int FORMAT, int SCALES, int HALVES, int GROUPS, int COLS>
__device__ __forceinline__ void multiply_tile(const linear_packed_args &a, const CUtensorMap *x_map,
                                              const row_args *row)
{
    using T = packed_traits<SCALES, HALVES, GROUPS, COLS>;
    extern __shared__ unsigned char shared[];
    __shared__ uint64_t barriers[2 * STAGES_MAX];
    __shared__ int32_t is_over;
    const packed_ring r = ring_of_tile<T>(a, shared, barriers, &is_over, x_map, T::WARPS);
    int32_t warp = warp_uniform(threadIdx.x / 32);
    if (warp == T::WARPS) {
        if (elect_lane()) fill_packed_ring(packed_producer<T>{a, r, x_map});
        return;
    }
    wait_or_make_row<T, T::WARPS>(a, r, shared, row);
    int32_t strip = warp * HALVES; /* of the tile */
    packed_consumer<FORMAT, T> c{a, r, packed_strip_offset<T>(strip), {}};
    c.run();
    int32_t n = (int32_t)blockIdx.x * T::ROWS + strip * PACKED_ROWS, m = first_row_of<T>(a);
    if (HALVES == 2 && a.silu_mul)
        store_columns<T::N, EPILOGUE_SILU_MUL, 2>(a, c.d, m, n);
    else
        store_columns<T::N, EPILOGUE_BF16, HALVES>(a, c.d, m, n);
}

template <int FORMAT, int SCALES, int HALVES, int GROUPS, int COLS>
__global__ void __launch_bounds__((packed_traits<SCALES, HALVES, GROUPS, COLS>::THREADS),
                                  (packed_traits<SCALES, HALVES, GROUPS, COLS>::CTAS))
    packed_kernel(linear_packed_args a, const __grid_constant__ CUtensorMap x_map)
{
    multiply_tile<FORMAT, SCALES, HALVES, GROUPS, COLS>(a, &x_map, NULL);
}

template <int FORMAT, int SCALES, int HALVES, int GROUPS, int COLS>
__global__ void __launch_bounds__((packed_traits<SCALES, HALVES, GROUPS, COLS>::THREADS),
                                  (packed_traits<SCALES, HALVES, GROUPS, COLS>::CTAS))
    packed_row_kernel(linear_packed_args a, row_args row)
{
    multiply_tile<FORMAT, SCALES, HALVES, GROUPS, COLS>(a, NULL, &row);
}

/* ---- host ---- */

template <int FORMAT, int SCALES, int HALVES, int GROUPS, int COLS>
bool launch(struct cuda_device *d, linear_packed_args a, const void *x, const row_args *row,
            const struct linear *w)
{
    using T = packed_traits<SCALES, HALVES, GROUPS, COLS>;
    int32_t num_tiles = (w->n + T::ROWS - 1) / T::ROWS, num_parts = (a.m + T::N - 1) / T::N;
    int32_t num_ctas = num_tiles * num_parts, per_sm = (num_ctas + d->num_sms - 1) / d->num_sms;
    /* two at least, so that the next kernel's first ones find room */
    int32_t ctas = std::min(std::max(per_sm, 2), (int32_t)T::CTAS);
    size_t shared_bytes = fit_packed_ring<T>(&a, w, SHARED_BYTES / ctas - 2048);
    if (a.num_stages < std::min(2, a.num_k)) return false;
    if (T::IS_ROW && num_ctas > ROW_ROUNDS * ctas * d->num_sms) return false;
    a.pause = cuda_pause_ahead(d, T::W_BYTES) * ctas;
    /* they begin where the kernel before has ended first: two at a time, and half of the SMs would have none */
    if (num_ctas <= d->num_sms) shared_bytes = std::max(shared_bytes, (size_t)ALONE_BYTES);
    const dim3 grid((unsigned)num_tiles, (unsigned)num_parts), block(T::THREADS);
    if constexpr (T::IS_ROW) {
        return launch_dependent(d, packed_row_kernel<FORMAT, SCALES, HALVES, GROUPS, COLS>, grid, block,
                                shared_bytes, a, *row);
    } else {
        const CUtensorMap *x_map = tensor_map_of_matrix(d, x, a.m, w->k, a.x_there);
        return x_map && launch_dependent(d, packed_kernel<FORMAT, SCALES, HALVES, GROUPS, COLS>, grid, block,
                                         shared_bytes, a, *x_map);
    }
}

/* Of one row: a thread of four warps has no registers for more than 32 columns of it. */
template <int FORMAT, int SCALES, int HALVES, int GROUPS>
bool launch_row(struct cuda_device *d, const linear_packed_args &a, const row_args *row,
                const struct linear *w)
{
    if (w->k <= row_norm_max(1)) return launch<FORMAT, SCALES, HALVES, GROUPS, 1>(d, a, NULL, row, w);
    if constexpr (GROUPS == 2) return launch<FORMAT, SCALES, HALVES, GROUPS, 2>(d, a, NULL, row, w);
    return false;
}

template <int FORMAT, int SCALES, int HALVES, int GROUPS>
bool launch_rows(struct cuda_device *d, int32_t columns, const linear_packed_args &a, const void *x,
                 const row_args *row, const struct linear *w)
{
    if (row) return launch_row<FORMAT, SCALES, HALVES, GROUPS>(d, a, row, w);
    columns = std::min(columns, a.m);
    if (columns <= 8) return launch<FORMAT, SCALES, HALVES, GROUPS, 8>(d, a, x, NULL, w);
    if constexpr (GROUPS == 1) {
        if (columns <= 16) return launch<FORMAT, SCALES, HALVES, GROUPS, 16>(d, a, x, NULL, w);
    }
    if (columns <= 32) return launch<FORMAT, SCALES, HALVES, GROUPS, 32>(d, a, x, NULL, w);
    if (columns <= 64) return launch<FORMAT, SCALES, HALVES, GROUPS, 64>(d, a, x, NULL, w);
    if constexpr (HALVES == 2) {
        if (columns <= 96) return launch<FORMAT, SCALES, HALVES, GROUPS, 96>(d, a, x, NULL, w);
        if (columns <= 128) return launch<FORMAT, SCALES, HALVES, GROUPS, 128>(d, a, x, NULL, w);
    }
    if constexpr (HALVES == 2 && GROUPS == 1) {
        if (columns <= 192) return launch<FORMAT, SCALES, HALVES, GROUPS, 192>(d, a, x, NULL, w);
        if (columns <= 256) return launch<FORMAT, SCALES, HALVES, GROUPS, 256>(d, a, x, NULL, w);
    }
    return false;
}

template <int FORMAT, int SCALES>
bool launch_tiles(struct cuda_device *d, int32_t tile_rows, int32_t columns, const linear_packed_args &a,
                  const void *x, const row_args *row, const struct linear *w)
{
    switch (tile_rows) {
    case 32: /* gate and up are not in one warp */
        return !a.silu_mul && launch_rows<FORMAT, SCALES, 1, 1>(d, columns, a, x, row, w);
    case 64:
        return launch_rows<FORMAT, SCALES, 2, 1>(d, columns, a, x, row, w);
    default:
        return launch_rows<FORMAT, SCALES, 2, 2>(d, columns, a, x, row, w);
    }
}

} // namespace

bool cuda_linear_packed(struct cuda_device *d, int32_t tile_rows, int32_t columns, int32_t rows, void *out,
                        const void *x, const struct linear *w, bool silu_mul, const struct row_args *row)
{
    const linear_packed_args a = packed_args_of(rows, out, w, silu_mul);
    return with_packed_form(w, [&](auto format, auto scales) {
        return launch_tiles<format.value, scales.value>(d, tile_rows, columns, a, x, row, w);
    });
}
