#include "kernels/cpu/norm.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "kernels/cpu/device.h"

/* Element i goes to partial sum i % NUM_SUMS: a fixed order that a compiler can keep in vectors. */
enum { NUM_SUMS = 16 };

static float total(float sums[NUM_SUMS])
{
    for (int half = NUM_SUMS / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) sums[j] += sums[j + half];
    return sums[0];
}

float row_dot(const float *a, const float *b, int32_t n)
{
    float sums[NUM_SUMS] = {0};
    int32_t i = 0;
    for (; i + NUM_SUMS <= n; i += NUM_SUMS)
        for (int j = 0; j < NUM_SUMS; j++) sums[j] += a[i + j] * b[i + j];
    for (int j = 0; i < n; i++, j++) sums[j] += a[i] * b[i];
    return total(sums);
}

float row_sum(const float *x, int32_t n)
{
    float sums[NUM_SUMS] = {0};
    int32_t i = 0;
    for (; i + NUM_SUMS <= n; i += NUM_SUMS)
        for (int j = 0; j < NUM_SUMS; j++) sums[j] += x[i + j];
    for (int j = 0; i < n; i++, j++) sums[j] += x[i];
    return total(sums);
}

void norm_row(float *out, const float *x, const float *weight, float eps, int32_t n)
{
    float inverse = 1.0f / sqrtf(row_dot(x, x, n) / (float)n + eps);
    for (int32_t i = 0; i < n; i++) out[i] = x[i] * inverse * weight[i];
}

void layer_norm_row(float *out, const float *x, const float *weight, const float *bias, float eps, int32_t n)
{
    const float mean = row_sum(x, n) / (float)n;
    for (int32_t i = 0; i < n; i++) out[i] = x[i] - mean;
    const float inverse = 1.0f / sqrtf(row_dot(out, out, n) / (float)n + eps);
    for (int32_t i = 0; i < n; i++) out[i] = out[i] * inverse * weight[i];
    for (int32_t i = 0; i < n && bias; i++) out[i] += bias[i];
}

struct norm_task {
    float *out, *x;
    const float *delta;
    const struct norm_args *args;
    int64_t num_rows;
};

static void add_row(float *x, const float *delta, float scale, int32_t n)
{
    for (int32_t i = 0; i < n; i++) x[i] += delta[i] * scale;
}

/* out is room until its own value comes. */
static void add_delta(float *out, float *x, const float *delta, const struct norm_args *a)
{
    const float eps = a->delta_eps > 0 ? a->delta_eps : a->eps;
    if (a->delta_weight) norm_row(out, delta, a->delta_weight, eps, a->hidden_size);
    if (a->begins) memset(x, 0, (size_t)a->hidden_size * sizeof *x);
    add_row(x, a->delta_weight ? out : delta, a->delta_scale, a->hidden_size);
    for (int32_t i = 0; i < a->hidden_size && a->sum_scale != 0; i++) x[i] *= a->sum_scale;
}

static void norm_rows(void *context, int thread_idx, int num_threads)
{
    const struct norm_task *t = context;
    const struct norm_args *a = t->args;
    int64_t begin, end;
    thread_pool_range(t->num_rows, thread_idx, num_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        float *out = t->out + row * a->hidden_size, *x = t->x + row * a->hidden_size;
        if (t->delta) add_delta(out, x, t->delta + row * a->hidden_size, a);
        if (!a->weight)
            memcpy(out, x, (size_t)a->hidden_size * sizeof *out);
        else if (a->is_layer_norm)
            layer_norm_row(out, x, a->weight, a->bias, a->eps, a->hidden_size);
        else
            norm_row(out, x, a->weight, a->eps, a->hidden_size);
        if (a->replaces) memcpy(x, out, (size_t)a->hidden_size * sizeof *x);
    }
}

void cpu_rms_norm(struct device *d, const struct batch *b, enum row_set rows, void *out, void *x,
                  const void *delta, const struct norm_args *args)
{
    struct norm_task t = {.out = out, .x = x, .delta = delta, .args = args};
    t.num_rows = (int64_t)batch_num_rows(b, rows) * max_of(args->num_parts, 1);
    cpu_device_run(cpu_device_of(d), t.num_rows * args->hidden_size, norm_rows, &t);
}
