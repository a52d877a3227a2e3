/* latent.c - what latent attention (device.h: latent_desc) has before and behind attention over one K/V head.
 *
 *   q, or q_a, norm, q_b | kv_a | K = [k_r | norm(c)], V = [norm(c) | 0] | for each head: q_n gathered, k_b^T, beside q_r
 *   behind attention, for each head: the first r gathered, v_b, stored
 *
 * All products are linears, whose results for a row do not depend on its neighbours. k_b lies in files as it is or
 * transposed; what can be read in columns is, other types (blocks, codes) become f32 first.
 *
 * Source: DeepSeek-AI, "DeepSeek-V2: a strong, economical, and efficient mixture-of-experts language model", 2024. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/norm.h"

struct latent {
    int32_t num_heads, plain_dim, rotary_dim, value_dim, rank, q_rank; /* q_rank 0: q comes at once */
    float norm_eps;
    struct linear *q_a, *q, *kv_a; /* q: of x, or of what q_a makes of it */
    float *q_norm, *kv_norm;
    struct linear **absorb, **expand; /* [num_heads]: k_b^T [r][Dn], v_b [Dv][r] */
};

/* For the largest step; layers take turns. */
struct latent_scratch {
    float *low;             /* [T][R]: what q_a makes */
    float *q, *kv;          /* [T][Hq (Dn + Dr)] [T][r + Dr] */
    float *gathered, *made; /* of a head [T][max(Dn, r)] [T][max(r, Dv)] */
};

/* ---- creation ---- */

static int take(struct device *d, const struct weight_view *view, struct linear **out, struct error *err)
{
    const struct linear_desc desc = {.kind = LINEAR_PLAIN, .num_parts = 1, .parts = {*view}};
    return cpu_linear_take(d, &desc, out, err);
}

/* rows[view's rows][cols], as the products have them. */
static int unpack(struct cpu_device *c, const struct weight_view *view, float *rows, struct error *err)
{
    const struct linear_desc desc = {.kind = LINEAR_PLAIN, .num_parts = 1, .parts = {*view}};
    struct linear *l = NULL;
    int status = cpu_linear_create(&desc, c->level, c->pool, &l, err);
    for (int32_t i = 0; i < weight_view_num_rows(view) && !status; i++)
        cpu_linear_embed_row(l, i, rows + i * view->cols);
    cpu_linear_destroy(l);
    return status;
}

/* view: [Dn][r], of which the product with columns is wanted. */
static int take_transposed(struct device *d, const struct weight_view *view, struct linear **out,
                           struct error *err)
{
    const int64_t rows = weight_view_num_rows(view);
    struct weight_view turned;
    if (view->scheme == WEIGHT_PLAIN && dtype_infos[view->dtype].block_values == 1 &&
        !dtype_is_code(view->dtype)) {
        turned = weight_view_transposed(view->data, view->dtype, view->cols, rows);
        return take(d, &turned, out, err);
    }
    float *values = malloc((size_t)rows * (size_t)view->cols * sizeof *values);
    if (!values) return error_set(err, STATUS_NO_MEMORY, "no memory to transpose a weight");
    int status = unpack(cpu_device_of(d), view, values, err);
    turned = weight_view_transposed(values, DTYPE_F32, view->cols, rows);
    if (!status) status = take(d, &turned, out, err);
    free(values);
    return status;
}

static int take_head(struct device *d, const struct latent_desc *desc, int32_t head, struct latent *l,
                     struct error *err)
{
    const int32_t k_rows = desc->plain_dim, v_rows = desc->value_dim;
    struct weight_view k, v;
    int status;
    if (desc->kv_b.data) {
        const int64_t first = (int64_t)head * (k_rows + v_rows);
        k = weight_view_rows(&desc->kv_b, first, k_rows);
        v = weight_view_rows(&desc->kv_b, first + k_rows, v_rows);
        status = take_transposed(d, &k, &l->absorb[head], err);
    } else {
        k = weight_view_rows(&desc->k_b, (int64_t)head * desc->rank, desc->rank);
        v = weight_view_rows(&desc->v_b, (int64_t)head * v_rows, v_rows);
        status = take(d, &k, &l->absorb[head], err);
    }
    return status ? status : take(d, &v, &l->expand[head], err);
}

static float *take_norm(struct cpu_device *c, const struct weight_view *view)
{
    float *norm =
        device_memory_alloc_array(&c->memory, (uint64_t)max_of(view->cols, (int64_t)1), sizeof *norm);
    if (norm && view->data) dtype_row_to_f32(view->dtype, view->data, view->cols, norm);
    return norm;
}

