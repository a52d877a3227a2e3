/* moe.c - a mixture of experts: each token's choice, then expert by expert the products of the rows that chose it.
 *
 *   logits = x router^T, scores, the best num_chosen of each row
 *   for each expert in order: its rows gathered | gate and up, or up alone | down | added to the rows' outputs, times their scores
 *   where experts have a space of their own, a product before and behind them; the shared one comes after that
 *
 * An expert is two linears like any other's, whose results for a row do not depend on its neighbours; and a row's
 * contributions come in the order of experts. So its bits are its own. Where scores are for what experts are given, rows
 * are multiplied as they are gathered and added as they are. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/linear.h"

struct expert {
    struct linear *up, *down; /* up: with gate, if it has one */
    int32_t own_inner;        /* rows of up, and of gate; a member of a group has a share of them */
};

struct moe {
    int32_t num_experts, num_chosen, hidden_size;
    int32_t expert_hidden; /* of what experts get: hidden_size, or that of their own space */
    int32_t own_hidden;    /* rows of down; less than expert_hidden: members of a group share it out */
    int32_t num_groups, num_chosen_groups; /* 1 and 1: none */
    bool groups_by_two;
    enum router_scores scores;
    bool normalize, scale_input;
    float scale, near;
    struct linear *router, *shared_gate;      /* shared_gate: NULL: the shared expert is weighed by 1 */
    struct linear *to_experts, *from_experts; /* NULL: they have no space of their own */
    const float *choice_bias, *score_factors; /* [E], NULL: none */
    const float *out_bias;                    /* [H], NULL: none */
    struct expert *experts;                   /* [E], then the shared one if there is one */
    bool has_shared;
};

/* For the largest step; layers take turns. */
struct moe_scratch {
    int32_t num_experts_max, inner_max, own_max; /* what it has room for */
    float *logits;                               /* [T][E] */
    int32_t *choices;                            /* [T][num_chosen]: experts */
    float *weights;                              /* [T][num_chosen] */
    float *shared_weights;                       /* [T] */
    int32_t *rows;                               /* [T]: those that chose an expert */
    float *row_weights;                          /* [T] */
    float *gathered, *inner, *made;              /* [T][H] [T][I] [T][H] */
    float *own, *own_made;                       /* [T][L] of experts' own space: what they get, and make */
    /* Where members of a group share experts out, what gate and up have made of each expert's rows, one expert after the other: this
     * one's columns, and all; NULL: they do not. */
    float *own_mid, *mid;
    int64_t own_mid_max;    /* of a row, that there is room for */
    int32_t num_counts_max; /* the same of counts */
    int32_t *counts;        /* [E + 1]: rows of each expert, and of the shared one */
};

/* ---- creation ---- */

static int create_expert(struct device *d, const struct moe_desc *desc, const struct expert_desc *e,
                         struct expert *out, struct error *err)
{
    const struct linear_desc gate_up = {.kind = LINEAR_GATE_UP,
                                        .gate = desc->gate,
                                        .num_parts = 2,
                                        .parts = {e->gate, e->up},
                                        .biases = {e->gate_bias, e->up_bias}},
                             up = {.kind = LINEAR_UP,
                                   .gate = desc->gate,
                                   .num_parts = 1,
                                   .parts = {e->up},
                                   .biases = {e->up_bias}},
                             down = {.kind = LINEAR_PLAIN,
                                     .num_parts = 1,
                                     .parts = {e->down},
                                     .biases = {e->down_bias}};
    out->own_inner = (int32_t)weight_view_num_rows(&e->up);
    int status = cpu_linear_take(d, e->gate.data ? &gate_up : &up, &out->up, err);
    return status ? status : cpu_linear_take(d, &down, &out->down, err);
}

/* bias: data NULL for none. */
static int create_single(struct device *d, const struct weight_view *view, struct weight_view bias,
                         struct linear **out, struct error *err)
{
    const struct linear_desc desc = {
        .kind = LINEAR_PLAIN, .num_parts = 1, .parts = {*view}, .biases = {bias}};
    return cpu_linear_take(d, &desc, out, err);
}

