/* Matrices that become BF16 for a device that has no kernels for their type: each value rounded, whatever threads make them. What a
 * table has the values of becomes that on every device. Rows that lie apart come together. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "files/weight_ternary.h"
#include "model/unpacked.h"
#include "tests/kernels/random_weight.h"

enum { ROWS = 700, COLS = 1024 /* more than one thread's share */ };

static void check_type(struct unpacked *u, struct random_source *random, enum dtype dtype)
{
    const uint64_t row_bytes = dtype_row_bytes(dtype, COLS);
    uint8_t *const data = malloc(ROWS * row_bytes);
    struct error err;
    static float row[COLS];
    random_weight(random, dtype, ROWS, COLS, data);
    struct weight_view view = weight_view_plain(data, dtype, ROWS, COLS);
    assert_int_equal(unpacked_make(u, &view, true, &err), STATUS_OK);
    assert_true(view.dtype == DTYPE_BF16 && view.rows == ROWS && view.cols == COLS);
    assert_int_equal(weight_view_num_rows(&view), ROWS);
    for (int64_t r = 0; r < ROWS; r++) {
        dtype_row_to_f32(dtype, data + (uint64_t)r * row_bytes, COLS, row);
        for (int64_t k = 0; k < COLS; k++)
            assert_int_equal(((const uint16_t *)view.data)[r * COLS + k], dtype_f32_to_bf16(row[k]));
    }
    free(data);
}

static void values_are_rounded(void **state)
{
    (void)state;
    struct unpacked u = {0};
    struct random_source random = {.seed = 11};
    for (enum dtype dtype = 0; dtype < DTYPE_COUNT; dtype++)
        if (dtype_is_rare(dtype)) check_type(&u, &random, dtype);
    unpacked_clear(&u);
    assert_null(u.first);
    unpacked_clear(&u);
}

/* Rows of a head as long as 1, but one of zeros. */
static void check_unit_rows(struct unpacked *u, struct random_source *random, enum dtype dtype)
{
    const uint64_t row_bytes = dtype_row_bytes(dtype, COLS);
    const double rounding = dtype == DTYPE_F32 ? 0x1p-22 : dtype == DTYPE_F16 ? 0x1p-10 : 0x1p-8;
    uint8_t *const data = malloc(ROWS * row_bytes);
    struct error err;
    static float from[COLS], to[COLS];
    random_weight(random, dtype, ROWS, COLS, data);
    memset(data + 5 * row_bytes, 0, row_bytes);
    struct weight_view view = weight_view_plain(data, dtype, ROWS, COLS);
    assert_int_equal(unpacked_make_unit_rows(u, &view, &err), STATUS_OK);
    assert_true(view.dtype == dtype && weight_view_num_rows(&view) == ROWS && view.cols == COLS);
    for (int64_t r = 0; r < ROWS; r++) {
        double squares = 0;
        dtype_row_to_f32(dtype, data + (uint64_t)r * row_bytes, COLS, from);
        weight_view_row_to_f32(&view, r, to);
        for (int64_t k = 0; k < COLS; k++) squares += (double)from[k] * (double)from[k];
        for (int64_t k = 0; k < COLS; k++) {
            const double expected = squares > 0 ? (double)from[k] / sqrt(squares) : 0;
            assert_true(fabs((double)to[k] - expected) <= rounding * fabs(expected) + 0x1p-25);
        }
    }
    free(data);
}

static void rows_of_a_head_have_length_1(void **state)
{
    (void)state;
    struct unpacked u = {0};
    struct random_source random = {.seed = 12};
    struct error err;
    uint8_t codes[64];
    check_unit_rows(&u, &random, DTYPE_F32);
    check_unit_rows(&u, &random, DTYPE_F16);
    check_unit_rows(&u, &random, DTYPE_BF16);
    struct weight_view packed = weight_view_plain(codes, DTYPE_Q8_0, 1, 32);
    assert_int_equal(unpacked_make_unit_rows(&u, &packed, &err), STATUS_UNSUPPORTED);
    unpacked_clear(&u);
}

