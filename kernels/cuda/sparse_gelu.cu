/* sparse_gelu.cu - a gate of which no more than what stands out of its row is left: one CTA a row, sums in an order that is a function of
 * the width alone. */
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm_row.cuh"

namespace
{

/* A NaN spoils all. */
__device__ __forceinline__ float cut_gelu(float above, float up)
{
    return gelu_tanh(above < 0 ? 0 : above) * up;
}

/* width is a multiple of 4. */
__global__ void __launch_bounds__(NORM_THREADS)
    sparse_gelu_kernel(__nv_bfloat16 *out, const __nv_bfloat16 *x, int32_t width, float cut)
{
    __shared__ float partial[NORM_WARPS], other_partial[NORM_WARPS];
    const __nv_bfloat16 *gate = x + (size_t)blockIdx.x * 2 * width, *up = gate + width;
    __nv_bfloat16 *to = out + (size_t)blockIdx.x * width;
    float sum = 0, squares = 0;
    dependents_launch();
    dependency_wait();
    for (int32_t i = 4 * threadIdx.x; i < width; i += 4 * NORM_THREADS) {
        const float4 g = load_bf16x4(gate + i);
        sum += (g.x + g.y) + (g.z + g.w);
    }
    const float mean = sum_over_block(sum, partial) / width;
    for (int32_t i = 4 * threadIdx.x; i < width; i += 4 * NORM_THREADS) {
        const float4 g = load_bf16x4(gate + i);
        squares = add_squares(squares, make_float4(g.x - mean, g.y - mean, g.z - mean, g.w - mean));
    }
    const float least = mean + cut * sqrtf(sum_over_block(squares, other_partial) / width);
    for (int32_t i = 4 * threadIdx.x; i < width; i += 4 * NORM_THREADS) {
        const float4 g = load_bf16x4(gate + i), u = load_bf16x4(up + i);
        store_bf16x4(to + i, make_float4(cut_gelu(g.x - least, u.x), cut_gelu(g.y - least, u.y),
                                         cut_gelu(g.z - least, u.z), cut_gelu(g.w - least, u.w)));
    }
}

} // namespace

void cuda_sparse_gelu(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                      int32_t width, float cut)
{
    assert_always(width % 4 == 0);
    launch_dependent(cuda_of(d), sparse_gelu_kernel, dim3((unsigned)batch_num_rows(b, rows)),
                     dim3(NORM_THREADS), 0, (__nv_bfloat16 *)out, (const __nv_bfloat16 *)x, width, cut);
}
