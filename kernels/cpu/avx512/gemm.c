/* gemm.c - panel kernels for AVX-512 without VNNI.
 *
 * int8: vpmaddubsw adds two products into a signed 16-bit lane: at most 2 * 15 * 127 = 3,810 for 4-bit
 * weights and 7,874 for 5-bit ones, so 8 (4) of them add up without overflow before they must be widened. A
 * block of 16 x 32 weights takes 20 (22) vector operations a row where f32 takes 33.
 *
 * Bytes of up to 127, IQ2_* and IQ3_XXS: two products of them fit, so that each vpmaddubsw is widened at once: 28.
 *
 * int16: vpmaddwd adds two products into 32 bits; 32 columns of 255 * 32,767 stay below 2^29. 35 operations. So the
 * tables' values, which are of 8 bits, are multiplied with activations of int8 as well: two of those products do not fit
 * into the 16 bits of vpmaddubsw.
 */
#include "kernels/cpu/avx512/gemm_512.h"

INLINE bool widens(enum dtype dtype)
{
    return takes_int16(dtype) || panel_has_table(dtype);
}

INLINE __m512i dot_four(const __m512i weights[4], const int8_t *columns)
{
    __m512i sum = _mm512_maddubs_epi16(weights[0], broadcast_dword(columns));
#pragma GCC unroll 32
    for (int i = 1; i < 4; i++)
        sum = _mm512_add_epi16(sum, _mm512_maddubs_epi16(weights[i], broadcast_dword(columns + 4 * i)));
    return sum;
}

/* As dot_four, widened before products are added up. */
INLINE __m512i dot_four_wide(const __m512i weights[4], const int8_t *columns)
{
    const __m512i ones = _mm512_set1_epi16(1);
    __m512i sum = _mm512_madd_epi16(_mm512_maddubs_epi16(weights[0], broadcast_dword(columns)), ones);
#pragma GCC unroll 32
    for (int i = 1; i < 4; i++) {
        const __m512i products = _mm512_maddubs_epi16(weights[i], broadcast_dword(columns + 4 * i));
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(products, ones));
    }
    return sum;
}

INLINE struct block_sums dot_int8(enum dtype dtype, const __m512i weights[8], const int8_t *columns)
{
    const __m512i ones = _mm512_set1_epi16(1), zero = _mm512_setzero_si512();
    if (panel_has_seven_bits(dtype)) {
        const __m512i low = dot_four_wide(weights, columns), high = dot_four_wide(weights + 4, columns + 16);
        return (struct block_sums){panel_has_two_scales(dtype) ? low : _mm512_add_epi32(low, high), high};
    }
    const __m512i low = dot_four(weights, columns), high = dot_four(weights + 4, columns + 16);
    if (dtype == DTYPE_Q4_0 || dtype == DTYPE_Q4_1 || dtype == DTYPE_Q4_K || panel_has_one_scale(dtype))
        return (struct block_sums){_mm512_madd_epi16(_mm512_add_epi16(low, high), ones), zero};
    const __m512i wide_low = _mm512_madd_epi16(low, ones), wide_high = _mm512_madd_epi16(high, ones);
    if (panel_has_two_scales(dtype)) return (struct block_sums){wide_low, wide_high};
    return (struct block_sums){_mm512_add_epi32(wide_low, wide_high), zero};
}

INLINE __m512i dot_eight(const __m512i weights[8], const int16_t *columns)
{
    __m512i sum = _mm512_madd_epi16(weights[0], broadcast_dword(columns));
#pragma GCC unroll 32
    for (int i = 1; i < 8; i++)
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(weights[i], broadcast_dword(columns + 2 * i)));
    return sum;
}

INLINE struct block_sums dot_int16(enum dtype dtype, const __m512i weights[16], const int16_t *columns)
{
    const __m512i low = dot_eight(weights, columns), high = dot_eight(weights + 8, columns + 16);
    return (struct block_sums){dtype == DTYPE_Q6_K ? low : _mm512_add_epi32(low, high), high};
}

DEFINE_KERNELS(linear_kernels_avx512, integers);