enum {
    TABLE_ROWS = 37,
    TABLE_COLS = 94,
    BLOCK = 40,
    SCALES = (TABLE_ROWS * TABLE_COLS + BLOCK - 1) / BLOCK,
    UNITS = 13
};

/* A table's values, in blocks that end inside of rows, whose scales are codes in units of 7: every second row from the third on. */
static void tables_are_looked_up(void **state)
{
    (void)state;
    static uint8_t codes[TABLE_ROWS * TABLE_COLS / 2], scales[SCALES];
    static float values[16], scale_values[256], units[UNITS];
    struct random_source random = {.seed = 12};
    struct unpacked u = {0};
    struct error err;
    for (size_t i = 0; i < sizeof codes; i++) codes[i] = (uint8_t)random_uniform(&random, 0, 255);
    for (size_t i = 0; i < sizeof scales; i++) scales[i] = (uint8_t)random_uniform(&random, 0, 255);
    random_floats(&random, DTYPE_F32, (uint8_t *)values, 16);
    random_floats(&random, DTYPE_F32, (uint8_t *)scale_values, 256);
    random_floats(&random, DTYPE_F32, (uint8_t *)units, UNITS);
    struct weight_view view = weight_view_plain(codes, DTYPE_U4, TABLE_ROWS, TABLE_COLS);
    view.scheme = WEIGHT_TABLE;
    view.codes = (struct weight_codes){.scales = {.data = scales, .rows = 1, .cols = SCALES},
                                       .scale_cols = BLOCK,
                                       .table = {values, scale_values, units, 7, 0.25f}};
    assert_true(unpacked_is_needed(&view, true));
    view = weight_view_rows(&view, 2, TABLE_ROWS - 2);
    view = weight_view_every(&view, 0, 2);
    assert_int_equal(unpacked_make(&u, &view, true, &err), STATUS_OK);
    assert_true(view.rows == (TABLE_ROWS - 2 + 1) / 2 && view.scheme == WEIGHT_PLAIN &&
                !unpacked_is_needed(&view, false));
    for (int r = 0; r < view.rows; r++) {
        for (int k = 0; k < TABLE_COLS; k++) {
            const int i = (2 + 2 * r) * TABLE_COLS + k, block = i / BLOCK;
            const float scale = scale_values[scales[block]] * units[block / 7] + 0.25f;
            const float value = values[i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4] * scale;
            assert_int_equal(((const uint16_t *)view.data)[r * TABLE_COLS + k], dtype_f32_to_bf16(value));
        }
    }
    unpacked_clear(&u);
}

/* Value r, k of a matrix of so many columns is its place. */
static void check_places(const struct weight_view *view, const int *rows, int num_rows)
{
    assert_true(view->scheme == WEIGHT_PLAIN && view->dtype == DTYPE_F32 && view->rows == num_rows &&
                weight_view_num_rows(view) == num_rows && !unpacked_is_scattered(view));
    for (int r = 0; r < num_rows; r++)
        for (int k = 0; k < view->cols; k++)
            assert_true(((const float *)view->data)[r * view->cols + k] == (float)(rows[r] * view->cols + k));
}

