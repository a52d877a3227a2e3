/* dot.h - products of integers by VNNI, shared with the AMX set.
 *
 * vpdpbusd multiplies unsigned by signed bytes and adds four products to a 32-bit lane, vpdpwssd two products
 * of 16-bit integers, neither with saturation: 8 (16) instructions for a block of 16 x 32 weights. In two
 * chains, as the latency of one instruction is that of several issue slots. The sums are the same integers as
 * in the other sets. */
#ifndef KERNELS_CPU_AVX512VNNI_DOT_H
#define KERNELS_CPU_AVX512VNNI_DOT_H

#include "kernels/cpu/avx512/gemm_512.h"

INLINE bool widens(enum dtype dtype)
{
    return takes_int16(dtype);
}

/* Of the low and high columns, apart where they have scales of their own. */
INLINE struct block_sums sums_of(enum dtype dtype, __m512i low, __m512i high)
{
    return (struct block_sums){panel_has_two_scales(dtype) ? low : _mm512_add_epi32(low, high), high};
}

INLINE struct block_sums dot_int8(enum dtype dtype, const __m512i weights[8], const int8_t *columns)
{
    __m512i low = _mm512_setzero_si512(), high = _mm512_setzero_si512();
#pragma GCC unroll 32
    for (int i = 0; i < 4; i++) {
        low = _mm512_dpbusd_epi32(low, weights[i], broadcast_dword(columns + 4 * i));
        high = _mm512_dpbusd_epi32(high, weights[i + 4], broadcast_dword(columns + 4 * i + 16));
    }
    return sums_of(dtype, low, high);
}

INLINE struct block_sums dot_int16(enum dtype dtype, const __m512i weights[16], const int16_t *columns)
{
    __m512i low = _mm512_setzero_si512(), high = _mm512_setzero_si512();
#pragma GCC unroll 32
    for (int i = 0; i < 8; i++) {
        low = _mm512_dpwssd_epi32(low, weights[i], broadcast_dword(columns + 2 * i));
        high = _mm512_dpwssd_epi32(high, weights[i + 8], broadcast_dword(columns + 2 * i + 16));
    }
    return sums_of(dtype, low, high);
}

#endif
