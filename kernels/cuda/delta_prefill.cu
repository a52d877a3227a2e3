/* delta_prefill.cu - layers with a state in a step that has prompts: see delta_net.cuh. Three kernels:
 *
 *   convolve   a warp CHANNELS channels of RUN tokens, or a head of q or k: q, k and v behind the convolution and SiLU, q and k of the delta
 *              rule as unit vectors; another warp decay and beta, or many decays
 *   update     delta_update.cu
 *   norm       a warp a head of a token, or, of a state space, a CTA a group of heads: RMSNorm, SiLU of z */
#include "kernels/cuda/delta_net.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/mma.cuh"

namespace
{

enum {
    CONVOLVE_WARPS = 8,
    RUN = 8, /* tokens of a warp of convolve */
    NORM_THREADS = 256,
    NORM_WARPS = NORM_THREADS / WARP,
    NORM_AT_ONCE = 4 /* values of a thread whose loads nothing stands between */
};

/* ---- convolve ---- */

/* What warps of convolve have, in this order: of the delta rule heads of q and k, then other channels, then rates, then decays of rows. */
struct strips {
    int32_t num_unit, num_plain, num_rates, num_decays;
};

__host__ __device__ strips strips_of(const delta_net &n, int32_t strip_channels)
{
    const bool is_rule = corrects(n.kind);
    const int32_t plain = is_rule ? v_width(n) : num_channels(n),
                  decays = n.kind == DELTA_CHANNELS ? k_width(n) : 0;
    return strips{is_rule ? 2 * n.num_k_heads : 0, (plain + strip_channels - 1) / strip_channels,
                  (n.num_v_heads + WARP - 1) / WARP, (decays + WARP - 1) / WARP};
}

/* A warp's channels, a lane's WARP apart. A lane that would have one behind the last has the last, too, and stores none. */
template <int CHANNELS> struct strip {
    int32_t first, num; /* the warp's */
    bool is_unit, is_q;
    int32_t place[CHANNELS];
    float taps[DELTA_TAPS][CHANNELS], bias[CHANNELS];

    __device__ int32_t at(int i) const { return WARP * i + (int32_t)threadIdx.x % WARP; }
    __device__ bool has(int i) const { return at(i) < num; }
    __device__ int32_t channel(int i) const { return first + min(at(i), num - 1); }
};

template <int CHANNELS>
__device__ strip<CHANNELS> strip_of(const delta_net &n, int32_t idx, const strips &all)
{
    strip<CHANNELS> s = {};
    const int32_t channels = num_channels(n), before = all.num_unit * n.k_dim, width = CHANNELS * WARP;
    s.is_unit = idx < all.num_unit;
    s.is_q = idx < n.num_k_heads;
    s.first = s.is_unit ? idx * n.k_dim : before + (idx - all.num_unit) * width;
    s.num = s.is_unit ? n.k_dim : min(width, channels - s.first);
#pragma unroll
    for (int i = 0; i < CHANNELS; i++) {
        s.place[i] = place_of(n, s.channel(i));
        s.bias[i] = n.kind == DELTA_STATE_SPACE ? n.bias[s.channel(i)] : 0;
#pragma unroll
        for (int j = 0; j < DELTA_TAPS; j++) s.taps[j][i] = n.taps[j * channels + s.channel(i)];
    }
    return s;
}

/* Of one token. inputs: a lane's, newest token last. */
template <int CHANNELS>
__device__ void convolve_channels(const delta_net &n, const strip<CHANNELS> &strip,
                                  const float (&inputs)[DELTA_TAPS][CHANNELS], float *mixed)
{
    float out[CHANNELS], squares = 0;
#pragma unroll
    for (int i = 0; i < CHANNELS; i++) {
        out[i] = strip.bias[i];
#pragma unroll
        for (int j = 0; j < DELTA_TAPS; j++) out[i] = fmaf(strip.taps[j][i], inputs[j][i], out[i]);
        out[i] = silu(out[i]);
        if (strip.has(i)) squares = fmaf(out[i], out[i], squares);
    }
    const float factor = strip.is_unit ? unit_factor(squares, n.k_dim, strip.is_q) : 1;
#pragma unroll
    for (int i = 0; i < CHANNELS; i++)
        if (strip.has(i)) mixed[strip.channel(i)] = strip.is_unit ? out[i] * factor : out[i];
}

/* All of a run's loads, and those of the tokens before it, come before what is done with the first: what a sequence's first tokens
 * see behind them is asked for when they come. */
template <int CHANNELS>
__device__ void convolve_run(const delta_args &a, const strip<CHANNELS> &strip, int32_t first, int32_t end)
{
    const delta_net &n = a.n;
    const int32_t channels = num_channels(n), row = row_values(n);
    float x[RUN + DELTA_BEFORE][CHANNELS];
#pragma unroll
    for (int t = 0; t < RUN + DELTA_BEFORE; t++) {
        const int32_t token = min(max(first + t - DELTA_BEFORE, 0), end - 1);
#pragma unroll
        for (int i = 0; i < CHANNELS; i++)
            x[t][i] = __bfloat162float(a.projected[(size_t)token * row + strip.place[i]]);
    }
    int32_t run_idx = run_of_token(a, first);
    device_run run = a.runs[run_idx];
    int32_t next = run_begin(a, run_idx + 1);
#pragma unroll
    for (int t = 0; t < RUN; t++) {
        const int32_t token = first + t;
        if (token >= end) break;
        for (; next <= token && run_idx + 1 < a.num_seqs; next = run_begin(a, run_idx + 1))
            run = a.runs[++run_idx];
        if (run.begin == run.end) continue;
        float inputs[DELTA_TAPS][CHANNELS];
#pragma unroll
        for (int j = 0; j < DELTA_TAPS; j++)
#pragma unroll
            for (int i = 0; i < CHANNELS; i++) inputs[j][i] = x[t + j][i];
        if (token - run.begin < DELTA_BEFORE)
#pragma unroll
            for (int j = 0; j < DELTA_BEFORE; j++)
#pragma unroll
                for (int i = 0; i < CHANNELS; i++)
                    if (token - run.begin < DELTA_BEFORE - j)
                        inputs[j][i] = kept_input(a, run, run.position + token - run.begin - DELTA_BEFORE + j,
                                                  strip.channel(i));
        convolve_channels(n, strip, inputs, a.mixed + (size_t)token * channels);
    }
}

__device__ void rates_of_run(const delta_args &a, int32_t head, int32_t first, int32_t end)
{
    for (int32_t token = first; token < end && head < a.n.num_v_heads; token++)
        a.decay_beta[(size_t)token * a.n.num_v_heads + head] = rates_of(a, token, head);
}

__device__ void decays_of_run(const delta_args &a, int32_t i, int32_t first, int32_t end)
{
    const int32_t width = k_width(a.n), k_dim = a.n.k_dim;
    for (int32_t token = first; token < end && i < width; token++)
        a.decays[(size_t)token * width + i] = decay_of_row(a, token, i / k_dim, i % k_dim);
}

/* CHANNELS: of a lane. */
template <int CHANNELS>
__global__ void __launch_bounds__(CONVOLVE_WARPS *WARP) convolve_kernel(const __grid_constant__ delta_args a)
{
    const strips all = strips_of(a.n, CHANNELS * WARP);
    const int32_t idx = blockIdx.y * CONVOLVE_WARPS + threadIdx.x / WARP,
                  num_channel_strips = all.num_unit + all.num_plain,
                  num_before_decays = num_channel_strips + all.num_rates, first = blockIdx.x * RUN,
                  end = min(first + RUN, a.num_tokens);
    dependents_launch();
    dependency_wait();
    if (idx < num_channel_strips)
        convolve_run(a, strip_of<CHANNELS>(a.n, idx, all), first, end);
    else if (idx < num_channel_strips + all.num_rates)
        rates_of_run(a, (idx - num_channel_strips) * WARP + threadIdx.x % WARP, first, end);
    else if (idx < num_before_decays + all.num_decays)
        decays_of_run(a, (idx - num_before_decays) * WARP + threadIdx.x % WARP, first, end);
}

/* ---- norm ---- */

/* Rows of padding, too: what they hold is nobody's. */
__global__ void __launch_bounds__(NORM_THREADS) norm_heads_kernel(const __grid_constant__ delta_args a)
{
    const delta_net &n = a.n;
    const int32_t token = blockIdx.x, head = blockIdx.y * NORM_WARPS + threadIdx.x / WARP, v_dim = n.v_dim,
                  first = head * v_dim;
    const float *x = a.mixed + (size_t)token * num_channels(n) + before_v(n) + first;
    __nv_bfloat16 *out = a.out + (size_t)token * v_width(n) + first;
    float squares = 0;
    dependents_launch();
    dependency_wait();
    if (head >= n.num_v_heads) return;
    const __nv_bfloat16 *z = z_at(a, token, first); /* a head's follow each other */
    for (int32_t i = threadIdx.x % WARP; i < v_dim; i += WARP) squares = fmaf(x[i], x[i], squares);
    const float scale = 1 / sqrtf(sum_over_warp(squares) / (float)v_dim + n.norm_eps);
    for (int32_t begin = threadIdx.x % WARP; begin < v_dim; begin += NORM_AT_ONCE * WARP) {
        float values[NORM_AT_ONCE], gates[NORM_AT_ONCE], weights[NORM_AT_ONCE];
#pragma unroll
        for (int j = 0; j < NORM_AT_ONCE; j++) {
            const int32_t i = min(begin + j * WARP, v_dim - 1);
            values[j] = x[i];
            gates[j] = __bfloat162float(z[i]);
            weights[j] = n.norm[i];
        }
#pragma unroll
        for (int j = 0; j < NORM_AT_ONCE; j++) {
            const int32_t i = begin + j * WARP;
            if (i < v_dim)
                out[i] = __float2bfloat16_rn(values[j] * scale * weights[j] * gate_of(n, gates[j]));
        }
    }
}

/* Of a state space: the heads that share k and q have a norm together, if there is one. */
__global__ void __launch_bounds__(NORM_THREADS) norm_groups_kernel(const __grid_constant__ delta_args a)
{
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ float partial[NORM_WARPS];
    const delta_net &n = a.n;
    const int32_t token = a.first_token + (int32_t)blockIdx.x, width = v_width(n) / n.num_k_heads,
                  first = blockIdx.y * width;
    const float *x = a.mixed + (size_t)token * num_channels(n) + before_v(n) + first;
    const __nv_bfloat16 *z = a.projected + (size_t)token * row_values(n) + first;
    float *gated = (float *)shared /* [width] */, squares = 0, sum = 0;
    dependents_launch();
    dependency_wait();
    for (int32_t begin = threadIdx.x; begin < width; begin += NORM_AT_ONCE * NORM_THREADS) {
        float values[NORM_AT_ONCE], gates[NORM_AT_ONCE];
#pragma unroll
        for (int j = 0; j < NORM_AT_ONCE; j++) {
            const int32_t i = min(begin + j * NORM_THREADS, width - 1);
            values[j] = x[i];
            gates[j] = __bfloat162float(z[i]);
        }
#pragma unroll
        for (int j = 0; j < NORM_AT_ONCE; j++) {
            const int32_t i = begin + j * NORM_THREADS;
            if (i >= width) break;
            gated[i] = values[j] * silu(gates[j]);
            squares = fmaf(gated[i], gated[i], squares);
        }
    }
    squares = sum_over_warp(squares);
    if (threadIdx.x % WARP == 0) partial[threadIdx.x / WARP] = squares;
    __syncthreads();
    for (float other : partial) sum += other;
    const float scale = n.norm ? 1 / sqrtf(sum / (float)width + n.norm_eps) : 1;
    __nv_bfloat16 *out = a.out + (size_t)token * v_width(n) + first;
    for (int32_t begin = threadIdx.x; begin < width; begin += NORM_AT_ONCE * NORM_THREADS) {
        float weights[NORM_AT_ONCE];
#pragma unroll
        for (int j = 0; j < NORM_AT_ONCE; j++)
            weights[j] = n.norm ? n.norm[first + min(begin + j * NORM_THREADS, width - 1)] : 1;
#pragma unroll
        for (int j = 0; j < NORM_AT_ONCE; j++) {
            const int32_t i = begin + j * NORM_THREADS;
            if (i < width) out[i] = __float2bfloat16_rn(gated[i] * scale * weights[j]);
        }
    }
}

/* ---- host ---- */

template <int CHANNELS> void launch_convolve(struct cuda_device *d, const struct delta_args &a)
{
    const strips all = strips_of(a.n, CHANNELS * WARP);
    const int64_t num_strips = all.num_unit + all.num_plain + all.num_rates + all.num_decays;
    const dim3 grid((unsigned)div_up(a.num_tokens, RUN), (unsigned)div_up(num_strips, CONVOLVE_WARPS));
    launch_dependent(d, convolve_kernel<CHANNELS>, grid, dim3(CONVOLVE_WARPS * WARP), 0, a);
}

} // namespace

void cuda_delta_norm_groups(struct cuda_device *d, const struct delta_args *a)
{
    const size_t shared_bytes = (size_t)v_width(a->n) / a->n.num_k_heads * sizeof(float);
    launch_dependent(d, norm_groups_kernel, dim3((unsigned)a->num_tokens, (unsigned)a->n.num_k_heads),
                     dim3(NORM_THREADS), shared_bytes, *a);
}

void cuda_delta_tokens(struct cuda_device *d, const struct delta_args *a)
{
    if (a->n.k_dim > DELTA_K_DIM_MAX / 2)
        launch_convolve<DELTA_K_DIM_MAX / WARP>(d, *a);
    else
        launch_convolve<DELTA_K_DIM_MAX / 2 / WARP>(d, *a);
    cuda_delta_update(d, a);
    if (a->n.kind == DELTA_STATE_SPACE)
        cuda_delta_norm_groups(d, a);
    else
        launch_dependent(d, norm_heads_kernel,
                         dim3((unsigned)a->num_tokens, (unsigned)div_up(a->n.num_v_heads, NORM_WARPS)),
                         dim3(NORM_THREADS), 0, *a);
}
