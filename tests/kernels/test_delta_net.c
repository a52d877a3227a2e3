/* test_delta_net.c - layers with a state against a double-precision recurrence, however sequences are cut into steps and
 * whoever is beside them; behind drafts, and behind states that were kept; the loops of all instruction sets; and attention's gates. */
#include "fixture.h"
#include "kernels/cpu/delta_kernels.h"
#include "kernels/cpu/isa.h"

enum {
    SEQS = 3,
    TOKENS_MAX = 120,
    KEPT = 2,
    DIM_MAX = 256,
    DRAFT_MAX = 7,
    STEP_SEQS = SEQS * (DRAFT_MAX + 1)
};

struct shape {
    int32_t num_k_heads, num_v_heads, k_dim, v_dim;
    bool by_k_head, rates_by_k_head, tiled, has_rates;
    enum delta_kind kind;
    bool is_scaled, has_no_norm; /* of a state space */
    bool z_is_apart, gate_is_sigmoid;
    float beta_scale, decay_floor;
    int32_t short_taps; /* of a short convolution */
    int32_t step_rank;  /* of DELTA_SELECTIVE */
    bool norms;         /* likewise */
};

/* Of a state space that is scaled. */
static const float v_scale = 0.7f, k_scale = 1.3f, q_scale = 0.5f, step_scale = 1.6f;

static const struct shape shapes[] = {
    {1, 1, 8, 16, false, false, false, false, .kind = DELTA_RULE},
    {2, 4, 24, 48, false, false, false, false, .kind = DELTA_RULE},
    {2, 4, 24, 48, false, true, false, true, .kind = DELTA_RULE},
    {2, 4, 24, 48, false, false, true, true, .kind = DELTA_RULE},
    {2, 6, 24, 48, true, true, false, false, .kind = DELTA_RULE},
    {1, 3, 64, 32, true, true, false, false, .kind = DELTA_RULE},
    {2, 2, 128, 128, false, false, false, false, .kind = DELTA_RULE},
    {1, 2, 160, 160, false, false, false, false, .kind = DELTA_RULE},
    {2, 24, 16, 80, false, false, true, false,
     .kind = DELTA_RULE}, /* many heads: a GPU has CTAs of other shapes for them */
    {2, 48, 132, 16, true, false, false, false, .kind = DELTA_RULE},
    {2, 64, 16, 32, false, false, false, false, .kind = DELTA_RULE},
    {2, 4, 24, 48, false, false, false, false, .kind = DELTA_RULE, .z_is_apart = true, .beta_scale = 2},
    {2, 2, 96, 192, false, false, false, false, .kind = DELTA_RULE, .z_is_apart = true, .beta_scale = 2},
    {1, 3, 40, 32, false, true, false, false, .kind = DELTA_RULE, .gate_is_sigmoid = true},
    {3, 3, 24, 48, false, false, false, false, .kind = DELTA_CHANNELS, .z_is_apart = true,
     .gate_is_sigmoid = true},
    {1, 1, 128, 128, false, false, false, true, .kind = DELTA_CHANNELS, .z_is_apart = true,
     .gate_is_sigmoid = true},
    {24, 24, 16, 80, false, false, false, false, .kind = DELTA_CHANNELS, .z_is_apart = true},
    {2, 2, 100, 160, false, false, false, false, .kind = DELTA_CHANNELS, .z_is_apart = true,
     .gate_is_sigmoid = true, .beta_scale = 2, .decay_floor = -5},
    {0, 1, 0, 40, false, false, false, false, .kind = DELTA_CONVOLUTION, .short_taps = 3},
    {0, 1, 0, 40, false, false, false, false, .kind = DELTA_CONVOLUTION, .short_taps = 7},
    {1, 1, 8, 16, false, false, false, false, .kind = DELTA_STATE_SPACE},
    {2, 6, 24, 48, false, false, false, true, .kind = DELTA_STATE_SPACE},
    {1, 4, 128, 64, false, false, false, false, .kind = DELTA_STATE_SPACE},
    {2, 4, 100, 80, false, false, false, false, .kind = DELTA_STATE_SPACE},
    {1, 2, 256, 64, false, false, false, false, .kind = DELTA_STATE_SPACE},
    {2, 24, 16, 80, false, false, false, false, .kind = DELTA_STATE_SPACE},
    {4, 64, 16, 80, false, false, false, false, .kind = DELTA_STATE_SPACE},
    {1, 64, 20, 32, false, false, false, false, .kind = DELTA_STATE_SPACE},
    {2, 4, 24, 48, false, false, false, false, .kind = DELTA_STATE_SPACE, .is_scaled = true},
    {1, 6, 256, 64, false, false, false, false, .kind = DELTA_STATE_SPACE, .is_scaled = true,
     .has_no_norm = true},
    {2, 8, 100, 48, false, false, false, true, .kind = DELTA_STATE_SPACE, .has_no_norm = true},
    {1, 1, 8, 16, false, false, false, false, .kind = DELTA_SELECTIVE, .step_rank = 1},
    {1, 4, 16, 16, false, false, false, true, .kind = DELTA_SELECTIVE, .step_rank = 7},
    {1, 3, 16, 16, false, false, false, false, .kind = DELTA_SELECTIVE, .step_rank = 4, .norms = true},
};

/* A GPU has not the last ones. */
static size_t num_shapes(void)
{
    size_t num = array_length(shapes);
    while (getenv("FLASHD_TEST_DEVICE") && shapes[num - 1].kind == DELTA_SELECTIVE) num--;
    return num;
}

/* A layer's weights, and of each sequence what it projects and what comes out: of lengths[s] tokens. */
struct layer {
    struct shape shape;
    int32_t channels, width, row; /* q, k, v; v alone; all that is projected */
    float *taps, *decay, *dt_bias, *norm, *bias, *skip;
    float *selection, *steps; /* of DELTA_SELECTIVE, whose norm is of all that selection makes */
    int32_t lengths[SEQS], num_rates, num_decays; /* of a token; of all heads */
    float *projected[SEQS], *rates[SEQS], *z[SEQS], *decays[SEQS];
    double *expected[SEQS];
};

