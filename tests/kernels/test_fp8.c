/* test_fp8.c - weights of e4m3 through the kernel table of whatever device, for a model whose rows are quantised, too: one scale, a
 * scale of each row, of blocks of 128 x 128; and of integers with a scale of each row. A Hopper quantises rows as they come, by tokens or by their blocks of 128 columns;
 * the portable kernels and a CPU take them as they are. Against double precision over what is multiplied, and each row against itself in steps of other sizes. */
#include "e4m3.h"
#include "fixture.h"

enum { K = 640, PARTS_MAX = 3, ROWS_MAX = 416, TOKENS_MAX = 300, BLOCK = 128, N_MAX = PARTS_MAX * ROWS_MAX };

enum scales { OF_ALL, OF_ROWS, OF_BLOCKS, OF_INTEGERS }; /* the last: of rows */
enum taken { ROWS_OF_E4M3, BLOCKS_OF_E4M3, ROWS_OF_INTEGERS, TAKEN };

struct part {
    int32_t rows;
    uint8_t codes[ROWS_MAX * K];
    float scales[ROWS_MAX];
};

struct product {
    enum scales scales;
    bool is_gated;
    int32_t num_parts, n; /* n: of the result */
    struct part parts[PARTS_MAX];
    float biases[N_MAX];
    struct linear *linear;
};

struct rig {
    struct device *device;
    struct random random;
    struct test_step *step;
    float *x;             /* [TOKENS_MAX][K] */
    double *taken[TAKEN]; /* what is multiplied */
    void *device_x, *device_y, *residual;
    float *norm_weight; /* on the device */
};

static void fill_rows(struct rig *r)
{
    const bool as_they_are = takes_rows_as_they_are(r->device);
    r->x = random_values(&r->random, (size_t)TOKENS_MAX * K, r->device->act_bytes, 1);
    for (int32_t t = 0; t < TOKENS_MAX; t++)
        r->x[t * K + random_below(&r->random, K)] = 16; /* one stands out */
    for (int kind = 0; kind < TAKEN; kind++) {
        const int32_t step = kind == BLOCKS_OF_E4M3 ? BLOCK : K;
        r->taken[kind] = malloc((size_t)TOKENS_MAX * K * sizeof(double));
        for (int32_t i = 0; i < TOKENS_MAX * K; i++) r->taken[kind][i] = (double)r->x[i];
        for (int32_t i = 0; !as_they_are && i < TOKENS_MAX * K; i += step)
            (kind == ROWS_OF_INTEGERS ? int8_quantise : e4m3_quantise)(r->x + i, step, 1, r->taken[kind] + i);
    }
}

/* ---- products ---- */

static struct weight_view view_of(const struct product *p, const struct part *part)
{
    return scaled_view(part->codes, p->scales == OF_INTEGERS ? DTYPE_I8 : DTYPE_F8_E4M3, part->rows, K,
                       part->scales, SCALE_F32,
                       p->scales == OF_ALL      ? part->rows
                       : p->scales == OF_BLOCKS ? BLOCK
                                                : 1,
                       p->scales == OF_BLOCKS ? BLOCK : K);
}

static void make_product(struct rig *r, struct product *p, enum scales scales, bool is_gated)
{
    static const int32_t rows[2][PARTS_MAX] = {{416, 128, 48}, {208, 208}};
    struct linear_desc desc = {.kind = is_gated ? LINEAR_GATE_UP : LINEAR_PLAIN,
                               .num_parts = is_gated ? 2 : 3,
                               .quantise_input = true};
    struct error err = {0};
    p->scales = scales;
    p->is_gated = is_gated;
    p->num_parts = desc.num_parts;
    p->n = 0;
    for (int i = 0; i < desc.num_parts; i++) {
        struct part *part = &p->parts[i];
        part->rows = rows[is_gated][i];
        for (int j = 0; j < part->rows * K; j++)
            part->codes[j] =
                scales == OF_INTEGERS ? (uint8_t)random_below(&r->random, 256) : random_e4m3(&r->random);
        for (int j = 0; j < ROWS_MAX; j++)
            part->scales[j] = (float)(0.002 * (0.1 + random_uniform(&r->random)));
        desc.parts[i] = view_of(p, part);
        for (int j = 0; j < part->rows; j++) p->biases[p->n + j] = is_gated ? 0 : random_normal(&r->random);
        if (!is_gated) desc.biases[i] = weight_view_plain(p->biases + p->n, DTYPE_F32, 1, part->rows);
        if (!is_gated || i == 0) p->n += part->rows;
    }
    if (r->device->ops->linear_create(r->device, &desc, &p->linear, &err))
        fail_msg("linear_create: %s", err.text);
}