/* Of each six rows the two from the third on, and the rows of a matrix that lies transposed. */
static void rows_that_lie_apart_come_together(void **state)
{
    (void)state;
    enum { NUM = 18, WIDTH = 5 };
    static const int rows[] = {2, 3, 8, 9, 14, 15}, some[] = {4, 5, 6};
    static float values[NUM * WIDTH], turned[WIDTH * NUM];
    struct unpacked u = {0};
    struct error err;
    for (int i = 0; i < NUM * WIDTH; i++) turned[i % WIDTH * NUM + i / WIDTH] = values[i] = (float)i;
    const struct weight_view whole = weight_view_plain(values, DTYPE_F32, NUM, WIDTH),
                             other = weight_view_transposed(turned, DTYPE_F32, NUM, WIDTH),
                             column = weight_view_plain(values, DTYPE_F32, NUM * WIDTH, 1),
                             runs_of_column = weight_view_runs(&column, 3, 45, 2);
    struct weight_view runs = weight_view_runs(&whole, 2, 6, 2), transposed = weight_view_rows(&other, 4, 3);
    float vector[4];
    assert_true(unpacked_is_scattered(&runs) && unpacked_is_scattered(&transposed) &&
                !unpacked_is_scattered(&whole));
    assert_int_equal(weight_view_num_rows(&runs), 6);
    assert_int_equal(unpacked_make(&u, &runs, true, &err), STATUS_OK);
    assert_int_equal(unpacked_make(&u, &transposed, true, &err), STATUS_OK);
    check_places(&runs, rows, 6);
    check_places(&transposed, some, 3);
    assert_int_equal(weight_view_num_rows(&runs_of_column), 4);
    weight_view_vector_to_f32(&runs_of_column, vector);
    assert_true(vector[0] == 3 && vector[1] == 4 && vector[2] == 48 && vector[3] == 49);
    unpacked_clear(&u);
}

enum { OFFSET_ROWS = 12, OFFSET_COLS = 192, OFFSET_GROUP = 64, OFFSET_GROUPS = OFFSET_COLS / OFFSET_GROUP };

/* Rows from the third on: every value is code * scale + offset, in f32. */
static void check_offsets(const struct weight_view *whole, enum dtype expected)
{
    struct unpacked u = {0};
    struct error err;
    const struct weight_codes *c = &whole->codes;
    const struct weight_view from = weight_view_rows(whole, 2, OFFSET_ROWS - 2);
    struct weight_view view = from;
    float made[OFFSET_COLS];
    assert_true(unpacked_is_needed(&view, true));
    assert_int_equal(unpacked_make(&u, &view, true, &err), STATUS_OK);
    assert_true(view.scheme == WEIGHT_PLAIN && view.dtype == expected && view.rows == OFFSET_ROWS - 2 &&
                !unpacked_is_needed(&view, true));
    for (int r = 0; r < view.rows; r++) {
        weight_view_row_to_f32(&view, r, made);
        for (int k = 0; k < OFFSET_COLS; k++) {
            const int at = k * c->bits, group = (r + 2) * OFFSET_GROUPS + k / OFFSET_GROUP;
            const uint8_t *const row = (const uint8_t *)whole->data + (r + 2) * OFFSET_COLS * c->bits / 8;
            int code = 0;
            for (int i = 0; i < c->bits; i++) code |= (row[(at + i) / 8] >> (at + i) % 8 & 1) << i;
            const float scale = dtype_bf16_to_f32(((const uint16_t *)c->scales.data)[group]),
                        offset = dtype_bf16_to_f32(((const uint16_t *)c->offsets.data)[group]);
            const float value = (float)code * scale + offset;
            if (expected == DTYPE_F32)
                assert_true(made[k] == value);
            else
                assert_float_equal(made[k], value, 1e-6); /* of a scale that F16 has not */
        }
    }
    unpacked_clear(&u);
}