static bool alloc_floats(struct cpu_device *c, float **out, int64_t rows, int64_t cols)
{
    uint64_t count;
    *out = checked_mul((uint64_t)rows, (uint64_t)cols, &count)
               ? device_memory_alloc_array(&c->memory, count, sizeof **out)
               : NULL;
    return *out;
}

/* NULL where there is none; false: no memory. */
static bool take_vector(struct cpu_device *c, const struct weight_view *view, const float **out)
{
    float *values;
    *out = NULL;
    if (!view->data) return true;
    if (!alloc_floats(c, &values, 1, view->cols)) return false;
    dtype_row_to_f32(view->dtype, view->data, view->cols, values);
    *out = values;
    return true;
}

/* Room for this one beside those before; what was too small stays unused until the device is closed. */
static bool reserve_scratch(struct cpu_device *c, const struct moe_desc *desc)
{
    struct moe_scratch *s = c->moe_scratch;
    int64_t rows = max_of(c->limits.num_tokens, c->limits.num_logits), hidden = desc->router.cols;
    int32_t inner =
        (int32_t)max_of(weight_view_num_rows(&desc->experts[0].up), weight_view_num_rows(&desc->shared.up));
    const int32_t own = (int32_t)weight_view_num_rows(&desc->to_experts);
    if (s && s->num_experts_max >= desc->num_experts && s->inner_max >= inner && s->own_max >= own)
        return true;
    if (!s) s = c->moe_scratch = device_memory_alloc_array(&c->memory, 1, sizeof *s);
    if (!s) return false;
    s->num_experts_max = max_of(s->num_experts_max, desc->num_experts);
    s->inner_max = max_of(s->inner_max, inner);
    s->own_max = max_of(s->own_max, own);
    s->choices = device_memory_alloc_array(&c->memory, (uint64_t)rows * (uint64_t)s->num_experts_max,
                                           sizeof *s->choices);
    s->rows = device_memory_alloc_array(&c->memory, (uint64_t)rows, sizeof *s->rows);
    return s->choices && s->rows && alloc_floats(c, &s->logits, rows, s->num_experts_max) &&
           alloc_floats(c, &s->weights, rows, s->num_experts_max) &&
           alloc_floats(c, &s->shared_weights, rows, 1) && alloc_floats(c, &s->row_weights, rows, 1) &&
           alloc_floats(c, &s->gathered, rows, max_of(hidden, (int64_t)s->own_max)) &&
           alloc_floats(c, &s->inner, rows, s->inner_max) &&
           alloc_floats(c, &s->made, rows, max_of(hidden, (int64_t)s->own_max)) &&
           (s->own_max == 0 ||
            (alloc_floats(c, &s->own, rows, s->own_max) && alloc_floats(c, &s->own_made, rows, s->own_max)));
}

/* Of pairs of a row and an expert, and of rows where there is a shared one. */
static bool reserve_mid(struct cpu_device *c, const struct moe_desc *desc)
{
    struct moe_scratch *s = c->moe_scratch;
    const int64_t rows = max_of(c->limits.num_tokens, c->limits.num_logits),
                  own = desc->num_chosen * weight_view_num_rows(&desc->experts[0].up) +
                        weight_view_num_rows(&desc->shared.up);
    const bool is_shared_out = weight_view_num_rows(&desc->experts[0].down) != desc->experts[0].up.cols;
    if (!is_shared_out || (own <= s->own_mid_max && desc->num_experts < s->num_counts_max)) return true;
    s->own_mid_max = own;
    s->num_counts_max = desc->num_experts + 1;
    s->counts = device_memory_alloc_array(&c->memory, (uint64_t)s->num_counts_max, sizeof *s->counts);
    return s->counts && alloc_floats(c, &s->own_mid, rows, own) &&
           alloc_floats(c, &s->mid, rows, own * c->num_members);
}

