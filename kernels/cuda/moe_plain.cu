/* moe_plain.cu - products of experts on any machine (plain_tile.cuh). The grid is as large as it could have to be; CTAs that are not needed
 * end at once. */
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/moe.cuh"
#include "kernels/cuda/moe_bias.cuh"
#include "kernels/cuda/plain_tile.cuh"

namespace
{

static_assert((int)TILE_ROWS == (int)MOE_PLAIN_ROWS, "tiles of rows are as the plan makes them");

template <enum moe_epilogue EPILOGUE>
__device__ __forceinline__ void store_sums(const float (&sums)[TILE_COLUMNS / 8][4], const moe_product &a,
                                           const struct moe_tile &tile, int32_t first_n)
{
    constexpr bool GATED = moe_is_gated(EPILOGUE);
    const float *bias = a.bias + (size_t)tile.expert * a.n;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int32_t row = threadIdx.x / 32 * 16 + lane / 4 + 8 * half;
        if (row >= tile.count) continue;
        int32_t width = GATED ? a.n / 2 : a.n;
        __nv_bfloat16 *out = a.out + (size_t)(tile.first + row) * width;
#pragma unroll
        for (int j = 0; j < TILE_COLUMNS / 8; j += GATED ? 2 : 1) {
            int32_t n = first_n + 8 * j;
            if (n >= a.n) break;
            const float *s = &sums[j][2 * half], *up = &sums[GATED ? j + 1 : j][2 * half];
            const float2 *of_pair = (const float2 *)(bias + n + lane % 4 * 2), none = {};
            *(uint32_t *)(out + (GATED ? n / 2 : n) + lane % 4 * 2) = finish_pair<EPILOGUE>(
                make_float2(s[0], s[1]), make_float2(up[0], up[1]),
                moe_has_bias(EPILOGUE) ? of_pair[0] : none, EPILOGUE == MOE_CLAMPED ? of_pair[4] : none);
        }
    }
}

template <enum moe_epilogue EPILOGUE> __global__ void __launch_bounds__(THREADS) product_kernel(moe_product a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    dependency_wait();
    if ((int32_t)blockIdx.x >= *a.num_tiles) return;
    const struct moe_tile tile = a.tiles[blockIdx.x];
    const int32_t first_n = blockIdx.y * TILE_COLUMNS;
    const __nv_bfloat16 *weight = a.weight + ((size_t)tile.expert * a.n + first_n) * a.k,
                        *x = a.x + (size_t)tile.first * a.k;
    float sums[TILE_COLUMNS / 8][4] = {};
    struct stage_rows rows;
    find_rows(
        &rows, [&](int32_t row) { return row < tile.count ? x + (size_t)row * a.k : NULL; },
        [&](int32_t row) { return first_n + row < a.n ? weight + (size_t)row * a.k : NULL; });
    multiply_tile(sums, rows, a.k, (int32_t)threadIdx.x / 32 * 16 < tile.count, shared_address(shared));
    store_sums<EPILOGUE>(sums, a, tile, first_n);
}

template <enum moe_epilogue EPILOGUE> void launch(struct cuda_device *d, const struct moe_product *p)
{
    dim3 grid((unsigned)p->tiles_max, (unsigned)((p->n + TILE_COLUMNS - 1) / TILE_COLUMNS));
    launch_dependent(d, product_kernel<EPILOGUE>, grid, dim3(THREADS), RING_BYTES, *p);
}

} // namespace

void cuda_moe_plain(struct cuda_device *d, const struct moe_product *p)
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
}
