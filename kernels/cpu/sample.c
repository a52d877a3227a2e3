/* sample.c - the logits: the head's product, or of greedy steps what of it matters; then each row's token by itself. */
#include "kernels/cpu/device.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/softcap.h"

#include <stdatomic.h>
#include <string.h>

#include "base/check.h"

struct sampling_task {
    struct cpu_device *device;
    const struct step *step;
    _Atomic int32_t next_row;
};

static void sample_rows(void *context, int thread_idx, int num_threads)
{
    (void)num_threads;
    struct sampling_task *t = context;
    struct cpu_device *c = t->device;
    int32_t row;
    while ((row = atomic_fetch_add(&t->next_row, 1)) < t->step->num_logits) {
        const struct sample_params *p = &t->step->sample[row];
        if (sample_pools(p)) continue;
        const int32_t *drafted = t->step->token_ids + t->step->logit_rows[row] + 1 - p->num_drafted;
        sampling_row(c->isa->rows, &c->sampling[thread_idx], &c->history, drafted,
                     c->logits + (int64_t)row * c->vocab_size, c->vocab_size, cpu_forbidden(c), p,
                     &c->results[row]);
    }
}

static bool all_plain_greedy(const struct step *step)
{
    for (int32_t row = 0; row < step->num_logits; row++)
        if (!sampling_is_plain_greedy(&step->sample[row])) return false;
    return true;
}

/* The fused product has found the same tokens as sampling_row would choose, without the logits. */
static void take_greedy(struct cpu_device *c, const struct step *step)
{
    for (int32_t row = 0; row < step->num_logits; row++) {
        const int32_t token_id = c->greedy_tokens[row];
        c->results[row] =
            (struct sample_result){.failed = token_id < 0, .token_id = token_id < 0 ? 0 : token_id};
    }
}

static void sample_all(struct cpu_device *c, const struct step *step)
{
    struct sampling_task t = {.device = c, .step = step};
    cpu_device_run(c, step->num_logits > 1 ? (int64_t)step->num_logits * c->vocab_size : 0, sample_rows, &t);
}

void cpu_forbid(struct device *d, const uint64_t *ids)
{
    struct cpu_device *c = cpu_device_of(d);
    assert_always(!c->in_step);
    c->forbids = false;
    for (int32_t id = 0; id < c->vocab_size; id++) c->forbids = c->forbids || bit_set_has(ids, (size_t)id);
    memcpy(c->forbidden, ids, bit_set_words((size_t)c->vocab_size) * sizeof *ids);
}

struct softcap_task {
    float *logits; /* [num_rows][width] */
    int32_t num_rows, width;
    float cap;
};

static void softcap_rows(void *context, int thread_idx, int num_threads)
{
    const struct softcap_task *t = context;
    int64_t begin, end;
    thread_pool_range(t->num_rows, thread_idx, num_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) softcap(t->width, t->logits + row * t->width, t->cap);
}

static void softcap_logits(struct cpu_device *c, float *logits, int32_t num_rows, int32_t width, float cap)
{
    struct softcap_task t = {logits, num_rows, width, cap};
    cpu_device_run(c, (int64_t)num_rows * width, softcap_rows, &t);
}

void cpu_logits_begin(struct device *d, const struct batch *b, void *out, const void *x,
                      const struct linear *lm_head)
{
    struct cpu_device *c = cpu_device_of(d);
    const int32_t num_rows = b->step->num_logits;
    const float cap = cpu_linear_softcap(lm_head);
    cpu_linear_run(lm_head, c->pool, c->linear_scratch, num_rows, x, out);
    if (cap > 0) softcap_logits(c, out, num_rows, cpu_linear_num_rows(lm_head), cap);
}

float *cpu_logits_memory(struct device *d)
{
    return cpu_device_of(d)->logits;
}

void cpu_logits_end(struct device *d, const struct batch *b)
{
    (void)b;
    cpu_device_of(d)->greedy_head = NULL;
}

void cpu_logits(struct device *d, const struct batch *b, const void *x, const struct linear *lm_head)
{
    struct cpu_device *c = cpu_device_of(d);
    const struct step *step = b->step;
    const bool has_cap = cpu_linear_softcap(lm_head) > 0; /* which may make ties */
    c->greedy_head = !has_cap && all_plain_greedy(step) ? lm_head : NULL;
    c->greedy_rows = x;
    if (c->greedy_head)
        cpu_linear_argmax(lm_head, c->pool, c->linear_scratch, c->argmax, step->num_logits, x,
                          cpu_forbidden(c), c->greedy_tokens);
    else
        cpu_logits_begin(d, b, c->logits, x, lm_head);
}

void cpu_sample(struct device *d, struct batch *b)
{
    struct cpu_device *c = cpu_device_of(d);
    const struct step *step = b->step;
    if (step->num_logits == step->num_pooled) return;
    if (c->greedy_head) {
        take_greedy(c, step);
    } else {
        sample_all(c, step);
        cpu_keep_logits(c, step);
    }
    for (int32_t row = 0; row < step->num_logits; row++) {
        const struct sample_params *p = &step->sample[row];
        if (p->score_token_id < 0 && !p->withheld && !sample_pools(p))
            history_put(&c->history, p->batch_slot, p->position, c->results[row].token_id,
                        sampling_has_penalties(p));
    }
}
