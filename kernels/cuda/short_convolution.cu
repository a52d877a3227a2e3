/* short_convolution.cu - layers whose state is a convolution's alone (device.h: DELTA_CONVOLUTION): b x of the SHORT_TAPS - 1 newest
 * tokens, exact in f32, which are its k_dim. A thread a channel of a token; where each sequence has one token, it leaves what the next
 * step begins with, and otherwise a kernel behind it does, when all have read what was there. */
#include "kernels/cuda/delta_net.cuh"
#include "kernels/cuda/hopper.cuh"

namespace
{

enum { BEFORE = SHORT_TAPS - 1, THREADS = 256 };

/* b x of a channel, i tokens behind the part's first; i may be negative. */
__device__ float product_of(const delta_args &a, const delta_seq &s, int32_t i, int32_t channel)
{
    const size_t width = (size_t)v_width(a.n);
    if (i < 0) return s.position == 0 ? 0 : head_state(a, s, s.position, 0)[(BEFORE + i) * width + channel];
    const __nv_bfloat16 *b = a.projected + (size_t)(s.begin + i) * 3 * width + channel;
    return __bfloat162float(b[0]) * __bfloat162float(b[2 * width]);
}

__global__ void __launch_bounds__(THREADS) short_kernel(const __grid_constant__ delta_args a)
{
    const int32_t token = blockIdx.x, channel = blockIdx.y * THREADS + threadIdx.x, width = v_width(a.n);
    dependents_launch();
    const delta_seq s = seq_of(a, seq_of_token(a, token));
    dependency_wait();
    if (s.begin == s.end || channel >= width) return;
    const float *taps = a.n.taps + (DELTA_TAPS - SHORT_TAPS) * width + channel;
    const float c = __bfloat162float(a.projected[((size_t)token * 3 + 1) * width + channel]);
    float input[SHORT_TAPS], sum = 0;
#pragma unroll
    for (int32_t j = 0; j < SHORT_TAPS; j++)
        input[j] = product_of(a, s, token - s.begin - BEFORE + j, channel);
#pragma unroll
    for (int32_t j = 0; j < SHORT_TAPS; j++) sum = fmaf(taps[j * width], input[j], sum);
    a.out[(size_t)token * width + channel] = __float2bfloat16_rn(c * sum);
    if (a.num_tokens != a.num_seqs) return;
    float *behind = head_state(a, s, s.position + 1, 0) + channel;
#pragma unroll
    for (int32_t j = 0; j < BEFORE; j++) behind[j * width] = input[j + 1];
}

/* Behind the part's last token, and before it, so that it can be computed again. */
__global__ void __launch_bounds__(THREADS) leave_kernel(const __grid_constant__ delta_args a)
{
    const int32_t channel = blockIdx.y * THREADS + threadIdx.x, width = v_width(a.n);
    dependents_launch();
    const delta_seq s = seq_of(a, blockIdx.x);
    dependency_wait();
    const int32_t count = s.end - s.begin;
    if (count == 0 || channel >= width) return;
    float newest[SHORT_TAPS]; /* all that one of the two has */
#pragma unroll
    for (int32_t j = 0; j < SHORT_TAPS; j++) newest[j] = product_of(a, s, count - SHORT_TAPS + j, channel);
    float *before = head_state(a, s, s.position + count - 1, 0) + channel,
          *behind = head_state(a, s, s.position + count, 0) + channel;
#pragma unroll
    for (int32_t j = 0; j < BEFORE; j++) {
        if (count > 1) before[j * width] = newest[j];
        behind[j * width] = newest[j + 1];
    }
}

} // namespace

void cuda_short_convolution(struct cuda_device *d, const struct delta_args *a)
{
    const unsigned groups = (unsigned)div_up(v_width(a->n), THREADS);
    launch_dependent(d, short_kernel, dim3((unsigned)a->num_tokens, groups), dim3(THREADS), 0, *a);
    if (a->num_tokens != a->num_seqs)
        launch_dependent(d, leave_kernel, dim3((unsigned)a->num_seqs, groups), dim3(THREADS), 0, *a);
}
