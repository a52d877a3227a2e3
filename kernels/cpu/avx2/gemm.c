/* gemm.c - panel kernels for AVX2 with FMA and F16C.
 *
 * int8: vpmaddubsw; see avx512/gemm.c for why it cannot overflow. int16: vpmaddwd. */
#include "kernels/cpu/avx2/gemm_256.h"

INLINE bool splits(enum dtype dtype)
{
    return panel_has_table(dtype);
}

INLINE __m256i add_sums(bool wide, __m256i low, __m256i high)
{
    return wide ? _mm256_add_epi32(low, high) : _mm256_add_epi16(low, high);
}

/* Two products of 7 bits fit into 16, no more: they are widened at once. */
INLINE void dot_four(bool wide, const __m256i weights[2], __m256i columns, bool first, __m256i sums[2])
{
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        __m256i products = _mm256_maddubs_epi16(weights[half], columns);
        if (wide) products = _mm256_madd_epi16(products, ones);
        sums[half] = first ? products : add_sums(wide, sums[half], products);
    }
}

INLINE __m256i widen(bool wide, __m256i sums)
{
    return wide ? sums : _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
}

INLINE __m256i add_pairs(__m256i sum, __m256i weights, __m256i columns)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(weights, columns));
}

DEFINE_KERNELS(linear_kernels_avx2, integers);
