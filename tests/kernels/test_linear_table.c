/* test_linear_table.c - matrix products through the kernel table of whatever device: against a
 * double-precision reference, and the bits of a row against themselves in batches of other sizes. */
#include "fixture.h"
#include "gates.h"

enum { TOKENS_MAX = 700, ROWS_MAX = 1600, COLS_MAX = 4096 };

struct product {
    struct linear_desc desc;
    struct linear *linear;
    int32_t n, k; /* of the result: gate and up give n = half of the weight's rows */
    float *weights, *biases, *x;
    void *file_weights[2];
    void *device_x, *device_y; /* of the largest step */
};

static void *random_bf16(struct random *random, float *values, size_t count, float deviation)
{
    uint16_t *bits = malloc(count * sizeof *bits);
    for (size_t i = 0; i < count; i++) {
        bits[i] = dtype_f32_to_bf16(deviation * random_normal(random));
        values[i] = dtype_bf16_to_f32(bits[i]);
    }
    return bits;
}

/* A CPU's products have tests of their own (test_linear.c): small shapes do for what the table adds. */
static int32_t shrunk(int32_t size)
{
    return getenv("FLASHD_TEST_DEVICE") ? size : size / 8;
}

static int32_t num_tokens_max(void)
{
    return getenv("FLASHD_TEST_DEVICE") ? TOKENS_MAX : 130;
}

static void product_make(struct product *p, struct device *d, struct random *random, enum linear_kind kind,
                         bool bias, enum gate_function gate)
{
    struct error err = {0};
    const bool gate_up = kind == LINEAR_GATE_UP;
    int num_parts = gate_up ? 2 : 1;
    p->n = 16 * (1 + random_below(random, shrunk(gate_up ? ROWS_MAX / 2 : ROWS_MAX) / 16));
    p->k = 8 * (1 + random_below(random, shrunk(COLS_MAX) / 8));
    size_t count = (size_t)p->n * (size_t)p->k;
    p->weights = malloc(2 * count * sizeof *p->weights);
    p->biases = calloc((size_t)p->n, sizeof *p->biases);
    p->desc.kind = kind;
    p->desc.gate = gate;
    memcpy(p->desc.gate_values, xielu_values, sizeof xielu_values);
    p->desc.num_parts = num_parts;
    for (int i = 0; i < num_parts; i++) {
        p->file_weights[i] =
            random_bf16(random, p->weights + (size_t)i * count, count, 1 / sqrtf((float)p->k));
        p->desc.parts[i] = weight_view_plain(p->file_weights[i], DTYPE_BF16, p->n, p->k);
    }
    for (int32_t n = 0; bias && n < p->n; n++) p->biases[n] = random_normal(random);
    if (bias) p->desc.biases[0] = weight_view_plain(p->biases, DTYPE_F32, 1, p->n);
    p->x = random_values(random, (size_t)TOKENS_MAX * (size_t)p->k, d->act_bytes, 1);
    p->device_x = device_floats(d, (size_t)TOKENS_MAX * (size_t)p->k, false);
    p->device_y = device_floats(d, (size_t)TOKENS_MAX * (size_t)p->n, false);
    if (d->ops->linear_create(d, &p->desc, &p->linear, &err)) fail_msg("linear_create: %s", err.text);
}

static void product_free(struct product *p)
{
    free(p->weights);
    free(p->biases);
    free(p->x);
    for (int i = 0; i < 2; i++) free(p->file_weights[i]);
}

/* out[num_tokens][n], from tokens [first, first + num_tokens) of the product's x. */
static void product_run(const struct product *p, struct device *d, struct test_step *step, int32_t first,
                        int32_t num_tokens, float *out)
{
    int32_t blocks[TOKENS_MAX / BLOCK_SIZE + 1] = {0};
    void *x = p->device_x, *y = p->device_y;
    device_write(d, x, p->x + (size_t)first * (size_t)p->k, (size_t)num_tokens * (size_t)p->k, false);
    device_poison(d, y, (size_t)num_tokens * (size_t)p->n, false);
    test_step_clear(step);
    test_step_add(step, blocks, 0, num_tokens, false);
    struct batch *b = d->ops->step_begin(d, &step->step);
    (p->desc.kind == LINEAR_PLAIN ? d->ops->linear : d->ops->linear_gated)(d, b, ROWS_TOKENS, y, x,
                                                                           p->linear);
    test_step_end(d, NULL);
    device_read(d, out, y, (size_t)num_tokens * (size_t)p->n, false);
}

