/* delta_net.c - layers with a state (device.h: delta_desc), and gates behind attention.
 *
 * A token after the other: the bits do not depend on how a prompt is cut. Beside the layer's products that is little: three
 * products with a state of Dk x Dv for each head, where the projections are H x (2 Gk Dk + 2 Gv Dv).
 *
 * Each batch_slot has two states. A step goes on from the newest one, in place, and writes what its last token leaves into the
 * other: so that this token can be computed again. Behind the states of batch_slots are the places for kept ones.
 *
 * Where a draft is among the tokens (state_runs.h) the newest state stays as it is and all of them go through the other one. What is
 * projected of them stays in a log, as a run that has still to come. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "kernels/cpu/delta_kernels.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/selective.h"
#include "kernels/delta_desc.h"
#include "kernels/state_runs.h"

/* Where a batch_slot is. */
struct delta_place {
    int32_t position;   /* tokens that the newest state has seen */
    int32_t newest;     /* 0 or 1 */
    int32_t num_logged; /* tokens behind these whose rows are in the log */
};

struct delta_net {
    int32_t num_batch_slots;
    int32_t num_log_rows; /* of a batch_slot: a token and a draft; 0: none has drafts */
    int32_t num_k_heads, num_v_heads, k_dim, v_dim, num_taps;
    enum delta_kind kind;
    bool by_k_head, rates_by_k_head, tiled, z_is_apart, gate_is_sigmoid;
    bool has_norm;
    float norm_eps, step_scale, beta_scale, decay_floor;
    float *taps, *bias;            /* [num_taps][channels], [channels] of the convolution */
    float *decay, *dt_bias, *norm; /* [num_v_heads] e^decay of the desc; as the desc has them */
    float *skip;                   /* [num_v_heads] */
    struct selective *selective;   /* of DELTA_SELECTIVE, else NULL */
    struct delta_place *places;    /* [num_batch_slots] */
    int32_t *kept;                 /* [num_states] tokens that a kept state has seen */
    float *
        states; /* [num_batch_slots][2][num_v_heads], then [num_states][num_v_heads], as delta_kernels.h has them */
    float *inputs; /* of each of these [num_taps - 1][channels] q, k and v of the newest tokens */
    /* [num_batch_slots][num_log_rows] rows as in delta_task */
    float *log_raw, *log_rates, *log_decays;
};

/* For all layers of a model, which are alike. */
struct delta_scratch {
    float *raw,
        *mixed; /* [T][channels] q, k and v before the convolution, where they are not in a row, and behind it */
    float *gates;  /* [T][Gv Dv] z */
    float *unit;   /* [T][2 Gk Dk] q and k, unit vectors */
    float *decays; /* [T][Gv Dk] of DELTA_CHANNELS, else NULL */
    struct selective_scratch selective;
    float *answers; /* [num_log_rows][Gv Dv] of tokens in the log, which nobody reads */
};

static int64_t v_width(const struct delta_net *n)
{
    return (int64_t)n->num_v_heads * n->v_dim;
}

static int64_t k_width(const struct delta_net *n)
{
    return (int64_t)n->num_k_heads * n->k_dim;
}

static int64_t num_channels(const struct delta_net *n)
{
    return (n->kind == DELTA_SELECTIVE ? 0 : 2 * k_width(n)) + v_width(n);
}

static int64_t num_rates(const struct delta_net *n)
{
    const bool has_none = n->kind == DELTA_CONVOLUTION || n->kind == DELTA_SELECTIVE;
    return has_none ? 0 : (n->kind == DELTA_RULE ? 2 : 1) * (int64_t)n->num_v_heads;
}

/* Values of a token of DELTA_CHANNELS. */
static int64_t num_decays(const struct delta_net *n)
{
    return n->kind == DELTA_CHANNELS ? k_width(n) : 0;
}

static int64_t norm_width(const struct delta_net *n)
{
    return n->kind == DELTA_STATE_SPACE ? v_width(n) : n->v_dim;
}

static int64_t state_floats(const struct delta_net *n)
{
    return v_width(n) * n->k_dim;
}

static int64_t input_floats(const struct delta_net *n)
{
    return (n->num_taps - 1) * num_channels(n);
}

static float *state_of(const struct delta_net *n, int32_t batch_slot, int32_t which)
{
    return n->states + (batch_slot * 2 + which) * state_floats(n);
}

static float *inputs_of(const struct delta_net *n, int32_t batch_slot, int32_t which)
{
    return n->inputs + (batch_slot * 2 + which) * input_floats(n);
}

/* ---- creating ---- */

