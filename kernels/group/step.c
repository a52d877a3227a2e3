/* step.c - a step on all members: each operation on one after the other, and what goes from each to all. */
#include "base/check.h"
#include "kernels/group/members.h"

/* ---- a step's life ---- */

static struct batch *group_step_begin(struct device *d, const struct step *step)
{
    struct group *g = group_of(d);
    struct each_member *batches = &g->batches[g->num_begun++ % GROUP_STEPS];
    EACH_MEMBER(d, m) batches->of[m.idx] = m.ops->step_begin(m.d, step);
    return (struct batch *)batches;
}

/* The results are the first's; the others' are the same. */
static int group_step_end(struct device *d, struct sample_result *results, struct error *err)
{
    struct group *g = group_of(d);
    int status = STATUS_OK;
    EACH_MEMBER(d, m)
    {
        struct error other = {0};
        const int own_status = m.ops->step_end(m.d, m.idx == 0 ? results : g->results, &other);
        if (own_status && !status) {
            status = own_status;
            if (err) *err = other;
        }
    }
    return status;
}

static bool group_step_has_ended(struct device *d)
{
    EACH_MEMBER(d, m) if (!m.ops->step_has_ended(m.d)) return false;
    return true;
}

/* All of them have the same graphs. One that could not begin its own has an error, which step_end tells of. */
static bool group_replay(struct device *d, struct batch *b)
{
    bool is_any = false;
    EACH_MEMBER(d, m) is_any |= m.ops->replay(m.d, own(&m, b));
    return is_any;
}

static void group_record_begin(struct device *d, struct batch *b)
{
    EACH_MEMBER(d, m) m.ops->record_begin(m.d, own(&m, b));
}

static void group_record_end(struct device *d, struct batch *b)
{
    EACH_MEMBER(d, m) m.ops->record_end(m.d, own(&m, b));
}

static void group_sample(struct device *d, struct batch *b)
{
    EACH_MEMBER(d, m) m.ops->sample(m.d, own(&m, b));
}

/* ---- from each to all ---- */

static void share_rows(struct group *g, const struct batch *b, enum row_set rows,
                       const struct each_member *to, int64_t row_bytes)
{
    EACH_MEMBER(&g->base, m)
    m.ops->share(m.d, own(&m, b), rows, to->of, g->local.of[m.idx], row_bytes);
    EACH_MEMBER(&g->base, m) if (m.ops->share_end) m.ops->share_end(m.d);
}

static void share(struct group *g, const struct batch *b, enum row_set rows, void *out, int32_t width)
{
    struct each_member to;
    EACH_MEMBER(&g->base, m) to.of[m.idx] = group_address(&m, out);
    share_rows(g, b, rows, &to, (int64_t)width * g->base.act_bytes);
}

/* Where a member's results go: for all to get, or where it wants them itself. */
static void *own_out(const struct member *m, bool is_shared, void *out)
{
    return is_shared ? m->group->local.of[m->idx] : group_address(m, out);
}

static const struct group_linear *linear_of(const struct linear *w)
{
    return (const struct group_linear *)w;
}

static bool is_shared(const struct linear *w)
{
    return linear_of(w)->split == SPLIT_BY_ROWS;
}

static void share_product(struct device *d, const struct batch *b, enum row_set rows, void *out,
                          const struct linear *w)
{
    if (is_shared(w)) share(group_of(d), b, rows, out, linear_of(w)->width);
}

/* ---- products and norms ---- */

static void group_linear(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                         const struct linear *w)
{
    EACH_MEMBER(d, m)
    m.ops->linear(m.d, own(&m, b), rows, own_out(&m, is_shared(w), out), group_address(&m, x), own(&m, w));
    share_product(d, b, rows, out, w);
}

static void group_linear_gated(struct device *d, const struct batch *b, enum row_set rows, void *out,
                               const void *x, const struct linear *w)
{
    EACH_MEMBER(d, m)
    m.ops->linear_gated(m.d, own(&m, b), rows, own_out(&m, is_shared(w), out), group_address(&m, x),
                        own(&m, w));
    share_product(d, b, rows, out, w);
}

static void group_linear_lora(struct device *d, const struct batch *b, enum row_set rows, void *out,
                              const void *x, const struct linear *w, const struct lora *lora)
{
    EACH_MEMBER(d, m)
    m.ops->linear_lora(m.d, own(&m, b), rows, own_out(&m, is_shared(w), out), group_address(&m, x),
                       own(&m, w), own(&m, lora));
    share_product(d, b, rows, out, w);
}