static int create_experts(struct device *d, const struct moe_desc *desc, struct moe *m, struct error *err)
{
    int status = create_single(d, &desc->router, desc->router_bias, &m->router, err);
    if (!status && desc->shared_gate.data)
        status = create_single(d, &desc->shared_gate, (struct weight_view){0}, &m->shared_gate, err);
    if (!status && desc->to_experts.data)
        status = create_single(d, &desc->to_experts, (struct weight_view){0}, &m->to_experts, err);
    if (!status && desc->to_experts.data)
        status = create_single(d, &desc->from_experts, (struct weight_view){0}, &m->from_experts, err);
    for (int32_t e = 0; e < desc->num_experts && !status; e++)
        status = create_expert(d, desc, &desc->experts[e], &m->experts[e], err);
    if (!status && m->has_shared)
        status = create_expert(d, desc, &desc->shared, &m->experts[desc->num_experts], err);
    return status;
}

int cpu_moe_create(struct device *d, const struct moe_desc *desc, struct moe **out, struct error *err)
{
    struct cpu_device *c = cpu_device_of(d);
    const int32_t num_groups = max_of(desc->num_groups, 1);
    assert_always(!c->sealed && desc->num_chosen > 0 && desc->num_chosen <= desc->num_experts);
    assert_always(!desc->out_bias.data ||
                  (!desc->to_experts.data && desc->out_bias.cols == desc->router.cols));
    assert_always(num_groups == 1 ||
                  (num_groups <= MOE_GROUPS_MAX && desc->num_experts % num_groups == 0 &&
                   desc->num_chosen_groups > 0 && desc->num_chosen_groups <= num_groups &&
                   desc->num_chosen <= desc->num_chosen_groups * (desc->num_experts / num_groups)));
    struct moe *m = device_memory_alloc_array(&c->memory, 1, sizeof *m);
    if (m)
        *m = (struct moe){.num_experts = desc->num_experts,
                          .num_chosen = desc->num_chosen,
                          .num_groups = num_groups,
                          .num_chosen_groups = num_groups == 1 ? 1 : desc->num_chosen_groups,
                          .groups_by_two = desc->groups_by_two,
                          .hidden_size = (int32_t)desc->router.cols,
                          .expert_hidden = (int32_t)desc->experts[0].up.cols,
                          .own_hidden = (int32_t)weight_view_num_rows(&desc->experts[0].down),
                          .scores = desc->scores,
                          .normalize = desc->normalize,
                          .scale_input = desc->scale_input,
                          .scale = desc->scale,
                          .near = desc->near,
                          .has_shared = desc->shared.up.data != NULL};
    if (m)
        m->experts =
            device_memory_alloc_array(&c->memory, (uint64_t)desc->num_experts + 1, sizeof *m->experts);
    if (!m || !m->experts || !take_vector(c, &desc->choice_bias, &m->choice_bias) ||
        !take_vector(c, &desc->score_factors, &m->score_factors) ||
        !take_vector(c, &desc->out_bias, &m->out_bias) || !reserve_scratch(c, desc) || !reserve_mid(c, desc))
        return error_set(err, STATUS_NO_MEMORY, "no memory for a mixture of %d experts", desc->num_experts);
    *out = m;
    return create_experts(d, desc, m, err);
}

/* ---- choosing ---- */

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Sigmoids to which nothing is added, nor others, have the order of their logits, which rounding leaves alone. */
static bool is_chosen_by_logits(const struct moe *m)
{
    return m->scores == ROUTER_SIGMOID && !m->choice_bias && m->num_groups == 1;
}

/* In place. */
static void score(const struct moe *m, float *logits)
{
    float largest = logits[0], sum = 0;
    if (is_chosen_by_logits(m) || m->scores == ROUTER_SPARSE) return;
    if (m->scores == ROUTER_SIGMOID) {
        for (int32_t e = 0; e < m->num_experts; e++) logits[e] = sigmoid(logits[e]);
        return;
    }
    for (int32_t e = 1; e < m->num_experts; e++) largest = max_of(largest, logits[e]);
    for (int32_t e = 0; e < m->num_experts; e++) sum += logits[e] = expf(logits[e] - largest);
    for (int32_t e = 0; e < m->num_experts; e++) logits[e] /= sum;
}

static bool has(const int32_t *choices, int32_t num, int32_t expert)
{
    for (int32_t i = 0; i < num; i++)
        if (choices[i] == expert) return true;
    return false;
}