static bool alloc_scratch(struct cpu_device *c, const struct delta_net *n)
{
    struct device_memory *m = &c->memory;
    uint64_t tokens = (uint64_t)max_of(c->limits.num_tokens, n->num_log_rows);
    if (c->delta_scratch) return true;
    struct delta_scratch *s = c->delta_scratch = device_memory_alloc(m, sizeof *s);
    if (!s) return false;
    s->raw = device_memory_alloc_array(m, tokens * (uint64_t)num_channels(n), sizeof *s->raw);
    s->mixed = device_memory_alloc_array(m, tokens * (uint64_t)num_channels(n), sizeof *s->mixed);
    s->gates = device_memory_alloc_array(m, tokens * (uint64_t)v_width(n), sizeof *s->gates);
    s->unit = device_memory_alloc_array(m, tokens * (uint64_t)(2 * k_width(n)), sizeof *s->unit);
    s->answers =
        device_memory_alloc_array(m, (uint64_t)(n->num_log_rows * v_width(n)) + 1, sizeof *s->answers);
    if (n->kind == DELTA_CHANNELS)
        s->decays = device_memory_alloc_array(m, tokens * (uint64_t)k_width(n), sizeof *s->decays);
    if (n->selective && !selective_alloc_scratch(c, n->selective, tokens, &s->selective)) return false;
    return s->raw && s->mixed && s->gates && s->unit && s->answers &&
           (s->decays || n->kind != DELTA_CHANNELS);
}

static bool alloc_log(struct cpu_device *c, struct delta_net *n)
{
    struct device_memory *m = &c->memory;
    const uint64_t rows = (uint64_t)(n->num_batch_slots * n->num_log_rows) + 1; /* never none */
    n->log_raw = device_memory_alloc_array(m, rows, (uint64_t)num_channels(n) * sizeof(float));
    n->log_rates = device_memory_alloc_array(m, rows, (uint64_t)(num_rates(n) + 1) * sizeof(float));
    n->log_decays = device_memory_alloc_array(m, rows, (uint64_t)(num_decays(n) + 1) * sizeof(float));
    return n->log_raw && n->log_rates && n->log_decays;
}

static bool alloc_net(struct cpu_device *c, struct delta_net *n)
{
    struct device_memory *m = &c->memory;
    uint64_t slots = (uint64_t)c->limits.num_batch_slots, num_kept = (uint64_t)c->limits.num_states,
             channels = (uint64_t)num_channels(n);
    n->taps = device_memory_alloc_array(m, channels, (size_t)n->num_taps * sizeof *n->taps);
    n->bias = device_memory_alloc_array(m, channels, sizeof *n->bias); /* zeros */
    n->skip = device_memory_alloc_array(m, (uint64_t)n->num_v_heads, sizeof *n->skip);
    n->decay = device_memory_alloc_array(m, (uint64_t)n->num_v_heads, sizeof *n->decay);
    n->dt_bias = device_memory_alloc_array(m, (uint64_t)max_of(num_decays(n), (int64_t)n->num_v_heads),
                                           sizeof *n->dt_bias);
    n->norm = device_memory_alloc_array(m, (uint64_t)norm_width(n), sizeof *n->norm);
    n->places = device_memory_alloc_array(m, slots, sizeof *n->places);
    n->kept = device_memory_alloc_array(m, num_kept + 1, sizeof *n->kept); /* never none */
    n->states =
        device_memory_alloc_array(m, slots * 2 + num_kept, (uint64_t)state_floats(n) * sizeof *n->states);
    n->inputs =
        device_memory_alloc_array(m, slots * 2 + num_kept, (uint64_t)input_floats(n) * sizeof *n->inputs);
    return n->taps && n->bias && n->skip && n->decay && n->dt_bias && n->norm && n->places && n->kept &&
           n->states && n->inputs && alloc_log(c, n);
}

static void take_weights(struct delta_net *n, const struct delta_desc *desc)
{
    delta_desc_read_taps(desc, n->taps);
    if (desc->kind == DELTA_CONVOLUTION) return;
    if (desc->kind == DELTA_SELECTIVE) {
        if (desc->convolution_bias.data) weight_view_vector_to_f32(&desc->convolution_bias, n->bias);
        return;
    }
    delta_desc_read_decay(desc, n->decay);
    weight_view_vector_to_f32(&desc->dt_bias, n->dt_bias);
    if (n->has_norm) weight_view_vector_to_f32(&desc->norm, n->norm);
    if (desc->kind != DELTA_STATE_SPACE) return;
    weight_view_vector_to_f32(&desc->convolution_bias, n->bias);
    weight_view_vector_to_f32(&desc->skip, n->skip);
}

