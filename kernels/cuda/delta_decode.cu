/* delta_decode.cu - layers with a state where each run is one token, or one with a draft: see delta_net.cuh.
 *
 *   token        a CTA a head of a run, token after token: convolution, update of the state and, of the delta rule, norm and gate; four
 *                columns in a thread. The state comes to shared memory while the projections are still being made, and is there until the
 *                run's end, whatever a draft has: what is in the log comes first
 *   norm_groups  of a state space, whose norm is over several heads: delta_prefill.cu's */
#include "kernels/cuda/delta_net.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/mma.cuh"

namespace
{

enum { THREADS = 128, V_DIM_MAX = 128, COLUMNS = 4 };

/* A channel of a token: all loads first, then what comes of them. */
struct token_channel {
    int32_t channel;
    float input[DELTA_TAPS], taps[DELTA_TAPS], bias;
};

/* What is there ahead of the dependency. */
__device__ void load_kept(const delta_args &a, const device_run &s, int32_t channel, token_channel *c)
{
    c->channel = channel;
    c->bias = a.n.kind == DELTA_STATE_SPACE ? a.n.bias[channel] : 0;
#pragma unroll
    for (int32_t j = 0; j < DELTA_TAPS; j++) c->taps[j] = a.n.taps[j * num_channels(a.n) + channel];
#pragma unroll
    for (int32_t j = 0; j < DELTA_BEFORE; j++)
        c->input[j] = kept_input(a, s, s.from - DELTA_BEFORE + j, channel);
}

/* The newest input, of the token at a position. */
__device__ void load_newest(const delta_args &a, const device_run &s, int32_t position, token_channel *c)
{
    c->input[DELTA_BEFORE] = position < s.position
                                 ? kept_input(a, s, position, c->channel)
                                 : projected_of(a, s.begin + position - s.position, c->channel);
}

/* For the next token. */
__device__ void move_on(token_channel *c)
{
#pragma unroll
    for (int32_t j = 0; j < DELTA_BEFORE; j++) c->input[j] = c->input[j + 1];
}

__device__ float convolve(const token_channel &c)
{
    float sum = c.bias;
#pragma unroll
    for (int32_t j = 0; j < DELTA_TAPS; j++) sum = fmaf(c.taps[j], c.input[j], sum);
    return silu(sum);
}

/* x[dim], by a warp; in the order of delta_prefill.cu. */
__device__ void make_unit(float *x, int32_t dim, bool is_q)
{
    const int32_t lane = threadIdx.x % WARP;
    float squares = 0;
    for (int32_t i = lane; i < dim; i += WARP) squares = fmaf(x[i], x[i], squares);
    const float factor = unit_factor(squares, dim, is_q);
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

/* The answers of a thread's columns. state: row 0 of these, in shared memory, and where it is to be again, NULL: nowhere; to: of where
 * it goes in memory, NULL: nowhere. decays: of DELTA_CHANNELS. A whole warp. */
template <enum delta_kind KIND>
__device__ float4 update_columns(const delta_net &n, const float *state, float *again, float *to,
                                 const float *q, const float *k, const float *decays, float4 v, float2 rates)
{
    const int32_t lane = threadIdx.x % WARP / WARP_GROUPS, v_dim = n.v_dim;
    float4 memory = make_float4(0, 0, 0, 0), answer = memory, change = scale4(v, rates.y);
    if (corrects(KIND)) {
#pragma unroll 4
        for (int32_t row = DELTA_ROWS * lane; row < n.k_dim; row += DELTA_LANES * DELTA_ROWS) {
            float4 keys = *(const float4 *)(k + row);
            if (KIND == DELTA_CHANNELS) keys = multiply4(keys, *(const float4 *)(decays + row));
#pragma unroll
            for (int e = 0; e < DELTA_ROWS; e++)
                memory = fma4(*(const float4 *)(state + (row + e) * v_dim), part_of(keys, e), memory);
        }
        memory = sum_over_columns(memory);
        change = make_float4(change_of(v.x, memory.x, rates), change_of(v.y, memory.y, rates),
                             change_of(v.z, memory.z, rates), change_of(v.w, memory.w, rates));
    }
#pragma unroll 4
    for (int32_t row = DELTA_ROWS * lane; row < n.k_dim; row += DELTA_LANES * DELTA_ROWS) {
        const float4 keys = *(const float4 *)(k + row), queries = *(const float4 *)(q + row),
                     own = KIND == DELTA_CHANNELS ? *(const float4 *)(decays + row) : make_float4(0, 0, 0, 0);
#pragma unroll
        for (int e = 0; e < DELTA_ROWS; e++) {
            const int32_t at = (row + e) * v_dim;
            const float decay = KIND == DELTA_CHANNELS ? part_of(own, e) : rates.x;
            const float4 now = fma4(change, part_of(keys, e), scale4(*(const float4 *)(state + at), decay));
            answer = fma4(now, part_of(queries, e), answer);
            if (again) *(float4 *)(again + at) = now;
            if (to) *(float4 *)(to + at) = now;
        }
    }
    return sum_over_columns(answer);
}

/* Asks for the state, or has zeros where the sequence begins. */
__device__ void begin_state(const delta_args &a, const device_run &s, float *state)
{
    const int32_t vectors = a.n.k_dim * a.n.v_dim / 4;
    const float *from = head_state(a.n, which_state(s.batch_slot, s.from), blockIdx.x);
    for (int32_t i = threadIdx.x; i < vectors; i += THREADS)
        copy_async(shared_address(state + 4 * i), from + 4 * i, s.from > 0);
    copy_commit();
}

/* Of RMSNorm over x[dim], each warp the same; in the order of delta_prefill.cu. */
__device__ float norm_scale(const float *x, int32_t dim, float eps)
{
    float squares = 0;
    for (int32_t i = threadIdx.x % WARP; i < dim; i += WARP) squares = fmaf(x[i], x[i], squares);
    return 1 / sqrtf(sum_over_warp(squares) / (float)dim + eps);
}

/* Where what the state is behind so many tokens of the run is left for later steps; NULL: nowhere. */
__device__ float *state_left(const delta_args &a, const device_run &s, int32_t num_tokens, int32_t head)
{
    const int32_t end = s.position + s.end - s.begin;
    if (num_tokens != s.position && (num_tokens != end || s.has_draft)) return NULL;
    return head_state(a.n, a.runs ? which_state(s.batch_slot, num_tokens) : (size_t)a.alone_to, head);
}

/* K_CHANNELS: of q, and of k, in a thread at most. */
template <enum delta_kind KIND, int K_CHANNELS>
__global__ void __launch_bounds__(THREADS) token_kernel(const __grid_constant__ delta_args a)
{
    enum { NUM_DECAYS = KIND == DELTA_CHANNELS ? DELTA_K_DIM_MAX / 2 : DELTA_ROWS };
    extern __shared__ __align__(16) unsigned char shared[]; /* the state: float [k_dim][v_dim] */
    __shared__ __align__(16) float q[DELTA_K_DIM_MAX], k[DELTA_K_DIM_MAX], v[V_DIM_MAX];
    __shared__ __align__(16) float decays[NUM_DECAYS];
    const delta_net &n = a.n;
    const int32_t head = blockIdx.x, i = threadIdx.x, k_dim = n.k_dim, v_dim = n.v_dim,
                  first_k = k_head_of(n, head) * k_dim, first_v = head * v_dim,
                  column = (i / WARP * WARP_GROUPS + i % WARP_GROUPS) * COLUMNS;
    float *state = (float *)shared;
    token_channel of_q[K_CHANNELS], of_k[K_CHANNELS], of_v;
    dependents_launch();
    const device_run s = a.runs ? a.runs[blockIdx.y] : a.alone;
    const int32_t end = s.position + s.end - s.begin;
    if (s.from < end) {
        begin_state(a, s, state);
#pragma unroll
        for (int j = 0; j < K_CHANNELS; j++) { /* a thread beyond the last has the last, too */
            const int32_t c = first_k + min(i + THREADS * j, k_dim - 1);
            load_kept(a, s, before_q(n) + c, &of_q[j]);
            load_kept(a, s, before_k(n) + c, &of_k[j]);
        }
        load_kept(a, s, before_v(n) + first_v + min(i, v_dim - 1), &of_v);
    }
    const float norm = corrects(KIND) ? n.norm[min(i, v_dim - 1)] : 0;
    dependency_wait();
    for (int32_t position = s.from; position < end; position++) {
        const bool is_new = position >= s.position, leaves = is_new && s.has_draft;
        const int32_t token = s.begin + position - s.position;
        const size_t log = ring_row(n, s.batch_slot, position) * n.num_v_heads + head;
#pragma unroll
        for (int j = 0; j < K_CHANNELS; j++) {
            load_newest(a, s, position, &of_q[j]);
            load_newest(a, s, position, &of_k[j]);
        }
        load_newest(a, s, position, &of_v);
        const float gate =
            corrects(KIND) && is_new ? __bfloat162float(*z_at(a, token, first_v + min(i, v_dim - 1))) : 0;
        float *log_decay = n.log_decays + log * k_dim + min(i, k_dim - 1);
        const float decay = KIND != DELTA_CHANNELS ? 0
                            : is_new               ? decay_of_row(a, token, head, min(i, k_dim - 1))
                                                   : *log_decay;
        const float2 rates = is_new ? rates_of(a, token, head) : n.log_rates[log];
#pragma unroll
        for (int j = 0; j < K_CHANNELS; j++) {
            if (i + THREADS * j >= k_dim) continue;
            q[i + THREADS * j] = convolve(of_q[j]);
            k[i + THREADS * j] = convolve(of_k[j]);
        }
        if (i < v_dim) v[i] = convolve(of_v);
        if (KIND == DELTA_CHANNELS && i < k_dim) decays[i] = decay;
        if (KIND == DELTA_CHANNELS && leaves && i < k_dim) *log_decay = decay;
        if (leaves && i == 0) n.log_rates[log] = rates;
        __syncthreads();
        if (corrects(KIND) && i / WARP < 2) make_unit(i / WARP == 0 ? q : k, k_dim, i / WARP == 0);
        copy_wait<0>();
        __syncthreads();
        const bool is_mine = column < v_dim, answers = is_mine && i % WARP < WARP_GROUPS;
        const int32_t mine = is_mine ? column : 0; /* a warp's other threads meet it in the sums */
        if (i / WARP * WARP_GROUPS * COLUMNS < v_dim) {
            const float4 value = *(const float4 *)(v + mine);
            float *again = is_mine && position + 1 < end ? state + column : NULL,
                  *left = state_left(a, s, position + 1, head), *to = is_mine && left ? left + column : NULL;
            float4 answer = update_columns<KIND>(n, state + mine, again, to, q, k, decays, value, rates);
            if (KIND == DELTA_STATE_SPACE) answer = fma4(value, n.skip[head], answer);
            __syncwarp(); /* all have read their values */
            if (answers) *(float4 *)(v + column) = answer;
            if (KIND == DELTA_STATE_SPACE && answers && is_new)
                *(float4 *)(a.mixed + (size_t)token * num_channels(n) + first_v + column) = answer;
        }
#pragma unroll
        for (int j = 0; j < K_CHANNELS; j++) {
            if (is_new && owns_k_head(n, head) && i + THREADS * j < k_dim) {
                leave_input(a, s, position, of_q[j].channel, of_q[j].input[DELTA_BEFORE]);
                leave_input(a, s, position, of_k[j].channel, of_k[j].input[DELTA_BEFORE]);
            }
            move_on(&of_q[j]);
            move_on(&of_k[j]);
        }
        if (is_new && i < v_dim) leave_input(a, s, position, of_v.channel, of_v.input[DELTA_BEFORE]);
        move_on(&of_v);
        __syncthreads();
        if (KIND == DELTA_STATE_SPACE || !is_new) continue;
        const float scale = norm_scale(v, v_dim, n.norm_eps);
        if (i < v_dim)
            a.out[(size_t)token * v_width(n) + first_v + i] =
                __float2bfloat16_rn(v[i] * scale * norm * gate_of(n, gate));
        __syncthreads();
    }
}

template <int K_CHANNELS>
void launch_token(struct cuda_device *d, const struct delta_args &a, size_t shared_bytes)
{
    auto kernel = a.n.kind == DELTA_RULE       ? token_kernel<DELTA_RULE, K_CHANNELS>
                  : a.n.kind == DELTA_CHANNELS ? token_kernel<DELTA_CHANNELS, 1>
                                               : token_kernel<DELTA_STATE_SPACE, K_CHANNELS>;
    launch_dependent(d, kernel, dim3((unsigned)a.n.num_v_heads, (unsigned)a.num_seqs), dim3(THREADS),
                     shared_bytes, a);
}

} // namespace

bool cuda_delta_has_by_token(const struct cuda_device *d, int32_t k_dim, int32_t v_dim)
{
    const size_t decays = DELTA_K_DIM_MAX / 2, /* of those kinds that have most */
        static_bytes = (2 * DELTA_K_DIM_MAX + V_DIM_MAX + decays) * sizeof(float);
    return v_dim <= V_DIM_MAX &&
           (size_t)k_dim * v_dim * sizeof(float) + static_bytes <= (size_t)d->cta_shared_bytes;
}

void cuda_delta_by_token(struct cuda_device *d, const struct delta_args *a)
{
    const delta_net &n = a->n;
    const size_t shared_bytes = (size_t)n.k_dim * n.v_dim * sizeof(float);
    if (n.k_dim <= THREADS)
        launch_token<1>(d, *a, shared_bytes);
    else
        launch_token<2>(d, *a, shared_bytes);
    if (n.kind == DELTA_STATE_SPACE && a->num_tokens > 0) cuda_delta_norm_groups(d, a);
}
