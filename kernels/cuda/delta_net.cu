/* delta_net.cu - layers with a state (device.h: delta_desc), and gates behind attention.
 *
 * A token after the other, so that bits do not depend on how a prompt is cut: a state's columns stay in registers while the
 * tokens of a step go through, each column's rows in LANES threads, which add their parts up in one order. Four kernels a layer:
 *
 *   convolve   a CTA a token: q, k and v behind the convolution and SiLU, q and k as unit vectors, decay and beta
 *   update     a CTA some columns of a head of a sequence: v of a token becomes what the state answers
 *   gate       a warp a head of a token, or, of a state space, a CTA a group of heads: RMSNorm, SiLU of z
 *   close      a CTA a sequence: the inputs that the next convolution begins with, and where the sequence is
 *
 * A step of one token of each sequence may take two instead, but for state spaces, with the same operations in the same order, so with the same bits:
 *
 *   token      a CTA a head of a sequence: all of the above but where the sequence is; four columns in a thread
 *   place      a thread a sequence: that
 *
 * Of a convolution alone: short_kernel, a thread a channel of a token, whose last one leaves what the next step begins with; then place, or,
 * where a sequence has several tokens, short_close, for what was there before the last of them. A state is b x of the SHORT_TAPS - 1
 * newest tokens, exact in f32, which are its k_dim; there are no inputs beside it.
 *
 * Each batch_slot has two states. A step goes on from the newest one, in place, and writes what its last token leaves into the
 * other: so that this token can be computed again. Behind the states of batch_slots are the places for kept ones. Where a
 * batch_slot is stands in device memory: recorded steps read it there, and the host need not know what runs. */
#include <math.h>

#include <algorithm>
#include <vector>

#include "kernels/cuda/launch.cuh"

extern "C" {
#include "kernels/delta_desc.h"
}

/* Of a batch_slot. */
struct delta_place {
    int32_t position; /* tokens that the newest state has seen */
    int32_t newest;   /* 0 or 1 */
};

struct delta_net {
    int32_t num_batch_slots, num_k_heads, num_v_heads, k_dim, v_dim;
    enum delta_kind kind;
    bool by_k_head, rates_by_k_head, tiled;
    float norm_eps;
    float *taps, *bias;            /* [DELTA_TAPS][channels], [channels] of the convolution */
    float *decay, *dt_bias, *norm; /* [num_v_heads] e^decay of the desc, [num_v_heads], as the desc has it */
    float *skip;                   /* [num_v_heads] of a state space */
    struct delta_place *places;    /* [num_batch_slots] */
    float *states;         /* [num_batch_slots][2], then [num_states], of [num_v_heads][k_dim][v_dim] */
    __nv_bfloat16 *inputs; /* of each of these [DELTA_TAPS - 1][channels] q, k and v of the newest tokens */
};