/* Of each number of bits: with scales that F16 has; one that is too small, as of a group of zeros; all too small; one too large. */
static void codes_with_offsets_are_in_blocks_where_they_fit(void **state)
{
    (void)state;
    static const int bits[] = {2, 3, 4, 5, 6, 8};
    static const float odd[] = {0.01f, 1e-7f, 1e-6f, 1e6f};
    static uint8_t codes[OFFSET_ROWS * OFFSET_COLS];
    static uint16_t scales[OFFSET_ROWS * OFFSET_GROUPS], offsets[OFFSET_ROWS * OFFSET_GROUPS];
    struct random_source random = {.seed = 15};
    for (size_t i = 0; i < sizeof codes; i++) codes[i] = (uint8_t)random_uniform(&random, 0, 255);
    for (size_t b = 0; b < array_length(bits); b++) {
        for (size_t o = 0; o < array_length(odd); o++) {
            const float most = odd[o] == 1e-6f ? 1e-6f : 0.01f; /* all of them too small for F16, or one */
            for (int i = 0; i < OFFSET_ROWS * OFFSET_GROUPS; i++) {
                scales[i] = dtype_f32_to_bf16(most * (1 + (float)(i % 7) / 8));
                offsets[i] = dtype_f32_to_bf16(-7 * most);
            }
            scales[4 * OFFSET_GROUPS] = dtype_f32_to_bf16(odd[o]);
            struct weight_view view = weight_view_plain(codes, DTYPE_I8, OFFSET_ROWS, OFFSET_COLS);
            view.scheme = WEIGHT_BITS;
            view.codes = (struct weight_codes){
                .scales = {scales, SCALE_BF16, OFFSET_ROWS, OFFSET_GROUPS},
                .offsets = {offsets, SCALE_BF16, OFFSET_ROWS, OFFSET_GROUPS},
                .scale_rows = 1,
                .scale_cols = OFFSET_GROUP,
                .scale_factor = 1,
                .scale_divisor = 1,
                .bits = (uint8_t)bits[b],
                .rows_lead = true,
            };
            const bool fits = bits[b] <= 5 && odd[o] != 1e6f && most == 0.01f;
            check_offsets(&view, !fits ? DTYPE_F32 : bits[b] == 5 ? DTYPE_Q5_1 : DTYPE_Q4_1);
        }
    }
}

/* Of a matrix as large as those of products are. */
static void many_values_with_offsets_are_rounded(void **state)
{
    (void)state;
    enum { MANY_ROWS = 1025, MANY_COLS = 2048 };
    static uint8_t codes[MANY_ROWS * MANY_COLS];
    static float sides[MANY_ROWS * 2];
    struct unpacked u = {0};
    struct error err;
    for (size_t i = 0; i < sizeof codes; i++) codes[i] = (uint8_t)(i * 7 % 253);
    for (int i = 0; i < MANY_ROWS; i++) {
        sides[i] = 0.003f;
        sides[MANY_ROWS + i] = -0.4f;
    }
    struct weight_view view = weight_view_plain(codes, DTYPE_I8, MANY_ROWS, MANY_COLS);
    view.scheme = WEIGHT_BITS;
    view.codes = (struct weight_codes){.scales = {sides, SCALE_F32, MANY_ROWS, 1},
                                       .offsets = {sides + MANY_ROWS, SCALE_F32, MANY_ROWS, 1},
                                       .scale_rows = 1,
                                       .scale_cols = MANY_COLS,
                                       .scale_factor = 1,
                                       .scale_divisor = 1,
                                       .bits = 8,
                                       .rows_lead = true};
    assert_int_equal(unpacked_make(&u, &view, true, &err), STATUS_OK);
    assert_int_equal(view.dtype, DTYPE_BF16);
    for (int i = 0; i < MANY_ROWS * MANY_COLS; i++)
        assert_true(((const uint16_t *)view.data)[i] == dtype_f32_to_bf16((float)codes[i] * 0.003f - 0.4f));
    unpacked_clear(&u);
}

enum { TERNARY_ROWS = 24, TERNARY_COLS = 512 };

