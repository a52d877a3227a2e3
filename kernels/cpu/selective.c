#include "kernels/cpu/selective.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "kernels/cpu/delta_kernels.h"
#include "kernels/cpu/linear.h"
#include "kernels/delta_desc.h"

struct selective {
    int32_t num_channels, k_dim, step_rank;
    bool has_norms;
    float norm_eps;
    struct linear *selection, *steps;
    float *norm;  /* [R + 2 Dk] of the three parts */
    float *rates; /* [channels / DELTA_LANES][Dk][DELTA_LANES] -e^decay, as a state lies */
    float *skip;  /* [channels] */
};

static int32_t chosen_width(const struct selective *s)
{
    return s->step_rank + 2 * s->k_dim;
}

/* ---- creating ---- */

static void take_norms(struct selective *s, const struct delta_desc *desc)
{
    const struct weight_view *parts[] = {&desc->step_norm, &desc->k_norm, &desc->q_norm};
    const int32_t sizes[] = {s->step_rank, s->k_dim, s->k_dim};
    for (int32_t i = 0; i < chosen_width(s); i++) s->norm[i] = 1;
    float *at = s->norm;
    for (size_t i = 0; i < array_length(parts); at += sizes[i++])
        if (parts[i]->data) weight_view_vector_to_f32(parts[i], at);
}

static void take_rates(struct selective *s, const struct delta_desc *desc, float *row)
{
    for (int32_t channel = 0; channel < s->num_channels; channel++) {
        weight_view_row_to_f32(&desc->decay, channel, row);
        for (int32_t i = 0; i < s->k_dim; i++)
            s->rates[delta_state_index(s->k_dim, i, channel)] = desc->has_rates ? row[i] : -expf(row[i]);
    }
}

static int take_products(struct cpu_device *c, struct selective *s, const struct delta_desc *desc,
                         struct error *err)
{
    const struct linear_desc selection = {.kind = LINEAR_PLAIN, .num_parts = 1, .parts = {desc->selection}},
                             steps = {.kind = LINEAR_PLAIN,
                                      .num_parts = 1,
                                      .parts = {desc->steps},
                                      .biases = {desc->dt_bias}};
    int status = cpu_linear_take(&c->base, &selection, &s->selection, err);
    return status ? status : cpu_linear_take(&c->base, &steps, &s->steps, err);
}

int selective_create(struct cpu_device *c, const struct delta_desc *desc, struct selective **out,
                     struct error *err)
{
    struct device_memory *m = &c->memory;
    struct selective *s = device_memory_alloc(m, sizeof *s);
    if (s) {
        *s = (struct selective){.num_channels = (int32_t)delta_desc_num_channels(desc),
                                .k_dim = desc->k_dim,
                                .step_rank = (int32_t)desc->steps.cols,
                                .has_norms = desc->norms_selection,
                                .norm_eps = desc->norm_eps};
        s->norm = device_memory_alloc_array(m, (uint64_t)chosen_width(s), sizeof *s->norm);
        s->skip = device_memory_alloc_array(m, (uint64_t)s->num_channels, sizeof *s->skip);
        s->rates =
            device_memory_alloc_array(m, (uint64_t)s->num_channels, (uint64_t)s->k_dim * sizeof *s->rates);
    }
    if (!s || !s->norm || !s->skip || !s->rates)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a layer with a state");
    float row[SELECTIVE_K_DIM_MAX];
    take_norms(s, desc);
    take_rates(s, desc, row);
    weight_view_vector_to_f32(&desc->skip, s->skip);
    *out = s;
    return take_products(c, s, desc, err);
}

bool selective_alloc_scratch(struct cpu_device *c, const struct selective *s, uint64_t num_tokens,
                             struct selective_scratch *out)
{
    struct device_memory *m = &c->memory;
    out->chosen = device_memory_alloc_array(m, num_tokens, (uint64_t)chosen_width(s) * sizeof(float));
    out->narrow = device_memory_alloc_array(m, num_tokens, (uint64_t)s->step_rank * sizeof(float));
    out->steps = device_memory_alloc_array(m, num_tokens, (uint64_t)s->num_channels * sizeof(float));
    return out->chosen && out->narrow && out->steps;
}