static struct batch *begin(const struct rig *r, int32_t num_tokens)
{
    int32_t blocks[TOKENS_MAX / BLOCK_SIZE + 1] = {0};
    test_step_clear(r->step);
    test_step_add(r->step, blocks, 0, num_tokens, false);
    return r->device->ops->step_begin(r->device, &r->step->step);
}

/* Of device_x, and ends the step. */
static float *multiply(const struct rig *r, const struct product *p, struct batch *b, int32_t num_tokens)
{
    struct device *d = r->device;
    const size_t count = (size_t)num_tokens * (size_t)p->n;
    float *out = malloc(count * sizeof *out);
    (p->is_gated ? d->ops->linear_gated : d->ops->linear)(d, b, ROWS_TOKENS, r->device_y, r->device_x,
                                                          p->linear);
    test_step_end(d, NULL);
    device_read(d, out, r->device_y, count, false);
    return out;
}

static float *run(const struct rig *r, const struct product *p, const float *x, int32_t num_tokens)
{
    device_write(r->device, r->device_x, x, (size_t)num_tokens * K, false);
    device_poison(r->device, r->device_y, (size_t)num_tokens * (size_t)p->n, false);
    return multiply(r, p, begin(r, num_tokens), num_tokens);
}

/* A norm may have quantised its rows already when the product comes, which must not show. */
static void check_normed(const struct rig *r, const struct product *p, int32_t num_tokens)
{
    struct device *d = r->device;
    const struct norm_args args = {
        .weight = r->norm_weight, .delta_scale = 1, .eps = 1e-5f, .hidden_size = K};
    const size_t num_x = (size_t)num_tokens * K;
    float *normed = malloc(num_x * sizeof *normed);
    device_write(d, r->residual, r->x, num_x, true);
    struct batch *b = begin(r, num_tokens);
    d->ops->rms_norm(d, b, ROWS_TOKENS, r->device_x, r->residual, NULL, &args);
    float *got = multiply(r, p, b, num_tokens);
    device_read(d, normed, r->device_x, num_x, false);
    float *expected = run(r, p, normed, num_tokens);
    int64_t different = num_bits_different(got, expected, (size_t)(num_tokens * p->n));
    if (different)
        fail_msg("scales %d, gated %d, %d tokens: %lld results have other bits behind a norm", p->scales,
                 p->is_gated, num_tokens, (long long)different);
    free(normed);
    free(got);
    free(expected);
}

struct sum {
    double value, bound;
};

/* Tensor cores add to some 14 bits within 128 columns, or 512 where rows have scales, integers exactly. The portable kernels have weights rounded to bf16. */
static struct sum sum_of(const struct rig *r, const struct product *p, const struct part *part, int32_t token,
                         int32_t n)
{
    const bool has_integers = p->scales == OF_INTEGERS, has_blocks = p->scales == OF_BLOCKS;
    const double *x = r->taken[has_integers ? ROWS_OF_INTEGERS
                               : has_blocks ? BLOCKS_OF_E4M3
                                            : ROWS_OF_E4M3] +
                      token * K;
    const bool is_gpu = r->device->act_bytes == 2;
    const double sums = !is_gpu                   ? 0x1p-19
                        : test_portable_kernels() ? 0x1p-9
                        : has_integers            ? 0x1p-21
                                                  : 0x1p-11;
    double value = 0, magnitude = 0;
    for (int32_t k = 0; k < K; k++) {
        const int32_t at = p->scales == OF_ALL ? 0 : has_blocks ? n / BLOCK * (K / BLOCK) + k / BLOCK : n;
        const uint8_t code = part->codes[n * K + k];
        double v = (has_integers ? (int8_t)code : e4m3_value(code)) * (double)part->scales[at] * x[k];
        value += v;
        magnitude += fabs(v);
    }
    return (struct sum){value, magnitude * sums + fabs(value) * (is_gpu ? 0x1p-8 : 0x1p-22)};
}

static struct sum expected(const struct rig *r, const struct product *p, int32_t token, int32_t n)
{
    const double rounding = r->device->act_bytes == 2 ? 0x1p-8 : 0x1p-22;
    if (p->is_gated) {
        struct sum gate = sum_of(r, p, &p->parts[0], token, n), up = sum_of(r, p, &p->parts[1], token, n);
        double f = gate.value / (1 + exp(-gate.value)), f_bound = 1.13 * gate.bound + 1e-5 * fabs(gate.value);
        return (struct sum){f * up.value, f_bound * (fabs(up.value) + up.bound) + fabs(f) * up.bound +
                                              rounding * fabs(f * up.value) + 1e-6};
    }
    const struct part *part = p->parts;
    const double bias = (double)p->biases[n];
    for (; n >= part->rows; part++) n -= part->rows;
    struct sum s = sum_of(r, p, part, token, n);
    return (struct sum){s.value + bias, s.bound + rounding * (fabs(s.value + bias) + fabs(s.value))};
}

