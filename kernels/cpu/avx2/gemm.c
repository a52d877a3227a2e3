/* gemm.c - panel kernels for AVX2 with FMA and F16C.
 *
 * int8: vpmaddubsw; see avx512/gemm.c for why it cannot overflow. int16: vpmaddwd. */
#include "kernels/cpu/avx2/gemm_256.h"

INLINE bool splits(enum dtype dtype)
{
    return panel_has_table(dtype);
}

INLINE void dot_four(const __m256i weights[2], __m256i columns, bool first, __m256i sums[2])
{
    const __m256i lower = _mm256_maddubs_epi16(weights[0], columns),
                  upper = _mm256_maddubs_epi16(weights[1], columns);
    sums[0] = first ? lower : _mm256_add_epi16(sums[0], lower);
    sums[1] = first ? upper : _mm256_add_epi16(sums[1], upper);
}

INLINE __m256i widen(__m256i sums)
{
    return _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
}

INLINE __m256i add_sums(__m256i low, __m256i high)
{
    return _mm256_add_epi16(low, high);
}

INLINE __m256i add_pairs(__m256i sum, __m256i weights, __m256i columns)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(weights, columns));
}

DEFINE_KERNELS(linear_kernels_avx2, integers);
