/* The AVX-VNNI set on machines without AVX-VNNI, its two instructions done in plain C; on a machine that has
 * them test_linear runs the real ones as well. */
#define EMULATED CPU_ISA_AVX2_VNNI
#define PLAIN CPU_ISA_AVX2
#include "tests/kernels/emulated_set.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#include <immintrin.h>
#include <stdint.h>

/* vpdpbusd: each 32-bit lane adds four products of unsigned bytes of u and signed bytes of s. */
static __m256i emulated_dpbusd(__m256i sum, __m256i u, __m256i s)
{
    int32_t lanes[8];
    uint8_t a[32];
    int8_t b[32];
    _mm256_storeu_si256((__m256i *)(void *)lanes, sum);
    _mm256_storeu_si256((__m256i *)(void *)a, u);
    _mm256_storeu_si256((__m256i *)(void *)b, s);
    for (int i = 0; i < 32; i++) lanes[i / 4] += a[i] * b[i];
    return _mm256_loadu_si256((__m256i *)(void *)lanes);
}

/* vpdpwssd: each 32-bit lane adds two products of signed 16-bit integers. */
static __m256i emulated_dpwssd(__m256i sum, __m256i x, __m256i y)
{
    int32_t lanes[8];
    int16_t a[16], b[16];
    _mm256_storeu_si256((__m256i *)(void *)lanes, sum);
    _mm256_storeu_si256((__m256i *)(void *)a, x);
    _mm256_storeu_si256((__m256i *)(void *)b, y);
    for (int i = 0; i < 16; i++) lanes[i / 2] += a[i] * b[i];
    return _mm256_loadu_si256((__m256i *)(void *)lanes);
}

#define _mm256_dpbusd_avx_epi32 emulated_dpbusd
#define _mm256_dpwssd_avx_epi32 emulated_dpwssd
#include "kernels/cpu/avx2vnni/gemm.c"
#pragma GCC pop_options