static void check_product(struct rig *r, const struct product *p)
{
    static const int32_t sizes[] = {1,  2,   7,   8,   9,   16,  17,  32,  33, 64,
                                    65, 127, 128, 129, 192, 193, 256, 257, 299};
    const int step = r->device->act_bytes == 2 ? 1 : 6; /* a CPU's products have tests of their own */
    float *all = run(r, p, r->x, TOKENS_MAX);
    for (int i = 0; i < 4000; i++) {
        int32_t token = random_below(&r->random, TOKENS_MAX), n = random_below(&r->random, p->n);
        struct sum e = expected(r, p, token, n);
        double got = (double)all[token * p->n + n];
        if (!(fabs(got - e.value) <= e.bound))
            fail_msg("scales %d, gated %d, token %d, row %d: %g instead of %g, more than %g off", p->scales,
                     p->is_gated, token, n, got, e.value, e.bound);
    }
    for (size_t i = 0; i < array_length(sizes); i += (size_t)step) {
        int32_t first = random_below(&r->random, TOKENS_MAX - sizes[i] + 1);
        float *some = run(r, p, r->x + first * K, sizes[i]);
        int64_t different = num_bits_different(some, all + first * p->n, (size_t)(sizes[i] * p->n));
        if (different)
            fail_msg("scales %d, gated %d: %lld results of %d tokens from %d on have other bits among %d",
                     p->scales, p->is_gated, (long long)different, sizes[i], first, TOKENS_MAX);
        free(some);
    }
    free(all);
    for (int32_t num_tokens = 1; num_tokens < TOKENS_MAX; num_tokens += 87) check_normed(r, p, num_tokens);
}

/* Scales of one kind or more. */
static void products(const char *isa, enum scales first, enum scales last)
{
    static struct product made[2 * 4];
    static const struct step_limits limits = {TOKENS_MAX, 1, TOKENS_MAX, 1, TOKENS_MAX, 1, 1, 0, false, 0};
    static const struct attention_args attention = {.num_heads = 1, .num_kv_heads = 1, .head_dim = 64};
    struct rig r = {.device = test_device_open(isa, 2), .random = {.seed = test_seed()}};
    struct device *d = r.device;
    struct error err = {0};
    assert_int_equal(d->ops->prepare(d, &limits, 64, K, ROWS_MAX, &attention, 1, &err), 0);
    fill_rows(&r);
    r.device_x = device_floats(d, (size_t)TOKENS_MAX * K, false);
    r.device_y = device_floats(d, (size_t)TOKENS_MAX * N_MAX, false);
    r.residual = device_floats(d, (size_t)TOKENS_MAX * K, true);
    float *weight = random_values(&r.random, K, 4, 1);
    r.norm_weight = device_upload(d, weight, K);
    free(weight);
    r.step = test_step_new(TOKENS_MAX, 1, TOKENS_MAX / BLOCK_SIZE + 1);
    const int begin = 2 * (int)first, end = 2 * (int)last + 2;
    for (int i = begin; i < end; i++) make_product(&r, &made[i], (enum scales)(i / 2), i % 2);
    assert_int_equal(d->ops->weights_done(d, &err), 0);
    for (int i = begin; i < end; i++) check_product(&r, &made[i]);
    test_step_free(r.step);
    free(r.x);
    for (int i = 0; i < TAKEN; i++) free(r.taken[i]);
    d->ops->close(d);
}

static void rows_are_quantised_by_themselves(void **state)
{
    (void)state;
    const char *isa = getenv("FLASHD_TEST_ISA");
    products(isa ? isa : "auto", OF_ALL, OF_INTEGERS);
}

/* Norms quantise rows as the gated product wants them, which may be otherwise than another product does. */
static void rows_are_quantised_in_blocks_alone(void **state)
{
    (void)state;
    const char *isa = getenv("FLASHD_TEST_ISA");
    products(isa ? isa : "auto", OF_BLOCKS, OF_BLOCKS);
}

/* Where nothing else asks for rows in codes. */
static void rows_become_integers(void **state)
{
    (void)state;
    const char *isa = getenv("FLASHD_TEST_ISA");
    products(isa ? isa : "auto", OF_INTEGERS, OF_INTEGERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_quantised_by_themselves),
                                       cmocka_unit_test(rows_are_quantised_in_blocks_alone),
                                       cmocka_unit_test(rows_become_integers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
