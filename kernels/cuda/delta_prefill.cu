/* delta_prefill.cu - layers with a state in a step that has prompts: see delta_net.cuh. Three kernels:
 *
 *   convolve   a warp CHANNELS channels of RUN tokens, or a head of q or k: q, k and v behind the convolution and SiLU, q and k of the delta
 *              rule as unit vectors; another warp decay and beta, or many decays
 *   update     a CTA some columns of a head of a sequence, of which each thread has up to five: v of a token becomes what the state answers.
 *              q, k and v come to shared memory, TILE tokens ahead. What the next convolution begins with
 *   norm       a warp a head of a token, or, of a state space, a CTA a group of heads: RMSNorm, SiLU of z */
#include "kernels/cuda/delta_net.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/mma.cuh"

namespace
{

enum {
    CONVOLVE_WARPS = 8,
    RUN = 8,  /* tokens of a warp of convolve */
    TILE = 8, /* tokens of a stage of update */
    UPDATE_WARPS = 4,
    MANY_ROWS = DELTA_K_DIM_MAX / DELTA_LANES, /* of a column in a thread of update */
    FEW_ROWS = MANY_ROWS / 2,
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

/* ---- update ---- */

template <int COLUMNS> __device__ void load_columns(const float *from, float (&to)[COLUMNS])
{
    if (COLUMNS == 4)
        *(float4 *)to = *(const float4 *)from;
    else
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) to[c] = from[c];
}

template <int COLUMNS> __device__ void store_columns(float *to, const float (&from)[COLUMNS])
{
    if (COLUMNS == 4)
        *(float4 *)to = *(const float4 *)from;
    else
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) to[c] = from[c];
}

/* A thread's part of a state. Of rows beyond k_dim nothing is read: they are zeros and stay so. */
template <int ROWS, int COLUMNS> struct state_part {
    alignas(16) float x[ROWS][COLUMNS];

    static __device__ int32_t first_row(int32_t i) /* of four */
    {
        return DELTA_ROWS * (DELTA_LANES * i + (int32_t)threadIdx.x % WARP / WARP_GROUPS);
    }

    __device__ void load(const float *from, int32_t k_dim, int32_t v_dim, bool is_mine)
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int32_t row = first_row(r / DELTA_ROWS) + r % DELTA_ROWS;
            if (is_mine && row < k_dim)
                load_columns<COLUMNS>(from + (size_t)row * v_dim, x[r]);
            else
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) x[r][c] = 0;
        }
    }

    __device__ void store(float *to, int32_t k_dim, int32_t v_dim, bool is_mine) const
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int32_t row = first_row(r / DELTA_ROWS) + r % DELTA_ROWS;
            if (is_mine && row < k_dim) store_columns<COLUMNS>(to + (size_t)row * v_dim, x[r]);
        }
    }

    /* Each column's part of this lane: what the state holds at key k. decays: of DELTA_CHANNELS. */
    template <enum delta_kind KIND>
    __device__ void remember(const float *k, const float *decays, float (&memory)[COLUMNS]) const
    {
#pragma unroll
        for (int i = 0; i < ROWS / DELTA_ROWS; i++) {
            float4 keys = *(const float4 *)(k + first_row(i));
            if (KIND == DELTA_CHANNELS) keys = multiply4(keys, *(const float4 *)(decays + first_row(i)));
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) memory[c] = fmaf(x[4 * i][c], keys.x, memory[c]);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) memory[c] = fmaf(x[4 * i + 1][c], keys.y, memory[c]);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) memory[c] = fmaf(x[4 * i + 2][c], keys.z, memory[c]);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) memory[c] = fmaf(x[4 * i + 3][c], keys.w, memory[c]);
        }
    }

    __device__ void update_row(int r, const float (&change)[COLUMNS], float key, float query, float decay,
                               float (&answer)[COLUMNS])
    {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            x[r][c] = fmaf(change[c], key, x[r][c] * decay);
            answer[c] = fmaf(x[r][c], query, answer[c]);
        }
    }

    template <enum delta_kind KIND>
    __device__ void update(const float *k, const float *q, const float *decays,
                           const float (&change)[COLUMNS], float decay, float (&answer)[COLUMNS])
    {
#pragma unroll
        for (int i = 0; i < ROWS / DELTA_ROWS; i++) {
            const float4 keys = *(const float4 *)(k + first_row(i)),
                         queries = *(const float4 *)(q + first_row(i)),
                         own = KIND == DELTA_CHANNELS ? *(const float4 *)(decays + first_row(i))
                                                      : make_float4(decay, decay, decay, decay);
            update_row(4 * i, change, keys.x, queries.x, own.x, answer);
            update_row(4 * i + 1, change, keys.y, queries.y, own.y, answer);
            update_row(4 * i + 2, change, keys.z, queries.z, own.z, answer);
            update_row(4 * i + 3, change, keys.w, queries.w, own.w, answer);
        }
    }
};

