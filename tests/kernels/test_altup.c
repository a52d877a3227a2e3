/* test_altup.c - residual streams (altup_begin, altup_predict, altup_correct, altup_end) and gates that are cut (sparse_gelu) against
 * double-precision references, each row alone and among others, of all tokens and of those whose logits are wanted. */
#include "fixture.h"

enum { N = ALTUP_STREAMS, TOKENS = 37 };

struct bench {
    struct device *d;
    struct test_step *step;
    struct random random;
    struct sample_result results[TOKENS]; /* of logits that nobody has asked for */
};

static bool bench_open(struct bench *b, const char *isa, uint64_t seed)
{
    struct error err = {0};
    const struct step_limits limits = {TOKENS, 1, TOKENS, 1, 64, 1, 1, 0, false, 0};
    const struct attention_args attention = {.num_heads = 2, .num_kv_heads = 1, .head_dim = 64};
    const struct kv_shape kv = {
        .num_layers = 1, .num_blocks = 4, .num_kv_heads = 1, .head_dim = 64, .dtype = DTYPE_BF16};
    struct kv_pool *pool;
    b->d = test_device_open(isa, 2);
    if (!b->d) return false;
    if (b->d->ops->prepare(b->d, &limits, 64, 4096, 16384, &attention, 1, &err) ||
        b->d->ops->kv_pool_create(b->d, &kv, &pool, &err))
        fail_msg("prepare: %s", err.text);
    b->step = test_step_new(TOKENS, 1, kv.num_blocks);
    b->random = (struct random){.seed = test_seed() + seed};
    return true;
}

static void bench_close(struct bench *b)
{
    test_step_free(b->step);
    b->d->ops->close(b->d);
}

/* rows of ROWS_LOGITS are as many as asked for, any. */
static struct batch *begin(struct bench *b, enum row_set rows, int32_t num_rows)
{
    const int32_t blocks[] = {0, 1, 2, 3};
    test_step_clear(b->step);
    test_step_add(b->step, blocks, 0, rows == ROWS_TOKENS ? num_rows : TOKENS, false);
    for (int32_t r = 0; r < num_rows && rows == ROWS_LOGITS; r++) b->step->logit_rows[r] = r;
    b->step->step.num_logits = rows == ROWS_LOGITS ? num_rows : 0;
    return b->d->ops->step_begin(b->d, &b->step->step);
}

static void check_close(const struct device *d, bool is_act, float got, double expected, double size,
                        const char *what, int32_t row, int32_t i)
{
    /* sums of some thousand products in f32, of which much cancels; an activation is rounded to bf16 on a GPU */
    const double tolerance = 2e-5 * size + (is_act && d->act_bytes == 2 ? fabs(expected) * 0x1p-8 : 0);
    if (!(fabs((double)got - expected) <= tolerance))
        fail_msg("%s, row %d, element %d: %.9g, not %.9g", what, row, i, (double)got, expected);
}

/* ---- streams ---- */

struct streams_data {
    int32_t h;
    float *x, *v, *delta, *others; /* host: [N][T][h] [T][h] [T][h] [N - 1][T][h] */
    float *router, *predict, *correct, *out_scale, *delta_weight;
    void *device_x, *device_v, *device_delta, *device_others, *out;
    struct altup_args args;
};

static void data_open(struct bench *b, struct streams_data *s, int32_t h)
{
    struct device *d = b->d;
    const size_t rows = (size_t)TOKENS * (size_t)h, own = (size_t)h;
    struct random *r = &b->random;
    *s = (struct streams_data){
        .h = h,
        .x = random_values(r, N * rows, d->res_bytes, 3),
        .v = random_values(r, rows, d->res_bytes, 3),
        .delta = random_values(r, rows, d->act_bytes, 0.5f),
        .others = random_values(r, (N - 1) * rows, d->act_bytes, 2),
        .router = random_values(r, N * own, 4, 1.0f / sqrtf((float)h)),
        .predict = random_values(r, N * N * N, 4, 0.5f),
        .correct = random_values(r, N * N, 4, 0.5f),
        .out_scale = random_values(r, own, 4, 1),
        .delta_weight = random_values(r, own, 4, 1),
        .device_x = device_floats(d, N * rows, true),
        .device_v = device_floats(d, rows, true),
        .device_delta = device_floats(d, rows, false),
        .device_others = device_floats(d, (N - 1) * rows, false),
        .out = device_floats(d, rows, false),
    };
    /* a row of almost nothing, which does not become large */
    for (int32_t i = 0; i < h; i++) s->others[i] = 0;
    s->args = (struct altup_args){.hidden_size = h,
                                  .eps = 1e-6f,
                                  .router = device_upload(d, s->router, N * own),
                                  .predict = device_upload(d, s->predict, N * N * N),
                                  .correct = device_upload(d, s->correct, N * N),
                                  .out_scale = device_upload(d, s->out_scale, own),
                                  .delta_weight = device_upload(d, s->delta_weight, own)};
    device_write(d, s->device_delta, s->delta, rows, false);
    device_write(d, s->device_others, s->others, (N - 1) * rows, false);
}

