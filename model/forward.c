#include "model/forward.h"

#include "base/check.h"

/* The residual stream of some rows of the step. A device that makes a norm in the product behind it (norm_linear) leaves the
 * sum of one row in the other one, and they change places. */
struct stream {
    enum row_set rows;
    void *x, *other;
};

/* What follows attention in a layer, and the norm before the logits. */
struct tail {
    struct stream residual;
    void *attended, *state_mixed;
    void *normed; /* what attention has got, where the MLP gets it, too; else room */
    const void *layer_inputs;
    struct altup_streams streams;
    const void *delta; /* what the next norm adds; NULL: nothing */
};

/* The MLP's output of the layer before, or attention's, is added where the sum is needed next: in the norm. */
struct next_norm {
    const struct norm_args *args;
    const void *delta; /* NULL: nothing is added */
    void *normed;      /* where it goes, if anywhere */
};

static struct stream stream_of(const struct model *m, enum row_set rows, void *x)
{
    const size_t row_bytes = (size_t)m->config.hidden_size * (size_t)m->device->res_bytes;
    return (struct stream){rows, x, (char *)x + row_bytes};
}

static void norm_rows(const struct model *m, const struct batch *b, const struct stream *s,
                      const struct next_norm *n)
{
    m->device->ops->rms_norm(m->device, b, s->rows, n->normed, s->x, n->delta, n->args);
}

/* A matrix, and what adapters add to it; lora NULL: nothing. */
struct adapted {
    const struct linear *w;
    const struct lora *lora;
};

static bool adapts(const struct model *m, struct adapted a)
{
    return a.lora && m->step_has_loras;
}

static void multiply_adapted(const struct model *m, const struct batch *b, enum row_set rows, void *out,
                             const void *x, struct adapted a, bool is_gated)
{
    struct device *d = m->device;
    const struct kernel_table *k = d->ops;
    if (adapts(m, a))
        k->linear_lora(d, b, rows, out, x, a.w, a.lora);
    else
        (is_gated ? k->linear_gated : k->linear)(d, b, rows, out, x, a.w);
}

/* The product of the norm, which nobody else reads. */
static void multiply_normed(const struct model *m, const struct batch *b, struct stream *s,
                            const struct next_norm *n, void *out, struct adapted a, bool is_gated)
{
    struct device *d = m->device;
    const struct kernel_table *k = d->ops;
    if (!adapts(m, a) && k->norm_linear &&
        k->norm_linear(d, b, s->rows, out, s->other, s->x, n->delta, n->args, a.w)) {
        if (n->delta) *s = (struct stream){s->rows, s->other, s->x};
        return;
    }
    norm_rows(m, b, s, n);
    multiply_adapted(m, b, s->rows, out, n->normed, a, is_gated);
}

static int32_t layer_inputs_width(const struct model_config *c)
{
    return c->num_layers * c->layer_embedding_dim;
}

static char *stream_at(const struct model *m, const struct altup_streams *s, int i)
{
    return (char *)s->x + (size_t)i * (size_t)s->stride * (size_t)m->device->res_bytes;
}

/* What products make of them, as far apart. */
static void *other_stream(const struct model *m, const struct altup_streams *s, int i)
{
    return (char *)m->altup_others + (size_t)i * (size_t)s->stride * (size_t)m->device->act_bytes;
}

static void pick_streams(const struct model *m, const struct batch *b)
{
    struct device *d = m->device;
    for (int i = 0; i < ALTUP_STREAMS && m->streams.x; i++)
        d->ops->pick_logit_rows(d, b, stream_at(m, &m->logit_streams, i), stream_at(m, &m->streams, i),
                                (size_t)m->config.hidden_size * (size_t)d->res_bytes);
}

/* Whether what attention has got goes on beside the sum. */
static bool keeps_input(const struct model *m, const struct layer *layer)
{
    return m->config.is_parallel || layer->inner_norm.weight;
}

/* In the last layer nothing but logits comes of it, so it is computed where they are asked for. In a decode
 * step those are all rows. all: of all tokens. */