/* What TILE tokens bring. Of a CTA's columns the first may be any. */
template <int ROWS, int COLUMNS, enum delta_kind KIND>
struct update_stage {
    enum {K_DIM = ROWS * DELTA_LANES, CTA_COLUMNS = UPDATE_WARPS *WARP_GROUPS *COLUMNS,
          NUM_DECAYS = KIND == DELTA_CHANNELS ? K_DIM : DELTA_ROWS};
    struct {alignas(16) float q[K_DIM], k[K_DIM], v[CTA_COLUMNS], decays[NUM_DECAYS];}
tokens[TILE];
float2 rates[TILE];

/* Beyond k_dim nothing comes. */
__device__ void clear(int32_t k_dim)
{
    for (int32_t i = threadIdx.x; i < TILE * K_DIM; i += blockDim.x) {
        if (i % K_DIM < k_dim) continue;
        tokens[i / K_DIM].q[i % K_DIM] = 0;
        tokens[i / K_DIM].k[i % K_DIM] = 0;
        if (KIND == DELTA_CHANNELS) tokens[i / K_DIM].decays[i % K_DIM % NUM_DECAYS] = 0;
    }
}

/* Four values after the other: of q, of k, of the CTA's columns of v, of decays. */
__device__ void begin(const delta_args &a, int32_t token, int32_t count, int32_t head)
{
    const delta_net &n = a.n;
    const int32_t of_k = n.k_dim / 4, first = blockIdx.x * CTA_COLUMNS,
                  columns = min((int32_t)CTA_COLUMNS, n.v_dim - first),
                  before_decays = 2 * of_k + columns / 4,
                  per_token = before_decays + (KIND == DELTA_CHANNELS ? of_k : 0),
                  k_head = k_head_of(n, head) * n.k_dim;
    for (int32_t i = threadIdx.x; i < count * per_token; i += blockDim.x) {
        const int32_t t = i / per_token, piece = i % per_token;
        const float *from = a.mixed + (size_t)(token + t) * num_channels(n);
        float *to;
        if (piece < of_k) {
            from += before_q(n) + k_head + 4 * piece;
            to = tokens[t].q + 4 * piece;
        } else if (piece < 2 * of_k) {
            from += before_k(n) + k_head + 4 * (piece - of_k);
            to = tokens[t].k + 4 * (piece - of_k);
        } else if (KIND == DELTA_CHANNELS && piece >= before_decays) {
            from = a.decays + (size_t)(token + t) * k_width(n) + head * n.k_dim + 4 * (piece - before_decays);
            to = tokens[t].decays + 4 * (piece - before_decays) % NUM_DECAYS;
        } else {
            from += before_v(n) + head * n.v_dim + first + 4 * (piece - 2 * of_k);
            to = tokens[t].v + 4 * (piece - 2 * of_k);
        }
        copy_async(shared_address(to), from, true);
    }
    copy_commit();
}
}; // namespace

/* What the next convolutions begin with. */
__device__ void leave_inputs(const delta_args &a, const device_run &s, int32_t channel)
{
    for (int32_t token = max(s.begin, s.end - a.n.num_left); token < s.end; token++)
        leave_input(a, s, s.position + token - s.begin, channel, projected_of(a, token, channel));
}