struct expected {
    double value, bound;
};

static double dot(const float *w, const float *x, int32_t k, double *magnitude)
{
    double sum = 0;
    *magnitude = 0;
    for (int32_t i = 0; i < k; i++) {
        sum += (double)w[i] * (double)x[i];
        *magnitude += fabs((double)w[i] * (double)x[i]);
    }
    return sum;
}

/* Sums in f32 may be off by some units of 2^-24 of the magnitudes; results are rounded once or, with a bias,
 * two halves or an MLP's gate, twice; with a bias and such a gate three times. */
static struct expected expected_of(const struct product *p, const struct device *d, int32_t token, int32_t n)
{
    const float *x = p->x + (size_t)token * (size_t)p->k, *w = p->weights + (size_t)n * (size_t)p->k;
    double rounding = d->act_bytes == 2 ? 0x1p-8 : 0x1p-23, sums = 0x1p-24 * 64, magnitude, up_magnitude;
    double value = dot(w, x, p->k, &magnitude);
    if (p->desc.kind == LINEAR_GATE_UP) {
        double up = dot(w + (size_t)p->n * (size_t)p->k, x, p->k, &up_magnitude),
               f = gate_of(p->desc.gate, value);
        double value_error = rounding * fabs(value) + sums * magnitude,
               gate_error = gate_slope(p->desc.gate, value, value_error) * value_error,
               up_error = rounding * fabs(up) + sums * up_magnitude;
        return (struct expected){f * up, gate_error * fabs(up) + (fabs(f) + gate_error) * up_error +
                                             (rounding + 1e-5) * fabs(f * up) + 1e-6 * fabs(value * up)};
    }
    double bias = (double)p->biases[n],
           bound = sums * magnitude + rounding * (fabs(value) + fabs(value + bias));
    if (p->desc.kind == LINEAR_PLAIN) return (struct expected){value + bias, bound};
    double f = gate_of(p->desc.gate, value + bias);
    return (struct expected){f, gate_slope(p->desc.gate, value + bias, bound) * bound +
                                    (rounding + 1e-5) * fabs(f) + 1e-6 * fabs(value + bias)};
}

static void product_check(const struct product *p, const struct device *d, struct random *random,
                          const float *out)
{
    for (int i = 0; i < 4000; i++) {
        int32_t token = random_below(random, num_tokens_max()), n = random_below(random, p->n);
        struct expected e = expected_of(p, d, token, n);
        double got = (double)out[(size_t)token * (size_t)p->n + (size_t)n];
        if (!(fabs(got - e.value) <= e.bound))
            fail_msg("%d x %d, token %d, row %d: %g instead of %g, more than %g off", p->n, p->k, token, n,
                     got, e.value, e.bound);
    }
    for (size_t i = 0; i < (size_t)num_tokens_max() * (size_t)p->n; i++) assert_true(isfinite(out[i]));
}

static void check_same_bits(const struct product *p, struct device *d, struct test_step *step,
                            struct random *random, const float *all)
{
    static const int32_t sizes[] = {1,   2,   8,   9,   16,  17,  32,  33,  64,  65,
                                    100, 128, 129, 150, 192, 193, 256, 257, 500, TOKENS_MAX};
    float *part = malloc((size_t)TOKENS_MAX * (size_t)p->n * sizeof *part);
    for (size_t i = 0; i < array_length(sizes) && sizes[i] <= num_tokens_max(); i++) {
        int32_t first = random_below(random, num_tokens_max() - sizes[i] + 1);
        product_run(p, d, step, first, sizes[i], part);
        int64_t different =
            num_bits_different(part, all + (size_t)first * (size_t)p->n, (size_t)sizes[i] * (size_t)p->n);
        if (different)
            fail_msg("%d x %d: %lld results differ among %d tokens", p->n, p->k, (long long)different,
                     sizes[i]);
    }
    free(part);
}

