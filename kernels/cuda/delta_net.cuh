/* delta_net.cuh - what the kernels of layers with a state share (device.h: delta_desc).
 *
 * A token after the other, so that bits do not depend on how a prompt is cut. A column's rows are in LANES threads, four rows that follow
 * each other in each, then the next four of all of them: each adds its rows' parts up in their order, and then the threads' sums are
 * added in one order. Both ways through a step do that, with the same operations:
 *
 *   delta_decode.cu   where each sequence has one token: a CTA has a head's state in shared memory
 *   delta_prefill.cu  all other steps: a head's state stays in registers while the tokens go through
 *
 * Each batch_slot has two states: behind n tokens it is state n % 2. A step goes on from the one of its first position, and leaves
 * what is there before its last token and behind it: so that this token can be computed again. Behind the states of
 * batch_slots are the places for kept ones. Where a sequence is stands in the step: recorded steps read it there. */
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
    __nv_bfloat16 *inputs; /* of each of these [DELTA_TAPS - 1][channels] q, k and v of the newest tokens */
};

/* What all kernels of a layer's step read. */
struct delta_args {
    struct delta_net n;
    const __nv_bfloat16 *projected, *z, *rates, *inputs_of_decays; /* as in delta_inputs */
    __nv_bfloat16 *out;
    float *mixed;       /* [T][channels] behind the convolution; v becomes what the state answers */
    float2 *decay_beta; /* [T][num_v_heads] */
    float *decays;      /* [T][num_v_heads][k_dim] of DELTA_CHANNELS */
    const int32_t *cu_seqlens_q, *seqlens_k, *positions, *batch_slots;
    int32_t num_tokens, num_seqs;
};

/* Each queues its kernels. one_each: of every sequence one token; false: not for this layer's states. */
bool cuda_delta_one_each(struct cuda_device *d, const struct delta_args *a);
void cuda_delta_tokens(struct cuda_device *d, const struct delta_args *a);
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

static __host__ __device__ size_t input_values(const delta_net &n)
{
    return (size_t)DELTA_BEFORE * num_channels(n);
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

/* Value i of all heads' z. */
static __device__ float z_of(const delta_args &a, int32_t token, int32_t i)
{
    return a.n.z_is_apart ? __bfloat162float(a.z[(size_t)token * v_width(a.n) + i])
                          : projected_of(a, token, num_channels(a.n) + i);
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

/* A sequence's part in a step. */
struct delta_seq {
    int32_t begin, end; /* tokens; as many: a padding row */
    int32_t slot;
    int32_t position; /* of the first: tokens that its state has seen */
};

static __device__ delta_seq seq_of(const delta_args &a, int32_t seq)
{
    delta_seq s = {};
    s.begin = s.end = a.cu_seqlens_q[seq];
    if (a.seqlens_k[seq] == 0) return s;
    s.end = a.cu_seqlens_q[seq + 1];
    s.slot = a.batch_slots[seq];
    s.position = a.positions[s.begin];
    return s;
}

/* The sequence that a token belongs to: the last one that begins with it or before. Of one token each it has the token's number. */
static __device__ int32_t seq_of_token(const delta_args &a, int32_t token)
{
    int32_t first = 0, end = a.num_seqs;
    if (a.num_tokens == a.num_seqs) return token;
    while (end - first > 1) {
        const int32_t middle = (first + end) / 2;
        if (a.cu_seqlens_q[middle] <= token)
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

/* A head's rows of it. */
static __device__ float *head_state(const delta_args &a, const delta_seq &s, int32_t num_tokens, int32_t head)
{
    const delta_net &n = a.n;
    return n.states + which_state(s.slot, num_tokens) * state_floats(n) + (size_t)head * n.k_dim * n.v_dim;
}

static __device__ __nv_bfloat16 *inputs_behind(const delta_args &a, const delta_seq &s, int32_t num_tokens)
{
    return a.n.inputs + which_state(s.slot, num_tokens) * input_values(a.n);
}

/* The channel's input i tokens before the part's first, of -i at most DELTA_BEFORE. Memory is there also where a sequence begins. */
static __device__ float kept_input(const delta_args &a, const delta_seq &s, int32_t i, int32_t channel)
{
    const __nv_bfloat16 *kept = inputs_behind(a, s, s.position);
    const float x = __bfloat162float(kept[(size_t)(DELTA_BEFORE + i) * num_channels(a.n) + channel]);
    return s.position == 0 ? 0 : x;
}

/* i tokens behind the part's first; i may be negative. */
static __device__ float input_of(const delta_args &a, const delta_seq &s, int32_t i, int32_t channel)
{
    return i >= 0 ? projected_of(a, s.begin + i, channel) : kept_input(a, s, i, channel);
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