/* Those of a CTA: its columns of v and, where it is the first of a head that owns them, q and k. */
__device__ void leave_all_inputs(const delta_args &a, const device_run &s, int32_t head, int32_t cta_columns)
{
    const delta_net &n = a.n;
    const int32_t first = blockIdx.x * cta_columns, end = min(first + cta_columns, n.v_dim),
                  k_head = k_head_of(n, head) * n.k_dim;
    for (int32_t c = first + threadIdx.x; c < end; c += blockDim.x)
        leave_inputs(a, s, before_v(n) + head * n.v_dim + c);
    if (blockIdx.x > 0 || !owns_k_head(n, head)) return;
    for (int32_t i = threadIdx.x; i < n.k_dim; i += blockDim.x) {
        leave_inputs(a, s, before_q(n) + k_head + i);
        leave_inputs(a, s, before_k(n) + k_head + i);
    }
}

/* ROWS: of a column in a thread. */
template <int ROWS, int COLUMNS, enum delta_kind KIND>
__global__ void __launch_bounds__(UPDATE_WARPS *WARP, 2) update_kernel(const __grid_constant__ delta_args a)
{
    typedef update_stage<ROWS, COLUMNS, KIND> stage_type;
    __shared__ stage_type stages[2];
    const delta_net &n = a.n;
    const int32_t head = blockIdx.y, k_dim = n.k_dim, v_dim = n.v_dim,
                  mine = (threadIdx.x / WARP * WARP_GROUPS + threadIdx.x % WARP_GROUPS) * COLUMNS,
                  column = blockIdx.x * stage_type::CTA_COLUMNS + mine;
    const bool is_mine = column < v_dim;
    dependents_launch();
    const device_run s = a.runs[blockIdx.z];
    auto state_behind = [&](int32_t num_tokens) {
        return head_state(n, which_state(s.batch_slot, num_tokens), head) + column;
    };
    state_part<ROWS, COLUMNS> state;
    if (s.begin < s.end) state.load(state_behind(s.position), k_dim, v_dim, is_mine && s.position > 0);
    for (stage_type &stage : stages) stage.clear(k_dim);
    dependency_wait();
    if (s.begin == s.end) return;
    const float skip = KIND == DELTA_STATE_SPACE ? n.skip[head] : 0;
    float *answers = a.mixed + before_v(n) + head * v_dim + column;
    float2 rates = {};
    auto begin_tile = [&](int32_t token, stage_type &stage) {
        const int32_t count = min((int32_t)TILE, s.end - token);
        stage.begin(a, token, count, head);
        if (threadIdx.x < count) rates = a.decay_beta[(size_t)(token + threadIdx.x) * n.num_v_heads + head];
    };
    begin_tile(s.begin, stages[0]);
    for (int32_t first = s.begin, turn = 0; first < s.end; first += TILE, turn ^= 1) {
        stage_type &stage = stages[turn];
        copy_wait<0>();
        if (threadIdx.x < TILE) stage.rates[threadIdx.x] = rates;
        __syncthreads(); /* all are done with the other stage, too */
        if (first + TILE < s.end) begin_tile(first + TILE, stages[turn ^ 1]);
        const int32_t end = min(first + TILE, s.end);
        for (int32_t token = first; token < end; token++) {
            const auto &t = stage.tokens[token - first];
            const float2 now = stage.rates[token - first];
            float value[COLUMNS], change[COLUMNS], answer[COLUMNS] = {};
            if (token + 1 == s.end && s.end - s.begin > 1)
                state.store(state_behind(s.position + s.end - s.begin - 1), k_dim, v_dim, is_mine);
            load_columns<COLUMNS>(t.v + mine, value);
            if (corrects(KIND)) {
                float memory[COLUMNS] = {};
                state.template remember<KIND>(t.k, t.decays, memory);
#pragma unroll
                for (int c = 0; c < COLUMNS; c++)
                    change[c] = change_of(value[c], sum_over_column(memory[c]), now);
            } else {
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) change[c] = value[c] * now.y;
            }
            state.template update<KIND>(t.k, t.q, t.decays, change, now.x, answer);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                answer[c] = sum_over_column(answer[c]);
                if (KIND == DELTA_STATE_SPACE) answer[c] = fmaf(value[c], skip, answer[c]);
            }
            if (is_mine && threadIdx.x % WARP < WARP_GROUPS)
                store_columns<COLUMNS>(answers + (size_t)token * num_channels(n), answer);
        }
    }
    state.store(state_behind(s.position + s.end - s.begin), k_dim, v_dim, is_mine);
    leave_all_inputs(a, s, head, stage_type::CTA_COLUMNS);
}

