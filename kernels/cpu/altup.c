/* altup.c - several residual streams: what a layer finds in them, and what it leaves there (device.h: altup_args). */
#include <math.h>

#include "kernels/cpu/device.h"
#include "kernels/cpu/norm.h"

enum { N = ALTUP_STREAMS };

#define LEAST_SQUARE 1e-5f /* of what is scaled: the mean square counts as so much */

struct altup_task {
    struct altup_streams streams;
    const struct altup_args *args;
    float *x, *out;
    const float *from, *others; /* others: of altup_predict its delta */
    int32_t num_rows, hidden_size;
    void (*compute)(const struct altup_task *t, int64_t row);
};

static float *stream_row(const struct altup_task *t, int32_t i, int64_t row)
{
    return (float *)t->streams.x + i * t->streams.stride + row * t->hidden_size;
}

static const float *other_row(const struct altup_task *t, int32_t i, int64_t row)
{
    return t->others + (i - 1) * t->streams.stride + row * t->hidden_size;
}

/* tanh(router RMSNorm(v)). */
static void route(float m[N], const float *v, const struct altup_args *a)
{
    const int32_t n = a->hidden_size;
    const float inverse = 1.0f / sqrtf(row_dot(v, v, n) / (float)n + a->eps);
    for (int32_t k = 0; k < N; k++) m[k] = tanhf(inverse * row_dot(v, a->router + (int64_t)k * n, n));
}

static float dot_of_router(const float *coefficients, const float m[N])
{
    float sum = 0;
    for (int32_t k = 0; k < N; k++) sum += coefficients[k] * m[k];
    return sum;
}

static void add_delta(const struct altup_task *t, int64_t row)
{
    const struct altup_args *a = t->args;
    const int32_t n = t->hidden_size;
    const float *delta = t->others + row * n;
    const float inverse = 1.0f / sqrtf(row_dot(delta, delta, n) / (float)n + a->eps);
    for (int32_t i = 1; i < N; i++) {
        float *x = stream_row(t, i, row);
        for (int32_t h = 0; h < n; h++) x[h] += delta[h] * inverse * a->delta_weight[h];
    }
}

static void predict_row(const struct altup_task *t, int64_t row)
{
    float m[N], by[N][N], *x[N];
    if (t->others) add_delta(t, row);
    for (int32_t i = 0; i < N; i++) x[i] = stream_row(t, i, row);
    route(m, x[0], t->args);
    for (int32_t i = 0; i < N; i++)
        for (int32_t j = 0; j < N; j++) by[i][j] = dot_of_router(t->args->predict + (i * N + j) * N, m);
    for (int32_t h = 0; h < t->hidden_size; h++) {
        float p[N];
        for (int32_t i = 0; i < N; i++) {
            p[i] = x[i][h];
            for (int32_t j = 0; j < N; j++) p[i] += by[i][j] * x[j][h];
        }
        for (int32_t i = 0; i < N; i++) x[i][h] = p[i];
        t->x[row * t->hidden_size + h] = p[0];
    }
}

static void correct_row(const struct altup_task *t, int64_t row)
{
    const float *v = t->from + row * t->hidden_size;
    float m[N], by[N], *x[N], *out = t->out + row * t->hidden_size;
    route(m, v, t->args);
    for (int32_t i = 0; i < N; i++) {
        by[i] = 1 + dot_of_router(t->args->correct + i * N, m);
        x[i] = stream_row(t, i, row);
    }
    for (int32_t h = 0; h < t->hidden_size; h++) {
        const float news = v[h] - x[0][h];
        for (int32_t i = 0; i < N; i++) x[i][h] += news * by[i];
        out[h] = x[0][h] * t->args->out_scale[h];
    }
}

/* What each of others is multiplied by, so that its root mean square is that of x. */
static void match(float by[N], const struct altup_task *t, const float *x, int64_t row)
{
    const int32_t n = t->hidden_size;
    const float target = sqrtf(row_dot(x, x, n) / (float)n);
    for (int32_t i = 1; i < N; i++) {
        const float *y = other_row(t, i, row), square = row_dot(y, y, n) / (float)n;
        by[i] = target / sqrtf(square < LEAST_SQUARE ? LEAST_SQUARE : square);
    }
}

static void begin_row(const struct altup_task *t, int64_t row)
{
    const float *x = t->from + row * t->hidden_size;
    float by[N], *first = stream_row(t, 0, row);
    match(by, t, x, row);
    for (int32_t h = 0; h < t->hidden_size; h++) first[h] = x[h];
    for (int32_t i = 1; i < N; i++) {
        const float *y = other_row(t, i, row);
        float *to = stream_row(t, i, row);
        for (int32_t h = 0; h < t->hidden_size; h++) to[h] = y[h] * by[i];
    }
}

static void end_row(const struct altup_task *t, int64_t row)
{
    const float *first = stream_row(t, 0, row);
    float by[N], *to = t->x + row * t->hidden_size;
    match(by, t, first, row);
    for (int32_t h = 0; h < t->hidden_size; h++) {
        float sum = first[h];
        for (int32_t i = 1; i < N; i++) sum += other_row(t, i, row)[h] * by[i];
        to[h] = sum / N;
    }
}

static void run_rows(void *context, int thread_idx, int num_threads)
{
    const struct altup_task *t = context;
    int64_t begin, end;
    thread_pool_range(t->num_rows, thread_idx, num_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) t->compute(t, row);
}

static void run(struct device *d, struct altup_task t)
{
    cpu_device_run(cpu_device_of(d), (int64_t)t.num_rows * t.hidden_size * N, run_rows, &t);
}

void cpu_altup_begin(struct device *d, const struct batch *b, const struct altup_streams *streams,
                     const void *x, const void *others, int32_t hidden_size)
{
    run(d, (struct altup_task){.streams = *streams,
                               .from = x,
                               .others = others,
                               .num_rows = batch_num_rows(b, ROWS_TOKENS),
                               .hidden_size = hidden_size,
                               .compute = begin_row});
}

void cpu_altup_predict(struct device *d, const struct batch *b, enum row_set rows,
                       const struct altup_streams *streams, void *x, const void *delta,
                       const struct altup_args *args)
{
    run(d, (struct altup_task){.streams = *streams,
                               .args = args,
                               .x = x,
                               .others = delta,
                               .num_rows = batch_num_rows(b, rows),
                               .hidden_size = args->hidden_size,
                               .compute = predict_row});
}

void cpu_altup_correct(struct device *d, const struct batch *b, enum row_set rows, void *out,
                       const struct altup_streams *streams, const void *x, const struct altup_args *args)
{
    run(d, (struct altup_task){.streams = *streams,
                               .args = args,
                               .out = out,
                               .from = x,
                               .num_rows = batch_num_rows(b, rows),
                               .hidden_size = args->hidden_size,
                               .compute = correct_row});
}

void cpu_altup_end(struct device *d, const struct batch *b, enum row_set rows, void *x,
                   const struct altup_streams *streams, const void *others, int32_t hidden_size)
{
    run(d, (struct altup_task){.streams = *streams,
                               .x = x,
                               .others = others,
                               .num_rows = batch_num_rows(b, rows),
                               .hidden_size = hidden_size,
                               .compute = end_row});
}
