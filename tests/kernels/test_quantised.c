/* test_quantised.c - products with quantised weights in every layout that checkpoints have, on fresh random codes: the bits
 * of the same weights unpacked to f32, on every instruction set and in every batch; and those weights against a
 * reference of their own, in double precision. */
#include "tests/kernels/linear_fixture.h"

enum { CASE_ROWS_MAX = 160, CASE_COLS_MAX = 608, TOKENS = 19 };

#include "tests/kernels/quantised_cases.h"

#ifdef FLASHD_DEBUG
enum { SHAPES_STEP = 5 }; /* a sanitized build takes its time: the largest and the smallest */
#else
enum { SHAPES_STEP = 1 };
#endif

static float draw_between(float low, float high)
{
    return random_uniform(&random_numbers, low, high);
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

/* values[rows][cols] in a type of 2 or 4 bytes, [cols][rows]. */
static void transpose(const float *values, int rows, int cols, enum dtype dtype, uint8_t *out)
{
    for (int k = 0; k < cols; k++)
        for (int n = 0; n < rows; n++) {
            const float x = values[n * cols + k];
            const uint16_t half = dtype == DTYPE_F16 ? dtype_f32_to_f16(x) : dtype_f32_to_bf16(x);
            const size_t at = (size_t)(k * rows + n);
            if (dtype == DTYPE_F32)
                memcpy(out + at * 4, &x, 4);
            else
                memcpy(out + at * 2, &half, 2);
        }
}

/* All of its rows, some, and every other one. */
static void what_lies_transposed_has_the_bits_of_rows(void **state)
{
    (void)state;
    enum { ROWS = 37, COLS = 70 };
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    static const int firsts[] = {0, 3, 1}, counts[] = {ROWS, 20, ROWS / 2}, steps[] = {1, 1, 2};
    float values[ROWS * COLS], rows[ROWS * COLS], x[COLS * TOKENS];
    uint8_t transposed[ROWS * COLS * 4];
    for (int i = 0; i < ROWS * COLS; i++) /* as each of the types has it */
        values[i] = dtype_bf16_to_f32(dtype_f32_to_bf16(draw_between(-1, 1)));
    for (int i = 0; i < ROWS * COLS; i++)
        if (fabsf(values[i]) < 0x1p-6f) values[i] = 0;
    for (int i = 0; i < COLS * TOKENS; i++) x[i] = random_normal(&random_numbers);
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < array_length(dtypes) * array_length(firsts); i++) {
        const enum dtype dtype = dtypes[i / 3];
        const int first = firsts[i % 3], count = counts[i % 3], step = steps[i % 3];
        transpose(values, ROWS, COLS, dtype, transposed);
        const struct weight_view all = weight_view_transposed(transposed, dtype, ROWS, COLS);
        const struct weight_view some =
            step == 1 ? weight_view_rows(&all, first, count) : weight_view_every(&all, first, step);
        for (int n = 0; n < count; n++)
            memcpy(rows + n * COLS, values + (first + n * step) * COLS, COLS * sizeof *rows);
        float *const out = run_view(some, isa, TOKENS, x), *const expected =
                                                               run_view(weight_view_plain(rows, DTYPE_F32,
                                                                                          count, COLS),
                                                                        isa, TOKENS, x);
        assert_memory_equal(out, expected, (size_t)TOKENS * (size_t)count * sizeof *out);
        free(out);
        free(expected);
    }
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
        cmocka_unit_test(what_lies_transposed_has_the_bits_of_rows),
        cmocka_unit_test(what_panels_cannot_hold_is_refused),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
