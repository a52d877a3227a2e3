#include "kernels/cpu/norm.h"

#include <math.h>

#include "kernels/cpu/cpu_device.h"

/* Element i goes to partial sum i % NUM_SUMS: a fixed order that a compiler can keep in vectors. */
enum { NUM_SUMS = 16 };

static float sum_of_squares(const float *x, int32_t n)
{
    float sums[NUM_SUMS] = {0};
    int32_t i = 0;
    for (; i + NUM_SUMS <= n; i += NUM_SUMS)
        for (int j = 0; j < NUM_SUMS; j++) sums[j] += x[i + j] * x[i + j];
    for (int j = 0; i < n; i++, j++) sums[j] += x[i] * x[i];
    for (int half = NUM_SUMS / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) sums[j] += sums[j + half];
    return sums[0];
}

void norm_row(float *out, const float *x, const float *weight, float eps, int32_t n)
{
    float inverse = 1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps);
    for (int32_t i = 0; i < n; i++) out[i] = x[i] * inverse * weight[i];
}

/* Rows of x (or those that row_ids names), with delta added first unless it is NULL: to x itself, or, when
 * only rows are picked, to a copy in out. */
struct norm_task {
    float *out, *x;
    const float *picked_x, *delta, *weight;
    const int32_t *row_ids;
    float eps;
    int32_t num_rows, hidden_size;
};

static void add_row(float *out, const float *x, const float *delta, int32_t n)
{
    for (int32_t i = 0; i < n; i++) out[i] = x[i] + delta[i];
}

static void norm_rows(void *context, int thread_idx, int num_threads)
{
    const struct norm_task *t = context;
    int64_t begin, end;
    thread_pool_range(t->num_rows, thread_idx, num_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        float *out = t->out + row * t->hidden_size, *x = t->x + row * t->hidden_size;
        if (t->delta) add_row(x, x, t->delta + row * t->hidden_size, t->hidden_size);
        norm_row(out, x, t->weight, t->eps, t->hidden_size);
    }
}

static void norm_picked_rows(void *context, int thread_idx, int num_threads)
{
    const struct norm_task *t = context;
    int64_t begin, end;
    thread_pool_range(t->num_rows, thread_idx, num_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        float *out = t->out + row * t->hidden_size;
        int64_t from = (int64_t)t->row_ids[row] * t->hidden_size;
        add_row(out, t->picked_x + from, t->delta + from, t->hidden_size);
        norm_row(out, out, t->weight, t->eps, t->hidden_size);
    }
}

static void run(struct device *d, struct norm_task *t, void (*task)(void *, int, int))
{
    cpu_device_run(cpu_device_of(d), (int64_t)t->num_rows * t->hidden_size, task, t);
}

void cpu_add_rms_norm(struct device *d, const struct batch *b, void *out, void *x, const void *delta,
                      const float *weight, float eps, int32_t hidden_size)
{
    struct norm_task t = {.out = out, .x = x, .delta = delta, .weight = weight, .eps = eps};
    t.num_rows = b->step->num_tokens;
    t.hidden_size = hidden_size;
    run(d, &t, norm_rows);
}

void cpu_rms_norm(struct device *d, const struct batch *b, void *out, const void *x, const float *weight,
                  float eps, int32_t hidden_size)
{
    cpu_add_rms_norm(d, b, out, (void *)x, NULL, weight, eps,
                     hidden_size); /* without a delta x is only read */
}

void cpu_add_rms_norm_logit_rows(struct device *d, const struct batch *b, void *out, const void *x,
                                 const void *delta, const float *weight, float eps, int32_t hidden_size)
{
    struct norm_task t = {.out = out, .picked_x = x, .delta = delta, .weight = weight, .eps = eps};
    t.row_ids = b->step->logit_rows;
    t.num_rows = b->step->num_logits;
    t.hidden_size = hidden_size;
    run(d, &t, norm_picked_rows);
}