static struct norm_args own_norm(const struct member *m, const struct norm_args *args)
{
    struct norm_args a = *args;
    a.weight = group_address(m, args->weight);
    a.delta_weight = group_address(m, args->delta_weight);
    a.bias = group_address(m, args->bias);
    return a;
}

static void group_rms_norm(struct device *d, const struct batch *b, enum row_set rows, void *out, void *x,
                           const void *delta, const struct norm_args *args)
{
    EACH_MEMBER(d, m)
    {
        const struct norm_args a = own_norm(&m, args);
        m.ops->rms_norm(m.d, own(&m, b), rows, group_address(&m, out), group_address(&m, x),
                        group_address(&m, delta), &a);
    }
}

/* They have the same shapes and the same choices (device.chooser), so that all do it or none. */
static bool group_norm_linear(struct device *d, const struct batch *b, enum row_set rows, void *out,
                              void *sum, const void *x, const void *delta, const struct norm_args *norm,
                              const struct linear *w)
{
    int num_done = 0;
    EACH_MEMBER(d, m)
    {
        const struct norm_args a = own_norm(&m, norm);
        num_done +=
            m.ops->norm_linear(m.d, own(&m, b), rows, own_out(&m, is_shared(w), out), group_address(&m, sum),
                               group_address(&m, x), group_address(&m, delta), &a, own(&m, w));
    }
    assert_always(num_done == 0 || num_done == group_of(d)->num);
    if (num_done > 0) share_product(d, b, rows, out, w);
    return num_done > 0;
}

static void share_logits(struct group *g, const struct batch *b, int32_t width)
{
    struct each_member to;
    EACH_MEMBER(&g->base, m) to.of[m.idx] = m.ops->logits_memory(m.d);
    share_rows(g, b, ROWS_LOGITS, &to, (int64_t)width * (int64_t)sizeof(float));
}

static void group_logits(struct device *d, const struct batch *b, const void *x, const struct linear *lm_head)
{
    struct group *g = group_of(d);
    if (!is_shared(lm_head)) {
        EACH_MEMBER(d, m) m.ops->logits(m.d, own(&m, b), group_address(&m, x), own(&m, lm_head));
        return;
    }
    EACH_MEMBER(d, m)
    m.ops->logits_begin(m.d, own(&m, b), g->local.of[m.idx], group_address(&m, x), own(&m, lm_head));
    share_logits(g, b, linear_of(lm_head)->width);
    EACH_MEMBER(d, m) m.ops->logits_end(m.d, own(&m, b));
}

/* What gate and up of all members have made. */
static void gather_experts(struct device *d, const struct batch *b, enum row_set rows, const struct moe *moe,
                           enum moe_experts which)
{
    EACH_MEMBER(d, m) if (m.ops->moe_share) m.ops->moe_share(m.d, own(&m, b), rows, own(&m, moe), which);
    EACH_MEMBER(d, m) m.ops->moe_gather(m.d, own(&m, b), rows, own(&m, moe), which);
}

static void run_shared_moe(struct device *d, const struct batch *b, enum row_set rows, void *out,
                           const void *x, const void *seen, const struct moe *moe)
{
    struct group *g = group_of(d);
    const struct group_moe *of_all = (const struct group_moe *)moe;
    EACH_MEMBER(d, m)
    m.ops->moe_begin(m.d, own(&m, b), rows, group_address(&m, x), group_address(&m, seen), own(&m, moe));
    gather_experts(d, b, rows, moe, EXPERTS_CHOSEN);
    if (of_all->has_shared) gather_experts(d, b, rows, moe, EXPERTS_SHARED);
    EACH_MEMBER(d, m)
    m.ops->moe_end(m.d, own(&m, b), rows, g->local.of[m.idx], group_address(&m, x), own(&m, moe));
    share(g, b, rows, out, of_all->width);
}

static void group_moe(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                      const void *seen, const struct moe *moe)
{
    if (((const struct group_moe *)moe)->width > 0) {
        run_shared_moe(d, b, rows, out, x, seen, moe);
        return;
    }
    EACH_MEMBER(d, m)
    m.ops->moe(m.d, own(&m, b), rows, group_address(&m, out), group_address(&m, x), group_address(&m, seen),
               own(&m, moe));
}

/* ---- attention ---- */

