/* step.c - a step's way in, and its results' way out. */
#include "kernels/cpu/device.h"

#include <string.h>

#include "base/check.h"

static void check_step(const struct cpu_device *c, const struct step *s)
{
    assert_always(!c->in_step);
    assert_always(s->num_tokens <= c->limits.num_tokens && s->num_seqs <= c->limits.num_seqs &&
                  s->num_logits <= c->limits.num_logits);
    for (int32_t i = 0; i < s->num_seqs; i++) {
        assert_debug(s->cu_seqlens_q[i] < s->cu_seqlens_q[i + 1]);
        assert_debug(s->positions[s->cu_seqlens_q[i + 1] - 1] == s->seqlens_k[i] - 1);
        assert_debug(s->seqlens_k[i] <= c->limits.max_model_len);
    }
}

struct batch *cpu_step_begin(struct device *d, const struct step *step)
{
    struct cpu_device *c = cpu_device_of(d);
    struct batch *b = &c->batch;
    check_step(c, step);
    thread_pool_pin_caller(c->pool); /* whoever runs steps; not whoever loads */
    c->in_step = true;
    b->step = step;
    for (int32_t t = 0; t < step->num_tokens; t++) {
        int32_t id = step->token_ids[t];
        b->token_ids[t] = id >= 0 ? id : c->history.slots[~id].last_token;
    }
    attention_plan(&c->attention, step, &b->attention);
    return b;
}

int cpu_step_end(struct device *d, struct sample_result *results, struct error *err)
{
    (void)err;
    struct cpu_device *c = cpu_device_of(d);
    assert_always(c->in_step);
    c->in_step = false;
    if (c->batch.step->num_logits > 0)
        memcpy(results, c->results, (size_t)c->batch.step->num_logits * sizeof *results);
    return STATUS_OK;
}