static void products(const char *isa)
{
    enum { PRODUCTS = 9, GATES_ALONE = 5 };
    static const enum gate_function alone[GATES_ALONE] = {GATE_GELU, GATE_GELU_TANH, GATE_RELU_SQUARED,
                                                          GATE_XIELU, GATE_RELU};
    struct random random = {.seed = test_seed()};
    struct error err = {0};
    struct device *d = test_device_open(isa, 2);
    struct step_limits limits = {TOKENS_MAX, 1, TOKENS_MAX, 1, TOKENS_MAX, 1, 1, 0, false, 0};
    struct attention_args attention = {.num_heads = 1, .num_kv_heads = 1, .head_dim = 64};
    assert_int_equal(d->ops->prepare(d, &limits, 64, COLS_MAX, ROWS_MAX, &attention, 1, &err), 0);
    struct product p[PRODUCTS + GATES_ALONE] = {0};
    for (int i = 0; i < PRODUCTS; i++)
        product_make(&p[i], d, &random, i % 3 == 2 ? LINEAR_GATE_UP : LINEAR_PLAIN, i % 3 == 1,
                     i == 2   ? GATE_SILU
                     : i == 8 ? GATE_RELU_SQUARED
                              : GATE_GELU_TANH);
    for (int i = 0; i < GATES_ALONE; i++)
        product_make(&p[PRODUCTS + i], d, &random, LINEAR_UP, i % 2 == 0, alone[i]);
    assert_int_equal(d->ops->weights_done(d, &err), 0);
    struct test_step *step = test_step_new(TOKENS_MAX, 1, TOKENS_MAX / BLOCK_SIZE + 1);
    for (size_t i = 0; i < array_length(p); i++) {
        float *all = malloc((size_t)TOKENS_MAX * (size_t)p[i].n * sizeof *all);
        product_run(&p[i], d, step, 0, num_tokens_max(), all);
        product_check(&p[i], d, &random, all);
        check_same_bits(&p[i], d, step, &random, all);
        free(all);
        product_free(&p[i]);
    }
    test_step_free(step);
    d->ops->close(d);
}

static void test_products(void **state)
{
    (void)state;
    for_each_isa(products);
}

/* A device adds them or says that it cannot; it does not leave them out. */
static void biases_of_gate_and_up(const char *isa)
{
    enum { N = 32, K = 64 };
    static float weights[N * K], bias[N], x[K], y[N];
    struct error err = {0};
    struct device *d = test_device_open(isa, 1);
    struct step_limits limits = {16, 1, 16, 1, 16, 1, 1, 0, false, 0};
    struct attention_args attention = {.num_heads = 1, .num_kv_heads = 1, .head_dim = 64};
    assert_int_equal(d->ops->prepare(d, &limits, 64, K, N, &attention, 1, &err), 0);
    for (int n = 0; n < N; n++) bias[n] = 1.0f;
    struct linear_desc desc = {.kind = LINEAR_GATE_UP, .num_parts = 2};
    struct linear *linear;
    for (int i = 0; i < 2; i++) {
        desc.parts[i] = weight_view_plain(weights, DTYPE_F32, N, K);
        desc.biases[i] = weight_view_plain(bias, DTYPE_F32, 1, N);
    }
    int status = d->ops->linear_create(d, &desc, &linear, &err);
    if (status) {
        assert_int_equal(status, STATUS_UNSUPPORTED);
        assert_non_null(strstr(err.text, "biases"));
    } else {
        void *device_x = device_floats(d, 16 * K, false), *device_y = device_floats(d, 16 * N, false);
        struct test_step *step = test_step_new(16, 1, 1);
        device_write(d, device_x, x, K, false);
        test_step_add(step, &(int32_t){0}, 0, 1, false);
        struct batch *b = d->ops->step_begin(d, &step->step);
        d->ops->linear_gated(d, b, ROWS_TOKENS, device_y, device_x, linear);
        test_step_end(d, NULL);
        device_read(d, y, device_y, N, false);
        for (int n = 0; n < N; n++) assert_true(fabsf(y[n] - 0.7310586f) < 0.01f); /* silu(1) * 1 */
        test_step_free(step);
    }
    d->ops->close(d);
}

static void test_biases_of_gate_and_up(void **state)
{
    (void)state;
    for_each_isa(biases_of_gate_and_up);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_biases_of_gate_and_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