static struct rope_args own_rope(const struct member *m, const struct rope_args *args)
{
    struct rope_args a = *args;
    if (m->group->by_heads) a.num_heads /= m->group->num;
    a.num_kv_heads = group_kv_heads(m->group, args->num_kv_heads);
    a.cos_sin = group_address(m, args->cos_sin);
    a.q_norm = group_address(m, args->q_norm);
    a.k_norm = group_address(m, args->k_norm);
    a.q_norm_bias = group_address(m, args->q_norm_bias);
    a.k_norm_bias = group_address(m, args->k_norm_bias);
    a.v_norm = group_address(m, args->v_norm);
    return a;
}

static void group_rope_kv_write(struct device *d, const struct batch *b, void *qkv, struct kv_pool *pool,
                                int32_t layer, const struct rope_args *args)
{
    EACH_MEMBER(d, m)
    {
        const struct rope_args a = own_rope(&m, args);
        m.ops->rope_kv_write(m.d, own(&m, b), group_address(&m, qkv), own(&m, pool), layer, &a);
    }
}

static void share_heads(struct device *d, const struct batch *b, void *out, const struct attention_args *args)
{
    const int32_t dim = args->v_dim > 0 ? args->v_dim : args->head_dim;
    if (args->by_heads) share(group_of(d), b, ROWS_TOKENS, out, args->num_heads / group_of(d)->num * dim);
}

static void group_attention_run(struct device *d, const struct batch *b, void *out, const void *qkv,
                                const struct kv_pool *pool, int32_t layer, const struct attention_args *args)
{
    EACH_MEMBER(d, m)
    {
        const struct attention_args a = group_attention(&m, args);
        m.ops->attention(m.d, own(&m, b), own_out(&m, args->by_heads, out), group_address(&m, qkv),
                         own(&m, pool), layer, &a);
    }
    if (!args->is_gated) share_heads(d, b, out, args);
}

static void group_split_gates(struct device *d, const struct batch *b, void *qkv, void *gates,
                              const void *projected, const struct attention_args *args)
{
    EACH_MEMBER(d, m)
    {
        const struct attention_args a = group_attention(&m, args);
        m.ops->split_gates(m.d, own(&m, b), group_address(&m, qkv), group_address(&m, gates),
                           group_address(&m, projected), &a);
    }
}

static void group_apply_gates(struct device *d, const struct batch *b, void *x, const void *gates,
                              const struct attention_args *args)
{
    EACH_MEMBER(d, m)
    {
        const struct attention_args a = group_attention(&m, args);
        m.ops->apply_gates(m.d, own(&m, b), own_out(&m, args->by_heads, x), group_address(&m, gates), &a);
    }
    share_heads(d, b, x, args);
}

static void group_latent_qkv(struct device *d, const struct batch *b, void *qkv, const void *x,
                             const struct latent *latent)
{
    EACH_MEMBER(d, m)
    m.ops->latent_qkv(m.d, own(&m, b), group_address(&m, qkv), group_address(&m, x), own(&m, latent));
}

static void group_latent_values(struct device *d, const struct batch *b, void *out, const void *x,
                                const struct latent *latent)
{
    EACH_MEMBER(d, m)
    m.ops->latent_values(m.d, own(&m, b), group_address(&m, out), group_address(&m, x), own(&m, latent));
}

static void group_delta(struct device *d, const struct batch *b, void *out, const struct delta_inputs *in,
                        struct delta_net *net)
{
    EACH_MEMBER(d, m)
    {
        const struct delta_inputs o = {group_address(&m, in->projected), group_address(&m, in->z),
                                       group_address(&m, in->rates), group_address(&m, in->decays)};
        m.ops->delta(m.d, own(&m, b), group_address(&m, out), &o, own(&m, net));
    }
}

/* ---- what each does for itself ---- */

static void group_embed(struct device *d, const struct batch *b, void *out, const struct linear *table,
                        float scale)
{
    EACH_MEMBER(d, m) m.ops->embed(m.d, own(&m, b), group_address(&m, out), own(&m, table), scale);
}

static void group_embed_positions(struct device *d, const struct batch *b, void *x, const float *table)
{
    EACH_MEMBER(d, m)
    m.ops->embed_positions(m.d, own(&m, b), group_address(&m, x), group_address(&m, table));
}

static void group_multiply(struct device *d, const struct batch *b, enum row_set rows, void *x, const void *y,
                           int32_t width, int32_t stride)
{
    EACH_MEMBER(d, m)
    m.ops->multiply(m.d, own(&m, b), rows, group_address(&m, x), group_address(&m, y), width, stride);
}