/* Becomes BF16 of these values, and TQ2_0 before where it fits. */
static void check_ternary(struct weight_view view, bool fits)
{
    struct unpacked u = {0};
    struct error err;
    float row[TERNARY_COLS], made[TERNARY_COLS];
    const struct weight_view from = view;
    assert_true(unpacked_is_needed(&view, true));
    for (int pass = 0; pass < 1 + fits; pass++) {
        const bool is_in_blocks = fits && pass == 0;
        assert_true(pass == 0 || unpacked_is_needed(&view, false));
        assert_int_equal(unpacked_make(&u, &view, true, &err), STATUS_OK);
        assert_true(view.scheme == WEIGHT_PLAIN && !unpacked_is_needed(&view, true));
        assert_int_equal(view.dtype, is_in_blocks ? DTYPE_TQ2_0 : DTYPE_BF16);
        assert_int_equal(weight_view_num_rows(&view), weight_view_num_rows(&from));
        for (int64_t r = 0; r < view.rows; r++) {
            for (int64_t k = 0; k < view.cols; k += 32) weight_ternary_to_f32(&from, r, k, 32, row + k);
            weight_view_row_to_f32(&view, r, made);
            for (int64_t k = 0; k < view.cols; k++) assert_true(made[k] == row[k]);
        }
    }
    unpacked_clear(&u);
}

/* With a scale that F16 and BF16 have, whole and rows of it, and of columns that are no whole blocks. */
static void ternary_codes_are_in_blocks_where_they_fit(void **state)
{
    (void)state;
    static uint8_t codes[TERNARY_ROWS / 4 * TERNARY_COLS];
    struct random_source random = {.seed = 14};
    for (size_t i = 0; i < sizeof codes; i++) codes[i] = (uint8_t)random_uniform(&random, 0, 255);
    for (int num = TERNARY_COLS; num >= TERNARY_COLS - 32; num -= 32) {
        struct weight_view view = weight_view_plain(codes, DTYPE_I8, TERNARY_ROWS, num);
        view.scheme = WEIGHT_TERNARY;
        view.codes = (struct weight_codes){.scale_factor = 0.75f, .scale_divisor = 1};
        check_ternary(view, num % 256 == 0);
        check_ternary(weight_view_rows(&view, 5, 11), num % 256 == 0);
    }
}

/* The mean is that of all rows, also where some are meant. */
static void ternary_floats_have_one_mean(void **state)
{
    (void)state;
    static float values[TERNARY_ROWS][TERNARY_COLS];
    struct unpacked u = {0};
    struct error err;
    float row[TERNARY_COLS];
    for (int k = 0; k < TERNARY_COLS; k++) {
        for (int r = 0; r < TERNARY_ROWS; r++) values[r][k] = k % 2 ? -0.25f : 0.0625f;
        values[0][k] = 24;
    }
    struct weight_view view = weight_view_plain(values, DTYPE_F32, TERNARY_ROWS, TERNARY_COLS);
    view.scheme = WEIGHT_TERNARY_FLOATS;
    view.codes = (struct weight_codes){.scale_factor = 1, .scale_divisor = 1};
    const double mean = (24 + 23 * 0.15625) / 24; /* by its own mean the second row would not be 0 */
    for (int first = 0; first < 2; first++) {
        struct weight_view part = weight_view_rows(&view, first, 2);
        assert_int_equal(unpacked_make(&u, &part, true, &err), STATUS_OK);
        assert_true(part.dtype == DTYPE_TQ2_0 && part.rows == 2);
        weight_view_row_to_f32(&part, 0, row);
        for (int k = 0; k < TERNARY_COLS; k++)
            assert_float_equal(row[k], first ? 0 : (float)mean, mean * 0x1p-11);
    }
    unpacked_clear(&u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_a_head_have_length_1),
                                       cmocka_unit_test(values_are_rounded),
                                       cmocka_unit_test(rows_that_lie_apart_come_together),
                                       cmocka_unit_test(many_values_with_offsets_are_rounded),
                                       cmocka_unit_test(codes_with_offsets_are_in_blocks_where_they_fit),
                                       cmocka_unit_test(tables_are_looked_up),
                                       cmocka_unit_test(ternary_codes_are_in_blocks_where_they_fit),
                                       cmocka_unit_test(ternary_floats_have_one_mean)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
