/* BitNet's weights: codes folded in four against their definition, and as TQ2_0; floats that become such, at their edges; slices. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "files/weight_codes.h"
#include "files/weight_ternary.h"

enum { ROWS = 24, COLS = 512, BLOCK = 256, ROW_BYTES = COLS / BLOCK * 66 };

static uint8_t folded[ROWS / 4 * COLS];

/* All bytes, of codes that no packer writes, too. */
static struct weight_view codes_view(float factor, float divisor)
{
    for (size_t i = 0; i < sizeof folded; i++) folded[i] = (uint8_t)(i * 37 + i / 256);
    struct weight_view v = weight_view_plain(folded, DTYPE_I8, ROWS, COLS);
    v.scheme = WEIGHT_TERNARY;
    v.codes = (struct weight_codes){.scale_factor = factor, .scale_divisor = divisor};
    return v;
}

static int code_of(int row, int col)
{
    return (folded[row % (ROWS / 4) * COLS + col] >> 2 * (row / (ROWS / 4)) & 3) - 1;
}

/* A row's values, and those that TQ2_0 has. */
static void check_row(const struct weight_view *v, int64_t row, const float *expected)
{
    float values[COLS], in_blocks[COLS];
    uint8_t blocks[ROW_BYTES];
    weight_ternary_to_f32(v, row, 0, BLOCK, values);
    weight_ternary_to_f32(v, row, BLOCK, BLOCK - 6, values + BLOCK);
    weight_ternary_to_f32(v, row, COLS - 6, 6, values + COLS - 6);
    assert_memory_equal(values, expected, sizeof values);
    weight_ternary_to_blocks(v, row, blocks);
    dtype_row_to_f32(DTYPE_TQ2_0, blocks, COLS, in_blocks);
    for (int k = 0; k < COLS; k++) assert_true(in_blocks[k] == values[k]);
}

/* Scales that F16 has: all rows, every third from the second on, runs of rows. */
static void codes_are_unfolded(void **state)
{
    (void)state;
    const struct weight_view all = codes_view(3, 4), every = weight_view_every(&all, 1, 3),
                             runs = weight_view_runs(&all, 4, 8, 2);
    const struct weight_view *const views[] = {&all, &every, &runs};
    for (size_t i = 0; i < 3; i++) {
        assert_true(weight_ternary_fits_blocks(views[i]));
        for (int64_t row = 0; row < weight_view_num_rows(views[i]); row++) {
            const int64_t n = i == 0 ? row : i == 1 ? 1 + 3 * row : 4 + row / 2 * 8 + row % 2;
            float expected[COLS];
            for (int k = 0; k < COLS; k++) expected[k] = (float)code_of((int)n, k) * 0.75f;
            check_row(views[i], row, expected);
        }
    }
    assert_int_equal(weight_view_num_rows(&runs), ROWS / 4);
    assert_int_equal(weight_view_bytes(&all), sizeof folded);
    assert_int_equal(weight_view_bytes(&every), sizeof folded / 3);
}

/* What I2_S has of 256 values, as its makers' program packs them: each 128 in 32 bytes, the first 32 in the highest bits. */
static void codes_of_gguf_are_unpacked(void **state)
{
    (void)state;
    enum { GGUF_ROWS = 6 };
    static uint8_t packed[GGUF_ROWS * COLS / 4 + 32];
    const float scale = -1.5f;
    int codes[GGUF_ROWS * COLS];
    for (int i = 0; i < GGUF_ROWS * COLS; i++) {
        codes[i] = (i * 7 + i / 61) % 3;
        packed[i / 128 * 32 + i % 32] |= (uint8_t)(codes[i] << (6 - 2 * (i % 128 / 32)));
    }
    memcpy(packed + GGUF_ROWS * COLS / 4, &scale, sizeof scale);
    struct weight_view v = weight_ternary_gguf_view(GGUF_ROWS, COLS);
    v.data = packed;
    assert_true(weight_ternary_gguf_take_scale(&v));
    assert_int_equal(weight_ternary_gguf_bytes(GGUF_ROWS, COLS), sizeof packed);
    const struct weight_view rows = weight_view_rows(&v, 2, 3);
    for (int64_t row = 0; row < 3; row++) {
        float expected[COLS];
        for (int k = 0; k < COLS; k++) expected[k] = (float)(codes[(2 + row) * COLS + k] - 1) * scale;
        check_row(&rows, row, expected);
    }
    memset(packed + GGUF_ROWS * COLS / 4, 0, sizeof scale);
    assert_false(weight_ternary_gguf_take_scale(&v));
    memset(packed + GGUF_ROWS * COLS / 4, 0xff, sizeof scale);
    assert_false(weight_ternary_gguf_take_scale(&v));
    assert_int_equal(weight_ternary_gguf_bytes(1, 64), 0);
    assert_int_equal(weight_ternary_gguf_bytes(UINT64_MAX / 128, 256), 0);
}