static void group_pick_logit_rows(struct device *d, const struct batch *b, void *out, const void *x,
                                  size_t row_bytes)
{
    EACH_MEMBER(d, m)
    m.ops->pick_logit_rows(m.d, own(&m, b), group_address(&m, out), group_address(&m, x), row_bytes);
}

static void group_sparse_gelu(struct device *d, const struct batch *b, enum row_set rows, void *out,
                              const void *x, int32_t width, float cut)
{
    EACH_MEMBER(d, m)
    m.ops->sparse_gelu(m.d, own(&m, b), rows, group_address(&m, out), group_address(&m, x), width, cut);
}

static void group_pool(struct device *d, const struct batch *b, const void *x)
{
    EACH_MEMBER(d, m) m.ops->pool(m.d, own(&m, b), group_address(&m, x));
}

static struct altup_streams own_streams(const struct member *m, const struct altup_streams *s)
{
    return (struct altup_streams){group_address(m, s->x), s->stride};
}

static struct altup_args own_altup(const struct member *m, const struct altup_args *args)
{
    struct altup_args a = *args;
    a.router = group_address(m, args->router);
    a.predict = group_address(m, args->predict);
    a.correct = group_address(m, args->correct);
    a.out_scale = group_address(m, args->out_scale);
    a.delta_weight = group_address(m, args->delta_weight);
    return a;
}

static void group_altup_begin(struct device *d, const struct batch *b, const struct altup_streams *streams,
                              const void *x, const void *others, int32_t hidden_size)
{
    EACH_MEMBER(d, m)
    {
        const struct altup_streams s = own_streams(&m, streams);
        m.ops->altup_begin(m.d, own(&m, b), &s, group_address(&m, x), group_address(&m, others), hidden_size);
    }
}

static void group_altup_predict(struct device *d, const struct batch *b, enum row_set rows,
                                const struct altup_streams *streams, void *x, const void *delta,
                                const struct altup_args *args)
{
    EACH_MEMBER(d, m)
    {
        const struct altup_streams s = own_streams(&m, streams);
        const struct altup_args a = own_altup(&m, args);
        m.ops->altup_predict(m.d, own(&m, b), rows, &s, group_address(&m, x), group_address(&m, delta), &a);
    }
}

static void group_altup_correct(struct device *d, const struct batch *b, enum row_set rows, void *out,
                                const struct altup_streams *streams, const void *x,
                                const struct altup_args *args)
{
    EACH_MEMBER(d, m)
    {
        const struct altup_streams s = own_streams(&m, streams);
        const struct altup_args a = own_altup(&m, args);
        m.ops->altup_correct(m.d, own(&m, b), rows, group_address(&m, out), &s, group_address(&m, x), &a);
    }
}

static void group_altup_end(struct device *d, const struct batch *b, enum row_set rows, void *x,
                            const struct altup_streams *streams, const void *others, int32_t hidden_size)
{
    EACH_MEMBER(d, m)
    {
        const struct altup_streams s = own_streams(&m, streams);
        m.ops->altup_end(m.d, own(&m, b), rows, group_address(&m, x), &s, group_address(&m, others),
                         hidden_size);
    }
}

void group_fill_step_table(struct kernel_table *t)
{
    t->step_begin = group_step_begin;
    t->step_end = group_step_end;
    t->step_has_ended = group_step_has_ended;
    t->replay = group_replay;
    t->record_begin = group_record_begin;
    t->record_end = group_record_end;
    t->sample = group_sample;
    t->embed = group_embed;
    t->embed_positions = group_embed_positions;
    t->multiply = group_multiply;
    t->pick_logit_rows = group_pick_logit_rows;
    t->rms_norm = group_rms_norm;
    t->linear = group_linear;
    t->linear_gated = group_linear_gated;
    t->linear_lora = group_linear_lora;
    t->norm_linear = group_norm_linear;
    t->sparse_gelu = group_sparse_gelu;
    t->altup_begin = group_altup_begin;
    t->altup_predict = group_altup_predict;
    t->altup_correct = group_altup_correct;
    t->altup_end = group_altup_end;
    t->moe = group_moe;
    t->rope_kv_write = group_rope_kv_write;
    t->attention = group_attention_run;
    t->latent_qkv = group_latent_qkv;
    t->latent_values = group_latent_values;
    t->delta = group_delta;
    t->split_gates = group_split_gates;
    t->apply_gates = group_apply_gates;
    t->pool = group_pool;
    t->logits = group_logits;
}