static void data_close(struct streams_data *s)
{
    float *const all[] = {s->x,       s->v,       s->delta,     s->others,      s->router,
                          s->predict, s->correct, s->out_scale, s->delta_weight};
    for (size_t i = 0; i < array_length(all); i++) free(all[i]);
}

static double mean_square(const float *x, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum / n;
}

static void route(double m[N], const struct streams_data *s, const float *v)
{
    const double inverse = 1 / sqrt(mean_square(v, s->h) + 1e-6);
    for (int k = 0; k < N; k++) {
        double sum = 0;
        for (int32_t i = 0; i < s->h; i++) sum += (double)v[i] * (double)s->router[k * s->h + i];
        m[k] = tanh(inverse * sum);
    }
}

enum operation { BEGIN, PREDICT, PREDICT_WITHOUT, CORRECT, END, NUM_OPERATIONS };

static const float *at(const struct streams_data *s, const float *x, int stream, int32_t row)
{
    return x + ((size_t)stream * TOKENS + (size_t)row) * (size_t)s->h;
}

/* What row's element i of each stream becomes, and of what else the operation writes. */
static void expect(const struct streams_data *s, enum operation o, int32_t row, int32_t i, double x[N],
                   double *other)
{
    double m[N], before[N];
    for (int k = 0; k < N; k++) before[k] = x[k] = (double)at(s, s->x, k, row)[i];
    const float *v = at(s, s->v, 0, row);
    const float *routed = o == CORRECT ? v : at(s, s->x, 0, row);
    if (o == BEGIN || o == END) {
        const double target = sqrt(mean_square(o == BEGIN ? v : at(s, s->x, 0, row), s->h));
        double sum = o == BEGIN ? (double)v[i] : before[0];
        for (int k = 1; k < N; k++) {
            const float *y = at(s, s->others, k - 1, row);
            const double scaled = (double)y[i] * target / sqrt(fmax(mean_square(y, s->h), 1e-5));
            if (o == BEGIN) x[k] = scaled;
            sum += scaled;
        }
        if (o == BEGIN) x[0] = (double)v[i];
        *other = sum / N;
        return;
    }
    route(m, s, routed);
    if (o == CORRECT) {
        for (int k = 0; k < N; k++) {
            double by = 1;
            for (int j = 0; j < N; j++) by += (double)s->correct[k * N + j] * m[j];
            x[k] += by * ((double)v[i] - before[0]);
        }
        *other = x[0] * (double)s->out_scale[i];
        return;
    }
    const float *delta = at(s, s->delta, 0, row);
    const double added =
        (double)delta[i] / sqrt(mean_square(delta, s->h) + 1e-6) * (double)s->delta_weight[i];
    for (int k = 1; k < N && o == PREDICT; k++) before[k] += added;
    for (int k = 0; k < N; k++) {
        x[k] = before[k];
        for (int j = 0; j < N; j++) {
            double by = 0;
            for (int l = 0; l < N; l++) by += (double)s->predict[(k * N + j) * N + l] * m[l];
            x[k] += by * before[j];
        }
    }
    *other = x[0];
}

/* x[N][T][h], and other[T][h]: what it writes beside. */
static void run(struct bench *b, struct streams_data *s, enum operation o, enum row_set rows,
                int32_t num_rows, float *x, float *other)
{
    struct device *d = b->d;
    const size_t all = (size_t)TOKENS * (size_t)s->h;
    const struct altup_streams streams = {s->device_x, (int64_t)all};
    device_write(d, s->device_x, s->x, N * all, true);
    device_write(d, s->device_v, s->v, all, true);
    device_poison(d, s->out, all, false);
    struct batch *batch = begin(b, rows, num_rows);
    if (o == BEGIN) d->ops->altup_begin(d, batch, &streams, s->device_v, s->device_others, s->h);
    if (o == PREDICT) d->ops->altup_predict(d, batch, rows, &streams, s->device_v, s->device_delta, &s->args);
    if (o == PREDICT_WITHOUT) d->ops->altup_predict(d, batch, rows, &streams, s->device_v, NULL, &s->args);
    if (o == CORRECT) d->ops->altup_correct(d, batch, rows, s->out, &streams, s->device_v, &s->args);
    if (o == END) d->ops->altup_end(d, batch, rows, s->device_v, &streams, s->device_others, s->h);
    device_read(d, x, s->device_x, N * all, true);
    device_read(d, other, o == CORRECT ? s->out : s->device_v, all, o != CORRECT);
    test_step_end(d, b->results);
}

