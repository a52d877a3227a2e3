/* The VNNI set on machines without VNNI, its two
 * instructions done in plain C, one product at a time. Needs a machine with AVX-512; on one with VNNI
 * test_linear runs the real instructions as well. */
#define EMULATED CPU_ISA_AVX512_VNNI
#define PLAIN CPU_ISA_AVX512
#include "tests/kernels/emulated_set.h"

#pragma GCC push_options
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
#pragma GCC pop_options