static struct tail last_tail(const struct model *m, const struct batch *b, const struct step *step,
                             const struct tail *all)
{
    struct device *d = m->device;
    const struct model_config *c = &m->config;
    assert_debug(step->num_logits > 0 && step->num_logits <= step->num_tokens);
    if (step->num_logits == step->num_tokens) return *all;
    /* attention was the last to read qkv, and nothing is in logit_rows yet */
    struct tail tail = {stream_of(m, ROWS_LOGITS, m->logit_residual),
                        m->qkv,
                        m->projected,
                        m->logit_rows,
                        m->layer_logit_inputs,
                        m->logit_streams,
                        NULL};
    pick_streams(m, b);
    d->ops->pick_logit_rows(d, b, tail.residual.x, all->residual.x,
                            (size_t)c->hidden_size * (size_t)d->res_bytes);
    if (m->layers[c->num_layers - 1].o)
        d->ops->pick_logit_rows(d, b, tail.attended, m->attended,
                                (size_t)m->layers[c->num_layers - 1].mixed_width * (size_t)d->act_bytes);
    if (m->state_mixed)
        d->ops->pick_logit_rows(d, b, tail.state_mixed, m->state_mixed,
                                (size_t)model_config_delta_width(c) * (size_t)d->act_bytes);
    if (keeps_input(m, &m->layers[c->num_layers - 1]))
        d->ops->pick_logit_rows(d, b, tail.normed, m->normed, (size_t)c->hidden_size * (size_t)d->act_bytes);
    if (m->layer_inputs)
        d->ops->pick_logit_rows(d, b, m->layer_logit_inputs, m->layer_inputs,
                                (size_t)layer_inputs_width(c) * (size_t)d->act_bytes);
    return tail;
}

/* p: wide NULL: nothing. */
static void multiply(const struct model *m, const struct batch *b, void *out, const void *x,
                     const struct product *p)
{
    const struct kernel_table *k = m->device->ops;
    if (p->narrow) k->linear(m->device, b, ROWS_TOKENS, m->narrow, x, p->narrow);
    if (p->wide) k->linear(m->device, b, ROWS_TOKENS, out, p->narrow ? m->narrow : x, p->wide);
}

/* What is added to the sum beside attention: what it gets, and the norm of what a product of low rank makes of that. */
static void add_laurel(const struct model *m, const struct batch *b, const struct layer *layer,
                       struct stream *residual, const void *normed)
{
    const struct norm_args plain = {.hidden_size = m->config.hidden_size, .delta_scale = 1};
    const struct next_norm own = {&layer->laurel_norm, m->delta, m->delta},
                           input = {&plain, normed, m->delta};
    multiply(m, b, m->delta, normed, &layer->laurel);
    norm_rows(m, b, residual, &own);
    norm_rows(m, b, residual, &input);
}

/* Whether nothing but o makes what a layer has before its MLP. */
static bool is_replaced(const struct layer *layer)
{
    return layer->o && !layer->qkv && !layer->delta_net && !layer->attention.latent;
}

/* What attention, or a state, works on. */
static void project_tokens(const struct model *m, const struct batch *b, const struct layer *layer,
                           struct stream *residual, const struct next_norm *n)
{
    struct device *d = m->device;
    const struct kernel_table *k = d->ops;
    void *projected = layer->delta_net || m->config.family->gated_attention ? m->projected : m->qkv;
    const struct adapted qkv = {layer->qkv, layer->qkv_lora},
                         own = layer->delta_net ? (struct adapted){layer->projections, NULL} : qkv;
    const bool has_both = layer->delta_net && layer->qkv;
    if (!layer->attention.latent && !layer->gates && !has_both && !layer->laurel.wide &&
        !keeps_input(m, layer) && !is_replaced(layer)) {
        multiply_normed(m, b, residual, n, projected, own, false);
        return;
    }
    norm_rows(m, b, residual, n);
    if (is_replaced(layer)) return;
    if (layer->attention.latent)
        k->latent_qkv(d, b, m->qkv, n->normed, layer->attention.latent);
    else
        multiply_adapted(m, b, ROWS_TOKENS, projected, n->normed, own, false);
    if (has_both) multiply_adapted(m, b, ROWS_TOKENS, m->qkv, n->normed, qkv, false);
    if (layer->gates) k->linear(d, b, ROWS_TOKENS, m->gates, n->normed, layer->gates);
    multiply(m, b, m->z, n->normed, &layer->z);
    multiply(m, b, m->decays, n->normed, &layer->decays);
    if (layer->laurel.wide) add_laurel(m, b, layer, residual, n->normed);
}

