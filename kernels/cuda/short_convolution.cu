/* short_convolution.cu - layers whose state is a convolution's alone (device.h: DELTA_CONVOLUTION): b x of the newest tokens, one fewer than it has
 * taps, exact in f32, which are its k_dim. A thread a channel of a token; where each sequence has one token, it leaves what the next
 * step begins with, and otherwise a kernel behind it does, when all have read what was there. */
#include "kernels/cuda/delta_net.cuh"
#include "kernels/cuda/hopper.cuh"

namespace
{

enum { THREADS = 256 };

/* b x of a channel, i tokens behind the part's first; i may be negative. */
template <int TAPS>
__device__ float product_of(const delta_args &a, const delta_seq &s, int32_t i, int32_t channel)
{
    const size_t width = (size_t)v_width(a.n);
    if (i < 0) return s.position == 0 ? 0 : head_state(a, s, s.position, 0)[(TAPS - 1 + i) * width + channel];
    const __nv_bfloat16 *b = a.projected + (size_t)(s.begin + i) * 3 * width + channel;
    return __bfloat162float(b[0]) * __bfloat162float(b[2 * width]);
}

template <int TAPS>
__global__ void __launch_bounds__(THREADS) short_kernel(const __grid_constant__ delta_args a)
{
    const int32_t token = blockIdx.x, channel = blockIdx.y * THREADS + threadIdx.x, width = v_width(a.n);
    dependents_launch();
    const delta_seq s = seq_of(a, seq_of_token(a, token));
    dependency_wait();
    if (s.begin == s.end || channel >= width) return;
    const float *taps = a.n.taps + channel;
    const float c = __bfloat162float(a.projected[((size_t)token * 3 + 1) * width + channel]);
    float input[TAPS], sum = 0;
#pragma unroll
    for (int32_t j = 0; j < TAPS; j++)
        input[j] = product_of<TAPS>(a, s, token - s.begin - (TAPS - 1) + j, channel);
#pragma unroll
    for (int32_t j = 0; j < TAPS; j++) sum = fmaf(taps[j * width], input[j], sum);
    a.out[(size_t)token * width + channel] = __float2bfloat16_rn(c * sum);
    if (a.num_tokens != a.num_seqs) return;
    float *behind = head_state(a, s, s.position + 1, 0) + channel;
#pragma unroll
    for (int32_t j = 0; j < TAPS - 1; j++) behind[j * width] = input[j + 1];
}

/* Behind the part's last token, and before it, so that it can be computed again. */
template <int TAPS>
__global__ void __launch_bounds__(THREADS) leave_kernel(const __grid_constant__ delta_args a)
{
    const int32_t channel = blockIdx.y * THREADS + threadIdx.x, width = v_width(a.n);
    dependents_launch();
    const delta_seq s = seq_of(a, blockIdx.x);
    dependency_wait();
    const int32_t count = s.end - s.begin;
    if (count == 0 || channel >= width) return;
    float newest[TAPS]; /* all that one of the two has */
#pragma unroll
    for (int32_t j = 0; j < TAPS; j++) newest[j] = product_of<TAPS>(a, s, count - TAPS + j, channel);
    float *before = head_state(a, s, s.position + count - 1, 0) + channel,
          *behind = head_state(a, s, s.position + count, 0) + channel;
#pragma unroll
    for (int32_t j = 0; j < TAPS - 1; j++) {
        if (count > 1) before[j * width] = newest[j];
        behind[j * width] = newest[j + 1];
    }
}

template <int TAPS> void launch(struct cuda_device *d, const struct delta_args *a)
{
    const unsigned groups = (unsigned)div_up(v_width(a->n), THREADS);
    launch_dependent(d, short_kernel<TAPS>, dim3((unsigned)a->num_tokens, groups), dim3(THREADS), 0, *a);
    if (a->num_tokens != a->num_seqs)
        launch_dependent(d, leave_kernel<TAPS>, dim3((unsigned)a->num_seqs, groups), dim3(THREADS), 0, *a);
}

} // namespace

void cuda_short_convolution(struct cuda_device *d, const struct delta_args *a)
{
    a->n.k_dim == SHORT_TAPS_MAX - 1 ? launch<SHORT_TAPS_MAX>(d, a) : launch<3>(d, a);
}
