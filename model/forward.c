#include "model/forward.h"

void forward_llama(const struct model *m, const struct batch *b, int32_t num_logits)
{
    struct device *d = m->device;
    const struct kernel_table *k = d->ops;
    const float eps = m->config.rms_norm_eps;
    const int32_t hidden = m->config.hidden_size;

    k->embed(d, b, m->residual, m->embedding);
    for (int32_t i = 0; i < m->config.num_layers; i++) {
        const struct layer *layer = &m->layers[i];
        /* the MLP's output of the layer before is added where the sum is needed next: in the norm */
        if (i == 0)
            k->rms_norm(d, b, m->normed, m->residual, layer->attention_norm, eps, hidden);
        else
            k->add_rms_norm(d, b, m->normed, m->residual, m->delta, layer->attention_norm, eps, hidden);
        k->linear(d, b, m->qkv, m->normed, layer->qkv);
        k->rope_kv_write(d, b, m->qkv, m->kv_pool, i, &layer->rope);
        k->attention(d, b, m->attended, m->qkv, m->kv_pool, i, &m->attention);
        k->linear(d, b, m->delta, m->attended, layer->o);
        k->add_rms_norm(d, b, m->normed, m->residual, m->delta, layer->mlp_norm, eps, hidden);
        k->linear_silu_mul(d, b, m->mlp, m->normed, layer->gate_up);
        k->linear(d, b, m->delta, m->mlp, layer->down);
    }
    if (num_logits == 0) return; /* prompt chunks that end before the prompt does */
    k->add_rms_norm_logit_rows(d, b, m->logit_rows, m->residual, m->delta, m->output_norm, eps, hidden);
    k->logits_sample(d, b, m->logit_rows, m->lm_head);
}