/* Of all tokens, into attended; but where nobody wants logits of the last layer, what it leaves for later steps alone. */
static void mix_tokens(const struct model *m, const struct batch *b, const struct layer *layer,
                       bool is_wanted)
{
    struct device *d = m->device;
    const struct kernel_table *k = d->ops;
    const bool gated = m->config.family->gated_attention;
    if (is_replaced(layer)) return;
    if (layer->delta_net) {
        const struct delta_inputs in = {m->projected, m->z, m->gates, m->decays};
        k->delta(d, b, layer->qkv ? m->state_mixed : m->attended, &in, layer->delta_net);
        if (!layer->qkv) return;
    }
    if (gated) k->split_gates(d, b, m->qkv, m->gates, m->projected, &layer->attention);
    k->rope_kv_write(d, b, m->qkv, m->kv_pool, layer->kv_layer, &layer->rope);
    if (!is_wanted) return;
    k->attention(d, b, layer->attention.latent ? m->projected : m->attended, m->qkv, m->kv_pool,
                 layer->kv_layer, &layer->attention);
    if (layer->attention.latent) k->latent_values(d, b, m->attended, m->projected, layer->attention.latent);
    if (gated || layer->gates) k->apply_gates(d, b, m->attended, m->gates, &layer->attention);
}

/* x[T][hidden_size of n] (act) becomes its norm. */
static void norm_in_place(const struct model *m, const struct batch *b, enum row_set rows, void *x,
                          const struct norm_args *n)
{
    if (n->delta_weight) m->device->ops->rms_norm(m->device, b, rows, x, m->sub_normed, x, n);
}

/* What attention, or a state, has made, as the next norm adds it; of both attention's at once. */
static void project_mixed(const struct model *m, const struct batch *b, const struct layer *layer,
                          struct tail *t)
{
    const struct kernel_table *k = m->device->ops;
    const enum row_set rows = t->residual.rows;
    norm_in_place(m, b, rows, t->attended, &layer->o_norm);
    multiply_adapted(m, b, rows, m->delta, t->attended, (struct adapted){layer->o, layer->o_lora}, false);
    t->delta = m->delta;
    if (layer->inner_norm.weight) {
        const struct next_norm inner = {&layer->inner_norm, m->delta, m->delta};
        norm_rows(m, b, &t->residual, &inner);
        t->delta = t->normed;
    }
    if (!layer->state_o) return;
    const struct next_norm sum = {&layer->sum, m->delta, t->normed};
    norm_rows(m, b, &t->residual, &sum);
    k->linear(m->device, b, rows, m->delta, t->state_mixed, layer->state_o);
}

/* What each token adds to each layer: embeddings of its own, and the norm of what a product makes of that of all. */
static void make_layer_inputs(const struct model *m, const struct batch *b)
{
    struct device *d = m->device;
    const struct kernel_table *k = d->ops;
    const struct norm_args copy = {.hidden_size = m->config.hidden_size};
    k->rms_norm(d, b, ROWS_TOKENS, m->normed, m->residual, NULL, &copy);
    k->linear(d, b, ROWS_TOKENS, m->layer_inputs, m->normed, m->layer_projection);
    k->embed(d, b, m->layer_rows, m->layer_embedding, m->layer_embedding_scale);
    k->rms_norm(d, b, ROWS_TOKENS, m->layer_inputs, m->layer_rows, m->layer_inputs, &m->layer_inputs_norm);
}

static struct adapted gate_up_of(const struct layer *layer)
{
    return (struct adapted){layer->gate_up, layer->gate_up_lora};
}

static struct adapted down_of(const struct layer *layer)
{
    return (struct adapted){layer->down, layer->down_lora};
}

