/* linear_cases.h - what the tests of the matrix products share: random cases, a double-precision reference
 * with its error bound, and checks of a panel-kernel set against both.
 *
 * Bounds, for one output with weights w and activations x, u = 2^-24:
 *
 *   f32 and int16   (K / 32 + 40) u sum(|x| (|w| + |m|)): one rounding for each of the additions a value can pass
 *                   through, m the largest magnitude that a weight of the block can have (the kernels add d u and m
 *                   apart)
 *   int8            that, and sum over blocks of s / 2 sum(|w|), s = max|x| / 127 the step of the block: no
 *                   activation is off by more than half a step
 *
 * The int8 bound is the worst case, which errors of random sign never come near, so the root mean square over
 * all outputs is held against its expectation as well: errors uniform in a step have variance s^2 / 12. */
#ifndef TESTS_KERNELS_LINEAR_CASES_H
#define TESTS_KERNELS_LINEAR_CASES_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/linear_kernels.h"
#include "tests/kernels/gates.h"
#include "tests/kernels/random_weight.h"

#define FOR_EACH_ISA(isa)                                                                                    \
    for (enum cpu_isa_level isa = CPU_ISA_PORTABLE; isa < CPU_ISA_COUNT; isa++)                              \
        if (cpu_isa_has(isa))

struct linear_case {
    struct linear_desc desc;
    enum cpu_isa_level isa;
    int rows, cols, num_tokens; /* N, K, T */
    uint8_t *data[LINEAR_PARTS_MAX], *bias_data[LINEAR_PARTS_MAX];
    float *weights, *biases; /* [N][K], [N] as f32, from the file's bytes */
    float *x;                /* [T][K] */
};

static const struct linear_kernels *case_kernels(enum cpu_isa_level isa)
{
    static const struct linear_kernels *const sets[] = {
        &linear_kernels_portable, &linear_kernels_avx2,       &linear_kernels_avx2vnni,
        &linear_kernels_avx512,   &linear_kernels_avx512vnni, &linear_kernels_avx512amx};
    return sets[isa];
}

static void *test_alloc(size_t bytes)
{
    void *const p = aligned_alloc(64, align_up(max_of(bytes, 1), 64));
    assert_non_null(p);
    return p;
}

/* NaN everywhere: what a product forgets to write is found. */
static float *poisoned(size_t count)
{
    float *const p = test_alloc(count * sizeof *p);
    memset(p, 0xff, count * sizeof *p);
    return p;
}

/* A part of rows x cols whose bytes start at an odd address, and its f32 values at weights. */
static void case_add_part(struct linear_case *c, struct random_source *r, enum dtype dtype, int rows,
                          bool has_bias)
{
    const int i = c->desc.num_parts++;
    const uint64_t row_bytes = dtype_row_bytes(dtype, (uint64_t)c->cols);
    assert_true(row_bytes > 0);
    c->data[i] = malloc((size_t)rows * row_bytes + 1);
    random_weight(r, dtype, rows, c->cols, c->data[i] + 1);
    c->desc.parts[i] = weight_view_plain(c->data[i] + 1, dtype, rows, c->cols);
    c->weights = realloc(c->weights, (size_t)(c->rows + rows) * (size_t)c->cols * sizeof(float));
    c->biases = realloc(c->biases, (size_t)(c->rows + rows) * sizeof(float));
    for (int n = 0; n < rows; n++) {
        dtype_row_to_f32(dtype, c->data[i] + 1 + (uint64_t)n * row_bytes, c->cols,
                         c->weights + (int64_t)(c->rows + n) * c->cols);
        c->biases[c->rows + n] = 0;
    }
    if (has_bias) {
        c->bias_data[i] = malloc((size_t)rows * 4 + 1);
        random_weight(r, DTYPE_F32, 1, rows, c->bias_data[i] + 1);
        c->desc.biases[i] = weight_view_plain(c->bias_data[i] + 1, DTYPE_F32, 1, rows);
        memcpy(c->biases + c->rows, c->bias_data[i] + 1, (size_t)rows * 4);
    }
    c->rows += rows;
}

