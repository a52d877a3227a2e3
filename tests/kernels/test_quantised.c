/* test_quantised.c - products with quantised weights in every layout that checkpoints have, on fresh random codes: the bits
 * of the same weights unpacked to f32, on every instruction set and in every batch; and those weights against a
 * reference of their own, in double precision. */
#include "tests/kernels/linear_fixture.h"

enum { ROWS_MAX = 160, COLS_MAX = 608, CODES_MAX = ROWS_MAX * COLS_MAX, TOKENS = 19 };

#ifdef FLASHD_DEBUG
enum { SHAPES_STEP = 5 }; /* a sanitized build takes its time: the largest and the smallest */
#else
enum { SHAPES_STEP = 1 };
#endif

/* Codes, scales and zero points as numbers, one for each weight; and as a file has them. */
struct quantised {
    struct weight_view view;
    int rows, cols;
    uint8_t codes[CODES_MAX], zeros[CODES_MAX];
    float scales[CODES_MAX];
    uint8_t data[CODES_MAX], zero_data[CODES_MAX], *scale_data;
    int32_t groups[COLS_MAX];
    float scale_values[CODES_MAX];
};

static int random_below(int n)
{
    return min_of((int)random_uniform(&random_numbers, 0, (float)n), n - 1);
}

static uint8_t random_code(enum dtype dtype)
{
    const int bits = dtype == DTYPE_F8_E4M3 || dtype == DTYPE_I8 ? 256 : 16;
    uint8_t code;
    do code = (uint8_t)random_below(bits);
    while (dtype == DTYPE_F8_E4M3 && (code & 127) == 127);
    return code;
}

/* ---- the layouts, written apart from their readers ---- */

static void put_nibble(uint8_t *data, int64_t word, int place, uint8_t code)
{
    uint8_t *const byte = data + word * 4 + place / 2;
    *byte = (uint8_t)(*byte | code << (4 * (place % 2)));
}

static void put_code(struct quantised *q, int n, int k, uint8_t code)
{
    static const int awq_place[] = {0, 4, 1, 5, 2, 6, 3, 7};
    const int64_t rows = q->rows, cols = q->cols;
    switch (q->view.scheme) {
    case WEIGHT_GPTQ:
        put_nibble(q->data, k / 8 * rows + n, k % 8, code);
        break;
    case WEIGHT_AWQ:
        put_nibble(q->data, k * rows / 8 + n / 8, awq_place[n % 8], code);
        break;
    default:
        if (q->view.dtype == DTYPE_F8_E4M3 || q->view.dtype == DTYPE_I8)
            q->data[n * cols + k] = code ^ q->view.codes.flip;
        else
            put_nibble(q->data, 0, (int)(n * cols + k), code);
    }
}

/* One place of the matrix of zero points, of which those of GPTQ and AWQ are transposed. */
static void put_zero(struct quantised *q, int n, int group, uint8_t zero)
{
    static const int awq_place[] = {0, 4, 1, 5, 2, 6, 3, 7};
    const int64_t num_groups = q->view.codes.zeros.cols;
    if (q->view.scheme == WEIGHT_SCALED)
        put_nibble(q->zero_data, n / 8 * num_groups + group, n % 8, zero);
    else
        put_nibble(q->zero_data, (group * q->rows + n) / 8,
                   q->view.scheme == WEIGHT_AWQ ? awq_place[n % 8] : n % 8, zero);
}

struct layout {
    const char *name;
    enum weight_scheme scheme;
    enum dtype dtype;
    int scale_rows, scale_cols; /* 0: all */
    bool zeros, ordered;
    uint8_t flip;
};

