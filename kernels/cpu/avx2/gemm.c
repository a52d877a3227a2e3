/* gemm.c - panel kernels for AVX2 with FMA and F16C.
 *
 * int8: vpmaddubsw; see avx512/gemm.c for why it cannot overflow. int16: vpmaddwd. */
#include "kernels/cpu/avx2/gemm_256.h"

INLINE __m256i dot_four(const __m256i weights[4], const int8_t *columns)
{
    __m256i sum = _mm256_maddubs_epi16(weights[0], broadcast_dword(columns));
#pragma GCC unroll 32
    for (int i = 1; i < 4; i++)
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(weights[i], broadcast_dword(columns + 4 * i)));
    return sum;
}

INLINE __m256i dot_int8(enum dtype dtype, const __m256i weights[8], const int8_t *columns)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i low = dot_four(weights, columns), high = dot_four(weights + 4, columns + 16);
    if (!has_fifth_bits(dtype)) return _mm256_madd_epi16(_mm256_add_epi16(low, high), ones);
    return _mm256_add_epi32(_mm256_madd_epi16(low, ones), _mm256_madd_epi16(high, ones));
}

INLINE __m256i add_pairs(__m256i sum, __m256i weights, __m256i columns)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(weights, columns));
}

DEFINE_KERNELS(linear_kernels_avx2, integers);
