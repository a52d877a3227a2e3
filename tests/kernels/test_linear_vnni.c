/* The VNNI set on machines without VNNI: its file is compiled into this program with the two instructions
 * done in plain C, one product at a time, and everything else as it is. cpu_linear_create then finds the
 * table defined here instead of the library's. Needs a machine with AVX-512; on one with VNNI test_linear
 * runs the real instructions as well. */
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#include <immintrin.h>
#include <stdint.h>

/* vpdpbusd: each 32-bit lane adds four products of unsigned bytes of u and signed bytes of s. */
static __m512i emulated_dpbusd(__m512i sum, __m512i u, __m512i s)
{
    int32_t lanes[16];
    uint8_t a[64];
    int8_t b[64];
    _mm512_storeu_si512(lanes, sum);
    _mm512_storeu_si512(a, u);
    _mm512_storeu_si512(b, s);
    for (int i = 0; i < 64; i++) lanes[i / 4] += a[i] * b[i];
    return _mm512_loadu_si512(lanes);
}

/* vpdpwssd: each 32-bit lane adds two products of signed 16-bit integers. */
static __m512i emulated_dpwssd(__m512i sum, __m512i x, __m512i y)
{
    int32_t lanes[16];
    int16_t a[32], b[32];
    _mm512_storeu_si512(lanes, sum);
    _mm512_storeu_si512(a, x);
    _mm512_storeu_si512(b, y);
    for (int i = 0; i < 32; i++) lanes[i / 2] += a[i] * b[i];
    return _mm512_loadu_si512(lanes);
}

#define _mm512_dpbusd_epi32 emulated_dpbusd
#define _mm512_dpwssd_epi32 emulated_dpwssd
#include "kernels/cpu/avx512vnni/gemm.c"

#include "tests/kernels/linear_cases.h"

static struct random_source random_numbers;
static struct thread_pool *pool;

static int start(void **state)
{
    struct error err;
    (void)state;
    random_numbers = random_source_new();
    print_message("FLASHD_TEST_SEED=%llu\n", (unsigned long long)random_numbers.seed);
    return thread_pool_create(2, &pool, &err);
}

static int stop(void **state)
{
    (void)state;
    thread_pool_destroy(pool);
    return 0;
}

static void test_outputs_are_within_bounds(void **state)
{
    (void)state;
    if (cpu_isa_detect() < CPU_ISA_AVX512) skip();
    check_all_dtypes(CPU_ISA_AVX512_VNNI, pool, &random_numbers);
}

static void test_same_bits_as_avx512(void **state)
{
    (void)state;
    if (cpu_isa_detect() < CPU_ISA_AVX512) skip();
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        for (int num_tokens = 1; num_tokens < 70; num_tokens += 17) {
            struct linear_case c = {.isa = CPU_ISA_AVX512, .cols = cols_for(dtype, 4)};
            case_add_part(&c, &random_numbers, dtype, 50, true);
            case_add_tokens(&c, &random_numbers, num_tokens);
            struct linear *l = case_create(&c, pool);
            float *const expected = case_run(&c, l, pool, num_tokens, c.x);
            cpu_linear_destroy(l);
            c.isa = CPU_ISA_AVX512_VNNI;
            l = case_create(&c, pool);
            float *const out = case_run(&c, l, pool, num_tokens, c.x);
            assert_memory_equal(out, expected, (size_t)num_tokens * (size_t)c.rows * sizeof *out);
            cpu_linear_destroy(l);
            free(out);
            free(expected);
            case_free(&c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outputs_are_within_bounds),
        cmocka_unit_test(test_same_bits_as_avx512),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