int cpu_delta_net_create(struct device *d, const struct delta_desc *desc, struct delta_net **out,
                         struct error *err)
{
    struct cpu_device *c = cpu_device_of(d);
    int status = delta_desc_check(desc, err);
    assert_always(desc->kind == DELTA_CONVOLUTION || desc->v_dim % DELTA_LANES == 0);
    if (status) return status;
    struct delta_net *n = device_memory_alloc(&c->memory, sizeof *n);
    if (n)
        *n = (struct delta_net){.num_batch_slots = c->limits.num_batch_slots,
                                .num_log_rows =
                                    c->limits.num_draft_tokens > 0 ? c->limits.num_draft_tokens + 1 : 0,
                                .num_k_heads = desc->num_k_heads,
                                .num_v_heads = desc->num_v_heads,
                                .k_dim = desc->k_dim,
                                .v_dim = desc->v_dim,
                                .num_taps = delta_desc_num_taps(desc),
                                .by_k_head = desc->by_k_head,
                                .rates_by_k_head = desc->rates_by_k_head,
                                .tiled = desc->tiled,
                                .z_is_apart = desc->z_is_apart,
                                .gate_is_sigmoid = desc->gate_is_sigmoid,
                                .beta_scale = desc->beta_scale > 0 ? desc->beta_scale : 1,
                                .decay_floor = desc->decay_floor,
                                .kind = desc->kind,
                                .has_norm = desc->norm.data != NULL,
                                .norm_eps = desc->norm_eps,
                                .step_scale = desc->step_scale > 0 ? desc->step_scale : 1};
    if (n && desc->kind == DELTA_SELECTIVE) status = selective_create(c, desc, &n->selective, err);
    if (status) return status;
    if (!n || !alloc_net(c, n) || !alloc_scratch(c, n))
        return error_set(err, STATUS_NO_MEMORY,
                         "no memory for the states of %d sequences: lower --max-num-seqs",
                         c->limits.num_batch_slots);
    take_weights(n, desc);
    *out = n;
    return STATUS_OK;
}

bool cpu_delta_takes_drafts(struct device *d, int32_t k_dim, int32_t v_dim)
{
    (void)d;
    (void)k_dim;
    (void)v_dim;
    return true;
}

/* ---- one step ---- */

struct delta_task {
    struct cpu_device *device;
    struct delta_net *net;
    const struct delta_scratch *scratch;
    const struct state_run *runs;
    int32_t num_runs, num_tokens;
    const float *raw; /* [T] rows of raw_stride: q, k, v of each token, in a row */
    int64_t raw_stride;
    const float *gates; /* [T] rows of gates_stride: z; NULL: out is for nobody */
    int64_t gates_stride;
    const float *rates; /* [T] rows of rates_stride: b and a, b, or steps */
    int64_t rates_stride;
    const float *projected, *decays; /* decays: as in delta_inputs */
    float *out;
};

/* Of by_k_head: q, k, v as one row, z as another. */
static void gather(void *context, int thread_idx, int num_threads)
{
    const struct delta_task *t = context;
    const struct delta_net *n = t->net;
    int64_t begin, end, per_head = v_width(n) / n->num_k_heads, stride = 2 * (n->k_dim + per_head);
    size_t k_bytes = (size_t)n->k_dim * sizeof(float), v_bytes = (size_t)per_head * sizeof(float);
    thread_pool_range(t->num_tokens, thread_idx, num_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        float *q = t->scratch->raw + i * num_channels(n), *k = q + k_width(n), *v = k + k_width(n);
        for (int32_t h = 0; h < n->num_k_heads; h++) {
            const float *from = t->projected + (i * n->num_k_heads + h) * stride;
            memcpy(q + h * n->k_dim, from, k_bytes);
            memcpy(k + h * n->k_dim, from + n->k_dim, k_bytes);
            memcpy(v + h * per_head, from + 2 * n->k_dim, v_bytes);
            memcpy(t->scratch->gates + i * v_width(n) + h * per_head, from + 2 * n->k_dim + per_head,
                   v_bytes);
        }
    }
}

/* Of a short convolution: b x. */
static void multiply(void *context, int thread_idx, int num_threads)
{
    const struct delta_task *t = context;
    const int64_t channels = num_channels(t->net);
    int64_t begin, end;
    thread_pool_range(t->num_tokens, thread_idx, num_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const float *b = t->projected + 3 * i * channels, *x = b + 2 * channels;
        for (int64_t k = 0; k < channels; k++) t->scratch->raw[i * channels + k] = b[k] * x[k];
    }
}

/* In four sums. */
static double sum_of_squares(const float *x, int32_t n)
{
    double sums[4] = {0};
    for (int32_t i = 0; i < n; i++) sums[i % 4] += (double)x[i] * (double)x[i];
    return sums[0] + sums[1] + (sums[2] + sums[3]);
}

static void make_unit(const float *x, int32_t n, double scale, float *out)
{
    float factor = (float)(scale / sqrt(sum_of_squares(x, n) + 1e-6));
    for (int32_t i = 0; i < n; i++) out[i] = x[i] * factor;
}