static float *normal_floats(struct random *r, int64_t count, float center, float deviation)
{
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = center + deviation * random_normal(r);
    return x;
}

/* Of the device under test. */
static int act_bytes(void)
{
    return getenv("FLASHD_TEST_DEVICE") ? 2 : 4;
}

/* Where channel c (those of the convolution, then z) of a token is among what is projected. */
static int32_t place_of(const struct layer *l, int32_t c)
{
    const struct shape *s = &l->shape;
    if (s->kind == DELTA_STATE_SPACE) return c < l->channels ? l->width + c : c - l->channels;
    if (!s->by_k_head) return c;
    int32_t k_width = s->num_k_heads * s->k_dim, per_head = s->num_v_heads / s->num_k_heads * s->v_dim,
            stride = 2 * (s->k_dim + per_head);
    if (c < k_width) return c / s->k_dim * stride + c % s->k_dim;
    if (c < 2 * k_width) return (c - k_width) / s->k_dim * stride + s->k_dim + c % s->k_dim;
    int32_t v = (c - 2 * k_width) % l->width, is_z = c >= l->channels;
    return v / per_head * stride + 2 * s->k_dim + is_z * per_head + v % per_head;
}

static double projected_of(const struct layer *l, int32_t seq, int32_t token, int32_t channel)
{
    return token < 0 ? 0 : (double)l->projected[seq][token * l->row + place_of(l, channel)];
}

/* a: behind b. */
static double rate_of(const struct layer *l, int32_t seq, int32_t token, int32_t head, bool is_a)
{
    const struct shape *s = &l->shape;
    int32_t per_head = s->num_v_heads / s->num_k_heads,
            at = s->rates_by_k_head ? head / per_head * 2 * per_head + is_a * per_head + head % per_head
                                    : is_a * s->num_v_heads + head;
    return (double)l->rates[seq][token * l->num_rates + at];
}

static double z_of(const struct layer *l, int32_t seq, int32_t token, int32_t i)
{
    return l->shape.z_is_apart ? (double)l->z[seq][token * l->width + i]
                               : projected_of(l, seq, token, l->channels + i);
}