static void check_operation(struct bench *b, struct streams_data *s, enum operation o)
{
    static const char *const names[] = {"begin", "predict", "predict without", "correct", "end"};
    const size_t all = (size_t)TOKENS * (size_t)s->h;
    float *x = malloc(N * all * sizeof *x), *other = malloc(all * sizeof *other),
          *few_x = malloc(N * all * sizeof *x), *few = malloc(all * sizeof *few);
    run(b, s, o, ROWS_TOKENS, TOKENS, x, other);
    for (int32_t row = 0; row < TOKENS; row++)
        for (int32_t i = row; i < s->h; i += 61) {
            double expected[N], beside;
            expect(s, o, row, i, expected, &beside);
            for (int k = 0; k < N; k++)
                check_close(b->d, false, at(s, x, k, row)[i], expected[k], 20, names[o], row, i);
            if (o != BEGIN)
                check_close(b->d, o == CORRECT, at(s, other, 0, row)[i], beside, 20, names[o], row, i);
        }
    run(b, s, o, o == BEGIN ? ROWS_TOKENS : ROWS_LOGITS, 3, few_x, few);
    for (int k = 0; k < N; k++) {
        assert_int_equal(num_bits_different(at(s, x, k, 0), at(s, few_x, k, 0), 3 * (size_t)s->h), 0);
        assert_int_equal(num_bits_different(at(s, few_x, k, 3), at(s, s->x, k, 3), all - 3 * (size_t)s->h),
                         0);
    }
    assert_int_equal(num_bits_different(other, few, 3 * (size_t)s->h), 0);
    free(x);
    free(other);
    free(few_x);
    free(few);
}

static void check_streams(const char *isa)
{
    static const int32_t sizes[] = {64, 96, 1152, 2048, 2560};
    for (size_t i = 0; i < array_length(sizes); i++) {
        struct bench b;
        struct streams_data s;
        if (!bench_open(&b, isa, i)) return;
        data_open(&b, &s, sizes[i]);
        for (int o = 0; o < NUM_OPERATIONS; o++) check_operation(&b, &s, (enum operation)o);
        data_close(&s);
        bench_close(&b);
    }
}

static void test_streams(void **state)
{
    (void)state;
    for_each_isa(check_streams);
}

/* ---- gates that are cut ---- */

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static void check_gate_row(const struct device *d, const float *x, const float *out, int32_t n, double cut,
                           int32_t row)
{
    double mean = 0, squares = 0;
    for (int32_t i = 0; i < n; i++) mean += (double)x[i];
    mean /= n;
    for (int32_t i = 0; i < n; i++) squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    const double least = mean + cut * sqrt(squares / n);
    for (int32_t i = 0; i < n; i++)
        check_close(d, true, out[i], gelu(fmax((double)x[i] - least, 0)) * (double)x[n + i], 1, "sparse gelu",
                    row, i);
}

static void check_gates(const char *isa)
{
    static const struct {
        int32_t width;
        float cut;
    } cases[] = {{96, 0}, {128, 1.6448536f}, {2052, -0.5f}, {8192, 1.6448536f}};
    for (size_t c = 0; c < array_length(cases); c++) {
        const int32_t n = cases[c].width;
        const size_t count = (size_t)TOKENS * (size_t)n;
        struct bench b;
        if (!bench_open(&b, isa, 10 + c)) return;
        float *x = random_values(&b.random, 2 * count, b.d->act_bytes, 1.5f),
              *out = malloc(count * sizeof *out), *few = malloc(count * sizeof *few);
        for (int32_t i = 0; i < n; i++) x[i] += 3; /* a mean that is not 0; 3 is exact enough in bf16 */
        for (int32_t i = 0; i < n; i++) x[i] = rounded_to(b.d->act_bytes, x[i]);
        x[4 * n + 5] = NAN; /* in the gate of the row behind it */
        void *device_x = device_floats(b.d, 2 * count, false), *device_out = device_floats(b.d, count, false);
        device_write(b.d, device_x, x, 2 * count, false);
        device_poison(b.d, device_out, count, false);
        b.d->ops->sparse_gelu(b.d, begin(&b, ROWS_TOKENS, TOKENS), ROWS_TOKENS, device_out, device_x, n,
                              cases[c].cut);
        device_read(b.d, out, device_out, count, false);
        test_step_end(b.d, b.results);
        b.d->ops->sparse_gelu(b.d, begin(&b, ROWS_LOGITS, 2), ROWS_LOGITS, device_out, device_x, n,
                              cases[c].cut);
        device_read(b.d, few, device_out, count, false);
        test_step_end(b.d, b.results);
        for (int32_t row = 0; row < TOKENS; row++)
            if (row != 2)
                check_gate_row(b.d, x + 2 * (size_t)row * (size_t)n, out + (size_t)row * (size_t)n, n,
                               (double)cases[c].cut, row);
        for (int32_t i = 0; i < n; i++) assert_true(isnan(out[2 * n + i]));
        assert_int_equal(num_bits_different(out, few, 2 * (size_t)n), 0);
        free(x);
        free(out);
        free(few);
        bench_close(&b);
    }
}

static void test_gates(void **state)
{
    (void)state;
    for_each_isa(check_gates);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_streams), cmocka_unit_test(test_gates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