namespace
{

enum {
    NUM_BEFORE = DELTA_TAPS - 1,
    SHORT_BEFORE = SHORT_TAPS - 1,
    LANES = 4,    /* threads that have a column's rows, every fourth each */
    COLUMNS = 32, /* of a CTA of update */
    UPDATE_THREADS = LANES * COLUMNS,
    K_DIM_MAX = 256,
    ROWS_MAX = K_DIM_MAX / LANES,
    ROW_THREADS = 256,
    TOKEN_THREADS = 128,
    TOKEN_DIM_MAX = 128, /* of k and v: what a CTA of token has room for */
    TOKEN_ROWS = TOKEN_DIM_MAX / LANES,
    WARP = 32
};

/* What all kernels of a layer's step read. */
struct delta_args {
    struct delta_net n;
    const __nv_bfloat16 *projected, *rates;
    __nv_bfloat16 *out;
    float *mixed;       /* [T][channels]; v becomes what the state answers */
    float2 *decay_beta; /* [T][num_v_heads] */
    const int32_t *cu_seqlens_q, *seqlens_k, *positions, *batch_slots;
    int32_t num_seqs;
};

__host__ __device__ int32_t k_width(const delta_net &n)
{
    return n.num_k_heads * n.k_dim;
}

__host__ __device__ int32_t v_width(const delta_net &n)
{
    return n.num_v_heads * n.v_dim;
}

__host__ __device__ int32_t num_channels(const delta_net &n)
{
    return 2 * k_width(n) + v_width(n);
}

/* Channels of the convolution before a token's v, k and q: a state space's come in that order. */
__device__ int32_t before_v(const delta_net &n)
{
    return n.kind == DELTA_STATE_SPACE ? 0 : 2 * k_width(n);
}

__device__ int32_t before_k(const delta_net &n)
{
    return n.kind == DELTA_STATE_SPACE ? v_width(n) : k_width(n);
}

__device__ int32_t before_q(const delta_net &n)
{
    return n.kind == DELTA_STATE_SPACE ? v_width(n) + k_width(n) : 0;
}

/* All that is projected of a token. */
__device__ int32_t row_values(const delta_net &n)
{
    return num_channels(n) + v_width(n) + (n.kind == DELTA_STATE_SPACE ? n.num_v_heads : 0);
}

__host__ __device__ size_t state_floats(const delta_net &n)
{
    return (size_t)v_width(n) * n.k_dim;
}

__host__ __device__ size_t input_values(const delta_net &n)
{
    return (size_t)NUM_BEFORE * num_channels(n);
}

/* ---- on the device ---- */

/* Where channel c of a token (those of the convolution, then z) is among what is projected. */
__device__ int32_t place_of(const delta_net &n, int32_t c)
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

__device__ float projected_of(const delta_args &a, int32_t token, int32_t channel)
{
    const size_t row = (size_t)token * row_values(a.n);
    return __bfloat162float(a.projected[row + place_of(a.n, channel)]);
}

__device__ float silu(float x)
{
    return x / (1 + expf(-x));
}

/* A sequence's part in a step. */
struct delta_seq {
    int32_t begin, end; /* tokens; as many: a padding row */
    int32_t slot;
    int32_t from;  /* which of the slot's states it goes on with */
    bool is_fresh; /* from zeros */
};

__device__ delta_seq seq_of(const delta_args &a, int32_t seq)
{
    delta_seq s = {};
    s.begin = s.end = a.cu_seqlens_q[seq];
    if (a.seqlens_k[seq] == 0) return s;
    s.end = a.cu_seqlens_q[seq + 1];
    s.slot = a.batch_slots[seq];
    const delta_place place = a.n.places[s.slot];
    const int32_t position = a.positions[s.begin];
    s.is_fresh = position == 0;
    s.from = s.is_fresh ? 0 : position == place.position ? place.newest : 1 - place.newest;
    return s;
}

/* The sequence that a token belongs to: the last one that begins with it or before. */
__device__ int32_t seq_of_token(const delta_args &a, int32_t token)
{
    int32_t first = 0, end = a.num_seqs;
    while (end - first > 1) {
        const int32_t middle = (first + end) / 2;
        if (a.cu_seqlens_q[middle] <= token)
            first = middle;
        else
            end = middle;
    }
    return first;
}

__device__ float sum_over_warp(float x)
{
    for (int distance = WARP / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
    return x;
}

__device__ size_t which_state(const delta_net &n, int32_t slot, int32_t which)
{
    return (size_t)slot * 2 + which;
}

/* ---- convolve ---- */

/* What the channel's input was i tokens behind the part's first; i may be negative. */
__device__ float input_of(const delta_args &a, const delta_seq &s, int32_t i, int32_t channel)
{
    if (i >= 0) return projected_of(a, s.begin + i, channel);
    if (s.is_fresh) return 0;
    const __nv_bfloat16 *before = a.n.inputs + which_state(a.n, s.slot, s.from) * input_values(a.n);
    return __bfloat162float(before[(size_t)(NUM_BEFORE + i) * num_channels(a.n) + channel]);
}

__device__ float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

/* Decay and step of a state space. */
__device__ float2 steps_of(const delta_args &a, int32_t token, int32_t head)
{
    const delta_net &n = a.n;
    const size_t at = (size_t)token * row_values(n) + v_width(n) + num_channels(n) + head;
    const float step = softplus(__bfloat162float(a.projected[at]) + n.dt_bias[head]);
    return make_float2(expf(-n.decay[head] * step), step);
}

/* Decay and beta. */
__device__ float2 rates_of(const delta_args &a, int32_t token, int32_t head)
{
    const delta_net &n = a.n;
    if (n.kind == DELTA_STATE_SPACE) return steps_of(a, token, head);
    const int32_t per_head = n.num_v_heads / n.num_k_heads,
                  b = n.rates_by_k_head ? head + head / per_head * per_head : head,
                  rate_at = b + (n.rates_by_k_head ? per_head : n.num_v_heads);
    const __nv_bfloat16 *rates = a.rates + (size_t)token * 2 * n.num_v_heads;
    const float step = softplus(__bfloat162float(rates[rate_at]) + n.dt_bias[head]);
    return make_float2(expf(-n.decay[head] * step), 1 / (1 + expf(-__bfloat162float(rates[b]))));
}

__global__ void __launch_bounds__(ROW_THREADS) convolve_kernel(const __grid_constant__ delta_args a)
{
    const delta_net &n = a.n;
    const int32_t token = blockIdx.x, channels = num_channels(n), warp = threadIdx.x / WARP,
                  lane = threadIdx.x % WARP;
    const delta_seq s = seq_of(a, seq_of_token(a, token));
    if (s.begin == s.end) return;
    float *mixed = a.mixed + (size_t)token * channels;
    for (int32_t c = threadIdx.x; c < channels; c += ROW_THREADS) {
        float sum = n.kind == DELTA_STATE_SPACE ? n.bias[c] : 0;
        for (int32_t j = 0; j < DELTA_TAPS; j++)
            sum = fmaf(n.taps[j * channels + c], input_of(a, s, token - s.begin - NUM_BEFORE + j, c), sum);
        mixed[c] = silu(sum);
    }
    for (int32_t head = threadIdx.x; head < n.num_v_heads; head += ROW_THREADS)
        a.decay_beta[(size_t)token * n.num_v_heads + head] = rates_of(a, token, head);
    if (n.kind == DELTA_STATE_SPACE) return;
    __syncthreads();
    for (int32_t head = warp; head < 2 * n.num_k_heads; head += ROW_THREADS / WARP) {
        float *x = mixed + head * n.k_dim, squares = 0;
        for (int32_t i = lane; i < n.k_dim; i += WARP) squares = fmaf(x[i], x[i], squares);
        const float scale = head < n.num_k_heads ? 1 / sqrtf((float)n.k_dim) : 1,
                    factor = scale / sqrtf(sum_over_warp(squares) + 1e-6f);
        for (int32_t i = lane; i < n.k_dim; i += WARP) x[i] *= factor;
    }
}

/* ---- update ---- */

/* Of the four threads of a column, in one order. */
__device__ float sum_over_column(float x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

/* A fused multiply-add by name, since two kernels must have the same. */
__device__ float change_of(float value, float memory, float2 rates)
{
    return fmaf(-memory, rates.x, value) * rates.y;
}

/* ROWS: of a column in a thread. Of rows beyond k_dim nothing is read: they are zeros and stay so. */
template <int ROWS, enum delta_kind KIND>
__global__ void __launch_bounds__(UPDATE_THREADS) update_kernel(const __grid_constant__ delta_args a)
{
    __shared__ float unit[2][2 * K_DIM_MAX]; /* of one token and the next: q, then k */
    const delta_net &n = a.n;
    const int32_t head = blockIdx.y, lane = threadIdx.x % LANES,
                  column = blockIdx.x * COLUMNS + threadIdx.x / LANES, channels = num_channels(n),
                  k_dim = n.k_dim, v_dim = n.v_dim,
                  k_head = n.tiled ? head % n.num_k_heads : head / (n.num_v_heads / n.num_k_heads);
    const delta_seq s = seq_of(a, blockIdx.z);
    if (s.begin == s.end) return;
    const bool is_mine = column < v_dim;
    const size_t head_floats = (size_t)k_dim * v_dim;
    float *from = n.states + which_state(n, s.slot, s.from) * state_floats(n) + head * head_floats,
          *to = n.states + which_state(n, s.slot, 1 - s.from) * state_floats(n) + head * head_floats,
          state[ROWS];
    auto load_unit = [&](int32_t token) {
        const float *row = a.mixed + (size_t)token * channels + k_head * k_dim;
        for (int32_t i = threadIdx.x; i < k_dim; i += UPDATE_THREADS) {
            unit[token % 2][i] = row[before_q(n) + i];
            unit[token % 2][K_DIM_MAX + i] = row[before_k(n) + i];
        }
    };
    auto store_state = [&](float *where) {
#pragma unroll
        for (int j = 0; j < ROWS; j++)
            if (is_mine && LANES * j + lane < k_dim)
                where[(size_t)(LANES * j + lane) * v_dim + column] = state[j];
    };
#pragma unroll
    for (int j = 0; j < ROWS; j++) {
        const int32_t row = LANES * j + lane;
        state[j] = is_mine && row < k_dim && !s.is_fresh ? from[(size_t)row * v_dim + column] : 0;
    }
    for (int i = threadIdx.x; i < 4 * K_DIM_MAX; i += UPDATE_THREADS)
        unit[i / (2 * K_DIM_MAX)][i % (2 * K_DIM_MAX)] = 0;
    __syncthreads();
    load_unit(s.begin);
    for (int32_t token = s.begin; token < s.end; token++) {
        __syncthreads();
        if (token + 1 < s.end) load_unit(token + 1);
        if (token + 1 == s.end && (s.is_fresh || s.end - s.begin > 1)) store_state(from);
        const float *q = unit[token % 2], *k = q + K_DIM_MAX;
        const float2 rates = a.decay_beta[(size_t)token * n.num_v_heads + head];
        float *v = a.mixed + (size_t)token * channels + before_v(n) + head * v_dim + column, memory = 0,
              answer = 0;
        const float value = is_mine ? *v : 0;
#pragma unroll
        for (int j = 0; j < ROWS && KIND == DELTA_RULE; j++)
            memory = fmaf(state[j], k[LANES * j + lane], memory);
        const float change =
            KIND == DELTA_RULE ? change_of(value, sum_over_column(memory), rates) : value * rates.y;
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            state[j] = fmaf(change, k[LANES * j + lane], state[j] * rates.x);
            answer = fmaf(state[j], q[LANES * j + lane], answer);
        }
        answer = sum_over_column(answer);
        if (KIND == DELTA_STATE_SPACE) answer = fmaf(n.skip[head], value, answer);
        if (is_mine && lane == 0) *v = answer;
    }
    store_state(to);
}

/* ---- gate, close ---- */

/* Rows of padding, too: what they hold is nobody's. */
__global__ void __launch_bounds__(WARP) gate_kernel(const __grid_constant__ delta_args a)
{
    const delta_net &n = a.n;
    const int32_t token = blockIdx.x, head = blockIdx.y, v_dim = n.v_dim;
    const float *x = a.mixed + (size_t)token * num_channels(n) + 2 * k_width(n) + head * v_dim;
    __nv_bfloat16 *out = a.out + (size_t)token * v_width(n) + head * v_dim;
    float squares = 0;
    for (int32_t i = threadIdx.x; i < v_dim; i += WARP) squares = fmaf(x[i], x[i], squares);
    const float scale = 1 / sqrtf(sum_over_warp(squares) / (float)v_dim + n.norm_eps);
    for (int32_t i = threadIdx.x; i < v_dim; i += WARP)
        out[i] = __float2bfloat16_rn(x[i] * scale * n.norm[i] *
                                     silu(projected_of(a, token, num_channels(n) + head * v_dim + i)));
}

/* Of a state space: the heads that share k and q have a norm together. */
__global__ void __launch_bounds__(ROW_THREADS) gate_group_kernel(const __grid_constant__ delta_args a)
{
    __shared__ float partial[ROW_THREADS / WARP];
    const delta_net &n = a.n;
    const int32_t token = blockIdx.x, width = v_width(n) / n.num_k_heads, first = blockIdx.y * width;
    float *x = a.mixed + (size_t)token * num_channels(n) + before_v(n) + first, squares = 0, sum = 0;
    for (int32_t i = threadIdx.x; i < width; i += ROW_THREADS) {
        x[i] *= silu(projected_of(a, token, num_channels(n) + first + i));
        squares = fmaf(x[i], x[i], squares);
    }
    squares = sum_over_warp(squares);
    if (threadIdx.x % WARP == 0) partial[threadIdx.x / WARP] = squares;
    __syncthreads();
    for (int i = 0; i < ROW_THREADS / WARP; i++) sum += partial[i];
    const float scale = 1 / sqrtf(sum / (float)width + n.norm_eps);
    __nv_bfloat16 *out = a.out + (size_t)token * v_width(n) + first;
    for (int32_t i = threadIdx.x; i < width; i += ROW_THREADS)
        out[i] = __float2bfloat16_rn(x[i] * scale * n.norm[first + i]);
}

__global__ void __launch_bounds__(ROW_THREADS) close_kernel(const __grid_constant__ delta_args a)
{
    const delta_net &n = a.n;
    const delta_seq s = seq_of(a, blockIdx.x);
    const int32_t count = s.end - s.begin, channels = num_channels(n);
    if (count == 0) return;
    __nv_bfloat16 *before = n.inputs + which_state(n, s.slot, s.from) * input_values(n),
                  *behind = n.inputs + which_state(n, s.slot, 1 - s.from) * input_values(n);
    for (int32_t c = threadIdx.x; c < channels; c += ROW_THREADS) {
        float newest[DELTA_TAPS]; /* all that one of the two has */
#pragma unroll
        for (int32_t j = 0; j < DELTA_TAPS; j++) newest[j] = input_of(a, s, count - DELTA_TAPS + j, c);
#pragma unroll
        for (int32_t j = 0; j < NUM_BEFORE; j++) {
            before[(size_t)j * channels + c] = __float2bfloat16_rn(newest[j]);
            behind[(size_t)j * channels + c] = __float2bfloat16_rn(newest[j + 1]);
        }
    }
    __syncthreads(); /* all have read the place */
    if (threadIdx.x == 0) n.places[s.slot] = delta_place{a.seqlens_k[blockIdx.x], 1 - s.from};
}

/* ---- token, place ---- */

/* The convolution of a channel of a sequence's only token. is_owner: the CTA that leaves the channel's inputs to the next step.
 * Of those before the token others may be reading: they are written where nobody reads them. */
__device__ float convolve_token(const delta_args &a, const delta_seq &s, int32_t channel, bool is_owner)
{
    const delta_net &n = a.n;
    const int32_t channels = num_channels(n);
    float input[DELTA_TAPS], sum = 0;
#pragma unroll
    for (int32_t j = 0; j < DELTA_TAPS; j++) input[j] = input_of(a, s, j - NUM_BEFORE, channel);
#pragma unroll
    for (int32_t j = 0; j < DELTA_TAPS; j++) sum = fmaf(n.taps[j * channels + channel], input[j], sum);
    if (is_owner) {
        __nv_bfloat16 *before = n.inputs + which_state(n, s.slot, s.from) * input_values(n) + channel,
                      *behind = n.inputs + which_state(n, s.slot, 1 - s.from) * input_values(n) + channel;
#pragma unroll
        for (int32_t j = 0; j < NUM_BEFORE; j++) {
            if (s.is_fresh) before[(size_t)j * channels] = __float2bfloat16_rn(0);
            behind[(size_t)j * channels] = __float2bfloat16_rn(input[j + 1]);
        }
    }
    return silu(sum);
}

/* x[dim], by a warp; in the order of convolve_kernel. */
__device__ void make_unit(float *x, int32_t dim, float scale)
{
    const int32_t lane = threadIdx.x % WARP;
    float squares = 0;
    for (int32_t i = lane; i < dim; i += WARP) squares = fmaf(x[i], x[i], squares);
    const float factor = scale / sqrtf(sum_over_warp(squares) + 1e-6f);
    for (int32_t i = lane; i < dim; i += WARP) x[i] *= factor;
}

__device__ float4 sum_over_columns(float4 x)
{
    return make_float4(sum_over_column(x.x), sum_over_column(x.y), sum_over_column(x.z),
                       sum_over_column(x.w));
}

__device__ float4 fma4(float4 x, float y, float4 z)
{
    return make_float4(fmaf(x.x, y, z.x), fmaf(x.y, y, z.y), fmaf(x.z, y, z.z), fmaf(x.w, y, z.w));
}

__device__ float4 scale4(float4 x, float y)
{
    return make_float4(x.x * y, x.y * y, x.z * y, x.w * y);
}

/* A thread's columns are those from column on, its rows every fourth; a warp's load is four rows of 128 bytes. */
__global__ void __launch_bounds__(TOKEN_THREADS) token_kernel(const __grid_constant__ delta_args a)
{
    __shared__ float mixed[3][TOKEN_DIM_MAX]; /* q, k, v */
    __shared__ float answers[TOKEN_DIM_MAX];
    const delta_net &n = a.n;
    const int32_t head = blockIdx.x, i = threadIdx.x, lane = i % LANES, column = i / LANES * 4,
                  k_dim = n.k_dim, v_dim = n.v_dim, per_head = n.num_v_heads / n.num_k_heads,
                  k_head = n.tiled ? head % n.num_k_heads : head / per_head;
    const delta_seq s = seq_of(a, blockIdx.y);
    if (s.begin == s.end) return;
    const bool owns_k = n.tiled ? head < n.num_k_heads : head % per_head == 0;
    const size_t head_floats = (size_t)k_dim * v_dim;
    float *from = n.states + which_state(n, s.slot, s.from) * state_floats(n) + head * head_floats,
          *to = n.states + which_state(n, s.slot, 1 - s.from) * state_floats(n) + head * head_floats;
    float4 state[TOKEN_ROWS];
    auto has_row = [&](int j) { return column < v_dim && LANES * j + lane < k_dim; };
    auto store_state = [&](float *where) {
#pragma unroll
        for (int j = 0; j < TOKEN_ROWS; j++)
            if (has_row(j)) *(float4 *)(where + (size_t)(LANES * j + lane) * v_dim + column) = state[j];
    };
#pragma unroll
    for (int j = 0; j < TOKEN_ROWS; j++)
        state[j] = has_row(j) && !s.is_fresh
                       ? *(const float4 *)(from + (size_t)(LANES * j + lane) * v_dim + column)
                       : make_float4(0, 0, 0, 0);
    const float gate = i < v_dim ? projected_of(a, s.begin, num_channels(n) + head * v_dim + i) : 0;
    const int32_t q = k_head * k_dim + i;
    mixed[0][i] = i < k_dim ? convolve_token(a, s, q, owns_k) : 0;
    mixed[1][i] = i < k_dim ? convolve_token(a, s, k_width(n) + q, owns_k) : 0;
    mixed[2][i] = i < v_dim ? convolve_token(a, s, 2 * k_width(n) + head * v_dim + i, true) : 0;
    const float2 rates = rates_of(a, s.begin, head);
    __syncthreads();
    if (i / WARP < 2) make_unit(mixed[i / WARP], k_dim, i / WARP == 0 ? 1 / sqrtf((float)k_dim) : 1);
    __syncthreads();
    if (s.is_fresh) store_state(from);
    float4 memory = make_float4(0, 0, 0, 0), answer = memory;
#pragma unroll
    for (int j = 0; j < TOKEN_ROWS; j++) memory = fma4(state[j], mixed[1][LANES * j + lane], memory);
    memory = sum_over_columns(memory);
    const float *v = mixed[2] + column;
    const float4 change = make_float4(change_of(v[0], memory.x, rates), change_of(v[1], memory.y, rates),
                                      change_of(v[2], memory.z, rates), change_of(v[3], memory.w, rates));
#pragma unroll
    for (int j = 0; j < TOKEN_ROWS; j++) {
        state[j] = fma4(change, mixed[1][LANES * j + lane], scale4(state[j], rates.x));
        answer = fma4(state[j], mixed[0][LANES * j + lane], answer);
    }
    store_state(to);
    answer = sum_over_columns(answer);
    if (lane == 0) {
        float *x = answers + column;
        x[0] = answer.x, x[1] = answer.y, x[2] = answer.z, x[3] = answer.w;
    }
    __syncthreads();
    float squares = 0; /* each warp the same */
    for (int32_t c = i % WARP; c < v_dim; c += WARP) squares = fmaf(answers[c], answers[c], squares);
    const float scale = 1 / sqrtf(sum_over_warp(squares) / (float)v_dim + n.norm_eps);
    if (i < v_dim)
        a.out[(size_t)s.begin * v_width(n) + head * v_dim + i] =
            __float2bfloat16_rn(answers[i] * scale * n.norm[i] * silu(gate));
}

/* A kernel of its own, since all CTAs of token_kernel read the place. */
__global__ void __launch_bounds__(ROW_THREADS) places_kernel(const __grid_constant__ delta_args a)
{
    const int32_t seq = blockIdx.x * ROW_THREADS + threadIdx.x;
    if (seq >= a.num_seqs) return;
    const delta_seq s = seq_of(a, seq);
    if (s.begin < s.end) a.n.places[s.slot] = delta_place{a.seqlens_k[seq], 1 - s.from};
}

/* ---- short convolutions ---- */

__device__ float *short_state(const delta_args &a, const delta_seq &s, int32_t which)
{
    return a.n.states + which_state(a.n, s.slot, which) * state_floats(a.n);
}

/* b x of a channel, i tokens behind the part's first; i may be negative. */
__device__ float product_of(const delta_args &a, const delta_seq &s, int32_t i, int32_t channel)
{
    const size_t width = (size_t)v_width(a.n);
    if (i < 0) return s.is_fresh ? 0 : short_state(a, s, s.from)[(SHORT_BEFORE + i) * width + channel];
    const __nv_bfloat16 *b = a.projected + (size_t)(s.begin + i) * 3 * width + channel;
    return __bfloat162float(b[0]) * __bfloat162float(b[2 * width]);
}

__global__ void __launch_bounds__(ROW_THREADS) short_kernel(const __grid_constant__ delta_args a)
{
    const int32_t token = blockIdx.x, channel = blockIdx.y * ROW_THREADS + threadIdx.x, width = v_width(a.n);
    const delta_seq s = seq_of(a, seq_of_token(a, token));
    if (s.begin == s.end || channel >= width) return;
    const float *taps = a.n.taps + (DELTA_TAPS - SHORT_TAPS) * width + channel;
    const float c = __bfloat162float(a.projected[((size_t)token * 3 + 1) * width + channel]);
    float input[SHORT_TAPS], sum = 0;
#pragma unroll
    for (int32_t j = 0; j < SHORT_TAPS; j++)
        input[j] = product_of(a, s, token - s.begin - SHORT_BEFORE + j, channel);
#pragma unroll
    for (int32_t j = 0; j < SHORT_TAPS; j++) sum = fmaf(taps[j * width], input[j], sum);
    a.out[(size_t)token * width + channel] = __float2bfloat16_rn(c * sum);
    if (token + 1 < s.end) return;
    float *before = short_state(a, s, s.from) + channel, *behind = short_state(a, s, 1 - s.from) + channel;
#pragma unroll
    for (int32_t j = 0; j < SHORT_BEFORE; j++) {
        behind[j * width] = input[j + 1];
        if (s.is_fresh && token == s.begin) before[j * width] = 0;
    }
}

__global__ void __launch_bounds__(ROW_THREADS) short_close_kernel(const __grid_constant__ delta_args a)
{
    const delta_seq s = seq_of(a, blockIdx.x);
    const int32_t count = s.end - s.begin, width = v_width(a.n);
    float *before = short_state(a, s, s.from);
    if (count == 0) return;
    for (int32_t c = threadIdx.x; c < width && count > 1; c += ROW_THREADS) {
        float input[SHORT_BEFORE];
#pragma unroll
        for (int32_t j = 0; j < SHORT_BEFORE; j++)
            input[j] = product_of(a, s, count - 1 - SHORT_BEFORE + j, c);
#pragma unroll
        for (int32_t j = 0; j < SHORT_BEFORE; j++) before[(size_t)j * width + c] = input[j];
    }
    __syncthreads(); /* all have read the place */
    if (threadIdx.x == 0) a.n.places[s.slot] = delta_place{a.seqlens_k[blockIdx.x], 1 - s.from};
}

/* ---- kept states ---- */

__global__ void __launch_bounds__(ROW_THREADS)
    copy_kernel(const __grid_constant__ delta_net n, state_copy copy)
{
    const delta_place place = n.places[copy.batch_slot];
    const int32_t which = !copy.keeps ? 0 : copy.position == place.position ? place.newest : 1 - place.newest;
    const size_t slot = which_state(n, copy.batch_slot, which),
                 kept = (size_t)n.num_batch_slots * 2 + copy.state, from = copy.keeps ? slot : kept,
                 to = copy.keeps ? kept : slot, first = (size_t)blockIdx.x * ROW_THREADS + threadIdx.x,
                 step = (size_t)gridDim.x * ROW_THREADS;
    for (size_t i = first; i < state_floats(n); i += step)
        n.states[to * state_floats(n) + i] = n.states[from * state_floats(n) + i];
    for (size_t i = first; n.inputs && i < input_values(n); i += step)
        n.inputs[to * input_values(n) + i] = n.inputs[from * input_values(n) + i];
}

/* A kernel of its own, since all CTAs of the copy read the place. */
__global__ void place_kernel(delta_place *place, delta_place value)
{
    *place = value;
}

/* ---- attention with gates ---- */

__global__ void __launch_bounds__(ROW_THREADS)
    split_kernel(__nv_bfloat16 *qkv, __nv_bfloat16 *gates, const __nv_bfloat16 *projected, int32_t q_width,
                 int32_t kv_width, int32_t head_dim)
{
    const __nv_bfloat16 *from = projected + (size_t)blockIdx.x * (2 * q_width + kv_width);
    __nv_bfloat16 *to = qkv + (size_t)blockIdx.x * (q_width + kv_width),
                  *gate = gates + (size_t)blockIdx.x * q_width;
    for (int32_t i = threadIdx.x; i < q_width; i += ROW_THREADS) {
        const int32_t at = i / head_dim * 2 * head_dim + i % head_dim;
        to[i] = from[at];
        gate[i] = from[at + head_dim];
    }
    for (int32_t i = threadIdx.x; i < kv_width; i += ROW_THREADS) to[q_width + i] = from[2 * q_width + i];
}

__global__ void __launch_bounds__(ROW_THREADS)
    sigmoid_mul_kernel(__nv_bfloat16 *x, const __nv_bfloat16 *gates, int32_t width)
{
    const size_t row = (size_t)blockIdx.x * width;
    for (int32_t i = threadIdx.x; i < width; i += ROW_THREADS)
        x[row + i] =
            __float2bfloat16_rn(__bfloat162float(x[row + i]) / (1 + expf(-__bfloat162float(gates[row + i]))));
}

/* ---- host ---- */

/* For all layers of a model, which are alike. */
bool alloc_scratch(struct cuda_device *d, const struct delta_net *n)
{
    const size_t tokens = (size_t)d->limits.num_tokens;
    if (d->delta_mixed || n->kind == DELTA_CONVOLUTION) return true;
    d->delta_mixed = (float *)cuda_alloc(&d->base, tokens * num_channels(*n) * sizeof(float), "states");
    d->delta_rates = (float2 *)cuda_alloc(&d->base, tokens * n->num_v_heads * sizeof(float2), "states");
    return d->delta_mixed && d->delta_rates;
}

size_t norm_width(const struct delta_net &n)
{
    return (size_t)(n.kind == DELTA_STATE_SPACE ? v_width(n) : n.v_dim);
}

bool alloc_net(struct cuda_device *d, struct delta_net *n)
{
    const size_t channels = (size_t)num_channels(*n), slots = (size_t)n->num_batch_slots,
                 num_states = slots * 2 + (size_t)d->limits.num_states;
    auto floats = [d](size_t count) {
        return (float *)cuda_alloc(&d->base, count * sizeof(float), "states");
    };
    n->taps = floats(channels * DELTA_TAPS);
    n->places = (struct delta_place *)cuda_alloc(&d->base, slots * sizeof *n->places, "states");
    n->states = floats(num_states * state_floats(*n));
    if (n->kind == DELTA_CONVOLUTION) return n->taps && n->places && n->states;
    n->decay = floats((size_t)n->num_v_heads);
    n->dt_bias = floats((size_t)n->num_v_heads);
    n->norm = floats(norm_width(*n));
    if (n->kind == DELTA_STATE_SPACE) {
        n->bias = floats(channels);
        n->skip = floats((size_t)n->num_v_heads);
        if (!n->bias || !n->skip) return false;
    }
    n->inputs = (__nv_bfloat16 *)cuda_alloc(&d->base, num_states * input_values(*n) * 2, "states");
    return n->taps && n->decay && n->dt_bias && n->norm && n->places && n->states && n->inputs;
}

int check_desc(const struct delta_desc *desc, struct error *err)
{
    if (desc->k_dim > K_DIM_MAX)
        return error_set(err, STATUS_UNSUPPORTED, "the CUDA device has states of at most %d rows, not %d",
                         K_DIM_MAX, desc->k_dim);
    return delta_desc_check(desc, err);
}

int upload_vector(struct cuda_device *d, float *to, const struct weight_view *v, size_t count, float *scratch)
{
    weight_view_vector_to_f32(v, scratch);
    return cuda_upload(&d->base, to, scratch, count * sizeof(float));
}

/* scratch: room for the largest of the layer's weights, on the host. */
int upload_weights(struct cuda_device *d, struct delta_net *n, const struct delta_desc *desc, float *scratch)
{
    const size_t channels = (size_t)num_channels(*n), heads = (size_t)n->num_v_heads;
    delta_desc_read_taps(desc, scratch);
    int status = cuda_upload(&d->base, n->taps, scratch, channels * DELTA_TAPS * sizeof(float));
    if (status || n->kind == DELTA_CONVOLUTION) return status;
    delta_desc_read_decay(desc, scratch);
    status = cuda_upload(&d->base, n->decay, scratch, heads * sizeof(float));
    if (!status) status = upload_vector(d, n->dt_bias, &desc->dt_bias, heads, scratch);
    if (!status) status = upload_vector(d, n->norm, &desc->norm, norm_width(*n), scratch);
    if (status || n->kind != DELTA_STATE_SPACE) return status;
    status = upload_vector(d, n->bias, &desc->convolution_bias, channels, scratch);
    return status ? status : upload_vector(d, n->skip, &desc->skip, heads, scratch);
}

bool has_token_kernel(const struct delta_net *n)
{
    return n->kind == DELTA_RULE && n->k_dim <= TOKEN_DIM_MAX && n->v_dim <= TOKEN_DIM_MAX &&
           n->v_dim % 4 == 0;
}

void launch_token(struct cuda_device *d, const struct delta_args &a)
{
    launch_after_all(d, token_kernel, dim3((unsigned)a.n.num_v_heads, (unsigned)a.num_seqs),
                     dim3(TOKEN_THREADS), a);
    launch_after_all(d, places_kernel, dim3((unsigned)div_up(a.num_seqs, ROW_THREADS)), dim3(ROW_THREADS), a);
}

void launch_update(struct cuda_device *d, const struct delta_args &a)
{
    const dim3 grid((unsigned)div_up(a.n.v_dim, COLUMNS), (unsigned)a.n.num_v_heads, (unsigned)a.num_seqs);
    const bool is_small = a.n.k_dim <= ROWS_MAX / 2 * LANES;
    auto rule = is_small ? update_kernel<ROWS_MAX / 2, DELTA_RULE> : update_kernel<ROWS_MAX, DELTA_RULE>,
         space = is_small ? update_kernel<ROWS_MAX / 2, DELTA_STATE_SPACE>
                          : update_kernel<ROWS_MAX, DELTA_STATE_SPACE>;
    launch_after_all(d, a.n.kind == DELTA_RULE ? rule : space, grid, dim3(UPDATE_THREADS), a);
}

void launch_gate(struct cuda_device *d, const struct delta_args &a, unsigned num_tokens)
{
    if (a.n.kind == DELTA_STATE_SPACE)
        launch_after_all(d, gate_group_kernel, dim3(num_tokens, (unsigned)a.n.num_k_heads), dim3(ROW_THREADS),
                         a);
    else
        launch_after_all(d, gate_kernel, dim3(num_tokens, (unsigned)a.n.num_v_heads), dim3(WARP), a);
}

void launch_short(struct cuda_device *d, const struct delta_args &a, int32_t num_tokens)
{
    launch_after_all(d, short_kernel, dim3((unsigned)num_tokens, (unsigned)div_up(v_width(a.n), ROW_THREADS)),
                     dim3(ROW_THREADS), a);
    if (num_tokens == a.num_seqs) /* one of each */
        launch_after_all(d, places_kernel, dim3((unsigned)div_up(a.num_seqs, ROW_THREADS)), dim3(ROW_THREADS),
                         a);
    else
        launch_after_all(d, short_close_kernel, dim3((unsigned)a.num_seqs), dim3(ROW_THREADS), a);
}

} // namespace

int cuda_delta_net_create(struct device *device, const struct delta_desc *desc, struct delta_net **out,
                          struct error *err)
{
    struct cuda_device *d = cuda_of(device);
    int status = check_desc(desc, err);
    if (status) return status;
    struct delta_net *n = new struct delta_net();
    d->delta_nets.push_back(n);
    n->num_batch_slots = d->limits.num_batch_slots;
    n->num_k_heads = desc->num_k_heads;
    n->num_v_heads = desc->num_v_heads;
    n->k_dim = desc->kind == DELTA_CONVOLUTION ? SHORT_BEFORE : desc->k_dim;
    n->v_dim = desc->v_dim;
    n->by_k_head = desc->by_k_head;
    n->rates_by_k_head = desc->rates_by_k_head;
    n->tiled = desc->tiled;
    n->kind = desc->kind;
    n->norm_eps = desc->norm_eps;
    std::vector<float> scratch((size_t)num_channels(*n) * DELTA_TAPS);
    if (!alloc_net(d, n) || !alloc_scratch(d, n))
        return error_set(err, STATUS_NO_MEMORY,
                         "no memory for the states of %d sequences: lower --max-num-seqs",
                         d->limits.num_batch_slots);
    if (upload_weights(d, n, desc, scratch.data()))
        return error_set(err, STATUS_DEVICE, "a layer's convolution did not reach the device");
    *out = n;
    return STATUS_OK;
}

void cuda_delta_nets_forget(struct cuda_device *d)
{
    for (struct delta_net *n : d->delta_nets) delete n;
    d->delta_nets.clear();
}

void cuda_delta(struct device *device, const struct batch *b, void *out, const void *projected,
                const void *rates, struct delta_net *n)
{
    struct cuda_device *d = cuda_of(device);
    struct delta_args a = {};
    a.n = *n;
    a.projected = (const __nv_bfloat16 *)projected;
    a.rates = (const __nv_bfloat16 *)rates;
    a.out = (__nv_bfloat16 *)out;
    a.mixed = d->delta_mixed;
    a.decay_beta = d->delta_rates;
    a.cu_seqlens_q = b->cu_seqlens_q;
    a.seqlens_k = b->seqlens_k;
    a.positions = b->positions;
    a.batch_slots = b->batch_slots;
    a.num_seqs = b->num_seqs;
    const unsigned tokens = (unsigned)b->num_tokens;
    if (n->kind == DELTA_CONVOLUTION) return launch_short(d, a, b->num_tokens);
    if (has_token_kernel(n) && b->num_tokens == b->num_seqs) { /* one of each */
        launch_token(d, a);
        return;
    }
    launch_after_all(d, convolve_kernel, dim3(tokens), dim3(ROW_THREADS), a);
    launch_update(d, a);
    launch_gate(d, a, tokens);
    launch_after_all(d, close_kernel, dim3((unsigned)b->num_seqs), dim3(ROW_THREADS), a);
}

int cuda_states_copy(struct device *device, struct delta_net *n, const struct state_copy *copies,
                     int num_copies)
{
    struct cuda_device *d = cuda_enter(device);
    const unsigned ctas =
        (unsigned)std::min(div_up((int64_t)state_floats(*n), ROW_THREADS), (int64_t)2 * d->num_sms);
    bool ok = true;
    for (int i = 0; i < num_copies && ok; i++) {
        ok = launch_after_all(d, copy_kernel, dim3(ctas), dim3(ROW_THREADS), *n, copies[i]);
        if (ok && !copies[i].keeps)
            ok = launch_after_all(d, place_kernel, dim3(1), dim3(1), n->places + copies[i].batch_slot,
                                  delta_place{copies[i].position, 0});
    }
    return ok ? STATUS_OK : STATUS_DEVICE;
}

void cuda_split_gates(struct device *device, const struct batch *b, void *qkv, void *gates,
                      const void *projected, const struct attention_args *args)
{
    launch_after_all(cuda_of(device), split_kernel, dim3((unsigned)b->num_tokens), dim3(ROW_THREADS),
                     (__nv_bfloat16 *)qkv, (__nv_bfloat16 *)gates, (const __nv_bfloat16 *)projected,
                     args->num_heads * args->head_dim, 2 * args->num_kv_heads * args->head_dim,
                     args->head_dim);
}

void cuda_apply_gates(struct device *device, const struct batch *b, void *x, const void *gates,
                      const struct attention_args *args)
{
    launch_after_all(cuda_of(device), sigmoid_mul_kernel, dim3((unsigned)b->num_tokens), dim3(ROW_THREADS),
                     (__nv_bfloat16 *)x, (const __nv_bfloat16 *)gates, args->num_heads * args->head_dim);
}