static void case_add_tokens(struct linear_case *c, struct random_source *r, int num_tokens)
{
    c->num_tokens = num_tokens;
    c->x = test_alloc((size_t)num_tokens * (size_t)c->cols * sizeof(float));
    for (int i = 0; i < num_tokens * c->cols; i++)
        c->x[i] =
            random_normal(r) * (i % 37 == 5 ? 20.0f : 1.0f); /* some columns stand out, as in real models */
}

static void case_free(struct linear_case *c)
{
    for (int i = 0; i < LINEAR_PARTS_MAX; i++) {
        free(c->data[i]);
        free(c->bias_data[i]);
    }
    free(c->weights);
    free(c->biases);
    free(c->x);
}

static struct linear *case_create(const struct linear_case *c, struct thread_pool *pool)
{
    struct linear *l;
    struct error err;
    assert_int_equal(cpu_linear_create(&c->desc, c->isa, pool, &l, &err), 0);
    return l;
}

static int case_num_outputs(const struct linear_case *c)
{
    return c->desc.kind == LINEAR_GATE_UP ? c->rows / 2 : c->rows;
}

/* out[num_tokens][outputs] of x through a new scratch, into poisoned memory. */
static float *case_run(const struct linear_case *c, const struct linear *l, struct thread_pool *pool,
                       int num_tokens, const float *x)
{
    void *const scratch = poisoned(cpu_linear_scratch_bytes(num_tokens, c->cols) / sizeof(float));
    float *const out = poisoned((size_t)num_tokens * (size_t)case_num_outputs(c));
    cpu_linear_run(l, pool, scratch, num_tokens, x, out);
    free(scratch);
    return out;
}

/* ---- reference ---- */

struct expected {
    double value, bound, variance; /* variance: of the error that int8 activations make */
};

static enum dtype case_dtype_of_row(const struct linear_case *c, int row)
{
    int i = 0;
    while (row >= c->desc.parts[i].rows) row -= (int)c->desc.parts[i++].rows;
    return c->desc.parts[i].dtype;
}

static struct expected case_expected(const struct linear_case *c, int token, int row)
{
    const float *const x = c->x + (int64_t)token * c->cols, *const w = c->weights + (int64_t)row * c->cols;
    const enum act_form form = case_kernels(c->isa)->of[case_dtype_of_row(c, row)].form;
    const double roundings = c->cols / 32.0 + 40;
    struct expected e = {c->biases[row], fabs(c->biases[row]) * 0x1p-23, 0};
    for (int begin = 0; begin < c->cols; begin += 32) {
        double x_max = 0, w_max = 0, x_sum = 0, w_sum = 0, w_squares = 0;
        for (int k = begin; k < min_of(begin + 32, c->cols); k++) {
            e.value += (double)x[k] * w[k];
            x_max = fmax(x_max, fabs(x[k]));
            w_max = fmax(w_max, fabs(w[k]));
            x_sum += fabs(x[k]);
            w_sum += fabs(w[k]);
            w_squares += (double)w[k] * w[k];
        }
        e.bound += roundings * 0x1p-24 * x_sum * 4 * w_max;
        if (form == ACT_INT16) e.bound += x_max / 32767 / 2 * w_sum * 1.0001;
        if (form == ACT_INT8) e.bound += x_max / 127 / 2 * w_sum * 1.0001;
        if (form == ACT_INT8) e.variance += x_max / 127 * x_max / 127 / 12 * w_squares;
    }
    return e;
}