/* Rows for the convolution of a token of the step, i-th of its run. */
static void find_inputs(const struct delta_task *t, const struct state_run *run, int32_t token,
                        const float **in)
{
    const struct delta_net *n = t->net;
    const int32_t i = token - run->begin;
    const float *before = inputs_of(n, run->batch_slot, n->places[run->batch_slot].newest);
    for (int j = 0; j < n->num_taps; j++) {
        int32_t back = n->num_taps - 1 - j; /* tokens */
        in[j] = back <= i ? t->raw + (token - back) * t->raw_stride : before + (j + i) * num_channels(n);
    }
}

/* c times the convolution. */
static void convolve_shortly(const struct delta_task *t, const struct state_run *run, int32_t token)
{
    const int64_t channels = num_channels(t->net);
    const float *in[SHORT_TAPS_MAX], *c = t->projected + (3 * (int64_t)token + 1) * channels;
    float *out = t->out + token * channels;
    find_inputs(t, run, token, in);
    memset(out, 0, (size_t)channels * sizeof *out);
    for (int j = 0; j < t->net->num_taps; j++) {
        const float *taps = t->net->taps + j * channels, *input = in[j];
        for (int64_t k = 0; k < channels; k++) out[k] += taps[k] * input[k];
    }
    for (int64_t k = 0; k < channels; k++) out[k] *= c[k];
}

static void convolve_token(const struct delta_task *t, const struct state_run *run, int32_t token)
{
    const struct delta_net *n = t->net;
    int64_t channels = num_channels(n);
    const float *in[DELTA_TAPS];
    find_inputs(t, run, token, in);
    float *mixed = t->scratch->mixed + token * channels, *unit = t->scratch->unit + token * 2 * k_width(n);
    t->device->isa->deltas->convolve((int32_t)channels, in, n->taps, n->bias, mixed);
    if (!delta_kind_corrects(n->kind)) return;
    for (int32_t h = 0; h < 2 * n->num_k_heads; h++)
        make_unit(mixed + h * n->k_dim, n->k_dim, h < n->num_k_heads ? 1 / sqrt(n->k_dim) : 1,
                  unit + h * n->k_dim);
}

static void convolve(void *context, int thread_idx, int num_threads)
{
    const struct delta_task *t = context;
    const struct state_run *run = t->runs;
    int64_t begin, end;
    thread_pool_range(t->num_tokens, thread_idx, num_threads, &begin, &end);
    for (int32_t token = (int32_t)begin; token < end; token++) {
        while (token >= run->end) run++;
        (t->net->kind == DELTA_CONVOLUTION ? convolve_shortly : convolve_token)(t, run, token);
    }
}

/* The inputs before token `before` of the run, into to; from: those before the run. May be in place. */
static void keep_inputs(const struct delta_task *t, const struct state_run *run, int32_t before,
                        const float *from, float *to)
{
    const int64_t channels = num_channels(t->net);
    const int32_t num_before = t->net->num_taps - 1;
    for (int32_t j = 0; j < num_before; j++) {
        int32_t i = before - num_before + j; /* of the run */
        const float *row =
            i >= 0 ? t->raw + (run->begin + i) * t->raw_stride : from + (num_before + i) * channels;
        memmove(to + j * channels, row, (size_t)channels * sizeof(float));
    }
}

/* Tokens that go through a head at once. */
enum { TILE = 16 };

static double softplus(double x)
{
    return x > 20 ? x : log1p(exp(x));
}

/* Of DELTA_CHANNELS, of each row of a head's state. */
static void find_decays(const struct delta_task *t, int32_t token, int32_t head)
{
    const struct delta_net *n = t->net;
    const int64_t first = (int64_t)head * n->k_dim, at = token * k_width(n) + first;
    for (int32_t i = 0; i < n->k_dim; i++) {
        const float x = t->decays[at + i] + n->dt_bias[first + i], rate = n->decay[head];
        t->scratch->decays[at + i] = n->decay_floor < 0 ? expf(n->decay_floor / (1 + expf(-rate * x)))
                                                        : expf(-rate * (x > 20 ? x : log1pf(expf(x))));
    }
}