static bool alloc_floats(struct cpu_device *c, float **out, int64_t cols)
{
    *out =
        device_memory_alloc_array(&c->memory, (uint64_t)c->limits.num_tokens * (uint64_t)cols, sizeof **out);
    return *out;
}

/* Layers are alike. */
static bool reserve_scratch(struct cpu_device *c, const struct latent *l)
{
    struct latent_scratch *s = c->latent_scratch;
    if (s) return true;
    s = c->latent_scratch = device_memory_alloc_array(&c->memory, 1, sizeof *s);
    return s && alloc_floats(c, &s->low, max_of(l->q_rank, 1)) &&
           alloc_floats(c, &s->q, (int64_t)l->num_heads * (l->plain_dim + l->rotary_dim)) &&
           alloc_floats(c, &s->kv, l->rank + l->rotary_dim) &&
           alloc_floats(c, &s->gathered, max_of(l->plain_dim, l->rank)) &&
           alloc_floats(c, &s->made, max_of(l->rank, l->value_dim));
}

static int take_weights(struct device *d, const struct latent_desc *desc, struct latent *l, struct error *err)
{
    int status = take(d, &desc->kv_a, &l->kv_a, err);
    if (!status && l->q_rank > 0) status = take(d, &desc->q_a, &l->q_a, err);
    if (!status) status = take(d, l->q_rank > 0 ? &desc->q_b : &desc->q, &l->q, err);
    for (int32_t head = 0; head < l->num_heads && !status; head++) status = take_head(d, desc, head, l, err);
    return status;
}

int cpu_latent_create(struct device *d, const struct latent_desc *desc, struct latent **out,
                      struct error *err)
{
    struct cpu_device *c = cpu_device_of(d);
    assert_always(!c->sealed && desc->kv_a.cols <= INT32_MAX);
    struct latent *l = device_memory_alloc_array(&c->memory, 1, sizeof *l);
    if (l) {
        *l = (struct latent){.num_heads = desc->num_heads,
                             .plain_dim = desc->plain_dim,
                             .rotary_dim = desc->rotary_dim,
                             .value_dim = desc->value_dim,
                             .rank = desc->rank,
                             .q_rank = desc->q.data ? 0 : (int32_t)desc->q_b.cols,
                             .norm_eps = desc->norm_eps};
        l->absorb = device_memory_alloc_array(&c->memory, (uint64_t)l->num_heads, sizeof(struct linear *));
        l->expand = device_memory_alloc_array(&c->memory, (uint64_t)l->num_heads, sizeof(struct linear *));
        l->kv_norm = take_norm(c, &desc->kv_norm);
        l->q_norm = take_norm(c, &desc->q_norm);
    }
    if (!l || !l->absorb || !l->expand || !l->kv_norm || !l->q_norm || !reserve_scratch(c, l))
        return error_set(err, STATUS_NO_MEMORY, "no memory for latent attention of %d heads",
                         desc->num_heads);
    *out = l;
    return take_weights(d, desc, l, err);
}

/* ---- a step ---- */

/* Runs of num floats that lie strides apart, from one place to another. */
struct copy_task {
    const float *from;
    float *to;
    int64_t from_stride, to_stride;
    int32_t num_rows, num;
};

