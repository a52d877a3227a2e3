#include "model/forward.h"

#include "base/check.h"

/* What follows attention in a layer, and the norm before the logits, for some rows of the step. */
struct tail {
    enum row_set rows;
    void *residual, *attended;
    void *normed; /* what attention has got, where the MLP gets it, too; else room */
};

/* In the last layer nothing but logits comes of it, so it is computed where they are asked for. In a decode
 * step those are all rows. */
static struct tail last_tail(const struct model *m, const struct batch *b, const struct step *step)
{
    struct device *d = m->device;
    const struct model_config *c = &m->config;
    struct tail tail = {ROWS_TOKENS, m->residual, m->attended, m->normed};
    assert_debug(step->num_logits > 0 && step->num_logits <= step->num_tokens);
    if (step->num_logits == step->num_tokens) return tail;
    /* attention was the last to read qkv, and nothing is in logit_rows yet */
    tail = (struct tail){ROWS_LOGITS, m->logit_residual, m->qkv, m->logit_rows};
    d->ops->pick_logit_rows(d, b, tail.residual, m->residual, (size_t)c->hidden_size * (size_t)d->res_bytes);
    d->ops->pick_logit_rows(d, b, tail.attended, m->attended,
                            (size_t)m->layers[c->num_layers - 1].mixed_width * (size_t)d->act_bytes);
    if (c->family->is_parallel)
        d->ops->pick_logit_rows(d, b, tail.normed, m->normed, (size_t)c->hidden_size * (size_t)d->act_bytes);
    return tail;
}

/* Of all tokens, into attended; but where nobody wants logits of the last layer, what it leaves for later steps alone. */
static void mix_tokens(const struct model *m, const struct batch *b, const struct layer *layer,
                       bool is_wanted)
{
    struct device *d = m->device;
    const struct kernel_table *k = d->ops;
    const bool gated = m->config.family->gated_attention;
    if (layer->delta_net) {
        k->linear(d, b, ROWS_TOKENS, m->projected, m->normed, layer->projections);
        if (layer->rates) k->linear(d, b, ROWS_TOKENS, m->gates, m->normed, layer->rates);
        k->delta(d, b, m->attended, m->projected, m->gates, layer->delta_net);
        return;
    }
    if (layer->latent)
        k->latent_qkv(d, b, m->qkv, m->normed, layer->latent);
    else
        k->linear(d, b, ROWS_TOKENS, gated ? m->projected : m->qkv, m->normed, layer->qkv);
    if (gated) k->split_gates(d, b, m->qkv, m->gates, m->projected, &layer->attention);
    k->rope_kv_write(d, b, m->qkv, m->kv_pool, layer->kv_layer, &layer->rope);
    if (!is_wanted) return;
    k->attention(d, b, layer->latent ? m->projected : m->attended, m->qkv, m->kv_pool, layer->kv_layer,
                 &layer->attention);
    if (layer->latent) k->latent_values(d, b, m->attended, m->projected, layer->latent);
    if (gated) k->apply_gates(d, b, m->attended, m->gates, &layer->attention);
}

void forward(const struct model *m, const struct batch *b, const struct step *step)
{
    struct device *d = m->device;
    const struct kernel_table *k = d->ops;
    const int32_t last = m->config.num_layers - 1;
    const bool is_parallel = m->config.family->is_parallel;
    struct tail t = {ROWS_TOKENS, m->residual, m->attended, m->normed};

    k->embed(d, b, m->residual, m->embedding, m->embedding_scale);
    if (m->positions) k->embed_positions(d, b, m->residual, m->positions);
    for (int32_t i = 0; i <= last; i++) {
        const struct layer *layer = &m->layers[i];
        /* the MLP's output of the layer before is added where the sum is needed next: in the norm */
        const void *delta = i == 0 ? NULL : m->delta;
        k->rms_norm(d, b, ROWS_TOKENS, m->normed, m->residual, delta, &layer->attention_norm);
        mix_tokens(m, b, layer, i < last || step->num_logits > 0);
        if (i == last && step->num_logits == 0) return; /* prompt chunks that end before the prompt does */
        if (i == last) t = last_tail(m, b, step);
        if (is_parallel) k->linear_gated(d, b, t.rows, m->mlp, t.normed, layer->gate_up);
        k->linear(d, b, t.rows, m->delta, t.attended, layer->o);
        if (!layer->moe && !layer->down) continue; /* it has no MLP */
        k->rms_norm(d, b, t.rows, t.normed, t.residual, m->delta, &layer->mlp_norm);
        if (layer->moe) {
            k->moe(d, b, t.rows, m->delta, t.normed, layer->moe);
            continue;
        }
        if (!is_parallel) k->linear_gated(d, b, t.rows, m->mlp, t.normed, layer->gate_up);
        k->linear(d, b, t.rows, m->delta, m->mlp, layer->down);
    }
    k->rms_norm(d, b, t.rows, m->logit_rows, t.residual, m->delta, &m->output_norm);
    if (step->num_pooled > 0) k->pool(d, b, m->logit_rows);
    if (step->num_pooled < step->num_logits) k->logits(d, b, m->logit_rows, m->lm_head);
}
