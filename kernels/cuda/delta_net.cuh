/* delta_net.cuh - what the kernels of layers with a state share (device.h: delta_desc).
 *
 * A token after the other, so that bits do not depend on how a prompt is cut. A column's rows are in LANES threads, four rows that follow
 * each other in each, then the next four of all of them: each adds its rows' parts up in their order, and then the threads' sums are
 * added in one order. Both ways through a step do that, with the same operations:
 *
 *   delta_decode.cu   where each sequence has one token: a CTA has a head's state in shared memory
 *   delta_update.cu   all other steps, whose other kernels are delta_prefill.cu's: a head's state stays in registers while the tokens
 *                     go through
 *
 * Each batch_slot has two states: behind n tokens it is state n % 2. A step goes on from the one of its first position, and leaves
 * what is there before its last token and behind it: so that this token can be computed again. Behind the states of
 * batch_slots are the places for kept ones. Where a sequence is stands in the step: recorded steps read it there.
 *
 * What a token brings to the convolution is in the row of its position in a ring of its batch_slot's. Where a draft is among the tokens
 * (kernels/state_runs.h) no state is left, but rates and decays of all of them beside those rows: the next step takes those in that
 * counted, leaves the state behind them, and goes on. Rings have room for what it reads and what it writes. */
#ifndef KERNELS_CUDA_DELTA_NET_CUH
#define KERNELS_CUDA_DELTA_NET_CUH

#include "kernels/cuda/launch.cuh"

extern "C" {
#include "kernels/delta_desc.h"
}

struct delta_net {
    int32_t num_batch_slots, num_k_heads, num_v_heads, k_dim, v_dim;
    enum delta_kind kind;
    bool by_k_head, rates_by_k_head, tiled, z_is_apart, gate_is_sigmoid;
    float norm_eps, step_scale, beta_scale, decay_floor;
    float *taps, *bias; /* [DELTA_TAPS][channels], [channels] of the convolution */
    float *decay, *dt_bias,
        *norm;             /* [num_v_heads] e^decay of the desc; as the desc has them; norm may be NULL */
    float *skip;           /* [num_v_heads] of a state space */
    float *states;         /* [num_batch_slots][2], then [num_states], of [num_v_heads][k_dim][v_dim] */
    int32_t num_before;    /* tokens that the convolution looks back */
    int32_t num_ring_rows; /* of a batch_slot's ring */
    int32_t num_left;      /* newest tokens of a run that leave their row */
    __nv_bfloat16 *
        inputs; /* [num_batch_slots][num_ring_rows], then [num_states][num_before], rows of [channels]: q, k and v */
    float2 *log_rates; /* [num_batch_slots][num_ring_rows][num_v_heads]; NULL: there are no drafts */
    float *log_decays; /* [num_batch_slots][num_ring_rows][num_v_heads][k_dim] of DELTA_CHANNELS */
};

/* What all kernels of a layer's step read. */
struct delta_args {
    struct delta_net n;
    const __nv_bfloat16 *projected, *z, *rates, *inputs_of_decays; /* as in delta_inputs */
    __nv_bfloat16 *out;
    float *mixed;       /* [T][channels] behind the convolution; v becomes what the state answers */
    float2 *decay_beta; /* [T][num_v_heads] */
    float *decays;      /* [T][num_v_heads][k_dim] of DELTA_CHANNELS */
    const struct device_run
        *runs; /* [num_seqs]; NULL: none but this one, of no token: what is in the log goes to that state */
    struct device_run alone;
    int32_t alone_to;
    int32_t first_token;          /* those before are others' */
    int32_t num_tokens, num_seqs; /* and from there on */
};

/* Each queues its kernels. by_token: of every run one token, or one with a draft. */
bool cuda_delta_has_by_token(const struct cuda_device *d, int32_t k_dim, int32_t v_dim);
void cuda_delta_by_token(struct cuda_device *d, const struct delta_args *a);
void cuda_delta_tokens(struct cuda_device *d, const struct delta_args *a);
void cuda_delta_update(struct cuda_device *d, const struct delta_args *a);
void cuda_delta_norm_groups(struct cuda_device *d, const struct delta_args *a);
void cuda_short_convolution(struct cuda_device *d, const struct delta_args *a);

enum {
    DELTA_BEFORE = DELTA_TAPS - 1, /* tokens that a convolution looks back */
    DELTA_LANES = 4,               /* threads that have a column's rows */
    DELTA_ROWS = 4,                /* that follow each other in one of them */
    DELTA_K_DIM_MAX = 256,         /* of DELTA_CHANNELS half as many */
    WARP = 32,
    WARP_GROUPS =
        WARP / DELTA_LANES /* of columns, in a warp: neighbours in memory are in neighbouring threads */
};

static __host__ __device__ int32_t k_width(const delta_net &n)
{
    return n.num_k_heads * n.k_dim;
}

