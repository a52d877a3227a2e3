/* NVFP4 in GGUF's blocks: values against a checksum of what llama.cpp's library (llama-cpp-python 0.3.36) makes of the same bytes, which
 * is what the Python package gguf 0.19.0 does, and codes and scales apart against those values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "files/weight_codes.h"
#include "files/weight_nvfp4.h"

enum { ROWS = 8, COLS = 512, BLOCKS = ROWS * COLS / NVFP4_COLS };

/* Among the scales are 0, the least ones, such with a sign, and what is no number. */
static void fill(uint8_t bytes[BLOCKS * NVFP4_BYTES])
{
    uint64_t seed = 1000 + NVFP4_GGUF_ID;
    for (size_t i = 0; i < BLOCKS * NVFP4_BYTES; i += 4) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        for (size_t j = 0; j < 4; j++) bytes[i + j] = (uint8_t)(seed >> (32 + 8 * j));
    }
    for (size_t i = 0; i < BLOCKS; i++)
        for (size_t s = 0; s < 4; s++)
            if ((bytes[i * NVFP4_BYTES + s] & 0x7f) == 0x7f) bytes[i * NVFP4_BYTES + s] = 0x7f;
}

static uint64_t fnv1a(const void *data, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
    return hash;
}

static void values_are_those_of_the_reference(void **state)
{
    (void)state;
    static uint8_t bytes[BLOCKS * NVFP4_BYTES];
    static float values[ROWS][COLS];
    fill(bytes);
    const struct weight_view v = weight_nvfp4_view(bytes, ROWS, COLS);
    for (int64_t row = 0; row < ROWS; row++) {
        weight_nvfp4_to_f32(&v, row, 0, COLS / 2, values[row]);
        weight_nvfp4_to_f32(&v, row, COLS / 2, COLS / 2, values[row] + COLS / 2);
        for (int k = 0; k < COLS; k++) values[row][k] += 0.0f; /* of zeros no sign is told */
    }
    assert_true(fnv1a(values, sizeof values) == 0x283ff31cf6c64908u);
}

/* Every second row from the second on, times a factor. */
static void codes_and_scales_come_apart(void **state)
{
    (void)state;
    static uint8_t bytes[BLOCKS * NVFP4_BYTES], codes[COLS / 2], scales[COLS / NVFP4_SCALE_COLS];
    static float values[COLS];
    fill(bytes);
    const struct weight_view all = weight_nvfp4_view(bytes, ROWS, COLS),
                             rows = weight_view_rows(&all, 1, ROWS - 2);
    struct weight_view v = weight_view_every(&rows, 0, 2);
    v.codes.scale_factor = 0.3f;
    assert_int_equal(weight_view_num_rows(&v), ROWS / 2 - 1);
    assert_int_equal(weight_view_bytes(&v), (ROWS / 2 - 1) * COLS / NVFP4_COLS * NVFP4_BYTES);
    for (int64_t row = 0; row < weight_view_num_rows(&v); row++) {
        const struct weight_view file_row =
            weight_nvfp4_view(bytes + (1 + 2 * row) * COLS / NVFP4_COLS * NVFP4_BYTES, 1, COLS);
        weight_nvfp4_split(&v, row, codes, scales);
        weight_nvfp4_to_f32(&file_row, 0, 0, COLS, values);
        for (int k = 0; k < COLS; k++) {
            const float scale = dtype_e4m3_to_f32(scales[k / NVFP4_SCALE_COLS]);
            assert_true(dtype_e2m1_values[codes[k / 2] >> (k % 2 * 4) & 15] * scale == values[k]);
        }
        weight_nvfp4_to_f32(&v, row, 0, COLS, values);
        for (int k = 0; k < COLS; k++) {
            const float scale = dtype_e4m3_to_f32(scales[k / NVFP4_SCALE_COLS]) * 0.3f;
            assert_true(dtype_e2m1_values[codes[k / 2] >> (k % 2 * 4) & 15] * scale == values[k]);
        }
    }
}

static void a_device_takes_none(void **state)
{
    (void)state;
    static uint8_t bytes[NVFP4_BYTES];
    const struct weight_view v = weight_nvfp4_view(bytes, 1, NVFP4_COLS);
    struct error err;
    assert_int_equal(weight_check(&v, &err), STATUS_UNSUPPORTED);
    assert_int_equal(weight_nvfp4_row_bytes(NVFP4_COLS * 3), 3 * NVFP4_BYTES);
    assert_int_equal(weight_nvfp4_row_bytes(NVFP4_COLS + 32), 0);
    assert_int_equal(weight_nvfp4_row_bytes(UINT64_MAX / NVFP4_COLS * NVFP4_COLS),
                     UINT64_MAX / NVFP4_COLS * NVFP4_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_are_those_of_the_reference),
                                       cmocka_unit_test(codes_and_scales_come_apart),
                                       cmocka_unit_test(a_device_takes_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
