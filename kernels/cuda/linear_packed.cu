/* linear_packed.cu - products of few rows (M <= 256) with weights of four bits on sm_90a (packed_ring.cuh).
 *
 * One thread fills a ring of stages through the copy engine, W ahead of the kernel's dependency. A CTA has one tile and no
 * more: with several on an SM the machine deals them out, and those of the next kernel fill their rings meanwhile.
 *
 * A tile of 32 rows gives each of the four warps of a group eight, and half of what is multiplied is in vain: where there are
 * few rows of W for an SM, unpacking and not multiplying is what takes time, and all warps have a share in that. */
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_packed.cuh"
#include "kernels/cuda/linear_packed_tile.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace
{

template <int FORMAT, int SCALES, int HALVES, int GROUPS, int COLS>
__global__ void __launch_bounds__((packed_traits<SCALES, HALVES, GROUPS, COLS>::THREADS),
                                  (packed_traits<SCALES, HALVES, GROUPS, COLS>::CTAS))
    packed_kernel(linear_packed_args a, const __grid_constant__ CUtensorMap x_map)
{
    using T = packed_traits<SCALES, HALVES, GROUPS, COLS>;
    extern __shared__ unsigned char shared[];
    __shared__ uint64_t barriers[2 * STAGES_MAX];
    __shared__ int32_t is_over;
    const packed_ring r =
        packed_ring_init(shared, barriers, &is_over, &x_map, a.num_stages, T::x_bytes(a.x_rows), T::WARPS);
    __syncthreads();
    int32_t warp = warp_uniform(threadIdx.x / 32);
    if (warp == T::WARPS) {
        if (elect_lane()) fill_packed_ring(packed_producer<T>{a, r, &x_map});
        return;
    }
    dependency_wait_and_tell(&is_over); /* the results overwrite what kernels before may still read */
    int32_t strip = warp * HALVES;      /* of the tile */
    packed_consumer<FORMAT, T> c{a, r, packed_strip_offset<T>(strip), {}};
    c.run();
    int32_t n = (int32_t)blockIdx.x * T::ROWS + strip * PACKED_ROWS, m = (int32_t)blockIdx.y * COLS;
    if (HALVES == 2 && a.silu_mul)
        store_columns<COLS, EPILOGUE_SILU_MUL, 2>(a, c.d, m, n);
    else
        store_columns<COLS, EPILOGUE_BF16, HALVES>(a, c.d, m, n);
}

/* ---- host ---- */

template <int FORMAT, int SCALES, int HALVES, int GROUPS, int COLS>
bool launch(struct cuda_device *d, linear_packed_args a, const void *x, const struct linear *w)
{
    using T = packed_traits<SCALES, HALVES, GROUPS, COLS>;
    int32_t num_tiles = (w->n + T::ROWS - 1) / T::ROWS, num_parts = (a.m + COLS - 1) / COLS;
    int32_t num_ctas = num_tiles * num_parts, per_sm = (num_ctas + d->num_sms - 1) / d->num_sms;
    /* two at least, so that the next kernel's first ones find room */
    int32_t ctas = std::min(std::max(per_sm, 2), (int32_t)T::CTAS);
    size_t shared_bytes = fit_packed_ring<T>(&a, w, SHARED_BYTES / ctas - 2048);
    if (a.num_stages < std::min(2, a.num_k)) return false;
    a.pause = cuda_pause_ahead(d, T::W_BYTES) * ctas;
    /* they begin where the kernel before has ended first: two at a time, and half of the SMs would have none */
    if (num_ctas <= d->num_sms) shared_bytes = std::max(shared_bytes, (size_t)ALONE_BYTES);
    const CUtensorMap *x_map = tensor_map_of_matrix(d, x, a.m, w->k, a.x_rows);
    if (!x_map) return false;
    return launch_dependent(d, packed_kernel<FORMAT, SCALES, HALVES, GROUPS, COLS>,
                            dim3((unsigned)num_tiles, (unsigned)num_parts), dim3(T::THREADS), shared_bytes, a,
                            *x_map);
}

template <int FORMAT, int SCALES, int HALVES, int GROUPS>
bool launch_rows(struct cuda_device *d, int32_t columns, const linear_packed_args &a, const void *x,
                 const struct linear *w)
{
    columns = std::min(columns, a.m);
    if constexpr (GROUPS == 1) {
        if (columns <= 8) return launch<FORMAT, SCALES, HALVES, GROUPS, 8>(d, a, x, w);
        if (columns <= 16) return launch<FORMAT, SCALES, HALVES, GROUPS, 16>(d, a, x, w);
    }
    if (columns <= 32) return launch<FORMAT, SCALES, HALVES, GROUPS, 32>(d, a, x, w);
    if (columns <= 64) return launch<FORMAT, SCALES, HALVES, GROUPS, 64>(d, a, x, w);
    if constexpr (HALVES == 2) {
        if (columns <= 96) return launch<FORMAT, SCALES, HALVES, GROUPS, 96>(d, a, x, w);
        if (columns <= 128) return launch<FORMAT, SCALES, HALVES, GROUPS, 128>(d, a, x, w);
    }
    if constexpr (HALVES == 2 && GROUPS == 1) {
        if (columns <= 192) return launch<FORMAT, SCALES, HALVES, GROUPS, 192>(d, a, x, w);
        if (columns <= 256) return launch<FORMAT, SCALES, HALVES, GROUPS, 256>(d, a, x, w);
    }
    return false;
}

template <int FORMAT, int SCALES>
bool launch_tiles(struct cuda_device *d, int32_t tile_rows, int32_t columns, const linear_packed_args &a,
                  const void *x, const struct linear *w)
{
    switch (tile_rows) {
    case 32: /* gate and up are not in one warp */
        return !a.silu_mul && launch_rows<FORMAT, SCALES, 1, 1>(d, columns, a, x, w);
    case 64:
        return launch_rows<FORMAT, SCALES, 2, 1>(d, columns, a, x, w);
    default:
        return launch_rows<FORMAT, SCALES, 2, 2>(d, columns, a, x, w);
    }
}

} // namespace

bool cuda_linear_packed(struct cuda_device *d, int32_t tile_rows, int32_t columns, int32_t rows, void *out,
                        const void *x, const struct linear *w, bool silu_mul)
{
    const linear_packed_args a = packed_args_of(rows, out, w, silu_mul);
    return with_packed_form(w, [&](auto format, auto scales) {
        return launch_tiles<format.value, scales.value>(d, tile_rows, columns, a, x, w);
    });
}