/* f(gate) * up. Where GELU is almost 0 its relative error is larger. */
static struct expected case_expected_gate_up(const struct linear_case *c, int token, int col)
{
    const struct expected gate = case_expected(c, token, col),
                          up = case_expected(c, token, c->rows / 2 + col);
    const double f = gate_of(c->desc.gate, gate.value);
    struct expected e = {f * up.value, 0, 0};
    e.bound = gate_slope(c->desc.gate, gate.value, gate.bound) * gate.bound * (fabs(up.value) + up.bound) +
              fabs(f) * up.bound + 1e-6 * fabs(e.value) + 1e-30;
    if (c->desc.gate == GATE_GELU_TANH || c->desc.gate == GATE_GELU)
        e.bound += 1e-7 * fabs(gate.value * up.value);
    return e;
}

static struct expected case_expected_up(const struct linear_case *c, int token, int col)
{
    const struct expected y = case_expected(c, token, col);
    const double f = gate_of(c->desc.gate, y.value);
    return (struct expected){
        f, gate_slope(c->desc.gate, y.value, y.bound) * y.bound + 1e-6 * fabs(f) + 2e-7 * fabs(y.value), 0};
}

/* Every output within its bound, and the errors of int8 as large as they should be. */
static void case_check_outputs(const struct linear_case *c, const float *out)
{
    const int num_outputs = case_num_outputs(c);
    double squares = 0, variances = 0;
    for (int t = 0; t < c->num_tokens; t++) {
        for (int n = 0; n < num_outputs; n++) {
            const struct expected e = c->desc.kind == LINEAR_GATE_UP ? case_expected_gate_up(c, t, n)
                                      : c->desc.kind == LINEAR_UP    ? case_expected_up(c, t, n)
                                                                     : case_expected(c, t, n);
            const double error = out[(int64_t)t * num_outputs + n] - e.value;
            if (!(fabs(error) <= e.bound))
                fail_msg("%s %s N %d K %d T %d: out[%d][%d] is %.9g, not %.9g +- %.3g", cpu_isa_text(c->isa),
                         dtype_infos[c->desc.parts[0].dtype].text, c->rows, c->cols, c->num_tokens, t, n,
                         (double)out[(int64_t)t * num_outputs + n], e.value, e.bound);
            if (e.variance == 0) continue;
            squares += error * error;
            variances += e.variance;
        }
    }
    if (c->num_tokens < 60 || variances == 0) return;
    const double ratio = sqrt(squares / variances);
    if (!(ratio > 0.6 && ratio < 1.4))
        fail_msg("%s %s: errors of int8 activations are %.3f times what rounding explains",
                 cpu_isa_text(c->isa), dtype_infos[c->desc.parts[0].dtype].text, ratio);
}

/* One part of this dtype and shape on one set, with a bias or without. */
static void check_dtype(enum cpu_isa_level isa, enum dtype dtype, int rows, int cols, int num_tokens,
                        struct thread_pool *pool, struct random_source *r)
{
    struct linear_case c = {.isa = isa, .cols = cols};
    case_add_part(&c, r, dtype, rows, rows % 2);
    case_add_tokens(&c, r, num_tokens);
    struct linear *const l = case_create(&c, pool);
    float *const out = case_run(&c, l, pool, num_tokens, c.x);
    case_check_outputs(&c, out);
    free(out);
    cpu_linear_destroy(l);
    case_free(&c);
}

/* K for a dtype: one block, and sizes that are no multiple of the chunks in which kernels might go. */
static int cols_for(enum dtype dtype, int i)
{
    const int block = dtype_infos[dtype].block_values;
    const int floats[] = {1, 31, 33, 290, 576}, quants[] = {32, 96, 160, 352, 576},
              k_quants[] = {256, 768, 512, 1280, 2048};
    return block == 1 ? floats[i] : block == 32 ? quants[i] : k_quants[i];
}

static inline void check_all_dtypes(enum cpu_isa_level isa, struct thread_pool *pool, struct random_source *r)
{
    const int rows[] = {1, 15, 16, 37, 100}, num_tokens[] = {1, 2, 7, 16, 67};
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        for (int i = 0; i < 5; i++)
            for (int j = 0; j < 5; j++)
                check_dtype(isa, dtype, rows[i], cols_for(dtype, (i + j) % 5), num_tokens[j], pool, r);
}

#endif