static float score_of_choice(const struct moe *m, const float *scores, int32_t expert)
{
    return scores[expert] + (m->choice_bias ? m->choice_bias[expert] : 0);
}

/* Of its best, or of its best two; no NaN counts. */
static float score_of_group(const struct moe *m, const float *scores, int32_t group)
{
    const int32_t size = m->num_experts / m->num_groups;
    float best = -INFINITY, second = -INFINITY;
    for (int32_t e = group * size; e < (group + 1) * size; e++) {
        const float s = score_of_choice(m, scores, e);
        if (s > best) {
            second = best;
            best = s;
        } else if (s > second)
            second = s;
    }
    return m->groups_by_two ? best + second : best;
}

/* A bit for each. As with experts: of equal ones the lower, and as many as there must be. */
static uint64_t choose_groups(const struct moe *m, const float *scores)
{
    float of_groups[MOE_GROUPS_MAX];
    uint64_t chosen = 0;
    if (m->num_groups == 1) return 1;
    for (int32_t g = 0; g < m->num_groups; g++) of_groups[g] = score_of_group(m, scores, g);
    for (int32_t i = 0; i < m->num_chosen_groups; i++) {
        int32_t best = -1;
        for (int32_t g = 0; g < m->num_groups; g++)
            if (!(chosen >> g & 1) && (best < 0 || of_groups[g] > of_groups[best])) best = g;
        if (best >= 0) chosen |= (uint64_t)1 << best;
    }
    return chosen;
}

/* The best expert of these groups that is not among the num chosen. A score that is a NaN is never the best, but one must
 * be. */
static int32_t best_other(const struct moe *m, const float *scores, uint64_t groups, const int32_t *choices,
                          int32_t num)
{
    const int32_t size = m->num_experts / m->num_groups;
    int32_t best = -1;
    float best_score = 0;
    for (int32_t e = 0; e < m->num_experts; e++) {
        float s = score_of_choice(m, scores, e);
        if ((best >= 0 && !(s > best_score)) || !(groups >> e / size & 1) || has(choices, num, e)) continue;
        best = e;
        best_score = s;
    }
    return best;
}

/* Of ROUTER_SPARSE: of the expert behind the num that were chosen before it. */
static float sparse_weight(const struct moe *m, const float *logits, const int32_t *choices, int32_t num)
{
    const float best = logits[choices[num]];
    float sum = 0;
    for (int32_t e = 0; e < m->num_experts; e++) {
        const float far = (best - logits[e]) / max_of(fabsf(logits[e]), best);
        if (!(far > m->near) && !has(choices, num, e)) sum += expf(logits[e] - best);
    }
    return 1 / sum;
}

static float weight_of(const struct moe *m, const float *logits, const int32_t *choices, int32_t num)
{
    const float own = logits[choices[num]];
    if (m->scores == ROUTER_SPARSE) return sparse_weight(m, logits, choices, num);
    return is_chosen_by_logits(m) ? sigmoid(own) : own;
}

static void choose(const struct moe *m, float *logits, int32_t *choices, float *weights)
{
    float sum = 0;
    score(m, logits);
    const uint64_t groups = choose_groups(m, logits);
    for (int32_t i = 0; i < m->num_chosen; i++) {
        choices[i] = best_other(m, logits, groups, choices, i);
        weights[i] = weight_of(m, logits, choices, i);
        sum += weights[i];
    }
    for (int32_t i = 0; i < m->num_chosen; i++)
        weights[i] = (m->normalize ? weights[i] / sum : weights[i]) * m->scale;
    for (int32_t i = 0; i < m->num_chosen && m->score_factors; i++)
        weights[i] *= m->score_factors[choices[i]];
}

/* ---- a step ---- */

struct moe_task {
    const struct moe *m;
    const struct moe_scratch *s;
    const float *x;
    float *out;
    int32_t num_rows; /* of the step; or of an expert */
    int64_t hidden;   /* of x and out */
};

