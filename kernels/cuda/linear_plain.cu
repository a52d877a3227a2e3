/* linear_plain.cu - a matrix product by the definition of its bits: one f32 accumulator for each output, mma.sync m16n8k16
 * over K in order, rounded once. Nothing here is fast. It tells whether an algorithm of cuBLASLt keeps that order, and
 * computes where none does. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_plain.cuh"
#include "kernels/cuda/mma.cuh"

namespace
{

enum { WARPS = 4, TILE_ROWS = 16, TILE_COLUMNS = 8, STEP_K = 16 };

struct plain_args {
    const __nv_bfloat16 *x, *w;
    int32_t rows, n, k;
    int32_t row_step; /* row i of a tile of x is row i * row_step of x */
};

/* The sums of columns first_n to first_n + 7, in the layout of C (mma.cuh). */
__device__ void multiply(const plain_args &a, int32_t first_row, int32_t first_n, float (&sums)[4])
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int32_t low = min(first_row + g * a.row_step, a.rows - 1),
            high = min(first_row + (g + 8) * a.row_step, a.rows - 1);
    const __nv_bfloat16 *x_low = a.x + (size_t)low * a.k, *x_high = a.x + (size_t)high * a.k,
                        *w = a.w + (size_t)min(first_n + g, a.n - 1) * a.k;
    for (int32_t k = 2 * t; k < a.k + 2 * t; k += STEP_K) { /* as often for every lane */
        auto pair = [&](const __nv_bfloat16 *row, int32_t at) {
            return at < a.k ? *(const uint32_t *)(row + at) : 0;
        };
        const uint32_t x[] = {pair(x_low, k), pair(x_high, k), pair(x_low, k + 8), pair(x_high, k + 8)};
        mma_bf16(sums, x, pair(w, k), pair(w, k + 8));
    }
}

/* body(row, column, sum) for what a thread has of its warp's tile. */
template <typename Body>
__device__ __forceinline__ void for_each_sum(const plain_args &a, int32_t first_row, int32_t first_n,
                                             const float (&sums)[4], Body body)
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (int i = 0; i < 4; i++) {
        int32_t row = first_row + (g + i / 2 * 8) * a.row_step, column = first_n + 2 * t + i % 2;
        if (row < a.rows && column < a.n) body(row, column, sums[i]);
    }
}

__device__ uint32_t bits_of(float x)
{
    return __float_as_uint(x);
}

__device__ uint32_t bits_of(__nv_bfloat16 x)
{
    return __bfloat16_as_ushort(x);
}

template <typename Out> __global__ void __launch_bounds__(WARPS * 32) plain_kernel(Out *out, plain_args a)
{
    float sums[4] = {};
    int32_t first_row = blockIdx.x * TILE_ROWS,
            first_n = (blockIdx.y * WARPS + threadIdx.x / 32) * TILE_COLUMNS;
    multiply(a, first_row, first_n, sums);
    for_each_sum(a, first_row, first_n, sums,
                 [&](int32_t row, int32_t column, float sum) { out[(size_t)row * a.n + column] = Out(sum); });
}

template <typename Out>
__global__ void __launch_bounds__(WARPS * 32)
    compare_kernel(int32_t *num_different, const Out *out, plain_args a)
{
    float sums[4] = {};
    int32_t first_n = (blockIdx.x * WARPS + threadIdx.x / 32) * TILE_COLUMNS;
    multiply(a, 0, first_n, sums);
    for_each_sum(a, 0, first_n, sums, [&](int32_t row, int32_t column, float sum) {
        if (bits_of(out[(size_t)row * a.n + column]) != bits_of(Out(sum))) atomicAdd(num_different, 1);
    });
}

plain_args args_of(int32_t rows, const void *x, const struct linear *w)
{
    return {(const __nv_bfloat16 *)x, w->weight, rows, w->n, w->k, 1};
}

} // namespace

void cuda_linear_plain(struct cuda_device *d, int32_t rows, void *out, const void *x, const struct linear *w)
{
    assert_always(w->k % 2 == 0); /* values are read in pairs */
    plain_args a = args_of(rows, x, w);
    int32_t columns = WARPS * TILE_COLUMNS;
    dim3 grid((unsigned)((rows + TILE_ROWS - 1) / TILE_ROWS), (unsigned)((w->n + columns - 1) / columns));
    if (w->wide_output)
        plain_kernel<<<checked_grid(grid), WARPS * 32, 0, d->stream>>>((float *)out, a);
    else
        plain_kernel<<<checked_grid(grid), WARPS * 32, 0, d->stream>>>((__nv_bfloat16 *)out, a);
}

bool cuda_linear_is_plain(struct cuda_device *d, int32_t rows, const void *out, const void *x,
                          const struct linear *w)
{
    plain_args a = args_of(rows, x, w);
    int32_t columns = WARPS * TILE_COLUMNS, *counter = NULL, num_different = 1;
    unsigned grid = (unsigned)((w->n + columns - 1) / columns);
    a.row_step = rows > TILE_ROWS ? rows / TILE_ROWS : 1;
    if (!CUDA_CHECK(d, cudaMalloc(&counter, sizeof *counter))) return false;
    CUDA_CHECK(d, cudaMemsetAsync(counter, 0, sizeof *counter, d->stream));
    if (w->wide_output)
        compare_kernel<<<grid, WARPS * 32, 0, d->stream>>>(counter, (const float *)out, a);
    else
        compare_kernel<<<grid, WARPS * 32, 0, d->stream>>>(counter, (const __nv_bfloat16 *)out, a);
    CUDA_CHECK(
        d, cudaMemcpyAsync(&num_different, counter, sizeof num_different, cudaMemcpyDeviceToHost, d->stream));
    bool done = CUDA_CHECK(d, cudaStreamSynchronize(d->stream));
    cudaFree(counter);
    return done && num_different == 0;
}
