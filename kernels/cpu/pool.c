/* pool.c - what of a sequence is told instead of tokens: hidden states that are summed, and chosen logits. */
#include <math.h>

#include "base/check.h"
#include "kernels/cpu/device.h"

static float *floats_of(struct cpu_device *c, int32_t batch_slot)
{
    return c->floats + (int64_t)batch_slot * c->row_floats;
}

const float *cpu_row(struct device *d, int32_t batch_slot)
{
    struct cpu_device *c = cpu_device_of(d);
    assert_debug(batch_slot >= 0 && batch_slot < c->limits.num_batch_slots);
    return floats_of(c, batch_slot);
}

/* sum += x, or = x where it begins. False: x is not all numbers. */
static bool add_row(double *sum, const float *x, int32_t n, bool begins)
{
    bool finite = true;
    for (int32_t i = 0; i < n; i++) {
        sum[i] = (begins ? 0 : sum[i]) + (double)x[i];
        finite = finite && isfinite(x[i]);
    }
    return finite;
}

static void pool_row(struct cpu_device *c, const struct sample_params *p, const float *x,
                     struct sample_result *result)
{
    int32_t position = p->position - 1, n = c->hidden_size;
    double *sum = c->sums + (int64_t)p->batch_slot * n;
    *result = (struct sample_result){.failed = !add_row(sum, x, n, position == p->pool_begin)};
    if (position + 1 < p->pool_end) return;
    float *out = floats_of(c, p->batch_slot);
    for (int32_t i = 0; i < n; i++) out[i] = (float)(sum[i] / (p->pool_end - p->pool_begin));
}

void cpu_pool(struct device *d, const struct batch *b, const void *x)
{
    struct cpu_device *c = cpu_device_of(d);
    const struct step *step = b->step;
    for (int32_t row = 0; row < step->num_logits; row++)
        if (sample_pools(&step->sample[row]))
            pool_row(c, &step->sample[row], (const float *)x + (int64_t)row * c->hidden_size,
                     &c->results[row]);
}

void cpu_keep_logits(struct cpu_device *c, const struct step *step)
{
    for (int32_t row = 0; row < step->num_logits; row++) {
        const struct sample_params *p = &step->sample[row];
        for (int32_t i = 0; i < p->num_row_logits; i++)
            floats_of(c, p->batch_slot)[i] = c->logits[(int64_t)row * c->vocab_size + p->row_logits[i]];
    }
}
