/* Unpacking against checksums of what the Python package gguf 0.19.0 (quants.dequantize, numpy) makes of the
 * same bytes, and 16-bit floats exhaustively. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/check.h"
#include "files/dtype.h"

static void fill_random(uint8_t *bytes, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i += 4) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        for (size_t j = i; j < min_of(i + 4, n); j++) bytes[j] = (uint8_t)(seed >> (32 + 8 * (j - i)));
    }
}

static uint64_t fnv1a(const void *data, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
    return hash;
}

static const struct {
    enum dtype dtype;
    uint64_t num_blocks, checksum;
    int scale_offsets[2]; /* f16 scales in a block: kept finite by clearing the top bit of the exponent */
} unpack_cases[] = {
    {DTYPE_F16, 2048, 0x40403048ef1bdcc8, {0, 0}},
    {DTYPE_BF16, 2048, 0xb96ceddc56d35adc, {0, 0}},
    {DTYPE_Q4_0, 64, 0xd0fb652c66af8d47, {0, 0}},
    {DTYPE_Q4_1, 64, 0x525b07aac8e1bdae, {0, 2}},
    {DTYPE_Q5_0, 64, 0xa1966f0214cada52, {0, 0}},
    {DTYPE_Q5_1, 64, 0x464e6fc766dde93c, {0, 2}},
    {DTYPE_Q8_0, 64, 0x4e5a4421a87e369b, {0, 0}},
    {DTYPE_Q4_K, 64, 0x20a5a83e1b2bf889, {0, 2}},
    {DTYPE_Q5_K, 64, 0x9e0b7d67aa1c9426, {0, 2}},
    {DTYPE_Q6_K, 64, 0xa5d1c654c4ed9c82, {208, 208}},
    {DTYPE_Q2_K, 64, 0x6e8c04a4ad7be23c, {80, 82}},
    {DTYPE_Q3_K, 64, 0xeee70e5e9861cc09, {108, 108}},
    {DTYPE_IQ4_NL, 64, 0xdc2e0548c689a0f9, {0, 0}},
    {DTYPE_IQ4_XS, 64, 0x169a1ff8b1613b29, {0, 0}},
    /* so many that every entry of a grid is among them */
    {DTYPE_IQ2_XXS, 1024, 0xbaba769ef67695ad, {0, 0}},
    {DTYPE_IQ2_XS, 1024, 0x946a28484cce58e7, {0, 0}},
    {DTYPE_IQ2_S, 1024, 0x804ee7a7d85783f2, {0, 0}},
    {DTYPE_IQ3_XXS, 1024, 0x7e2d292d27261f9d, {0, 0}},
    {DTYPE_IQ3_S, 1024, 0x4da52690b0572ab7, {0, 0}},
    {DTYPE_IQ1_S, 1024, 0xee2f444039c15821, {0, 0}},
    {DTYPE_IQ1_M, 1024, 0x0d50598f7fbc87cb, {54, 54}},
    {DTYPE_TQ1_0, 1024, 0xd1ef9d12e341b41f, {52, 52}},
    {DTYPE_TQ2_0, 1024, 0x1c62d862c5ff9da8, {64, 64}},
    /* these two as llama.cpp's library (llama-cpp-python 0.3.36) unpacks them: that package knows no Q2_0 and does not unpack Q1_0 */
    {DTYPE_Q1_0, 64, 0x3650ce5b3fb87f25, {0, 0}},
    {DTYPE_Q2_0, 64, 0x38b96ac686351c0a, {0, 0}},
};

static void rows_equal_the_reference(void **state)
{
    (void)state;
    for (size_t c = 0; c < array_length(unpack_cases); c++) {
        const struct dtype_info *info = &dtype_infos[unpack_cases[c].dtype];
        uint64_t cols = unpack_cases[c].num_blocks * (uint64_t)info->block_values;
        size_t bytes = dtype_row_bytes(unpack_cases[c].dtype, cols);
        assert_int_equal(bytes, unpack_cases[c].num_blocks * (uint64_t)info->block_bytes);
        uint8_t *memory = malloc(bytes + 1), *row = memory + 1; /* rows may be unaligned */
        float *values = malloc(cols * sizeof *values);
        fill_random(row, bytes, 1000 + (uint64_t)info->gguf_id);
        for (size_t b = 0; b < bytes; b += (size_t)info->block_bytes)
            for (int s = 0; s < 2; s++) row[b + (size_t)unpack_cases[c].scale_offsets[s] + 1] &= 0xBF;
        dtype_row_to_f32(unpack_cases[c].dtype, row, (int64_t)cols, values);
        if (fnv1a(values, cols * sizeof *values) != unpack_cases[c].checksum)
            fail_msg("%s differs from the reference", info->text);
        free(memory);
        free(values);
    }
}