/* Of row i of a head's state. */
static double decay_of(const struct layer *l, int32_t seq, int32_t token, int32_t head, int32_t i)
{
    const struct shape *s = &l->shape;
    const double rate = s->has_rates ? -(double)l->decay[head] : exp((double)l->decay[head]);
    const int32_t at = head * s->k_dim + i;
    if (s->kind == DELTA_RULE)
        return exp(-rate * log1p(exp(rate_of(l, seq, token, head, true) + (double)l->dt_bias[head])));
    const double x = (double)l->decays[seq][token * l->num_decays + at] + (double)l->dt_bias[at];
    return s->decay_floor < 0 ? exp((double)s->decay_floor / (1 + exp(-rate * x)))
                              : exp(-rate * log1p(exp(x)));
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* What a channel of a state space is multiplied by. */
static double scale_of(const struct layer *l, int32_t channel)
{
    const int32_t k_width = l->shape.num_k_heads * l->shape.k_dim;
    if (!l->shape.is_scaled) return 1;
    return (double)(channel < l->width ? v_scale : channel < l->width + k_width ? k_scale : q_scale);
}

static double mixed_of(const struct layer *l, int32_t seq, int32_t token, int32_t channel)
{
    const bool has_bias = l->shape.kind == DELTA_STATE_SPACE || l->shape.kind == DELTA_SELECTIVE;
    double sum = has_bias ? (double)l->bias[channel] : 0;
    for (int j = 0; j < DELTA_TAPS; j++)
        sum += (double)l->taps[channel * DELTA_TAPS + j] *
               projected_of(l, seq, token - DELTA_TAPS + 1 + j, channel) * scale_of(l, channel);
    return silu(sum);
}

/* Values of a head, from channel first on, as a unit vector times scale. */
static void unit_of(const struct layer *l, int32_t seq, int32_t token, int32_t first, double scale,
                    double *out)
{
    double sum = 1e-6;
    for (int32_t i = 0; i < l->shape.k_dim; i++) {
        out[i] = mixed_of(l, seq, token, first + i);
        sum += out[i] * out[i];
    }
    for (int32_t i = 0; i < l->shape.k_dim; i++) out[i] *= scale / sqrt(sum);
}

static void update_reference(const struct layer *l, int32_t seq, int32_t token, int32_t head, double *state,
                             double *out)
{
    const struct shape *s = &l->shape;
    double q[DIM_MAX], k[DIM_MAX], memory[DIM_MAX] = {0}, variance = 0;
    int32_t k_head = s->tiled ? head % s->num_k_heads : head * s->num_k_heads / s->num_v_heads,
            k_width = s->num_k_heads * s->k_dim, v = 2 * k_width + head * s->v_dim;
    unit_of(l, seq, token, k_head * s->k_dim, 1 / sqrt(s->k_dim), q);
    unit_of(l, seq, token, k_width + k_head * s->k_dim, 1, k);
    const double beta =
        (s->beta_scale > 0 ? (double)s->beta_scale : 1) / (1 + exp(-rate_of(l, seq, token, head, false)));
    for (int32_t i = 0; i < s->k_dim; i++) {
        const double decay = decay_of(l, seq, token, head, i);
        for (int32_t j = 0; j < s->v_dim; j++) memory[j] += k[i] * (state[i * s->v_dim + j] *= decay);
    }
    for (int32_t j = 0; j < s->v_dim; j++) {
        double change = beta * (mixed_of(l, seq, token, v + j) - memory[j]);
        out[j] = 0;
        for (int32_t i = 0; i < s->k_dim; i++) out[j] += q[i] * (state[i * s->v_dim + j] += k[i] * change);
        variance += out[j] * out[j] / s->v_dim;
    }
    for (int32_t j = 0; j < s->v_dim; j++) {
        const double z = z_of(l, seq, token, head * s->v_dim + j);
        out[j] *=
            (double)l->norm[j] / sqrt(variance + 1e-6) * (s->gate_is_sigmoid ? 1 / (1 + exp(-z)) : silu(z));
    }
}

/* Of a state space, whose channels are v, k and q; not yet the norm. */
static void space_reference(const struct layer *l, int32_t seq, int32_t token, int32_t head, double *state,
                            double *out)
{
    const struct shape *s = &l->shape;
    const int32_t k = l->width + head * s->num_k_heads / s->num_v_heads * s->k_dim,
                  q = k + s->num_k_heads * s->k_dim;
    const double scale = s->is_scaled ? (double)step_scale : 1,
                 step = log1p(
                     exp((double)l->projected[seq][token * l->row + l->width + l->channels + head] * scale +
                         (double)l->dt_bias[head])),
                 decay = exp((s->has_rates ? (double)l->decay[head] : -exp((double)l->decay[head])) * step);
    for (int32_t j = 0; j < s->v_dim; j++) {
        const double v = mixed_of(l, seq, token, head * s->v_dim + j);
        out[j] = (double)l->skip[head] * v;
        for (int32_t i = 0; i < s->k_dim; i++) {
            double *place = &state[i * s->v_dim + j];
            *place = *place * decay + mixed_of(l, seq, token, k + i) * step * v;
            out[j] += mixed_of(l, seq, token, q + i) * *place;
        }
        out[j] *= silu(projected_of(l, seq, token, l->channels + head * s->v_dim + j));
    }
}

static void norm_part(const struct layer *l, double *x, const float *weight, int32_t num)
{
    double variance = 1e-6;
    for (int32_t i = 0; i < num; i++) variance += x[i] * x[i] / num;
    for (int32_t i = 0; i < num && l->shape.norms; i++) x[i] *= (double)weight[i] / sqrt(variance);
}

static double product_of(const float *row, const double *x, int32_t num)
{
    double sum = 0;
    for (int32_t i = 0; i < num; i++) sum += (double)row[i] * x[i];
    return sum;
}

/* What all channels share: narrow steps, k and q. */
static void select_reference(const struct layer *l, int32_t seq, int32_t token, double *chosen)
{
    const int32_t rank = l->shape.step_rank, dim = l->shape.k_dim;
    double mixed[DIM_MAX];
    for (int32_t i = 0; i < l->width; i++) mixed[i] = mixed_of(l, seq, token, i);
    for (int32_t i = 0; i < rank + 2 * dim; i++)
        chosen[i] = product_of(l->selection + i * l->width, mixed, l->width);
    norm_part(l, chosen, l->norm, rank);
    norm_part(l, chosen + rank, l->norm + rank, dim);
    norm_part(l, chosen + rank + dim, l->norm + rank + dim, dim);
}

/* Of DELTA_SELECTIVE. */
static void channel_reference(const struct layer *l, int32_t seq, int32_t token, int32_t head, double *state,
                              double *out)
{
    const struct shape *s = &l->shape;
    double chosen[DIM_MAX], *k = chosen + s->step_rank, *q = k + s->k_dim;
    select_reference(l, seq, token, chosen);
    for (int32_t j = 0; j < s->v_dim; j++) {
        const int32_t channel = head * s->v_dim + j;
        const double v = mixed_of(l, seq, token, channel),
                     narrow = product_of(l->steps + channel * s->step_rank, chosen, s->step_rank),
                     step = log1p(exp(narrow + (double)l->dt_bias[channel]));
        out[j] = (double)l->skip[channel] * v;
        for (int32_t i = 0; i < s->k_dim; i++) {
            const double decay = (double)l->decay[channel * s->k_dim + i];
            double *place = &state[i * s->v_dim + j];
            *place = *place * exp((s->has_rates ? decay : -exp(decay)) * step) + k[i] * step * v;
            out[j] += q[i] * *place;
        }
        out[j] *= silu(projected_of(l, seq, token, l->width + channel));
    }
}

static void norm_reference(const struct layer *l, double *row)
{
    const int32_t width = l->width / l->shape.num_k_heads;
    for (int32_t first = 0; first < l->width; first += width) {
        double variance = 1e-6;
        for (int32_t i = first; i < first + width; i++) variance += row[i] * row[i] / width;
        for (int32_t i = first; i < first + width; i++) row[i] *= (double)l->norm[i] / sqrt(variance);
    }
}

/* b, c and x are channels 0, width and 2 width on. */
static double short_of(const struct layer *l, int32_t seq, int32_t token, int32_t channel)
{
    double sum = 0;
    const int32_t num_taps = l->shape.short_taps;
    for (int32_t j = 0; j < num_taps; j++) {
        const int32_t at = token - num_taps + 1 + j;
        sum += (double)l->taps[channel * num_taps + j] * projected_of(l, seq, at, channel) *
               projected_of(l, seq, at, 2 * l->width + channel);
    }
    return projected_of(l, seq, token, l->width + channel) * sum;
}

static void compute_expected(struct layer *l, int32_t seq)
{
    const struct shape *s = &l->shape;
    int64_t head_floats = (int64_t)s->k_dim * s->v_dim;
    double *states = calloc((size_t)(s->num_v_heads * head_floats), sizeof *states);
    l->expected[seq] = malloc((size_t)(l->lengths[seq] * l->width) * sizeof(double));
    for (int32_t i = 0; i < l->lengths[seq] * l->width && s->kind == DELTA_CONVOLUTION; i++)
        l->expected[seq][i] = short_of(l, seq, i / l->width, i % l->width);
    for (int32_t token = 0; token < l->lengths[seq] && s->kind != DELTA_CONVOLUTION; token++) {
        double *row = l->expected[seq] + token * l->width;
        for (int32_t h = 0; h < s->num_v_heads; h++)
            (s->kind == DELTA_STATE_SPACE ? space_reference
             : s->kind == DELTA_SELECTIVE
                 ? channel_reference
                 : update_reference)(l, seq, token, h, states + h * head_floats, row + h * s->v_dim);
        if (s->kind == DELTA_STATE_SPACE && !s->has_no_norm) norm_reference(l, row);
    }
    free(states);
}

static void layer_init(struct layer *l, const struct shape *s, struct random *r)
{
    l->shape = *s;
    l->width = s->num_v_heads * s->v_dim;
    l->channels = (s->kind == DELTA_SELECTIVE ? 0 : 2 * s->num_k_heads * s->k_dim) + l->width;
    l->row = s->kind == DELTA_CONVOLUTION ? 3 * l->width : l->channels + (s->z_is_apart ? 0 : l->width);
    l->num_rates = (s->kind == DELTA_CHANNELS ? 1 : 2) * s->num_v_heads;
    l->num_decays = s->kind == DELTA_CHANNELS    ? s->num_v_heads * s->k_dim
                    : s->kind == DELTA_SELECTIVE ? l->width
                                                 : s->num_v_heads;
    const int32_t num_rows = s->kind == DELTA_SELECTIVE ? l->width * s->k_dim : s->num_v_heads,
                  num_chosen = s->step_rank + 2 * s->k_dim;
    if (s->kind == DELTA_STATE_SPACE) l->row += s->num_v_heads;
    l->taps = normal_floats(r, (int64_t)l->channels * SHORT_TAPS_MAX, 0, 0.7f);
    l->decay = normal_floats(r, num_rows, -2, 1);
    for (int32_t h = 0; s->has_rates && h < num_rows; h++) l->decay[h] = -expf(l->decay[h]);
    l->dt_bias = normal_floats(r, l->num_decays, 0, 1);
    l->norm = normal_floats(r, max_of(l->width, num_chosen), 1, 0.2f);
    l->bias = normal_floats(r, l->channels, 0, 0.3f);
    l->skip = normal_floats(r, l->width, 1, 0.5f);
    l->selection = normal_floats(r, (int64_t)num_chosen * l->width, 0, 0.3f);
    l->steps = normal_floats(r, (int64_t)l->width * s->step_rank, 0, 0.5f);
    for (int32_t seq = 0; seq < SEQS; seq++) {
        l->lengths[seq] = 1 + random_below(r, s->num_v_heads * s->k_dim * s->v_dim > 30000
                                                  ? 30
                                                  : 90); /* the reference is slow */
        size_t count = (size_t)l->lengths[seq];
        l->projected[seq] = random_values(r, count * (size_t)l->row, act_bytes(), 1);
        l->rates[seq] = random_values(r, count * (size_t)l->num_rates, act_bytes(), 2);
        l->z[seq] = random_values(r, count * (size_t)l->width, act_bytes(), 1);
        l->decays[seq] = random_values(r, count * (size_t)l->num_decays, act_bytes(), 1);
        compute_expected(l, seq);
    }
}

static void layer_free(struct layer *l)
{
    for (int32_t seq = 0; seq < SEQS; seq++) {
        free(l->projected[seq]);
        free(l->rates[seq]);
        free(l->z[seq]);
        free(l->decays[seq]);
        free(l->expected[seq]);
    }
    free(l->taps);
    free(l->decay);
    free(l->dt_bias);
    free(l->norm);
    free(l->bias);
    free(l->skip);
    free(l->selection);
    free(l->steps);
}

/* A device with the layer, and room for a step. */
struct rig {
    struct device *d;
    struct delta_net *net;
    struct test_step *step;
    const struct layer *layer;
    void *projected, *rates, *z, *decays, *out; /* device */
    float *read;                                /* what came out */
};

static void rig_open(struct rig *r, const char *isa, int num_threads, const struct layer *l)
{
    const struct shape *s = &l->shape;
    const struct attention_args attention = {.num_heads = 1, .num_kv_heads = 1, .head_dim = 64};
    const int num_taps = s->kind == DELTA_CONVOLUTION ? s->short_taps : DELTA_TAPS;
    const struct step_limits limits = {.num_tokens = TOKENS_MAX,
                                       .num_seqs = STEP_SEQS,
                                       .num_logits = 1,
                                       .num_batch_slots = SEQS + 1,
                                       .num_states = KEPT,
                                       .num_draft_tokens = DRAFT_MAX,
                                       .max_model_len = TOKENS_MAX,
                                       .num_steps_in_flight = 1};
    const int32_t norm_width = s->kind == DELTA_STATE_SPACE ? l->width : s->v_dim;
    const bool is_parted = s->z_is_apart; /* q, k and v, taps too */
    const int32_t k_width = s->num_k_heads * s->k_dim;
    struct delta_desc desc = {
        .kind = s->kind,
        .num_k_heads = s->num_k_heads,
        .num_v_heads = s->num_v_heads,
        .k_dim = s->k_dim,
        .v_dim = s->v_dim,
        .by_k_head = s->by_k_head,
        .rates_by_k_head = s->rates_by_k_head,
        .tiled = s->tiled,
        .has_rates = s->has_rates,
        .z_is_apart = s->z_is_apart,
        .gate_is_sigmoid = s->gate_is_sigmoid,
        .beta_scale = s->beta_scale,
        .decay_floor = s->decay_floor,
        .norm_eps = 1e-6f,
        .convolution[0] = weight_view_plain(l->taps, DTYPE_F32, is_parted ? k_width : l->channels, num_taps),
        .decay = weight_view_plain(l->decay, DTYPE_F32, 1, s->num_v_heads),
        .dt_bias = weight_view_plain(l->dt_bias, DTYPE_F32, 1, l->num_decays),
        .norm =
            s->has_no_norm ? (struct weight_view){0} : weight_view_plain(l->norm, DTYPE_F32, 1, norm_width),
        .v_scale = s->is_scaled ? v_scale : 0,
        .k_scale = s->is_scaled ? k_scale : 0,
        .q_scale = s->is_scaled ? q_scale : 0,
        .step_scale = s->is_scaled ? step_scale : 0,
        .convolution_bias = weight_view_plain(l->bias, DTYPE_F32, 1, l->channels),
        .skip = weight_view_plain(l->skip, DTYPE_F32, 1, s->num_v_heads)};
    if (s->kind == DELTA_SELECTIVE) {
        desc.decay = weight_view_plain(l->decay, DTYPE_F32, l->width, s->k_dim);
        desc.skip = weight_view_plain(l->skip, DTYPE_F32, 1, l->width);
        desc.norm = (struct weight_view){0};
        desc.selection =
            weight_view_plain(l->selection, DTYPE_F32, s->step_rank + 2 * (int64_t)s->k_dim, l->width);
        desc.steps = weight_view_plain(l->steps, DTYPE_F32, l->width, s->step_rank);
        desc.norms_selection = s->norms;
        desc.step_norm = weight_view_plain(l->norm, DTYPE_F32, 1, s->step_rank);
        desc.k_norm = weight_view_plain(l->norm + s->step_rank, DTYPE_F32, 1, s->k_dim);
        desc.q_norm = weight_view_plain(l->norm + s->step_rank + s->k_dim, DTYPE_F32, 1, s->k_dim);
    }
    if (is_parted) {
        float *taps = l->taps + k_width * DELTA_TAPS;
        desc.convolution[1] = weight_view_plain(taps, DTYPE_F32, k_width, num_taps);
        desc.convolution[2] = weight_view_plain(taps + k_width * DELTA_TAPS, DTYPE_F32, l->width, num_taps);
    }
    struct error err = {0};
    *r = (struct rig){.d = test_device_open(isa, num_threads), .layer = l};
    if (r->d->ops->prepare(r->d, &limits, 64, 64, 64, &attention, 1, &err)) fail_msg("prepare: %s", err.text);
    if (r->d->ops->delta_net_create(r->d, &desc, &r->net, &err)) fail_msg("create: %s", err.text);
    r->step = test_step_new(TOKENS_MAX, STEP_SEQS, TOKENS_MAX / BLOCK_SIZE + 1);
    r->projected = device_floats(r->d, (size_t)TOKENS_MAX * (size_t)l->row, false);
    r->rates = device_floats(r->d, (size_t)TOKENS_MAX * (size_t)l->num_rates, false);
    r->z = device_floats(r->d, (size_t)TOKENS_MAX * (size_t)l->width, false);
    r->decays = device_floats(r->d, (size_t)TOKENS_MAX * (size_t)l->num_decays, false);
    r->out = device_floats(r->d, (size_t)TOKENS_MAX * (size_t)l->width, false);
    r->read = malloc((size_t)TOKENS_MAX * (size_t)l->width * sizeof(float));
}

static void rig_close(struct rig *r)
{
    test_step_free(r->step);
    r->d->ops->close(r->d);
    free(r->read);
}

/* decodes: each token by itself; those from num_true on are others, of another sequence. */
struct part {
    int32_t seq, slot, first, count;
    bool decodes;
    int32_t num_true;
};

/* Of tokens [first, first + count), width values each, to the step's tokens at. */
static void write_rows(struct rig *r, void *to, const float *from, size_t at, size_t first, size_t count,
                       size_t width)
{
    device_write(r->d, (char *)to + at * width * (size_t)r->d->act_bytes, from + first * width, count * width,
                 false);
}

static void write_tokens(struct rig *r, int32_t seq, size_t at, size_t first, size_t count)
{
    const struct layer *l = r->layer;
    write_rows(r, r->projected, l->projected[seq], at, first, count, (size_t)l->row);
    write_rows(r, r->rates, l->rates[seq], at, first, count, (size_t)l->num_rates);
    write_rows(r, r->z, l->z[seq], at, first, count, (size_t)l->width);
    write_rows(r, r->decays, l->decays[seq], at, first, count, (size_t)l->num_decays);
}

/* Parts that decode come last. */
static void rig_run(struct rig *r, const struct part *parts, int num_parts, float *out[SEQS])
{
    const struct layer *l = r->layer;
    static const int32_t blocks[TOKENS_MAX / BLOCK_SIZE + 1];
    int32_t slots[STEP_SEQS];
    const struct delta_inputs in = {r->projected, l->shape.z_is_apart ? r->z : NULL, r->rates, r->decays};
    test_step_clear(r->step);
    r->step->step.batch_slots = slots;
    for (int i = 0; i < num_parts; i++) {
        const struct part *p = &parts[i];
        const int32_t at = r->step->step.num_tokens, num_true = p->decodes ? p->num_true : p->count;
        write_tokens(r, p->seq, (size_t)at, (size_t)p->first, (size_t)num_true);
        for (int32_t j = num_true; j < p->count; j++)
            write_tokens(r, (p->seq + 1) % SEQS, (size_t)(at + j),
                         (size_t)(j % l->lengths[(p->seq + 1) % SEQS]), 1);
        for (int32_t j = 0; j < (p->decodes ? p->count : 1); j++) {
            slots[r->step->step.num_seqs] = p->slot;
            test_step_add(r->step, blocks, p->first + j, p->decodes ? 1 : p->count, p->decodes);
        }
    }
    struct batch *b = r->d->ops->step_begin(r->d, &r->step->step);
    r->d->ops->delta(r->d, b, r->out, &in, r->net);
    test_step_end(r->d, NULL);
    device_read(r->d, r->read, r->out, (size_t)r->step->step.num_tokens * (size_t)l->width, false);
    const float *from = r->read;
    for (int i = 0; i < num_parts; i++) {
        const struct part *p = &parts[i];
        size_t count = (size_t)(p->decodes ? p->num_true : p->count) * (size_t)l->width;
        memcpy(out[p->seq] + (size_t)p->first * (size_t)l->width, from, count * sizeof(float));
        from += (size_t)p->count * (size_t)l->width;
    }
}

/* All sequences, each at a pace of its own, in slots from first_slot on; now and then the last token comes again. */
static void run_all(struct rig *r, int32_t chunk_max, int32_t first_slot, struct random *random,
                    float *out[SEQS])
{
    int32_t done[SEQS] = {0};
    for (bool any = true; any;) {
        struct part parts[SEQS];
        int num_parts = 0;
        for (int32_t seq = 0; seq < SEQS; seq++) {
            int32_t left = r->layer->lengths[seq] - done[seq];
            if (left == 0 || random_below(random, 4) == 0) continue;
            int32_t again = done[seq] > 0 && random_below(random, 4) == 0,
                    count = 1 + random_below(random, chunk_max);
            count = min_of(count, left + again);
            parts[num_parts++] =
                (struct part){seq, (first_slot + seq) % (SEQS + 1), done[seq] - again, count, false, 0};
            done[seq] += count - again;
        }
        if (num_parts > 0) rig_run(r, parts, num_parts, out);
        any = false;
        for (int32_t seq = 0; seq < SEQS; seq++) any |= done[seq] < r->layer->lengths[seq];
    }
}

static void expect_near(const struct layer *l, int32_t seq, const float *out)
{
    const double tolerance = act_bytes() == 2 ? 0x1p-8 : 2e-4;
    for (int32_t i = 0; i < l->lengths[seq] * l->width; i++) {
        double difference = fabs((double)out[i] - l->expected[seq][i]);
        if (!(difference <= tolerance * (1 + fabs(l->expected[seq][i]))))
            fail_msg("token %d of %d, value %d: %g instead of %g", i / l->width, l->lengths[seq],
                     i % l->width, (double)out[i], l->expected[seq][i]);
    }
}

/* Of all tokens of each sequence. */
static void outputs_new(const struct layer *l, float **out)
{
    for (int32_t seq = 0; seq < SEQS; seq++)
        out[seq] = malloc((size_t)(l->lengths[seq] * l->width) * sizeof(float));
}

static void outputs_free(float **out)
{
    for (int32_t seq = 0; seq < SEQS; seq++) free(out[seq]);
}

static void equals_reference(const char *isa)
{
    struct random random = {.seed = test_seed()};
    for (size_t i = 0; i < num_shapes(); i++) {
        if (!takes_part(i)) continue;
        struct layer l;
        float *first[SEQS], *other[SEQS];
        layer_init(&l, &shapes[i], &random);
        outputs_new(&l, first);
        outputs_new(&l, other);
        for (int way = 0; way < 4; way++) {
            static const int32_t chunks[] = {90, 1, 3, 17};
            struct rig r;
            rig_open(&r, isa, 1 + way % 3, &l);
            run_all(&r, min_of(chunks[way], (int32_t)TOKENS_MAX / SEQS), way, &random, way ? other : first);
            if (way == 1) run_all(&r, 5, 3, &random, other); /* in slots that others have used */
            rig_close(&r);
            for (int32_t seq = 0; seq < SEQS; seq++) {
                size_t count = (size_t)(l.lengths[seq] * l.width);
                expect_near(&l, seq, first[seq]);
                if (way && num_bits_different(first[seq], other[seq], count))
                    fail_msg("%s: chunks of up to %d give other bits", isa, chunks[way]);
            }
        }
        outputs_free(first);
        outputs_free(other);
        layer_free(&l);
    }
}

static void test_equals_reference(void **state)
{
    (void)state;
    for_each_isa(equals_reference);
}

/* ---- kept states ---- */

static void rig_copy(struct rig *r, int32_t slot, int32_t kept, int32_t position, bool keeps)
{
    const struct state_copy copy = {.batch_slot = slot, .state = kept, .position = position, .keeps = keeps};
    assert_int_equal(r->d->ops->states_copy(r->d, r->net, &copy, 1), 0);
}

/* ---- drafts ---- */

/* A sequence on its way. */
struct way {
    int32_t slot, done; /* tokens that count */
    bool is_open;       /* its last step had a draft: another step that decodes is next */
};

static struct part next_part(const struct way *w, int32_t seq, int32_t length, bool decodes,
                             struct random *random)
{
    const int32_t left = length - w->done;
    struct part p = {seq, w->slot, w->done, 1 + random_below(random, DRAFT_MAX + 1), decodes, 0};
    if (decodes && random_below(random, 3) == 0) p.count = 1;
    p.num_true = min_of(1 + random_below(random, p.count), left);
    if (!decodes) p.count = min_of(p.count, left);
    return p;
}

/* What a part's tokens bring the sequence: sometimes not even the first counts. */
static void move_on(struct way *w, const struct part *p, struct random *random)
{
    w->is_open = p->decodes && p->count > 1;
    if (!p->decodes)
        w->done += p->count;
    else if (random_below(random, 5) > 0)
        w->done += p->num_true;
}

/* Prompts of two tokens at least, then drafts, of which any number counts, beside others' prompts. Behind some of them the state goes
 * on in the slot that is free, where nothing else has been since or a sequence has. */
static void run_drafts(struct rig *r, struct random *random, float *out[SEQS])
{
    struct way ways[SEQS] = {{.slot = 0}, {.slot = 1}, {.slot = 2}};
    int32_t free_slot = SEQS;
    for (bool any = true; any;) {
        struct part parts[SEQS];
        int num_parts = 0;
        for (int decodes = 0; decodes < 2; decodes++)
            for (int32_t seq = 0; seq < SEQS; seq++) {
                const struct way *w = &ways[seq];
                const int32_t length = r->layer->lengths[seq];
                bool wants = w->is_open || (w->done > 1 && (seq + w->done) % 5 > 0);
                if (w->done < length && wants == decodes)
                    parts[num_parts++] = next_part(w, seq, length, decodes, random);
            }
        if (num_parts > 0) rig_run(r, parts, num_parts, out);
        any = num_parts > 0;
        for (int i = 0; i < num_parts; i++) {
            struct way *w = &ways[parts[i].seq];
            move_on(w, &parts[i], random);
            if (w->done == 0 || random_below(random, 4) > 0) continue;
            rig_copy(r, w->slot, 0, w->done, true);
            if (random_below(random, 2)) continue;
            rig_copy(r, free_slot, 0, w->done, false);
            const int32_t slot = w->slot;
            *w = (struct way){.slot = free_slot, .done = w->done};
            free_slot = slot;
        }
    }
}

static bool takes_drafts(struct device *d, const struct shape *s)
{
    return d->ops->delta_takes_drafts && d->ops->delta_takes_drafts(d, s->k_dim, s->v_dim);
}

static void drafts_leave_no_trace(const char *isa)
{
    struct random random = {.seed = test_seed()};
    for (size_t i = 0; i < num_shapes(); i++) {
        if (!takes_part(i)) continue;
        struct layer l;
        float *first[SEQS], *other[SEQS];
        layer_init(&l, &shapes[i], &random);
        outputs_new(&l, first);
        outputs_new(&l, other);
        for (int way = 0; way < 3; way++) {
            struct rig r;
            rig_open(&r, isa, 1 + way, &l);
            bool has_drafts = takes_drafts(r.d, &shapes[i]);
            if (has_drafts && way == 0) run_all(&r, 10, 0, &random, first);
            if (has_drafts) run_drafts(&r, &random, other);
            rig_close(&r);
            if (!has_drafts) break;
            for (int32_t seq = 0; seq < SEQS; seq++)
                if (num_bits_different(first[seq], other[seq], (size_t)(l.lengths[seq] * l.width)))
                    fail_msg("%s: shape %zu: drafts give other bits", isa, i);
        }
        outputs_free(first);
        outputs_free(other);
        layer_free(&l);
    }
}

static void test_drafts_leave_no_trace(void **state)
{
    (void)state;
    for_each_isa(drafts_leave_no_trace);
}

/* ---- behind kept states ---- */

static void run_from(struct rig *r, int32_t slot, int32_t first, int32_t count, float *out[SEQS])
{
    const struct part part = {0, slot, first, count, false, 0};
    if (count > 0) rig_run(r, &part, 1, out);
}

/* Kept behind `at` tokens, as they are the newest or with one more behind them, the state brings another batch_slot there, that
 * of another sequence; and the first goes on as if nothing had been. */
static void expect_same_behind(struct rig *r, int32_t at, float *out[SEQS], float *other[SEQS])
{
    const struct layer *l = r->layer;
    int32_t length = l->lengths[0];
    size_t count = (size_t)(length * l->width);
    const struct part stranger = {1, 2, 0, 1, false, 0};
    for (int more = 0; more < 2 && at + more <= length; more++) {
        run_from(r, 0, 0, at + more, out);
        rig_copy(r, 0, more, at, true);
        run_from(r, 0, at + more, length - at - more, out);
        memset(other[0], 0, count * sizeof(float));
        memcpy(other[0], out[0], (size_t)(at * l->width) * sizeof(float));
        rig_run(r, &stranger, 1, other);
        rig_copy(r, 2, more, at, false);
        run_from(r, 2, at, length - at, other);
        if (num_bits_different(out[0], other[0], count)) fail_msg("other bits behind a state of %d", at);
    }
}

static void goes_on_from_a_kept_state(const char *isa)
{
    struct random random = {.seed = test_seed()};
    for (size_t i = 0; i < num_shapes(); i++) {
        if (!takes_part(i)) continue;
        struct layer l;
        struct rig r;
        float *out[SEQS], *other[SEQS];
        layer_init(&l, &shapes[i], &random);
        outputs_new(&l, out);
        outputs_new(&l, other);
        rig_open(&r, isa, 2, &l);
        for (int32_t at = 1; at <= min_of(l.lengths[0], 5); at++) expect_same_behind(&r, at, out, other);
        expect_same_behind(&r, l.lengths[0], out, other);
        expect_near(&l, 0, out[0]);
        rig_close(&r);
        outputs_free(out);
        outputs_free(other);
        layer_free(&l);
    }
}

static void test_goes_on_from_a_kept_state(void **state)
{
    (void)state;
    for_each_isa(goes_on_from_a_kept_state);
}

/* ---- the loops of a head, against the same operations in the same order ---- */

enum { K_DIM = 33, V_DIM = 112, HEAD_TOKENS = 5, HEAD_FLOATS = K_DIM * V_DIM };

/* state: [K_DIM][V_DIM] */
static void update_plainly(const struct delta_update *u, int32_t token, float *state)
{
    const float *q = u->q + token * u->unit_stride, *k = u->k + token * u->unit_stride,
                *v = u->v + token * u->v_stride;
    for (int32_t j = 0; j < V_DIM; j++) {
        float sum = 0, out = 0, *column = state + j;
        const float *decays = u->decays ? u->decays + token * u->decays_stride : NULL;
        for (int32_t i = 0; i < K_DIM; i++) sum += column[i * V_DIM] * (decays ? k[i] * decays[i] : k[i]);
        if (!decays) sum *= u->decay[token];
        float change = (u->corrects ? v[j] - sum : v[j]) * u->beta[token];
        for (int32_t i = 0; i < K_DIM; i++) {
            column[i * V_DIM] = column[i * V_DIM] * (decays ? decays[i] : u->decay[token]) + change * k[i];
            out += column[i * V_DIM] * q[i];
        }
        u->out[token * u->out_stride + j] = out;
    }
}

static void same_bits_as_plain_loops(const char *isa, bool corrects, bool by_channel)
{
    struct random random = {.seed = test_seed()};
    struct error err = {0};
    enum cpu_isa_level level;
    float *values = normal_floats(&random, HEAD_TOKENS * (2 * K_DIM + V_DIM), 0, 0.3f),
          *from = normal_floats(&random, HEAD_FLOATS, 0, 1), state[HEAD_FLOATS], to[HEAD_FLOATS],
          outs[2][HEAD_TOKENS * V_DIM], decays[HEAD_TOKENS * K_DIM];
    const float decay[HEAD_TOKENS] = {0.9f, 1, 0, 0.37f, 0.99f}, beta[HEAD_TOKENS] = {0.5f, 1, 0, 0.2f, 0.9f};
    struct delta_update u = {.corrects = corrects,
                             .k_dim = K_DIM,
                             .v_dim = V_DIM,
                             .num_tokens = HEAD_TOKENS,
                             .from = from,
                             .to = to};
    u.q = values;
    u.k = values + K_DIM;
    u.v = values + 2 * K_DIM;
    u.unit_stride = u.v_stride = 2 * K_DIM + V_DIM;
    u.out_stride = V_DIM;
    u.decay = decay;
    u.decays = by_channel ? decays : NULL;
    u.decays_stride = K_DIM;
    u.beta = beta;
    for (size_t i = 0; i < array_length(decays); i++) decays[i] = (float)random_uniform(&random);
    for (int32_t i = 0; i < HEAD_FLOATS; i++) state[i] = from[delta_state_index(K_DIM, i / V_DIM, i % V_DIM)];
    u.out = outs[0];
    for (int32_t token = 0; token < HEAD_TOKENS; token++) update_plainly(&u, token, state);
    u.out = outs[1];
    assert_int_equal(cpu_isa_parse(isa, &level, &err), STATUS_OK);
    cpu_isa_kernels(level)->deltas->update(&u);
    assert_memory_equal(outs[0], outs[1], sizeof outs[0]);
    for (int32_t i = 0; i < HEAD_FLOATS; i++)
        assert_memory_equal(&state[i], &to[delta_state_index(K_DIM, i / V_DIM, i % V_DIM)], sizeof(float));
    free(values);
    free(from);
}

static void gives_the_same_bits(const char *isa)
{
    same_bits_as_plain_loops(isa, true, false);
    same_bits_as_plain_loops(isa, false, false);
    same_bits_as_plain_loops(isa, true, true);
}

static void test_all_sets_give_the_same_bits(void **state)
{
    (void)state;
    for_each_isa(gives_the_same_bits);
}

/* What a gate multiplies by. */
static double gate_of(double x, bool is_softplus)
{
    return is_softplus ? log1p(exp(x)) : 1 / (1 + exp(-x));
}

static void gates_of(const char *isa, bool by_head, bool are_softplus)
{
    enum { HEADS = 3, KV_HEADS = 1, DIM = 64, TOKENS = 9, Q = HEADS * DIM, KV = 2 * KV_HEADS * DIM };
    const struct attention_args args = {.num_heads = HEADS,
                                        .num_kv_heads = KV_HEADS,
                                        .head_dim = DIM,
                                        .gates_by_head = by_head,
                                        .gates_are_softplus = are_softplus};
    const struct step_limits limits = {TOKENS, 1, TOKENS, 1, TOKENS, 1, 1, 0, false, 0};
    struct random random = {.seed = test_seed()};
    struct error err = {0};
    struct device *d = test_device_open(isa, 2);
    if (d->ops->prepare(d, &limits, 64, 64, 64, &args, 1, &err)) fail_msg("prepare: %s", err.text);
    struct test_step *step = test_step_new(TOKENS, 1, 1);
    float *values = random_values(&random, TOKENS * (2 * Q + KV), d->act_bytes, 3), after[TOKENS * (Q + KV)],
          own[TOKENS * Q], x[TOKENS * Q];
    void *projected = device_floats(d, TOKENS * (2 * Q + KV), false),
         *qkv = device_floats(d, TOKENS * (Q + KV), false), *gate = device_floats(d, TOKENS * Q, false),
         *gated = device_floats(d, TOKENS * Q, false);
    const double tolerance = d->act_bytes == 2 ? 0x1p-8 : 2e-6;
    device_write(d, projected, values, TOKENS * (2 * Q + KV), false);
    test_step_add(step, (int32_t[]){0}, 0, TOKENS, false);
    struct batch *b = d->ops->step_begin(d, &step->step);
    d->ops->split_gates(d, b, qkv, gate, projected, &args);
    device_read(d, after, qkv, TOKENS * (Q + KV), false);
    for (int i = 0; i < TOKENS * Q; i++) x[i] = after[i / Q * (Q + KV) + i % Q];
    device_write(d, gated, x, TOKENS * Q, false);
    d->ops->apply_gates(d, b, gated, gate, &args);
    test_step_end(d, NULL);
    device_read(d, x, gated, TOKENS * Q, false);
    device_read(d, own, gate, TOKENS * Q, false);
    for (int t = 0; t < TOKENS; t++) {
        const float *from = values + t * (2 * Q + KV);
        for (int i = 0; i < Q; i++) {
            double q = (double)from[i / DIM * 2 * DIM + i % DIM],
                   g = (double)from[i / DIM * 2 * DIM + DIM + i % DIM];
            assert_true((double)own[t * Q + i] == g);
            if (by_head) g = (double)own[t * HEADS + i / DIM]; /* the first ones that are there */
            g = gate_of(g, are_softplus);
            assert_true(fabs((double)x[t * Q + i] - q * g) <= tolerance * fmax(g, 1) * fabs(q));
        }
        assert_memory_equal(after + t * (Q + KV) + Q, from + 2 * Q, KV * sizeof(float));
    }
    free(values);
    test_step_free(step);
    d->ops->close(d);
}

static void gates(const char *isa)
{
    gates_of(isa, false, false);
    gates_of(isa, false, true);
    gates_of(isa, true, true);
}

static void test_gates(void **state)
{
    (void)state;
    for_each_isa(gates);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_reference),
        cmocka_unit_test(test_drafts_leave_no_trace),
        cmocka_unit_test(test_goes_on_from_a_kept_state),
        cmocka_unit_test(test_gates),
        cmocka_unit_test(test_all_sets_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