/* ---- one step ---- */

struct norm_task {
    const struct selective *s;
    const struct selective_scratch *scratch;
    int32_t num_tokens;
};

static void norm_part(const struct selective *s, float *x, const float *weight, int32_t num)
{
    double sum = 0;
    if (!s->has_norms) return;
    for (int32_t i = 0; i < num; i++) sum += (double)x[i] * (double)x[i];
    const float scale = (float)(1 / sqrt(sum / num + (double)s->norm_eps));
    for (int32_t i = 0; i < num; i++) x[i] = x[i] * scale * weight[i];
}

/* What the second product gets lies by itself. */
static void norm_rows(void *context, int thread_idx, int num_threads)
{
    const struct norm_task *t = context;
    const struct selective *s = t->s;
    int64_t begin, end;
    thread_pool_range(t->num_tokens, thread_idx, num_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        float *row = t->scratch->chosen + i * chosen_width(s), *k = row + s->step_rank, *q = k + s->k_dim;
        norm_part(s, row, s->norm, s->step_rank);
        norm_part(s, k, s->norm + s->step_rank, s->k_dim);
        norm_part(s, q, s->norm + s->step_rank + s->k_dim, s->k_dim);
        memcpy(t->scratch->narrow + i * s->step_rank, row, (size_t)s->step_rank * sizeof *row);
    }
}

void selective_project(struct cpu_device *c, const struct selective *s, const float *mixed,
                       int32_t num_tokens, const struct selective_scratch *scratch)
{
    struct norm_task t = {s, scratch, num_tokens};
    cpu_linear_run(s->selection, c->pool, c->linear_scratch, num_tokens, mixed, scratch->chosen);
    cpu_device_run(c, (int64_t)num_tokens * chosen_width(s), norm_rows, &t);
    cpu_linear_run(s->steps, c->pool, c->linear_scratch, num_tokens, scratch->narrow, scratch->steps);
}

static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

/* One token. */
static void update_lanes(const struct selective *s, const float *steps, const float *v, const float *chosen,
                         const float *rates, const float *from, float *to, float *sums)
{
    const float *k = chosen + s->step_rank, *q = k + s->k_dim;
    float d[DELTA_LANES], dv[DELTA_LANES];
    for (int lane = 0; lane < DELTA_LANES; lane++) {
        d[lane] = softplus(steps[lane]);
        dv[lane] = d[lane] * v[lane];
        sums[lane] = 0;
    }
    for (int32_t i = 0; i < s->k_dim; i++)
        for (int lane = 0; lane < DELTA_LANES; lane++) {
            const int32_t at = i * DELTA_LANES + lane;
            to[at] = expf(d[lane] * rates[at]) * from[at] + k[i] * dv[lane];
            sums[lane] += to[at] * q[i];
        }
}

void selective_update(const struct selective *s, const struct selective_scratch *scratch,
                      const struct selective_run *run)
{
    const int32_t first = run->head * DELTA_LANES;
    const float *rates = s->rates + (int64_t)run->head * s->k_dim * DELTA_LANES, *from = run->from;
    for (int32_t i = 0; i < run->num_tokens; i++, from = run->to) {
        const int64_t token = run->token + i, at = token * s->num_channels + first;
        float sums[DELTA_LANES], *out = run->out + at;
        update_lanes(s, scratch->steps + at, run->mixed + at, scratch->chosen + token * chosen_width(s),
                     rates, from, run->to, sums);
        for (int lane = 0; lane < DELTA_LANES; lane++)
            out[lane] = sums[lane] + s->skip[first + lane] * run->mixed[at + lane];
    }
}
