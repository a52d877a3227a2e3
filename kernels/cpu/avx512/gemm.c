/* gemm.c - panel kernels for AVX-512 without VNNI.
 *
 * 4 and 5 bit weights times int8 activations by vpmaddubsw, which adds two products into a signed 16-bit
 * lane: at most 2 * 15 * 127 = 3,810 for 4 bits and 7,874 for 5, so 8 (4) of them add up without overflow
 * before they must be widened. A block of 16 x 32 weights then takes 20 (22) vector operations where f32
 * takes 33. Wider weights would need widening each time and gain nothing: they go through f32. */
#include "kernels/cpu/avx512/gemm_512.h"

INLINE __m512i row_quants(const int8_t *quants, int i)
{
    int32_t four;
    memcpy(&four, quants + 4 * i, sizeof four);
    return _mm512_set1_epi32(four);
}

INLINE __m512i dot_four(const __m512i weights[4], const int8_t *quants)
{
    __m512i sum = _mm512_maddubs_epi16(weights[0], row_quants(quants, 0));
    UNROLL for (int i = 1; i < 4; i++) sum =
        _mm512_add_epi16(sum, _mm512_maddubs_epi16(weights[i], row_quants(quants, i)));
    return sum;
}

INLINE struct block_sums block_dot(enum dtype dtype, const __m512i weights[8], const int8_t *quants)
{
    const __m512i ones = _mm512_set1_epi16(1), zero = _mm512_setzero_si512();
    const __m512i low = dot_four(weights, quants), high = dot_four(weights + 4, quants + 16);
    if (dtype == DTYPE_Q4_0 || dtype == DTYPE_Q4_1 || dtype == DTYPE_Q4_K)
        return (struct block_sums){_mm512_madd_epi16(_mm512_add_epi16(low, high), ones), zero};
    const __m512i wide_low = _mm512_madd_epi16(low, ones), wide_high = _mm512_madd_epi16(high, ones);
    return (struct block_sums){_mm512_add_epi32(wide_low, wide_high), zero};
}

DEFINE_PRODUCT(quants, DTYPE_Q4_0)
DEFINE_PRODUCT(quants, DTYPE_Q4_1)
DEFINE_PRODUCT(quants, DTYPE_Q5_0)
DEFINE_PRODUCT(quants, DTYPE_Q5_1)
DEFINE_PRODUCT(quants, DTYPE_Q4_K)
DEFINE_PRODUCT(quants, DTYPE_Q5_K)
DEFINE_PRODUCT(values, DTYPE_Q8_0)
DEFINE_PRODUCT(values, DTYPE_Q6_K)
DEFINE_PRODUCT(values, DTYPE_F32)
DEFINE_PRODUCT(values, DTYPE_F16)
DEFINE_PRODUCT(values, DTYPE_BF16)

const struct linear_kernels linear_kernels_avx512 = {
    .quantize_row = quantize_row_512,
    .over_values = {[DTYPE_F32] = values_DTYPE_F32,
                    [DTYPE_F16] = values_DTYPE_F16,
                    [DTYPE_BF16] = values_DTYPE_BF16,
                    [DTYPE_Q8_0] = values_DTYPE_Q8_0,
                    [DTYPE_Q6_K] = values_DTYPE_Q6_K},
    .over_quants = {[DTYPE_Q4_0] = quants_DTYPE_Q4_0,
                    [DTYPE_Q4_1] = quants_DTYPE_Q4_1,
                    [DTYPE_Q5_0] = quants_DTYPE_Q5_0,
                    [DTYPE_Q5_1] = quants_DTYPE_Q5_1,
                    [DTYPE_Q4_K] = quants_DTYPE_Q4_K,
                    [DTYPE_Q5_K] = quants_DTYPE_Q5_K},
};