static const struct layout layouts[] = {
    {"fp8, blocks", WEIGHT_SCALED, DTYPE_F8_E4M3, 128, 128, false, false, 0},
    {"fp8, rows", WEIGHT_SCALED, DTYPE_F8_E4M3, 1, 0, false, false, 0},
    {"fp8, one scale", WEIGHT_SCALED, DTYPE_F8_E4M3, 0, 0, false, false, 0},
    {"int8, rows", WEIGHT_SCALED, DTYPE_I8, 1, 0, false, false, 0},
    {"8 bits, groups of 128", WEIGHT_SCALED, DTYPE_I8, 1, 128, false, false, 0x80},
    {"4 bits, groups of 32", WEIGHT_SCALED, DTYPE_U4, 1, 32, false, false, 0},
    {"4 bits, groups of 64, zeros", WEIGHT_SCALED, DTYPE_U4, 1, 64, true, false, 0},
    {"4 bits, groups of 128, zeros", WEIGHT_SCALED, DTYPE_U4, 1, 128, true, false, 0},
    {"4 bits, rows", WEIGHT_SCALED, DTYPE_U4, 1, 0, false, false, 0},
    {"4 bits, groups of 32 in no order", WEIGHT_SCALED, DTYPE_U4, 1, 32, true, true, 0},
    {"nvfp4", WEIGHT_SCALED, DTYPE_F4_E2M1, 1, 16, false, false, 0},
    {"mxfp4", WEIGHT_SCALED, DTYPE_MXFP4, 1, 32, false, false, 0},
    {"gptq", WEIGHT_GPTQ, DTYPE_U4, 1, 128, true, false, 0},
    {"gptq, in no order", WEIGHT_GPTQ, DTYPE_U4, 1, 64, true, true, 0},
    {"awq", WEIGHT_AWQ, DTYPE_U4, 1, 128, true, false, 0},
};

static int group_of(const struct quantised *q, int k)
{
    return q->view.codes.groups ? q->groups[k] : k / (int)q->view.codes.scale_cols;
}

static void shuffle_groups(struct quantised *q, int size)
{
    for (int k = 0; k < q->cols; k++) q->groups[k] = k / size;
    for (int k = q->cols - 1; k > 0; k--) {
        const int other = random_below(k + 1), group = q->groups[k];
        q->groups[k] = q->groups[other];
        q->groups[other] = group;
    }
    q->view.codes.groups = q->groups;
}

static void set_scales(struct quantised *q, int side_rows, int side_cols)
{
    struct weight_side *s = &q->view.codes.scales;
    *s = (struct weight_side){q->scale_values, SCALE_F32, side_rows, side_cols};
    for (int i = 0; i < side_rows * side_cols; i++)
        q->scale_values[i] = random_uniform(&random_numbers, 0.001f, 0.01f);
    if (q->view.dtype == DTYPE_F4_E2M1) q->view.codes.scale_divisor = 3.7f;
    if (q->view.dtype != DTYPE_MXFP4) return;
    s->type = SCALE_E8M0;
    for (int i = 0; i < side_rows * side_cols; i++)
        ((uint8_t *)q->scale_values)[i] = (uint8_t)(115 + random_below(8));
}

/* What the file means, number by number. */
static float scale_of(const struct quantised *q, int n, int k)
{
    const struct weight_codes *c = &q->view.codes;
    const bool transposed = q->view.scheme != WEIGHT_SCALED;
    const int group = group_of(q, k);
    const int64_t at = transposed ? (int64_t)group * q->rows + n : n / c->scale_rows * c->scales.cols + group;
    if (c->scales.type == SCALE_E8M0) return ldexpf(1, ((const uint8_t *)q->scale_values)[at] - 127);
    return q->scale_values[at] / c->scale_divisor;
}

static void fill(struct quantised *q, const struct layout *l, int rows, int cols)
{
    const int scale_rows = l->scale_rows ? l->scale_rows : rows,
              scale_cols = l->scale_cols ? l->scale_cols : cols;
    const int num_groups = (int)div_up(cols, scale_cols);
    memset(q, 0, sizeof *q);
    q->rows = rows;
    q->cols = cols;
    q->view = weight_view_plain(q->data, l->dtype, rows, cols);
    q->view.scheme = l->scheme;
    q->view.codes = (struct weight_codes){.scale_rows = scale_rows,
                                          .scale_cols = scale_cols,
                                          .scale_factor = 1,
                                          .scale_divisor = 1,
                                          .flip = l->flip,
                                          .zero = l->dtype == DTYPE_U4 ? l->zeros ? 1 : 8 : 0};
    if (l->ordered) shuffle_groups(q, scale_cols);
    if (l->scheme == WEIGHT_SCALED)
        set_scales(q, (int)div_up(rows, scale_rows), num_groups);
    else
        set_scales(q, num_groups, rows);
    if (l->zeros)
        q->view.codes.zeros = l->scheme == WEIGHT_SCALED
                                  ? (struct weight_side){q->zero_data, 0, rows, num_groups}
                                  : (struct weight_side){q->zero_data, 0, num_groups, rows};
    uint8_t zeros[ROWS_MAX][COLS_MAX];
    for (int n = 0; n < rows; n++)
        for (int g = 0; g < num_groups && l->zeros; g++)
            put_zero(q, n, g, zeros[n][g] = (uint8_t)random_below(16));
    for (int n = 0; n < rows; n++)
        for (int k = 0; k < cols; k++) {
            const int64_t at = (int64_t)n * cols + k;
            put_code(q, n, k, q->codes[at] = random_code(l->dtype));
            q->scales[at] = scale_of(q, n, k);
            q->zeros[at] = (uint8_t)((l->zeros ? zeros[n][group_of(q, k)] : 0) + q->view.codes.zero);
        }
}

