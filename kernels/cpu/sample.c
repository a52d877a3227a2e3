/* sample.c - logits and their tokens: the head's product, then each row by itself. */
#include "kernels/cpu/device.h"
#include "kernels/cpu/linear.h"

#include <stdatomic.h>

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
    while ((row = atomic_fetch_add(&t->next_row, 1)) < t->step->num_logits)
        sampling_row(c->isa->rows, &c->sampling[thread_idx], &c->history,
                     c->logits + (int64_t)row * c->vocab_size, c->vocab_size, &t->step->sample[row],
                     &c->results[row]);
}

static bool all_plain_greedy(const struct step *step)
{
    for (int32_t row = 0; row < step->num_logits; row++)
        if (!sampling_is_plain_greedy(&step->sample[row])) return false;
    return true;
}

/* The same tokens as sampling_row chooses, without the logits. */
static void run_greedy(struct cpu_device *c, const struct step *step)
{
    cpu_linear_argmax(c->greedy_head, c->pool, c->linear_scratch, c->argmax, step->num_logits, c->greedy_rows,
                      c->greedy_tokens);
    for (int32_t row = 0; row < step->num_logits; row++) {
        const int32_t token_id = c->greedy_tokens[row];
        c->results[row] =
            (struct sample_result){.failed = token_id < 0, .token_id = token_id < 0 ? 0 : token_id};
    }
}

static void run_general(struct cpu_device *c, const struct step *step, const float *x,
                        const struct linear *lm_head)
{
    cpu_linear_run(lm_head, c->pool, c->linear_scratch, step->num_logits, x, c->logits);
    struct sampling_task t = {.device = c, .step = step};
    cpu_device_run(c, step->num_logits > 1 ? (int64_t)step->num_logits * c->vocab_size : 0, sample_rows, &t);
}

void cpu_logits_sample(struct device *d, const struct batch *b, const void *x, const struct linear *lm_head)
{
    struct cpu_device *c = cpu_device_of(d);
    const struct step *step = b->step;
    if (step->num_logits == 0) return;
    c->greedy_head = all_plain_greedy(step) ? lm_head : NULL;
    c->greedy_rows = x;
    if (c->greedy_head)
        run_greedy(c, step);
    else
        run_general(c, step, x, lm_head);
    for (int32_t row = 0; row < step->num_logits; row++) {
        const struct sample_params *p = &step->sample[row];
        if (p->score_token_id < 0)
            history_append(&c->history, p->batch_slot, c->results[row].token_id, sampling_has_penalties(p));
    }
}