static void not_all_fit_blocks(void **state)
{
    (void)state;
    struct weight_view v = codes_view(1, 1);
    static const float fitting[] = {1, -0.3f, 0x1p-14f, 65504}, others[] = {0x1p-15f, 65536, INFINITY, NAN};
    for (size_t i = 0; i < 4; i++) {
        v.codes.scale_factor = fitting[i];
        assert_true(weight_ternary_fits_blocks(&v));
        v.codes.scale_factor = others[i];
        assert_false(weight_ternary_fits_blocks(&v));
    }
    v.codes.scale_factor = 1;
    v.cols = v.slice.col_end = COLS - 32;
    assert_false(weight_ternary_fits_blocks(&v));
}

/* Four rows that share a mean of m: halves of it, what is just above and below, and what is no number. */
static void floats_are_rounded(void **state)
{
    (void)state;
    static float floats[4][COLS];
    float expected[COLS];
    const float least = nextafterf(0.5f, 1);
    for (int k = 0; k < COLS; k++) {
        floats[0][k] = k % 2 ? 0.5f : 1.5f;
        floats[1][k] = k % 2 ? -least : -1.5f;
        floats[2][k] = k % 2 ? 1 : -1;
        floats[3][k] = k % 2 ? -0.5f : 1.5f;
    }
    struct weight_view v = weight_view_plain(floats, DTYPE_F32, 4, COLS);
    v.scheme = WEIGHT_TERNARY_FLOATS;
    v.codes = (struct weight_codes){.scale_factor = 1, .scale_divisor = 1};
    double sum = 0;
    for (int n = 0; n < 4; n++) sum += weight_ternary_row_sum(&v, n);
    assert_true(weight_ternary_mean(&v, sum) == 1);
    for (int k = 0; k < COLS; k++) expected[k] = k % 2 ? 0 : 1;
    check_row(&v, 0, expected);
    for (int k = 0; k < COLS; k++) expected[k] = -1;
    check_row(&v, 1, expected);
    for (int k = 0; k < COLS; k++) expected[k] = k % 2 ? 1 : -1;
    check_row(&v, 2, expected);
    floats[0][3] = NAN;
    weight_ternary_to_f32(&v, 0, 3, 1, expected);
    assert_true(expected[0] == 0);
    memset(floats, 0, sizeof floats);
    assert_true(weight_ternary_mean(&v, weight_ternary_row_sum(&v, 0)) == 1e-5f);
}

/* The scale is of the values' type, the rounding goes by the mean itself. */
static void the_mean_is_rounded_to_the_type(void **state)
{
    (void)state;
    static uint16_t floats[4 * COLS];
    const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F16};
    for (size_t i = 0; i < 2; i++) {
        struct weight_view v = weight_view_plain(floats, dtypes[i], 4, COLS);
        float value;
        v.scheme = WEIGHT_TERNARY_FLOATS;
        for (int k = 0; k < 4 * COLS; k++) floats[k] = i ? dtype_f32_to_f16(2) : dtype_f32_to_bf16(2);
        v.codes = (struct weight_codes){.scale_factor = 1.001f + 0x1p-20f, .scale_divisor = 1};
        weight_ternary_to_f32(&v, 3, 1, 1, &value);
        assert_true(value == (i ? 1.0009765625f : 1));
    }
}

static void a_device_takes_none(void **state)
{
    (void)state;
    const struct weight_view v = codes_view(1, 1);
    struct error err;
    assert_int_equal(weight_check(&v, &err), STATUS_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(codes_are_unfolded),
                                       cmocka_unit_test(codes_of_gguf_are_unpacked),
                                       cmocka_unit_test(not_all_fit_blocks),
                                       cmocka_unit_test(floats_are_rounded),
                                       cmocka_unit_test(the_mean_is_rounded_to_the_type),
                                       cmocka_unit_test(a_device_takes_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
