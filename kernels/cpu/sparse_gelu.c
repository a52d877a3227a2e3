/* sparse_gelu.c - a gate of which no more than what stands out of its row is left. */
#include <math.h>

#include "kernels/cpu/device.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/norm.h"

struct sparse_task {
    enum cpu_isa_level level;
    float *out;
    const float *x;
    int32_t num_rows, width;
    float cut;
};

/* out is room for what the mean is taken from. A NaN spoils all. */
static void cut_gate(float *out, const float *gate, int32_t n, float cut)
{
    const float mean = row_sum(gate, n) / (float)n;
    for (int32_t i = 0; i < n; i++) out[i] = gate[i] - mean;
    const float least = cut * sqrtf(row_dot(out, out, n) / (float)n);
    for (int32_t i = 0; i < n; i++) {
        const float above = out[i] - least;
        out[i] = above < 0 ? 0 : above;
    }
}

static void run_rows(void *context, int thread_idx, int num_threads)
{
    const struct sparse_task *t = context;
    int64_t begin, end;
    thread_pool_range(t->num_rows, thread_idx, num_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        const float *gate = t->x + 2 * row * t->width, *up = gate + t->width;
        float *out = t->out + row * t->width;
        cut_gate(out, gate, t->width, t->cut);
        cpu_gate_mul(t->level, GATE_GELU_TANH, t->width, out, up);
    }
}

void cpu_sparse_gelu(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                     int32_t width, float cut)
{
    struct cpu_device *c = cpu_device_of(d);
    struct sparse_task t = {.level = c->level,
                            .out = out,
                            .x = x,
                            .num_rows = batch_num_rows(b, rows),
                            .width = width,
                            .cut = cut};
    cpu_device_run(c, (int64_t)t.num_rows * width, run_rows, &t);
}