static double e4m3_value(uint8_t code)
{
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const double magnitude = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    return code & 128 ? -magnitude : magnitude;
}

static double value_of(const struct quantised *q, int n, int k)
{
    static const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const int64_t at = (int64_t)n * q->cols + k;
    const uint8_t code = q->codes[at];
    switch (q->view.dtype) {
    case DTYPE_F8_E4M3:
        return e4m3_value(code);
    case DTYPE_I8:
        return (int8_t)code;
    case DTYPE_U4:
        return code - q->zeros[at];
    default:
        return code & 8 ? -e2m1[code & 7] : e2m1[code & 7];
    }
}

/* ---- the tests ---- */

/* Rows [first, first + rows) of q as f32 weights, in the order of their columns' groups, and x in that order. */
static void unpack(const struct quantised *q, int first, int rows, float *weights, const float *x,
                   float *ordered_x)
{
    int to = 0;
    for (int g = 0; g < div_up(q->cols, q->view.codes.scale_cols); g++)
        for (int k = 0; k < q->cols; k++) {
            if (group_of(q, k) != g) continue;
            for (int n = 0; n < rows; n++)
                weights[n * q->cols + to] =
                    (float)(value_of(q, first + n, k) * (double)q->scales[(first + n) * q->cols + k]);
            for (int t = 0; t < TOKENS; t++) ordered_x[t * q->cols + to] = x[t * q->cols + k];
            to++;
        }
    assert_int_equal(to, q->cols);
}

static float *run_view(struct weight_view view, enum cpu_isa_level isa, int num_tokens, const float *x)
{
    struct linear_case c = {.isa = isa, .rows = (int)weight_view_num_rows(&view), .cols = (int)view.cols};
    c.desc.num_parts = 1;
    c.desc.parts[0] = view;
    struct linear *const l = case_create(&c, pool);
    float *const out = case_run(&c, l, pool, num_tokens, x);
    cpu_linear_destroy(l);
    return out;
}

static void check_against_doubles(const struct quantised *q, const char *name, int first, int rows,
                                  const float *x, const float *out)
{
    for (int t = 0; t < TOKENS; t++)
        for (int n = 0; n < rows; n++) {
            double sum = 0, size = 0;
            for (int k = 0; k < q->cols; k++) {
                const double term = value_of(q, first + n, k) * (double)q->scales[(first + n) * q->cols + k] *
                                    (double)x[t * q->cols + k];
                sum += term;
                size += fabs(term);
            }
            const double error = fabs(out[t * rows + n] - sum),
                         bound = (q->cols / 32.0 + 40) * 0x1p-24 * size;
            if (!(error <= bound))
                fail_msg("%s, %d x %d: out[%d][%d] is off by %g, more than %g", name, q->rows, q->cols, t, n,
                         error, bound);
        }
}

