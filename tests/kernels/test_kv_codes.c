/* test_kv_codes.c - codes of 8 bits against double precision: all of them, the points between them, and rows. */
#include <float.h>

#include "fixture.h"
#include "kernels/cpu/kv_codes.h"

static const enum dtype dtypes[] = {DTYPE_F8_E4M3, DTYPE_I8};

/* What a code stands for, by the format's definition, in units in which the largest is its own. */
static double defined_value(uint8_t code, enum dtype dtype)
{
    if (dtype == DTYPE_I8) return code < 128 ? code : code - 256;
    int exponent = code >> 3 & 15, mantissa = code & 7;
    double size = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return code & 0x80 ? -size : size;
}

static double largest_of(enum dtype dtype)
{
    return dtype == DTYPE_I8 ? 127 : 448;
}

/* NaN of e4m3 and -128 are never written. */
static bool is_written(int code, enum dtype dtype)
{
    return dtype == DTYPE_I8 ? code != 0x80 : (code & 0x7f) != 0x7f;
}

static void test_numbers_of_all_codes(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        assert_true(kv_code_number((uint8_t)code, DTYPE_I8) == defined_value((uint8_t)code, DTYPE_I8));
        if (!is_written(code, DTYPE_F8_E4M3)) continue;
        assert_true(256.0 * kv_code_number((uint8_t)code, DTYPE_F8_E4M3) ==
                    defined_value((uint8_t)code, DTYPE_F8_E4M3));
    }
}

/* The code of x beside the format's largest value, which sets the scale to one unit. */
static uint8_t code_of(float x, enum dtype dtype)
{
    float row[2] = {(float)largest_of(dtype), x};
    uint8_t codes[2];
    float scale = kv_codes_store(codes, 1, row, 2, dtype);
    assert_true(scale == (dtype == DTYPE_I8 ? 1 : 256));
    return codes[1];
}

static void check_between(uint8_t low, uint8_t high, enum dtype dtype)
{
    float a = (float)defined_value(low, dtype), b = (float)defined_value(high, dtype), middle = (a + b) / 2;
    assert_int_equal(code_of(a, dtype), low);
    assert_int_equal(code_of(b, dtype), high);
    assert_int_equal(code_of(nextafterf(middle, 0), dtype), low);
    assert_int_equal(code_of(nextafterf(middle, 2 * b), dtype), high);
    assert_int_equal(code_of(middle, dtype), low & 1 ? high : low);
}

/* Every code, the ties between neighbours, to even, and what lies just beside them; of both signs. */
static void test_rounding_between_all_codes(void **state)
{
    (void)state;
    for (int code = 0; code < 126; code++) {
        check_between((uint8_t)code, (uint8_t)(code + 1), DTYPE_F8_E4M3);
        if (code > 0) check_between((uint8_t)(code | 0x80), (uint8_t)((code | 0x80) + 1), DTYPE_F8_E4M3);
    }
    for (int code = 0; code < 127; code++) {
        check_between((uint8_t)code, (uint8_t)(code + 1), DTYPE_I8);
        if (code > 0) check_between((uint8_t)-code, (uint8_t)(-code - 1), DTYPE_I8);
    }
}

/* Rows of every size of number: each element within half a step of its code, none beyond the largest. */
static void check_row(const float *x, int n, enum dtype dtype)
{
    enum { STRIDE = 3 };
    uint8_t codes[STRIDE * 256];
    double largest = 0, unit = dtype == DTYPE_I8 ? 1 : 256;
    for (int i = 0; i < n; i++) largest = fmax(largest, fabs((double)x[i]));
    double scale = (double)kv_codes_store(codes, STRIDE, x, n, dtype);
    assert_true(fabs(scale - unit * largest / largest_of(dtype)) <= 0x1p-22 * scale);
    for (int i = 0; i < n; i++) {
        assert_true(is_written(codes[i * STRIDE], dtype));
        double got = scale * (double)kv_code_number(codes[i * STRIDE], dtype), size = fabs((double)x[i]);
        double step = dtype == DTYPE_I8 ? scale : fmax(scale / 256 * 0x1p-9, size * 0x1p-3);
        assert_true(fabs(got - (double)x[i]) <= 0.5001 * step);
    }
}

static void test_rows(void **state)
{
    (void)state;
    struct random random = {.seed = test_seed()};
    for (int round = 0; round < 400; round++) {
        int n = 1 + random_below(&random, 256);
        float *x = random_values(&random, (size_t)n, 4, ldexpf(1, random_below(&random, 200) - 100));
        x[0] += x[0] == 0;
        for (size_t i = 0; i < array_length(dtypes); i++) check_row(x, n, dtypes[i]);
        free(x);
    }
}

static void test_rows_at_the_ends(void **state)
{
    (void)state;
    for (size_t i = 0; i < array_length(dtypes); i++) {
        uint8_t codes[2] = {1, 1};
        assert_true(kv_codes_store(codes, 1, (const float[]){0, -0.0f}, 2, dtypes[i]) == 0);
        assert_int_equal(codes[0] | codes[1], 0);
        assert_true(kv_codes_store(codes, 1, (const float[]){FLT_MIN, 0x1p-149f}, 2, dtypes[i]) == 0);
        check_row((const float[]){FLT_MAX, -FLT_MAX, 1}, 3, dtypes[i]);
        assert_true(isnan(kv_codes_store(codes, 1, (const float[]){1, NAN}, 2, dtypes[i])));
        assert_true(isnan(kv_codes_store(codes, 1, (const float[]){-INFINITY, 1}, 2, dtypes[i])));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_of_all_codes),
        cmocka_unit_test(test_rounding_between_all_codes),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_rows_at_the_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