static void choose_rows(void *context, int thread_idx, int num_threads)
{
    const struct moe_task *t = context;
    const struct moe *m = t->m;
    int64_t begin, end;
    thread_pool_range(t->num_rows, thread_idx, num_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        choose(m, t->s->logits + row * m->num_experts, t->s->choices + row * m->num_chosen,
               t->s->weights + row * m->num_chosen);
        if (m->shared_gate) t->s->shared_weights[row] = sigmoid(t->s->shared_weights[row]);
    }
}

static void gather_rows(void *context, int thread_idx, int num_threads)
{
    const struct moe_task *t = context;
    int64_t begin, end, hidden = t->hidden;
    thread_pool_range(t->num_rows, thread_idx, num_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        float *to = t->s->gathered + i * hidden, weight = t->s->row_weights[i];
        memcpy(to, t->x + t->s->rows[i] * hidden, (size_t)hidden * sizeof *t->x);
        for (int64_t j = 0; j < hidden && t->m->scale_input; j++) to[j] *= weight;
    }
}

static void add_rows(void *context, int thread_idx, int num_threads)
{
    const struct moe_task *t = context;
    int64_t begin, end, hidden = t->hidden;
    thread_pool_range(t->num_rows, thread_idx, num_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        float *out = t->out + t->s->rows[i] * hidden, weight = t->m->scale_input ? 1 : t->s->row_weights[i];
        const float *made = t->s->made + i * hidden;
        for (int64_t j = 0; j < hidden; j++) out[j] += made[j] * weight;
    }
}

/* The rows that chose the expert, in their order. */
static int32_t find_rows(const struct moe_task *t, int32_t expert)
{
    const struct moe *m = t->m;
    int32_t num = 0;
    for (int32_t row = 0; row < t->num_rows; row++)
        for (int32_t i = 0; i < m->num_chosen; i++) {
            if (t->s->choices[row * m->num_chosen + i] != expert) continue;
            t->s->row_weights[num] = t->s->weights[row * m->num_chosen + i];
            t->s->rows[num++] = row;
        }
    return num;
}

static int32_t find_all_rows(const struct moe_task *t)
{
    for (int32_t row = 0; row < t->num_rows; row++) {
        t->s->row_weights[row] = t->m->shared_gate ? t->s->shared_weights[row] : 1;
        t->s->rows[row] = row;
    }
    return t->num_rows;
}

static void run_expert(struct cpu_device *c, struct moe_task t, int32_t expert)
{
    const struct expert *e = &t.m->experts[expert];
    t.num_rows = expert < t.m->num_experts ? find_rows(&t, expert) : find_all_rows(&t);
    if (t.num_rows == 0) return;
    int64_t work = t.num_rows * t.hidden;
    cpu_device_run(c, work, gather_rows, &t);
    cpu_linear_run(e->up, c->pool, c->linear_scratch, t.num_rows, t.s->gathered, t.s->inner);
    cpu_linear_run(e->down, c->pool, c->linear_scratch, t.num_rows, t.s->inner, t.s->made);
    cpu_device_run(c, work, add_rows, &t);
}

/* What is added to. */
static void begin_rows(const struct moe_task *t)
{
    const size_t row_bytes = (size_t)t->hidden * sizeof(float);
    if (!t->m->out_bias) {
        memset(t->out, 0, (size_t)t->num_rows * row_bytes);
        return;
    }
    for (int32_t row = 0; row < t->num_rows; row++)
        memcpy(t->out + row * t->hidden, t->m->out_bias, row_bytes);
}

static void choose_all(struct cpu_device *c, struct moe_task *t, const void *seen)
{
    const struct moe *m = t->m;
    cpu_linear_run(m->router, c->pool, c->linear_scratch, t->num_rows, seen, t->s->logits);
    if (m->shared_gate)
        cpu_linear_run(m->shared_gate, c->pool, c->linear_scratch, t->num_rows, seen, t->s->shared_weights);
    cpu_device_run(c, (int64_t)t->num_rows * m->num_experts * m->num_chosen, choose_rows, t);
}