static __host__ __device__ int32_t v_width(const delta_net &n)
{
    return n.num_v_heads * n.v_dim;
}

static __host__ __device__ int32_t num_channels(const delta_net &n)
{
    return 2 * k_width(n) + v_width(n);
}

static __host__ __device__ size_t state_floats(const delta_net &n)
{
    return (size_t)v_width(n) * n.k_dim;
}

/* Where the row of the token at a position is among inputs, in rows; and of a kept state's, from its first on. */
static __host__ __device__ size_t ring_row(const delta_net &n, int32_t slot, int32_t position)
{
    return (size_t)slot * n.num_ring_rows + position % n.num_ring_rows;
}

static __host__ __device__ size_t kept_row(const delta_net &n, int32_t state)
{
    return (size_t)n.num_batch_slots * n.num_ring_rows + (size_t)state * n.num_before;
}

/* What the state answers to k is taken from v first. */
static __host__ __device__ constexpr bool corrects(enum delta_kind kind)
{
    return kind == DELTA_RULE || kind == DELTA_CHANNELS;
}

/* Channels of the convolution before a token's v, k and q: a state space's come in that order. */
static __device__ int32_t before_v(const delta_net &n)
{
    return n.kind == DELTA_STATE_SPACE ? 0 : 2 * k_width(n);
}

static __device__ int32_t before_k(const delta_net &n)
{
    return n.kind == DELTA_STATE_SPACE ? v_width(n) : k_width(n);
}

static __device__ int32_t before_q(const delta_net &n)
{
    return n.kind == DELTA_STATE_SPACE ? v_width(n) + k_width(n) : 0;
}

/* All that is projected of a token. */
static __device__ int32_t row_values(const delta_net &n)
{
    return num_channels(n) + (n.z_is_apart ? 0 : v_width(n)) +
           (n.kind == DELTA_STATE_SPACE ? n.num_v_heads : 0);
}

static __device__ int32_t k_head_of(const delta_net &n, int32_t head)
{
    return n.tiled ? head % n.num_k_heads : head / (n.num_v_heads / n.num_k_heads);
}

/* Of the heads that share k and q one leaves their inputs to the next step. */
static __device__ bool owns_k_head(const delta_net &n, int32_t head)
{
    return n.tiled ? head < n.num_k_heads : head % (n.num_v_heads / n.num_k_heads) == 0;
}

/* Where channel c of a token (those of the convolution, then z) is among what is projected. */
static __device__ int32_t place_of(const delta_net &n, int32_t c)
{
    if (n.kind == DELTA_STATE_SPACE) return c < num_channels(n) ? v_width(n) + c : c - num_channels(n);
    if (!n.by_k_head) return c;
    const int32_t per_head = v_width(n) / n.num_k_heads, stride = 2 * (n.k_dim + per_head);
    if (c < k_width(n)) return c / n.k_dim * stride + c % n.k_dim;
    if (c < 2 * k_width(n)) return (c / n.k_dim - n.num_k_heads) * stride + n.k_dim + c % n.k_dim;
    const bool is_z = c >= num_channels(n);
    const int32_t v = c - (is_z ? num_channels(n) : 2 * k_width(n));
    return v / per_head * stride + 2 * n.k_dim + (is_z ? per_head : 0) + v % per_head;
}

static __device__ float projected_of(const delta_args &a, int32_t token, int32_t channel)
{
    const size_t row = (size_t)token * row_values(a.n);
    return __bfloat162float(a.projected[row + place_of(a.n, channel)]);
}

/* Where value i of all heads' z is. */
static __device__ const __nv_bfloat16 *z_at(const delta_args &a, int32_t token, int32_t i)
{
    return a.n.z_is_apart
               ? a.z + (size_t)token * v_width(a.n) + i
               : a.projected + (size_t)token * row_values(a.n) + place_of(a.n, num_channels(a.n) + i);
}

static __device__ float silu(float x)
{
    return x / (1 + expf(-x));
}

/* What a head's norm is multiplied by. */
static __device__ float gate_of(const delta_net &n, float z)
{
    return n.gate_is_sigmoid ? 1 / (1 + expf(-z)) : silu(z);
}

static __device__ float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

