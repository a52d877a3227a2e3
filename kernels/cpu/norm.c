#include "kernels/cpu/norm.h"

#include <math.h>

#include "kernels/cpu/device.h"

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

/* delta is added to x first, unless it is NULL. */
struct norm_task {
    float *out, *x;
    const float *delta, *weight;
    float eps;
    int32_t num_rows, hidden_size;
};

static void add_row(float *x, const float *delta, int32_t n)
{
    for (int32_t i = 0; i < n; i++) x[i] += delta[i];
}

static void norm_rows(void *context, int thread_idx, int num_threads)
{
    const struct norm_task *t = context;
    int64_t begin, end;
    thread_pool_range(t->num_rows, thread_idx, num_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        float *out = t->out + row * t->hidden_size, *x = t->x + row * t->hidden_size;
        if (t->delta) add_row(x, t->delta + row * t->hidden_size, t->hidden_size);
        norm_row(out, x, t->weight, t->eps, t->hidden_size);
    }
}

void cpu_rms_norm(struct device *d, const struct batch *b, enum row_set rows, void *out, void *x,
                  const void *delta, const float *weight, float eps, int32_t hidden_size)
{
    struct norm_task t = {.out = out, .x = x, .delta = delta, .weight = weight, .eps = eps};
    t.num_rows = batch_num_rows(b, rows);
    t.hidden_size = hidden_size;
    cpu_device_run(cpu_device_of(d), (int64_t)t.num_rows * hidden_size, norm_rows, &t);
}