static void copy_rows(void *context, int thread_idx, int num_threads)
{
    const struct copy_task *t = context;
    int64_t begin, end;
    thread_pool_range(t->num_rows, thread_idx, num_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        memcpy(t->to + i * t->to_stride, t->from + i * t->from_stride, (size_t)t->num * sizeof *t->to);
}

static void copy(struct cpu_device *c, struct copy_task t)
{
    cpu_device_run(c, (int64_t)t.num_rows * t.num, copy_rows, &t);
}

struct latent_task {
    const struct latent *l;
    const struct latent_scratch *s;
    float *qkv;
    int32_t num_rows;
};

static void norm_low(void *context, int thread_idx, int num_threads)
{
    const struct latent_task *t = context;
    int64_t begin, end;
    thread_pool_range(t->num_rows, thread_idx, num_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        float *row = t->s->low + i * t->l->q_rank;
        norm_row(row, row, t->l->q_norm, t->l->norm_eps, t->l->q_rank);
    }
}

/* Of a token: what is rotated of q's heads, K and V. */
static void place_token(const struct latent_task *t, int64_t token)
{
    const struct latent *l = t->l;
    const size_t rotary_bytes = (size_t)l->rotary_dim * sizeof(float),
                 rank_bytes = (size_t)l->rank * sizeof(float);
    const int32_t q_dim = l->plain_dim + l->rotary_dim, dim = l->rotary_dim + l->rank;
    const float *q = t->s->q + token * l->num_heads * q_dim, *kv = t->s->kv + token * dim;
    float *to = t->qkv + token * (l->num_heads + 2) * dim, *k = to + (int64_t)l->num_heads * dim,
          *v = k + dim;
    for (int32_t h = 0; h < l->num_heads; h++)
        memcpy(to + (int64_t)h * dim, q + (int64_t)h * q_dim + l->plain_dim, rotary_bytes);
    memcpy(k, kv + l->rank, rotary_bytes);
    norm_row(k + l->rotary_dim, kv, l->kv_norm, l->norm_eps, l->rank);
    memcpy(v, k + l->rotary_dim, rank_bytes);
    memset(v + l->rank, 0, rotary_bytes);
}

static void place_tokens(void *context, int thread_idx, int num_threads)
{
    const struct latent_task *t = context;
    int64_t begin, end;
    thread_pool_range(t->num_rows, thread_idx, num_threads, &begin, &end);
    for (int64_t token = begin; token < end; token++) place_token(t, token);
}

static void make_q(struct cpu_device *c, const struct latent_task *t, const float *x)
{
    const struct latent *l = t->l;
    if (l->q_rank > 0) {
        cpu_linear_run(l->q_a, c->pool, c->linear_scratch, t->num_rows, x, t->s->low);
        cpu_device_run(c, (int64_t)t->num_rows * l->q_rank, norm_low, (void *)t);
        x = t->s->low;
    }
    cpu_linear_run(l->q, c->pool, c->linear_scratch, t->num_rows, x, t->s->q);
}

void cpu_latent_qkv(struct device *d, const struct batch *b, void *qkv, const void *x, const struct latent *l)
{
    struct cpu_device *c = cpu_device_of(d);
    const struct latent_scratch *s = c->latent_scratch;
    struct latent_task t = {.l = l, .s = s, .qkv = qkv, .num_rows = b->step->num_tokens};
    const int32_t q_dim = l->plain_dim + l->rotary_dim, dim = l->rotary_dim + l->rank;
    make_q(c, &t, x);
    cpu_linear_run(l->kv_a, c->pool, c->linear_scratch, t.num_rows, x, s->kv);
    cpu_device_run(c, (int64_t)t.num_rows * (l->num_heads + 2) * dim, place_tokens, &t);
    for (int32_t h = 0; h < l->num_heads; h++) {
        copy(c, (struct copy_task){.from = s->q + (int64_t)h * q_dim,
                                   .to = s->gathered,
                                   .from_stride = (int64_t)l->num_heads * q_dim,
                                   .to_stride = l->plain_dim,
                                   .num_rows = t.num_rows,
                                   .num = l->plain_dim});
        cpu_linear_run(l->absorb[h], c->pool, c->linear_scratch, t.num_rows, s->gathered, s->made);
        copy(c, (struct copy_task){.from = s->made,
                                   .to = t.qkv + (int64_t)h * dim + l->rotary_dim,
                                   .from_stride = l->rank,
                                   .to_stride = (int64_t)(l->num_heads + 2) * dim,
                                   .num_rows = t.num_rows,
                                   .num = l->rank});
    }
}

void cpu_latent_values(struct device *d, const struct batch *b, void *out, const void *x,
                       const struct latent *l)
{
    struct cpu_device *c = cpu_device_of(d);
    const struct latent_scratch *s = c->latent_scratch;
    const int32_t dim = l->rotary_dim + l->rank, num_rows = b->step->num_tokens;
    for (int32_t h = 0; h < l->num_heads; h++) {
        copy(c, (struct copy_task){.from = (const float *)x + (int64_t)h * dim,
                                   .to = s->gathered,
                                   .from_stride = (int64_t)l->num_heads * dim,
                                   .to_stride = l->rank,
                                   .num_rows = num_rows,
                                   .num = l->rank});
        cpu_linear_run(l->expand[h], c->pool, c->linear_scratch, num_rows, s->gathered, s->made);
        copy(c, (struct copy_task){.from = s->made,
                                   .to = (float *)out + (int64_t)h * l->value_dim,
                                   .from_stride = l->value_dim,
                                   .to_stride = (int64_t)l->num_heads * l->value_dim,
                                   .num_rows = num_rows,
                                   .num = l->value_dim});
    }
}