void cpu_moe(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
             const void *seen, const struct moe *m)
{
    struct cpu_device *c = cpu_device_of(d);
    const struct moe_scratch *s = c->moe_scratch;
    const struct moe_task whole = {
        .m = m, .s = s, .x = x, .out = out, .num_rows = batch_num_rows(b, rows), .hidden = m->hidden_size};
    struct moe_task t = whole;
    choose_all(c, &t, seen);
    if (m->to_experts) {
        cpu_linear_run(m->to_experts, c->pool, c->linear_scratch, t.num_rows, x, s->own);
        t.x = s->own;
        t.out = s->own_made;
        t.hidden = m->expert_hidden;
    }
    begin_rows(&t);
    for (int32_t e = 0; e < m->num_experts; e++) run_expert(c, t, e);
    if (m->to_experts)
        cpu_linear_run(m->from_experts, c->pool, c->linear_scratch, t.num_rows, s->own_made, out);
    if (m->has_shared) run_expert(c, whole, m->num_experts);
}

/* ---- shared out among the members of a group ---- */

static int32_t num_experts_of_all(const struct moe *m)
{
    return m->num_experts + (m->has_shared ? 1 : 0);
}

static int32_t find_rows_of(const struct moe_task *t, int32_t expert)
{
    return expert < t->m->num_experts ? find_rows(t, expert) : find_all_rows(t);
}

void cpu_moe_begin(struct device *d, const struct batch *b, enum row_set rows, const void *x,
                   const void *seen, const struct moe *m)
{
    struct cpu_device *c = cpu_device_of(d);
    const struct moe_scratch *s = c->moe_scratch;
    struct moe_task t = {
        .m = m, .s = s, .x = x, .num_rows = batch_num_rows(b, rows), .hidden = m->hidden_size};
    const int32_t num_rows = t.num_rows;
    float *to = s->own_mid;
    choose_all(c, &t, seen);
    for (int32_t e = 0; e < num_experts_of_all(m); e++) {
        t.num_rows = num_rows;
        s->counts[e] = t.num_rows = find_rows_of(&t, e);
        if (t.num_rows == 0) continue;
        cpu_device_run(c, t.num_rows * t.hidden, gather_rows, &t);
        cpu_linear_run(m->experts[e].up, c->pool, c->linear_scratch, t.num_rows, s->gathered, to);
        to += (int64_t)t.num_rows * m->experts[e].own_inner;
    }
}

void cpu_moe_gather(struct device *d, const struct batch *b, enum row_set rows, const struct moe *m,
                    enum moe_experts which)
{
    struct cpu_device *c = cpu_device_of(d);
    const struct moe_scratch *s = c->moe_scratch;
    (void)b;
    (void)rows;
    const int32_t first = which == EXPERTS_CHOSEN ? 0 : m->num_experts,
                  end = which == EXPERTS_CHOSEN ? m->num_experts : num_experts_of_all(m);
    int64_t at = 0;
    for (int32_t e = 0; e < first; e++) at += (int64_t)s->counts[e] * m->experts[e].own_inner;
    for (int32_t e = first; e < end; e++) {
        const int64_t width = m->experts[e].own_inner;
        for (int32_t row = 0; row < s->counts[e]; row++, at += width)
            for (int i = 0; i < c->num_members; i++)
                memcpy(s->mid + at * c->num_members + i * width,
                       cpu_device_of(c->members[i])->moe_scratch->own_mid + at,
                       (size_t)width * sizeof *s->mid);
    }
}

void cpu_moe_end(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                 const struct moe *m)
{
    struct cpu_device *c = cpu_device_of(d);
    const struct moe_scratch *s = c->moe_scratch;
    struct moe_task t = {
        .m = m, .s = s, .x = x, .out = out, .num_rows = batch_num_rows(b, rows), .hidden = m->own_hidden};
    const int32_t num_rows = t.num_rows;
    const float *from = s->mid;
    begin_rows(&t);
    for (int32_t e = 0; e < num_experts_of_all(m); e++) {
        t.num_rows = num_rows;
        t.num_rows = find_rows_of(&t, e);
        if (t.num_rows == 0) continue;
        cpu_linear_run(m->experts[e].down, c->pool, c->linear_scratch, t.num_rows, from, s->made);
        cpu_device_run(c, t.num_rows * t.hidden, add_rows, &t);
        from += (int64_t)t.num_rows * m->experts[e].own_inner * c->num_members;
    }
}