static void find_rates(const struct delta_task *t, int32_t token, int32_t head, float *decay, float *beta)
{
    const struct delta_net *n = t->net;
    const bool has_steps = n->kind == DELTA_STATE_SPACE;
    if (n->kind == DELTA_CHANNELS) {
        find_decays(t, token, head);
        *decay = 1;
        *beta = (float)((double)n->beta_scale / (1 + exp(-(double)t->rates[token * t->rates_stride + head])));
        return;
    }
    int32_t per_head = n->num_v_heads / n->num_k_heads,
            b = n->rates_by_k_head ? head + head / per_head * per_head : head,
            a = has_steps ? head : b + (n->rates_by_k_head ? per_head : n->num_v_heads);
    const float *rates = t->rates + token * t->rates_stride;
    double step = softplus((double)rates[a] * (double)n->step_scale + (double)n->dt_bias[head]);
    *decay = (float)exp(-(double)n->decay[head] * step);
    *beta = (float)(has_steps ? step : (double)n->beta_scale / (1 + exp(-(double)rates[b])));
}

/* Where a head's q, k and v of a token lie, and of how many floats their rows are. */
static void find_vectors(const struct delta_task *t, int32_t token, int32_t head, struct delta_update *u)
{
    const struct delta_net *n = t->net;
    const int32_t k_head = n->tiled ? head % n->num_k_heads : head / (n->num_v_heads / n->num_k_heads);
    const float *mixed = t->scratch->mixed + token * num_channels(n),
                *unit = t->scratch->unit + token * 2 * k_width(n) + k_head * n->k_dim;
    u->v_stride = num_channels(n);
    if (n->kind == DELTA_STATE_SPACE) { /* v comes first */
        u->v = mixed + head * n->v_dim;
        u->k = mixed + v_width(n) + k_head * n->k_dim;
        u->q = u->k + k_width(n);
        u->unit_stride = num_channels(n);
        return;
    }
    u->q = unit;
    u->k = unit + k_width(n);
    u->v = mixed + 2 * k_width(n) + head * n->v_dim;
    u->unit_stride = 2 * k_width(n);
}

/* What comes behind the state: of a state space the norm is over several heads, and follows (close_rows). */
static void close_head(const struct delta_task *t, int32_t token, int32_t head, const float *v, float *out)
{
    const struct delta_net *n = t->net;
    const struct delta_kernels *kernels = t->device->isa->deltas;
    const float *gates = t->gates + token * t->gates_stride + head * n->v_dim;
    if (n->kind == DELTA_SELECTIVE) {
        kernels->skip(n->v_dim, out, 0, v, gates);
        return;
    }
    if (n->kind == DELTA_STATE_SPACE) {
        kernels->skip(n->v_dim, out, n->skip[head], v, gates);
        return;
    }
    const double variance = sum_of_squares(out, n->v_dim) / n->v_dim;
    const float scale = (float)(1 / sqrt(variance + (double)n->norm_eps));
    if (!n->gate_is_sigmoid) {
        kernels->gate(n->v_dim, out, scale, n->norm, gates);
        return;
    }
    for (int32_t i = 0; i < n->v_dim; i++) out[i] = out[i] * scale * n->norm[i];
    kernels->sigmoid_mul(n->v_dim, out, gates);
}

static void update_selective(const struct delta_task *t, int32_t token, int32_t num_tokens, int32_t head,
                             const float *from, float *to)
{
    const struct delta_net *n = t->net;
    const float *mixed = t->scratch->mixed;
    const struct selective_run run = {token, num_tokens, head, mixed, from, to, t->out};
    selective_update(n->selective, &t->scratch->selective, &run);
    for (int32_t i = token; i < token + num_tokens && t->gates; i++) {
        const int64_t at = i * v_width(n) + head * n->v_dim;
        close_head(t, i, head, mixed + at, t->out + at);
    }
}

/* What a head of v does with at most TILE tokens. from and to: its states. */
static void update_tokens(const struct delta_task *t, int32_t token, int32_t num_tokens, int32_t head,
                          const float *from, float *to)
{
    const struct delta_net *n = t->net;
    float *out = t->out + token * v_width(n) + head * n->v_dim, decay[TILE], beta[TILE];
    if (n->selective) {
        update_selective(t, token, num_tokens, head, from, to);
        return;
    }
    for (int32_t i = 0; i < num_tokens; i++) find_rates(t, token + i, head, &decay[i], &beta[i]);
    struct delta_update u = {.corrects = delta_kind_corrects(n->kind),
                             .k_dim = n->k_dim,
                             .v_dim = n->v_dim,
                             .num_tokens = num_tokens,
                             .from = from,
                             .to = to,
                             .decay = decay,
                             .beta = beta,
                             .decays_stride = k_width(n),
                             .out = out,
                             .out_stride = v_width(n)};
    if (n->kind == DELTA_CHANNELS)
        u.decays = t->scratch->decays + token * k_width(n) + (int64_t)head * n->k_dim;
    find_vectors(t, token, head, &u);
    t->device->isa->deltas->update(&u);
    for (int32_t i = 0; i < num_tokens && t->gates; i++)
        close_head(t, token + i, head, u.v + i * u.v_stride, out + i * v_width(n));
}