/* Rows of a slice, which other parts of a stacked tensor surround. */
static void check_layout(struct quantised *q, const struct layout *l, int first, int rows)
{
    float *const weights = test_alloc((size_t)rows * (size_t)q->cols * sizeof *weights),
                 *const x = test_alloc((size_t)TOKENS * (size_t)q->cols * sizeof *x),
                 *const ordered_x = test_alloc((size_t)TOKENS * (size_t)q->cols * sizeof *x);
    for (int i = 0; i < TOKENS * q->cols; i++) x[i] = random_normal(&random_numbers);
    unpack(q, first, rows, weights, x, ordered_x);
    const struct weight_view plain = weight_view_plain(weights, DTYPE_F32, rows, q->cols),
                             view = weight_view_rows(&q->view, first, rows);
    FOR_EACH_ISA(isa)
    {
        float *const expected = run_view(plain, isa, TOKENS, ordered_x), *const out =
                                                                             run_view(view, isa, TOKENS, x);
        if (memcmp(expected, out, (size_t)TOKENS * (size_t)rows * sizeof *out))
            fail_msg("%s, %d of %d x %d on %s: not the bits of the unpacked weights", l->name, rows, q->rows,
                     q->cols, cpu_isa_text(isa));
        check_against_doubles(q, l->name, first, rows, x, out);
        for (int n = 1; n < 10; n += 3) {
            float *const some = run_view(view, isa, n, x + 2 * q->cols);
            assert_memory_equal(some, out + 2 * rows, (size_t)n * (size_t)rows * sizeof *out);
            free(some);
        }
        free(expected);
        free(out);
    }
    free(weights);
    free(x);
    free(ordered_x);
}

static void products_have_the_bits_of_unpacked_weights(void **state)
{
    (void)state;
    struct quantised *const q = malloc(sizeof *q);
    for (size_t i = 0; i < array_length(layouts); i++) {
        const struct layout *l = &layouts[i];
        const bool transposed = l->scheme != WEIGHT_SCALED;
        const int rows[] = {transposed ? 40 : 37, transposed ? 152 : 145}, cols[] = {608, 96, 32};
        for (int j = 0; j < 6; j += SHAPES_STEP) {
            fill(q, l, rows[j % 2], cols[j / 2]);
            check_layout(q, l, 0, q->rows);
            check_layout(q, l, 5, 20);
        }
    }
    free(q);
}

/* FP8 alone needs no whole blocks of columns. */
static void columns_may_end_anywhere(void **state)
{
    (void)state;
    struct quantised *const q = malloc(sizeof *q);
    for (int i = 0; i < 4; i++)
        for (int cols = 1; cols < 300; cols += 61) {
            fill(q, &layouts[i], 17, cols);
            check_layout(q, &layouts[i], 0, 17);
        }
    free(q);
}

/* A NaN among codes must not become a number. */
static void a_nan_spoils_its_rows_outputs_and_no_others(void **state)
{
    (void)state;
    struct quantised *const q = malloc(sizeof *q);
    float x[200];
    for (int k = 0; k < 200; k++) x[k] = 1;
    fill(q, &layouts[1], 20, 200);
    q->data[7 * 200 + 150] = 0x7f;
    FOR_EACH_ISA(isa)
    {
        float *const out = run_view(q->view, isa, 1, x);
        for (int n = 0; n < 20; n++) assert_int_equal(isnan(out[n]) != 0, n == 7);
        free(out);
    }
    free(q);
}

static void expect_refusal(struct weight_view view, int status, const char *sentence)
{
    const struct linear_desc desc = {.num_parts = 1, .parts = {view}};
    struct linear *l;
    struct error err;
    assert_int_equal(cpu_linear_create(&desc, CPU_ISA_PORTABLE, pool, &l, &err), status);
    if (!strstr(err.text, sentence)) fail_msg("\"%s\" has no \"%s\"", err.text, sentence);
}

static void what_panels_cannot_hold_is_refused(void **state)
{
    (void)state;
    struct quantised *const q = malloc(sizeof *q);
    fill(q, &layouts[0], 40, 256);
    q->view.codes.scale_cols = 64;
    expect_refusal(q->view, STATUS_UNSUPPORTED, "a scale for 64 columns of type F8_E4M3");
    fill(q, &layouts[5], 40, 256);
    q->view.codes.scales.data = NULL;
    expect_refusal(q->view, STATUS_UNSUPPORTED, "no scales");
    fill(q, &layouts[13], 40, 256);
    q->groups[3] = 77;
    expect_refusal(q->view, STATUS_INVALID, "puts column 3 into group 77");
    free(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_have_the_bits_of_unpacked_weights),
        cmocka_unit_test(columns_may_end_anywhere),
        cmocka_unit_test(a_nan_spoils_its_rows_outputs_and_no_others),
        cmocka_unit_test(what_panels_cannot_hold_is_refused),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
