/* Matrices that become BF16 for a device that has no kernels for their type: each value rounded, whatever threads make them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
    assert_int_equal(unpacked_make(u, &view, &err), STATUS_OK);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_are_rounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
