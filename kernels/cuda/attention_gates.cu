/* attention_gates.cu - gates behind attention: of what is projected q, K and V are one thing and the gates another, and attention's
 * output is multiplied by their sigmoid. Others have a product of their own, and may be one for each head, or softplus. */
#include "kernels/cuda/bf16.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"

namespace
{

enum { THREADS = 256 };

__global__ void __launch_bounds__(THREADS)
    split_kernel(__nv_bfloat16 *qkv, __nv_bfloat16 *gates, const __nv_bfloat16 *projected, int32_t q_width,
                 int32_t kv_width, int32_t head_dim)
{
    dependents_launch();
    dependency_wait();
    const __nv_bfloat16 *from = projected + (size_t)blockIdx.x * (2 * q_width + kv_width);
    __nv_bfloat16 *to = qkv + (size_t)blockIdx.x * (q_width + kv_width),
                  *gate = gates + (size_t)blockIdx.x * q_width;
    for (int32_t i = threadIdx.x; i < q_width; i += THREADS) {
        const int32_t at = i / head_dim * 2 * head_dim + i % head_dim;
        to[i] = from[at];
        gate[i] = from[at + head_dim];
    }
    for (int32_t i = threadIdx.x; i < kv_width; i += THREADS) to[q_width + i] = from[2 * q_width + i];
}

__global__ void __launch_bounds__(THREADS)
    sigmoid_mul_kernel(__nv_bfloat16 *x, const __nv_bfloat16 *gates, int32_t width)
{
    const size_t row = (size_t)blockIdx.x * width;
    dependents_launch();
    dependency_wait();
    for (int32_t i = threadIdx.x; i < width; i += THREADS)
        x[row + i] =
            __float2bfloat16_rn(__bfloat162float(x[row + i]) / (1 + expf(-__bfloat162float(gates[row + i]))));
}

__device__ float gate_of(float x, bool is_softplus)
{
    if (!is_softplus) return 1 / (1 + expf(-x));
    return x > 20 ? x : log1pf(expf(x));
}

/* Of which each is per_gate values'. */
__global__ void __launch_bounds__(THREADS) gate_mul_kernel(__nv_bfloat16 *x, const __nv_bfloat16 *gates,
                                                           int32_t width, int32_t per_gate, bool is_softplus)
{
    const size_t row = (size_t)blockIdx.x * width, gate_row = (size_t)blockIdx.x * (width / per_gate);
    dependents_launch();
    dependency_wait();
    for (int32_t i = threadIdx.x; i < width; i += THREADS)
        x[row + i] =
            __float2bfloat16_rn(__bfloat162float(x[row + i]) *
                                gate_of(__bfloat162float(gates[gate_row + i / per_gate]), is_softplus));
}

} // namespace

void cuda_split_gates(struct device *device, const struct batch *b, void *qkv, void *gates,
                      const void *projected, const struct attention_args *args)
{
    launch_dependent(cuda_of(device), split_kernel, dim3((unsigned)b->num_tokens), dim3(THREADS), 0,
                     (__nv_bfloat16 *)qkv, (__nv_bfloat16 *)gates, (const __nv_bfloat16 *)projected,
                     args->num_heads * args->head_dim, 2 * args->num_kv_heads * args->head_dim,
                     args->head_dim);
}

void cuda_apply_gates(struct device *device, const struct batch *b, void *x, const void *gates,
                      const struct attention_args *args)
{
    const int32_t width = args->num_heads * args->head_dim;
    if (!args->gates_by_head && !args->gates_are_softplus)
        launch_dependent(cuda_of(device), sigmoid_mul_kernel, dim3((unsigned)b->num_tokens), dim3(THREADS), 0,
                         (__nv_bfloat16 *)x, (const __nv_bfloat16 *)gates, width);
    else
        launch_dependent(cuda_of(device), gate_mul_kernel, dim3((unsigned)b->num_tokens), dim3(THREADS), 0,
                         (__nv_bfloat16 *)x, (const __nv_bfloat16 *)gates, width,
                         args->gates_by_head ? args->head_dim : 1, args->gates_are_softplus);
}