/* A head's states: tokens that will not be computed again go through the newest one. */
static void update_head(const struct delta_task *t, const struct state_run *run, int32_t head)
{
    const struct delta_net *n = t->net;
    const int32_t newest = n->places[run->batch_slot].newest;
    const int64_t at = (int64_t)head * n->k_dim * n->v_dim;
    float *state = state_of(n, run->batch_slot, newest) + at,
          *other = state_of(n, run->batch_slot, 1 - newest) + at;
    const float *from = state;
    const int32_t certain = run->has_draft ? run->begin : run->end - 1;
    for (int32_t token = run->begin; token < certain; token += TILE)
        update_tokens(t, token, min_of(certain - token, TILE), head, state, state);
    for (int32_t token = certain; token < run->end; token += TILE, from = other)
        update_tokens(t, token, min_of(run->end - token, TILE), head, from, other);
}

static void update(void *context, int thread_idx, int num_threads)
{
    const struct delta_task *t = context;
    int64_t begin, end;
    thread_pool_range((int64_t)t->num_runs * t->net->num_v_heads, thread_idx, num_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        update_head(t, &t->runs[i / t->net->num_v_heads], (int32_t)(i % t->net->num_v_heads));
}

/* Of a state space: the norm over the heads that share k and q. */
static void close_rows(void *context, int thread_idx, int num_threads)
{
    const struct delta_task *t = context;
    const struct delta_net *n = t->net;
    const int64_t width = v_width(n) / n->num_k_heads;
    int64_t begin, end;
    thread_pool_range((int64_t)t->num_tokens * n->num_k_heads, thread_idx, num_threads, &begin, &end);
    for (int64_t group = begin; group < end; group++) {
        float *out = t->out + group * width;
        const float *norm = n->norm + group % n->num_k_heads * width;
        const double variance = sum_of_squares(out, (int32_t)width) / (double)width;
        const float scale = (float)(1 / sqrt(variance + (double)n->norm_eps));
        for (int64_t i = 0; i < width; i++) out[i] = out[i] * scale * norm[i];
    }
}

/* What the last token has left is the newest, beside it what was there before that token. */
static void close_place(const struct delta_task *t, const struct state_run *run)
{
    struct delta_place *place = &t->net->places[run->batch_slot];
    const int32_t count = run->end - run->begin;
    float *before = inputs_of(t->net, run->batch_slot, place->newest);
    keep_inputs(t, run, count, before, inputs_of(t->net, run->batch_slot, 1 - place->newest));
    keep_inputs(t, run, count - 1, before, before);
    *place = (struct delta_place){.position = run->position + count, .newest = 1 - place->newest};
}

/* ---- drafts ---- */

static void copy_rows(float *to, const float *from, int64_t stride, int32_t num_rows, int64_t width)
{
    for (int32_t i = 0; i < num_rows && width > 0; i++)
        memcpy(to + i * width, from + i * stride, (size_t)width * sizeof(float));
}

/* The newest state is that before the run. */
static void log_run(const struct delta_task *t, const struct state_run *run)
{
    struct delta_net *n = t->net;
    const int32_t count = run->end - run->begin;
    const int64_t row = (int64_t)run->batch_slot * n->num_log_rows, begin = run->begin;
    assert_always(count <= n->num_log_rows);
    copy_rows(n->log_raw + row * num_channels(n), t->raw + begin * t->raw_stride, t->raw_stride, count,
              num_channels(n));
    if (num_rates(n) > 0)
        copy_rows(n->log_rates + row * num_rates(n), t->rates + begin * t->rates_stride, t->rates_stride,
                  count, num_rates(n));
    if (num_decays(n) > 0)
        copy_rows(n->log_decays + row * num_decays(n), t->decays + begin * num_decays(n), num_decays(n),
                  count, num_decays(n));
    struct delta_place *place = &n->places[run->batch_slot];
    *place = (struct delta_place){run->position, place->newest, count};
}

/* The tokens of the batch_slot's log before position have counted. */
static void catch_up(struct cpu_device *c, struct delta_net *n, int32_t batch_slot, int32_t position)
{
    const struct delta_place *place = &n->places[batch_slot];
    const int32_t count = position - place->position;
    const int64_t row = (int64_t)batch_slot * n->num_log_rows;
    const struct state_run run = {0, count, batch_slot, place->position, false};
    const struct delta_task t = {.device = c,
                                 .net = n,
                                 .scratch = c->delta_scratch,
                                 .runs = &run,
                                 .num_runs = 1,
                                 .num_tokens = count,
                                 .raw = n->log_raw + row * num_channels(n),
                                 .raw_stride = num_channels(n),
                                 .rates = n->log_rates + row * num_rates(n),
                                 .rates_stride = num_rates(n),
                                 .decays = n->log_decays + row * num_decays(n),
                                 .out = c->delta_scratch->answers};
    assert_always(count <= place->num_logged);
    if (n->kind != DELTA_CONVOLUTION) {
        cpu_device_run(c, count * num_channels(n) * DELTA_TAPS, convolve, (void *)&t);
        if (n->selective) selective_project(c, n->selective, t.scratch->mixed, count, &t.scratch->selective);
        cpu_device_run(c, count * state_floats(n), update, (void *)&t);
    }
    close_place(&t, &run);
}

/* ---- a step's runs ---- */

/* Makes what the run goes on with the newest: zeros where its sequence begins. */
static void open_place(struct cpu_device *c, struct delta_net *n, const struct state_run *run)
{
    struct delta_place *place = &n->places[run->batch_slot];
    if (run->position > 0) {
        if (run->position > place->position) catch_up(c, n, run->batch_slot, run->position);
        assert_always(run->position == place->position || run->position == place->position - 1);
        if (run->position < place->position) place->newest ^= 1;
        return;
    }
    place->newest = 0;
    memset(state_of(n, run->batch_slot, 0), 0, (size_t)state_floats(n) * sizeof(float));
    memset(inputs_of(n, run->batch_slot, 0), 0, (size_t)input_floats(n) * sizeof(float));
}

/* What the convolution reads, and gates, in what is projected, or where gather and multiply put them; a state space's steps. */
static void find_rows(struct delta_task *t)
{
    const struct delta_net *n = t->net;
    const int64_t channels = num_channels(n), width = v_width(n);
    if (n->kind == DELTA_STATE_SPACE) {
        t->gates_stride = t->raw_stride = t->rates_stride = width + channels + n->num_v_heads;
        t->gates = t->projected;
        t->raw = t->projected + width;
        t->rates = t->raw + channels;
        return;
    }
    const bool has_raw = n->by_k_head || n->kind == DELTA_CONVOLUTION;
    t->raw = has_raw ? t->scratch->raw : t->projected;
    t->raw_stride = has_raw || n->z_is_apart ? channels : channels + width;
    t->rates_stride = (n->kind == DELTA_CHANNELS ? 1 : 2) * (int64_t)n->num_v_heads;
    t->gates_stride = width;
    if (n->z_is_apart) return;
    t->gates = n->by_k_head ? t->scratch->gates : t->projected + channels;
    if (!n->by_k_head) t->gates_stride = channels + width;
}

void cpu_delta(struct device *d, const struct batch *b, void *out, const struct delta_inputs *in,
               struct delta_net *n)
{
    struct cpu_device *c = cpu_device_of(d);
    const int64_t work = b->step->num_tokens * (num_channels(n) + v_width(n));
    struct delta_task t = {.device = c,
                           .net = n,
                           .scratch = c->delta_scratch,
                           .runs = b->state_runs,
                           .num_runs = b->num_state_runs,
                           .num_tokens = b->step->num_tokens,
                           .projected = in->projected,
                           .rates = in->rates,
                           .gates = in->z,
                           .decays = in->decays,
                           .out = out};
    find_rows(&t);
    for (int32_t i = 0; i < t.num_runs; i++) open_place(c, n, &t.runs[i]);
    if (t.raw == t.scratch->raw)
        cpu_device_run(c, work, n->kind == DELTA_CONVOLUTION ? multiply : gather, &t);
    cpu_device_run(c, work * DELTA_TAPS, convolve, &t);
    if (n->selective)
        selective_project(c, n->selective, t.scratch->mixed, t.num_tokens, &t.scratch->selective);
    if (n->kind != DELTA_CONVOLUTION) cpu_device_run(c, t.num_tokens * state_floats(n), update, &t);
    if (n->kind == DELTA_STATE_SPACE && n->has_norm) cpu_device_run(c, work, close_rows, &t);
    for (int32_t i = 0; i < t.num_runs; i++) (t.runs[i].has_draft ? log_run : close_place)(&t, &t.runs[i]);
}

/* ---- kept states ---- */

struct copy_task {
    float *to;
    const float *from;
    int64_t count;
};

static void copy_part(void *context, int thread_idx, int num_threads)
{
    const struct copy_task *t = context;
    int64_t begin, end;
    thread_pool_range(t->count, thread_idx, num_threads, &begin, &end);
    memcpy(t->to + begin, t->from + begin, (size_t)(end - begin) * sizeof(float));
}

/* Which of the batch_slot's two has seen so many tokens. */
static int32_t which_of(struct cpu_device *c, struct delta_net *n, const struct state_copy *copy)
{
    const struct delta_place *place = &n->places[copy->batch_slot];
    if (copy->position > place->position) catch_up(c, n, copy->batch_slot, copy->position);
    assert_always(copy->position == place->position || copy->position == place->position - 1);
    return copy->position == place->position ? place->newest : 1 - place->newest;
}

static void copy_state(struct cpu_device *c, struct delta_net *n, const struct state_copy *copy)
{
    int32_t which = copy->keeps ? which_of(c, n, copy) : 0;
    float *state = state_of(n, copy->batch_slot, which), *inputs = inputs_of(n, copy->batch_slot, which),
          *kept_state = state_of(n, n->num_batch_slots, copy->state),
          *kept_inputs = inputs_of(n, n->num_batch_slots, copy->state);
    struct copy_task t = {kept_state, state, state_floats(n)};
    if (copy->keeps) {
        n->kept[copy->state] = copy->position;
    } else {
        assert_always(n->kept[copy->state] == copy->position);
        n->places[copy->batch_slot] = (struct delta_place){.position = copy->position, .newest = 0};
        t = (struct copy_task){state, kept_state, state_floats(n)};
    }
    cpu_device_run(c, t.count, copy_part, &t);
    memcpy(copy->keeps ? kept_inputs : inputs, copy->keeps ? inputs : kept_inputs,
           (size_t)input_floats(n) * sizeof(float));
}

int cpu_states_copy(struct device *d, struct delta_net *n, const struct state_copy *copies, int num_copies)
{
    for (int i = 0; i < num_copies; i++) copy_state(cpu_device_of(d), n, &copies[i]);
    return STATUS_OK;
}

/* ---- attention with gates ---- */

struct gate_task {
    const struct cpu_device *device;
    const struct attention_args *args;
    int32_t num_tokens;
    float *qkv, *gates, *x;
    const float *projected, *gates_of_x;
};

static void split_rows(void *context, int thread_idx, int num_threads)
{
    const struct gate_task *t = context;
    const struct attention_args *a = t->args;
    int64_t begin, end, q = (int64_t)a->num_heads * a->head_dim,
                        kv = (int64_t)2 * a->num_kv_heads * a->head_dim;
    size_t head_bytes = (size_t)a->head_dim * sizeof(float);
    thread_pool_range(t->num_tokens, thread_idx, num_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const float *from = t->projected + i * (2 * q + kv);
        for (int32_t h = 0; h < a->num_heads; h++, from += 2 * a->head_dim) {
            memcpy(t->qkv + i * (q + kv) + h * a->head_dim, from, head_bytes);
            memcpy(t->gates + i * q + h * a->head_dim, from + a->head_dim, head_bytes);
        }
        memcpy(t->qkv + i * (q + kv) + q, from, (size_t)kv * sizeof(float));
    }
}

void cpu_split_gates(struct device *d, const struct batch *b, void *qkv, void *gates, const void *projected,
                     const struct attention_args *args)
{
    struct gate_task t = {
        .args = args, .num_tokens = b->step->num_tokens, .qkv = qkv, .gates = gates, .projected = projected};
    cpu_device_run(cpu_device_of(d), (int64_t)t.num_tokens * args->num_heads * args->head_dim, split_rows,
                   &t);
}

/* Of other gates than sigmoids of each value. */
static void gate_row(float *x, const float *gates, int64_t width, const struct attention_args *a)
{
    const int32_t per_gate = a->gates_by_head ? a->head_dim : 1;
    for (int64_t i = 0; i < width; i += per_gate) {
        const double gate = (double)gates[i / per_gate];
        const float by = (float)(a->gates_are_softplus ? softplus(gate) : 1 / (1 + exp(-gate)));
        for (int32_t j = 0; j < per_gate; j++) x[i + j] *= by;
    }
}

static void gate_rows(void *context, int thread_idx, int num_threads)
{
    const struct gate_task *t = context;
    const struct attention_args *a = t->args;
    const int64_t q = (int64_t)a->num_heads * a->head_dim, width = a->gates_by_head ? a->num_heads : q;
    int64_t begin, end;
    thread_pool_range(t->num_tokens, thread_idx, num_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        float *x = t->x + i * q;
        const float *gates = t->gates_of_x + i * width;
        if (a->gates_are_softplus || a->gates_by_head)
            gate_row(x, gates, q, a);
        else
            t->device->isa->deltas->sigmoid_mul((int32_t)q, x, gates);
    }
}

void cpu_apply_gates(struct device *d, const struct batch *b, void *x, const void *gates,
                     const struct attention_args *args)
{
    struct cpu_device *c = cpu_device_of(d);
    struct gate_task t = {
        .device = c, .args = args, .num_tokens = b->step->num_tokens, .x = x, .gates_of_x = gates};
    cpu_device_run(c, (int64_t)t.num_tokens * args->num_heads * args->head_dim, gate_rows, &t);
}
