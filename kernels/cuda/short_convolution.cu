/* short_convolution.cu - layers whose state is a convolution's alone (device.h: DELTA_CONVOLUTION): b x of the newest tokens, exact in f32. A
 * thread a channel of a token; where every token decodes, it leaves its row of the ring, and otherwise a kernel behind it does, when all
 * have read what was there. */
#include "kernels/cuda/delta_net.cuh"
#include "kernels/cuda/hopper.cuh"

namespace
{

enum { THREADS = 256 };

__device__ float *row_behind(const delta_args &a, const device_run &s, int32_t position)
{
    return a.n.states + ring_row(a.n, s.batch_slot, position) * v_width(a.n);
}

/* b x of a channel of the run's sequence. */
__device__ float product_of(const delta_args &a, const device_run &s, int32_t position, int32_t channel)
{
    const size_t width = (size_t)v_width(a.n);
    if (position < s.position) return position < 0 ? 0 : row_behind(a, s, position)[channel];
    const __nv_bfloat16 *b = a.projected + (size_t)(s.begin + position - s.position) * 3 * width + channel;
    return __bfloat162float(b[0]) * __bfloat162float(b[2 * width]);
}

template <int TAPS>
__global__ void __launch_bounds__(THREADS) short_kernel(const __grid_constant__ delta_args a, bool leaves)
{
    const int32_t token = blockIdx.x, channel = blockIdx.y * THREADS + threadIdx.x, width = v_width(a.n);
    dependents_launch();
    const device_run s = a.runs[run_of_token(a, token)];
    dependency_wait();
    if (s.begin == s.end || channel >= width) return;
    const int32_t position = s.position + token - s.begin;
    const float *taps = a.n.taps + channel;
    const float c = __bfloat162float(a.projected[((size_t)token * 3 + 1) * width + channel]);
    float input[TAPS], sum = 0;
#pragma unroll
    for (int32_t j = 0; j < TAPS; j++) input[j] = product_of(a, s, position - (TAPS - 1) + j, channel);
#pragma unroll
    for (int32_t j = 0; j < TAPS; j++) sum = fmaf(taps[j * width], input[j], sum);
    a.out[(size_t)token * width + channel] = __float2bfloat16_rn(c * sum);
    if (leaves) row_behind(a, s, position)[channel] = input[TAPS - 1];
}

__global__ void __launch_bounds__(THREADS) leave_kernel(const __grid_constant__ delta_args a)
{
    const int32_t channel = blockIdx.y * THREADS + threadIdx.x, width = v_width(a.n);
    dependents_launch();
    const device_run s = a.runs[blockIdx.x];
    dependency_wait();
    if (channel >= width) return;
    for (int32_t token = max(s.begin, s.end - a.n.num_left); token < s.end; token++) {
        const int32_t position = s.position + token - s.begin;
        row_behind(a, s, position)[channel] = product_of(a, s, position, channel);
    }
}

template <int TAPS> void launch(struct cuda_device *d, const struct delta_args *a, bool leaves)
{
    const unsigned groups = (unsigned)div_up(v_width(a->n), THREADS);
    launch_dependent(d, short_kernel<TAPS>, dim3((unsigned)a->num_tokens, groups), dim3(THREADS), 0, *a,
                     leaves);
    if (!leaves) launch_dependent(d, leave_kernel, dim3((unsigned)a->num_seqs, groups), dim3(THREADS), 0, *a);
}

} // namespace

void cuda_short_convolution(struct cuda_device *d, const struct delta_args *a)
{
    const bool leaves = a->num_tokens == a->num_seqs;
    a->n.num_before == SHORT_TAPS_MAX - 1 ? launch<SHORT_TAPS_MAX>(d, a, leaves) : launch<3>(d, a, leaves);
}
