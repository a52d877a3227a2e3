/* linear_blocks.cu - products of few rows (M <= 64) with weights as a GGUF file has them, on any GPU from sm_80 on: linear_blocks_tile.cuh.
 * A CTA has some strips of W. */
#include <algorithm>

#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_blocks.cuh"
#include "kernels/cuda/linear_blocks_tile.cuh"
#include "kernels/cuda/linear_store.cuh"

namespace
{

enum { ALONE_BYTES = 114 << 10 /* of a CTA: a second one finds no room on the SM */ };

struct blocks_args : store_args {
    blocks_shape shape;
    blocks_operands operands;
    bool silu_mul, is_wide; /* is_wide: sums stay f32 */
};

/* Warps that take turns at a strip. */
constexpr int32_t teams_of(int32_t tile_rows, int32_t columns)
{
    return tile_rows == 128 || columns == 64 ? 2 : 4;
}

/* Row m of x, row g of a half. */
__device__ __forceinline__ void store(const blocks_args &a, const struct half_strip &h, int32_t m, float sum)
{
    const int32_t row_of_part = h.first + threadIdx.x % 32 / 4, n = h.first_n + row_of_part;
    if (m >= a.m || row_of_part >= a.shape.parts[h.part].num_rows) return;
    const size_t at = (size_t)m * a.n + n;
    if (a.bias) sum = round_bf16(sum) + a.bias[n];
    if (a.is_wide)
        ((float *)a.out)[at] = sum;
    else
        ((__nv_bfloat16 *)a.out)[at] = __float2bfloat16_rn(sum);
}

__device__ __forceinline__ void store_gated(const blocks_args &a, int32_t n, int32_t m,
                                            const float (&four)[4])
{
    const uint32_t two = silu_mul(pack_bf16(four[0], four[1]), pack_bf16(four[2], four[3]));
    __nv_bfloat16 *out = (__nv_bfloat16 *)a.out + (size_t)m * (a.n / 2) + n;
    if (m < a.m) out[0] = __ushort_as_bfloat16((unsigned short)two);
    if (m + 1 < a.m) out[a.n / 2] = __ushort_as_bfloat16((unsigned short)(two >> 16));
}

template <int COLS>
__device__ __forceinline__ void store_all(const blocks_args &a, int32_t strip,
                                          const float (&sums)[COLS / 8][4])
{
    const int32_t lane = threadIdx.x % 32;
    const struct half_strip halves[2] = {half_of(a.shape, strip, 0), half_of(a.shape, strip, 1)};
#pragma unroll
    for (int j = 0; j < COLS / 8; j++) {
        const int32_t m = 8 * j + lane % 4 * 2;
        if (a.silu_mul) {
            store_gated(a, strip * HALF_ROWS + lane / 4, m, sums[j]);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) store(a, halves[i / 2], m + i % 2, sums[j][i]);
        }
    }
}

template <int COLS>
__global__ void __launch_bounds__(warps_max(COLS) * 32, 1)
    blocks_kernel(const __grid_constant__ blocks_args a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ uint64_t turns[WARPS_MAX];
    turns_init(turns);
    strip_warp<COLS> s(a.shape, a.operands, shared, turns, warp_uniform(threadIdx.x / 32));
    /* a strip too many does the last one again: the same bits to the same places */
    const int32_t strip = min((int32_t)blockIdx.x * a.shape.strips + s.strip_of_cta, a.shape.num_strips - 1);
    s.run(strip, [&] { store_all<COLS>(a, strip, s.sums); });
}

/* ---- host ---- */

template <int COLS> bool launch(struct cuda_device *d, blocks_args a, int32_t tile_rows)
{
    struct blocks_shape *shape = &a.shape;
    shape->strips = tile_rows / STRIP_ROWS;
    shape->teams = teams_of(tile_rows, COLS);
    const int32_t most = warps_max(COLS) / (shape->strips * shape->teams),
                  num_tiles = (shape->num_strips + shape->strips - 1) / shape->strips;
    const bool alone = num_tiles <= d->num_sms;
    if (most == 0 || !choose_stages(d, shape, COLS, alone ? 1 : most)) return false;
    const int32_t warps = shape->strips * shape->teams;
    int32_t shared_bytes = shared_bytes_of(*shape, COLS);
    /* they begin where the kernel before has ended first: two at a time, and half of the SMs would have none */
    if (alone && d->is_hopper) shared_bytes = std::max(shared_bytes, (int32_t)ALONE_BYTES);
    return launch_dependent(d, blocks_kernel<COLS>, dim3((unsigned)num_tiles), dim3((unsigned)warps * 32),
                            (size_t)shared_bytes, a);
}

} // namespace

bool cuda_linear_blocks(struct cuda_device *d, int32_t tile_rows, int32_t rows, void *out, const void *x,
                        const struct linear *w, bool silu_mul)
{
    blocks_args a = {{out, w->bias, rows, w->n}};
    if (rows > LINEAR_BLOCKS_ROWS) return false;
    a.shape = blocks_shape_of(w);
    a.operands = {w->packed, (const __nv_bfloat16 *)x, rows};
    a.silu_mul = silu_mul;
    a.is_wide = w->wide_output;
    return rows <= 8    ? launch<8>(d, a, tile_rows)
           : rows <= 16 ? launch<16>(d, a, tile_rows)
           : rows <= 32 ? launch<32>(d, a, tile_rows)
                        : launch<64>(d, a, tile_rows);
}