static __device__ float sum_over_warp(float x)
{
    for (int distance = WARP / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
    return x;
}

/* One of four. */
static __device__ float part_of(float4 x, int i)
{
    return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

static __device__ float4 multiply4(float4 x, float4 y)
{
    return make_float4(x.x * y.x, x.y * y.y, x.z * y.z, x.w * y.w);
}

/* Of the threads of a column, in one order. */
static __device__ float sum_over_column(float x)
{
    x += __shfl_xor_sync(~0u, x, WARP_GROUPS);
    return x + __shfl_xor_sync(~0u, x, 2 * WARP_GROUPS);
}

/* Where a run begins; behind the last: where the tokens end. */
static __device__ int32_t run_begin(const delta_args &a, int32_t run)
{
    return run < a.num_seqs ? a.runs[run].begin : a.first_token + a.num_tokens;
}

/* The run that a token belongs to: the last one that begins with it or before. Without drafts a step of one token each has as many. */
static __device__ int32_t run_of_token(const delta_args &a, int32_t token)
{
    int32_t first = 0, end = a.num_seqs;
    if (token < a.num_seqs && a.runs[token].begin == token && run_begin(a, token + 1) > token) return token;
    while (end - first > 1) {
        const int32_t middle = (first + end) / 2;
        if (a.runs[middle].begin <= token)
            first = middle;
        else
            end = middle;
    }
    return first;
}

/* The batch_slot's state behind so many tokens. */
static __device__ size_t which_state(int32_t slot, int32_t num_tokens)
{
    return (size_t)slot * 2 + num_tokens % 2;
}

/* One that is kept. */
static __host__ __device__ size_t kept_state(const delta_net &n, int32_t state)
{
    return (size_t)n.num_batch_slots * 2 + (size_t)state;
}

/* A head's rows of one of all states. */
static __device__ float *head_state(const delta_net &n, size_t state, int32_t head)
{
    return n.states + state * state_floats(n) + (size_t)head * n.k_dim * n.v_dim;
}

/* What the token at a position of the run's sequence has left for convolutions; zeros before the first. */
static __device__ float kept_input(const delta_args &a, const device_run &s, int32_t position,
                                   int32_t channel)
{
    const size_t row = ring_row(a.n, s.batch_slot, max(position, 0));
    const float x = __bfloat162float(a.n.inputs[row * num_channels(a.n) + channel]);
    return position < 0 ? 0 : x;
}

/* For the next steps. */
static __device__ void leave_input(const delta_args &a, const device_run &s, int32_t position,
                                   int32_t channel, float x)
{
    a.n.inputs[ring_row(a.n, s.batch_slot, position) * num_channels(a.n) + channel] = __float2bfloat16_rn(x);
}

/* Decay and step of a state space. */
static __device__ float2 steps_of(const delta_args &a, int32_t token, int32_t head)
{
    const delta_net &n = a.n;
    const size_t at = (size_t)token * row_values(n) + v_width(n) + num_channels(n) + head;
    const float step = softplus(fmaf(__bfloat162float(a.projected[at]), n.step_scale, n.dt_bias[head]));
    return make_float2(expf(-n.decay[head] * step), step);
}

/* Of DELTA_CHANNELS, of a row of a head's state. */
static __device__ float decay_of_row(const delta_args &a, int32_t token, int32_t head, int32_t row)
{
    const delta_net &n = a.n;
    const int32_t at = head * n.k_dim + row;
    const float x = __bfloat162float(a.inputs_of_decays[(size_t)token * k_width(n) + at]) + n.dt_bias[at],
                rate = n.decay[head];
    return n.decay_floor < 0 ? expf(n.decay_floor / (1 + expf(-rate * x))) : expf(-rate * softplus(x));
}

static __device__ float beta_of(const delta_net &n, __nv_bfloat16 b)
{
    return n.beta_scale / (1 + expf(-__bfloat162float(b)));
}

/* Decay and beta. */
static __device__ float2 rates_of(const delta_args &a, int32_t token, int32_t head)
{
    const delta_net &n = a.n;
    if (n.kind == DELTA_STATE_SPACE) return steps_of(a, token, head);
    if (n.kind == DELTA_CHANNELS)
        return make_float2(1, beta_of(n, a.rates[(size_t)token * n.num_v_heads + head]));
    const int32_t per_head = n.num_v_heads / n.num_k_heads,
                  b = n.rates_by_k_head ? head + head / per_head * per_head : head,
                  rate_at = b + (n.rates_by_k_head ? per_head : n.num_v_heads);
    const __nv_bfloat16 *rates = a.rates + (size_t)token * 2 * n.num_v_heads;
    const float step = softplus(__bfloat162float(rates[rate_at]) + n.dt_bias[head]);
    return make_float2(expf(-n.decay[head] * step), beta_of(n, rates[b]));
}

/* The factor that makes a vector of these squares, in a warp's lanes, one of length 1: of q, which is_q says, of length 1 / sqrt(k_dim). */
static __device__ float unit_factor(float squares, int32_t k_dim, bool is_q)
{
    return (is_q ? 1 / sqrtf((float)k_dim) : 1) / sqrtf(sum_over_warp(squares) + 1e-6f);
}

/* What a state takes in of a token in one column. A fused multiply-add by name, since two kernels must have the same. */
static __device__ float change_of(float value, float memory, float2 rates)
{
    return fmaf(-memory, rates.x, value) * rates.y;
}

#endif