/* ---- norm ---- */

/* Rows of padding, too: what they hold is nobody's. */
__global__ void __launch_bounds__(NORM_THREADS) norm_heads_kernel(const __grid_constant__ delta_args a)
{
    const delta_net &n = a.n;
    const int32_t token = blockIdx.x, head = blockIdx.y * NORM_WARPS + threadIdx.x / WARP, v_dim = n.v_dim;
    const float *x = a.mixed + (size_t)token * num_channels(n) + before_v(n) + head * v_dim;
    __nv_bfloat16 *out = a.out + (size_t)token * v_width(n) + head * v_dim;
    float squares = 0;
    dependents_launch();
    dependency_wait();
    if (head >= n.num_v_heads) return;
    for (int32_t i = threadIdx.x % WARP; i < v_dim; i += WARP) squares = fmaf(x[i], x[i], squares);
    const float scale = 1 / sqrtf(sum_over_warp(squares) / (float)v_dim + n.norm_eps);
    for (int32_t i = threadIdx.x % WARP; i < v_dim; i += WARP)
        out[i] = __float2bfloat16_rn(x[i] * scale * n.norm[i] * gate_of(n, z_of(a, token, head * v_dim + i)));
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

template <int ROWS, int COLUMNS> void launch_update(struct cuda_device *d, const struct delta_args &a)
{
    const int32_t cta_columns = update_stage<ROWS, COLUMNS, DELTA_RULE>::CTA_COLUMNS,
                  warp_columns = WARP_GROUPS * COLUMNS;
    const dim3 grid((unsigned)div_up(a.n.v_dim, cta_columns), (unsigned)a.n.num_v_heads,
                    (unsigned)a.num_seqs);
    const int64_t warps = div_up(std::min(a.n.v_dim, cta_columns), warp_columns);
    constexpr int RULE_COLUMNS = COLUMNS <= 4 ? COLUMNS : 1; /* of the rule there are no more */
    auto kernel = a.n.kind == DELTA_CHANNELS ? update_kernel<FEW_ROWS, RULE_COLUMNS, DELTA_CHANNELS>
                  : a.n.kind == DELTA_RULE   ? update_kernel<ROWS, RULE_COLUMNS, DELTA_RULE>
                                             : update_kernel<ROWS, COLUMNS, DELTA_STATE_SPACE>;
    launch_dependent(d, kernel, grid, dim3((unsigned)(warps * WARP)), 0, a);
}

/* More columns in a thread read shared memory less often; fewer give more CTAs: as many columns as leave no SM without one. Five
 * where they give whole warps, and a state space leaves registers for them. */
void launch_updates(struct cuda_device *d, const struct delta_args &a)
{
    const int64_t heads = (int64_t)a.n.num_v_heads * a.num_seqs;
    const bool takes_five = a.n.kind == DELTA_STATE_SPACE && a.n.v_dim % (5 * WARP_GROUPS) == 0;
    auto fills = [&](int32_t columns) {
        return heads * div_up(a.n.v_dim, UPDATE_WARPS * WARP_GROUPS * columns) >= d->num_sms;
    };
    if (a.n.k_dim > DELTA_K_DIM_MAX / 2)
        fills(2) ? launch_update<MANY_ROWS, 2>(d, a) : launch_update<MANY_ROWS, 1>(d, a);
    else if (fills(4))
        takes_five ? launch_update<FEW_ROWS, 5>(d, a) : launch_update<FEW_ROWS, 4>(d, a);
    else
        fills(2) ? launch_update<FEW_ROWS, 2>(d, a) : launch_update<FEW_ROWS, 1>(d, a);
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
    launch_updates(d, *a);
    if (a->n.kind == DELTA_STATE_SPACE)
        cuda_delta_norm_groups(d, a);
    else
        launch_dependent(d, norm_heads_kernel,
                         dim3((unsigned)a->num_tokens, (unsigned)div_up(a->n.num_v_heads, NORM_WARPS)),
                         dim3(NORM_THREADS), 0, *a);
}