/* An MLP, and beside it experts, each with norms of its own, and the sum of both. */
static void run_mlp_beside_experts(const struct model *m, const struct batch *b, const struct layer *layer,
                                   struct tail *t)
{
    struct device *d = m->device;
    const struct kernel_table *k = d->ops;
    const enum row_set rows = t->residual.rows;
    const struct next_norm between = {&layer->mlp_norm, m->delta, t->normed},
                           before_router = {&layer->seen_norm, NULL, m->seen},
                           before_experts = {&layer->experts_norm, NULL, t->normed};
    multiply_normed(m, b, &t->residual, &between, m->mlp, gate_up_of(layer), true);
    norm_rows(m, b, &t->residual, &before_router);
    norm_rows(m, b, &t->residual, &before_experts);
    multiply_adapted(m, b, rows, m->delta, m->mlp, down_of(layer), false);
    k->rms_norm(d, b, rows, m->delta, m->both, m->delta, &layer->mlp_sum);
    k->moe(d, b, rows, m->delta, t->normed, m->seen, layer->moe);
    k->rms_norm(d, b, rows, m->delta, m->both, m->delta, &layer->experts_sum);
}

/* What the adapters of tasks add to embeddings; NULL: nothing. */
static const void *task_delta(const struct model *m, const struct batch *b)
{
    struct device *d = m->device;
    const struct kernel_table *k = d->ops;
    const struct norm_args copy = {.hidden_size = m->task_width};
    if (!m->task_lora || !m->step_has_loras) return NULL;
    k->embed(d, b, m->task_rows, m->task_table, 1);
    k->rms_norm(d, b, ROWS_TOKENS, m->task_values, m->task_rows, NULL, &copy);
    k->linear_lora(d, b, ROWS_TOKENS, m->delta, m->task_values, m->task_zeros, m->task_lora);
    return m->delta;
}

/* Its gate and up, of what the norm between gives. */
static void run_gate_up(const struct model *m, const struct batch *b, const struct layer *layer,
                        struct tail *t, const struct next_norm *between)
{
    struct device *d = m->device;
    const bool is_cut = layer->has_sparse_gate;
    multiply_normed(m, b, &t->residual, between, is_cut ? m->gate_and_up : m->mlp, gate_up_of(layer),
                    !is_cut);
    if (is_cut)
        d->ops->sparse_gelu(d, b, t->residual.rows, m->mlp, m->gate_and_up, layer->intermediate_size,
                            layer->gate_cut);
}

/* Side by side with attention: of what that gets, or of a norm of its own of the same sum, which attention is not in yet. */
static void run_gate_up_beside(const struct model *m, const struct batch *b, const struct layer *layer,
                               struct tail *t)
{
    const struct next_norm own = {&layer->seen_norm, NULL, t->normed};
    if (layer->seen_norm.weight) norm_rows(m, b, &t->residual, &own);
    multiply_adapted(m, b, t->residual.rows, m->mlp, t->normed, gate_up_of(layer), true);
}

/* What the MLP or experts make of the sum, which attention's output product is added to first. */
static void run_mlp(const struct model *m, const struct batch *b, const struct layer *layer, struct tail *t)
{
    struct device *d = m->device;
    const struct kernel_table *k = d->ops;
    const enum row_set rows = t->residual.rows;
    const bool is_parallel = m->config.is_parallel;
    /* side by side the experts get what attention has got */
    const struct next_norm between = {&layer->mlp_norm, t->delta,
                                      is_parallel && layer->moe ? m->seen : t->normed};
    if (!layer->moe && !layer->down) return; /* it has none */
    t->delta = m->delta;
    if (layer->moe && layer->down) {
        run_mlp_beside_experts(m, b, layer, t);
        return;
    }
    if (is_parallel || layer->moe) norm_rows(m, b, &t->residual, &between);
    if (layer->moe) {
        k->moe(d, b, rows, m->delta, t->normed, t->normed, layer->moe);
        return;
    }
    if (!is_parallel) run_gate_up(m, b, layer, t, &between);
    norm_in_place(m, b, rows, m->mlp, &layer->down_norm);
    multiply_adapted(m, b, rows, m->delta, m->mlp, down_of(layer), false);
}

/* What the token adds to the layer, behind the MLP, through a gate that the sum makes. */
static void add_layer_input(const struct model *m, const struct batch *b, int32_t i, struct tail *t)
{
    struct device *d = m->device;
    const struct kernel_table *k = d->ops;
    const struct layer *layer = &m->layers[i];
    const enum row_set rows = t->residual.rows;
    const int32_t dim = m->config.layer_embedding_dim;
    const struct next_norm behind = {&layer->input_norm, m->delta, t->normed};
    if (!layer->input_gate) return;
    norm_rows(m, b, &t->residual, &behind);
    if (m->streams.x) k->altup_correct(d, b, rows, t->normed, &t->streams, t->residual.x, &layer->altup);
    k->linear_gated(d, b, rows, m->mlp, t->normed, layer->input_gate);
    k->multiply(d, b, rows, m->mlp,
                (const char *)t->layer_inputs + (size_t)i * (size_t)dim * (size_t)d->act_bytes, dim,
                layer_inputs_width(&m->config));
    k->linear(d, b, rows, m->delta, m->mlp, layer->input_out);
}