static void f32_rows_are_copied(void **state)
{
    (void)state;
    uint8_t row[13];
    float in[3] = {1.5f, -0.0f, 3e-40f}, out[3];
    memcpy(row + 1, in, sizeof in);
    dtype_row_to_f32(DTYPE_F32, row + 1, 3, out);
    assert_memory_equal(in, out, sizeof in);
}

static double f16_value(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double magnitude = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return h & 0x8000 ? -magnitude : magnitude;
}

static void f16_converts_exactly_both_ways(void **state)
{
    (void)state;
    for (uint32_t h = 0; h <= 0xFFFF; h++) {
        float f = dtype_f16_to_f32((uint16_t)h);
        if ((h & 0x7FFF) > 0x7C00) {
            assert_true(isnan(f));
            assert_true((dtype_f32_to_f16(f) & 0x7FFF) > 0x7C00);
        } else {
            if ((h & 0x7FFF) < 0x7C00)
                assert_true((double)f == f16_value((uint16_t)h));
            else
                assert_true(isinf(f) && !!signbit(f) == (h >> 15));
            assert_int_equal(dtype_f32_to_f16(f), h);
        }
    }
}

/* Around the middle between each two neighbours: below goes down, above goes up, the middle goes to even. */
static void f16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7C00; h++) {
        double next = h + 1 < 0x7C00 ? f16_value((uint16_t)(h + 1)) : 65536;
        float middle = (float)((f16_value((uint16_t)h) + next) / 2);
        assert_int_equal(dtype_f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(dtype_f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(dtype_f32_to_f16(middle), h + (h & 1));
        assert_int_equal(dtype_f32_to_f16(-middle), 0x8000 | (h + (h & 1)));
    }
    assert_int_equal(dtype_f32_to_f16(1e30f), 0x7C00);
    assert_int_equal(dtype_f32_to_f16(1e-30f), 0);
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7F80; h++) {
        uint32_t middle_bits = h << 16 | 0x8000;
        float middle;
        memcpy(&middle, &middle_bits, sizeof middle);
        assert_int_equal(dtype_f32_to_bf16(dtype_bf16_to_f32((uint16_t)h)), h);
        assert_int_equal(dtype_f32_to_bf16(nextafterf(middle, 0)), h);
        assert_int_equal(dtype_f32_to_bf16(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(dtype_f32_to_bf16(middle), h + (h & 1));
        assert_int_equal(dtype_f32_to_bf16(-middle), 0x8000 | (h + (h & 1)));
    }
    uint32_t nan_bits = 0x7F800001; /* its payload lies in the bits that are cut off */
    float nan_low;
    memcpy(&nan_low, &nan_bits, sizeof nan_low);
    assert_true(isnan(dtype_bf16_to_f32(dtype_f32_to_bf16(nan_low))));
    assert_true(isinf(dtype_bf16_to_f32(dtype_f32_to_bf16(INFINITY))));
}

static void row_bytes_are_checked(void **state)
{
    (void)state;
    assert_int_equal(dtype_row_bytes(DTYPE_F32, 576), 2304);
    assert_int_equal(dtype_row_bytes(DTYPE_Q4_1, 576), 360);
    assert_int_equal(dtype_row_bytes(DTYPE_Q6_K, 512), 420);
    assert_int_equal(dtype_row_bytes(DTYPE_Q4_K, 576), 0);
    assert_int_equal(dtype_row_bytes(DTYPE_Q8_0, 33), 0);
    assert_int_equal(dtype_row_bytes(DTYPE_F32, UINT64_MAX / 2), 0);
    assert_int_equal(dtype_row_bytes(DTYPE_Q8_0, UINT64_MAX / 32 * 32), 0);
}

static void gguf_ids_map_to_dtypes(void **state)
{
    (void)state;
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (!dtype_is_code(i)) assert_int_equal(dtype_from_gguf((uint32_t)dtype_infos[i].gguf_id), i);
    assert_int_equal(dtype_from_gguf(9), -1);
    assert_int_equal(dtype_from_gguf(UINT32_MAX), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_equal_the_reference),       cmocka_unit_test(f32_rows_are_copied),
        cmocka_unit_test(f16_converts_exactly_both_ways), cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(bf16_rounds_to_nearest_even),    cmocka_unit_test(row_bytes_are_checked),
        cmocka_unit_test(gguf_ids_map_to_dtypes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