/* The streams but the first begin as products of it; normed has it. */
static void begin_streams(const struct model *m, const struct batch *b)
{
    struct device *d = m->device;
    for (int i = 0; i < ALTUP_STREAMS - 1; i++)
        d->ops->linear(d, b, ROWS_TOKENS, other_stream(m, &m->streams, i), m->normed, m->altup_in[i]);
    d->ops->altup_begin(d, b, &m->streams, m->residual, m->altup_others, m->config.hidden_size);
}

/* All streams become one. */
static void end_streams(const struct model *m, const struct batch *b, struct tail *t)
{
    struct device *d = m->device;
    const enum row_set rows = t->residual.rows;
    for (int i = 0; i < ALTUP_STREAMS - 1; i++) {
        const struct stream own = {rows, stream_at(m, &t->streams, i + 1), NULL};
        const struct next_norm last = {&m->altup_norm, m->delta, t->normed};
        norm_rows(m, b, &own, &last);
        d->ops->linear(d, b, rows, other_stream(m, &t->streams, i), t->normed, m->altup_out[i]);
    }
    d->ops->altup_end(d, b, rows, t->residual.x, &t->streams, m->altup_others, m->config.hidden_size);
}

void forward(const struct model *m, const struct batch *b, const struct step *step)
{
    struct device *d = m->device;
    const struct kernel_table *k = d->ops;
    const struct model_config *c = &m->config;
    /* prompt chunks that end before the prompt does leave K and V alone */
    const int32_t last =
        (step->num_logits > 0 ? c->num_layers : c->num_layers - c->num_kv_sharing_layers) - 1;
    struct tail t = {stream_of(m, ROWS_TOKENS, m->residual),
                     m->attended,
                     m->state_mixed,
                     m->normed,
                     m->layer_inputs,
                     m->streams,
                     NULL};

    k->embed(d, b, m->residual, m->embedding, m->embedding_scale);
    if (m->positions) k->embed_positions(d, b, m->residual, m->positions);
    if (m->embedding_norm.weight)
        k->rms_norm(d, b, ROWS_TOKENS, m->normed, m->residual, NULL, &m->embedding_norm);
    if (m->layer_inputs) make_layer_inputs(m, b);
    t.delta = task_delta(m, b);
    if (m->streams.x) begin_streams(m, b);
    for (int32_t i = 0; i <= last; i++) {
        const struct layer *layer = &m->layers[i];
        const struct next_norm before = {&layer->attention_norm, m->streams.x ? NULL : t.delta,
                                         is_replaced(layer) ? m->attended : m->normed};
        if (m->streams.x)
            k->altup_predict(d, b, ROWS_TOKENS, &m->streams, t.residual.x, t.delta, &layer->altup);
        if (layer->o) {
            project_tokens(m, b, layer, &t.residual, &before);
            mix_tokens(m, b, layer, i < last || step->num_logits > 0);
        } else if (t.delta) { /* all that is before its MLP */
            norm_rows(m, b, &t.residual, &before);
            t.delta = NULL;
        }
        if (i == last && step->num_logits == 0) return;
        if (i == last) t = last_tail(m, b, step, &t);
        if (c->is_parallel && !layer->moe) run_gate_up_beside(m, b, layer, &t);
        if (layer->o) project_mixed(m, b, layer, &t);
        run_mlp(m, b, layer, &t);
        add_layer_input(m, b, i, &t);
    }
    if (m->streams.x) end_streams(m, b, &t);
    k->rms_norm(d, b, t.residual.rows, m->logit_rows, t.residual.x, m->streams.x ? NULL : t.delta,
                &m->output_norm);
    if (step->num_pooled > 0) k->pool(d, b, m->logit_rows);
    if (step->num_pooled < step->num_logits) k->logits(d, b, m->logit_rows, m->lm_head);
}
