/* gemm.c - panel kernels for AVX2 with FMA and F16C.
 *
 * int8: vpmaddubsw; see avx512/gemm.c for why it cannot overflow. int16: vpmaddwd. */
#include "kernels/cpu/avx2/gemm_256.h"

INLINE bool splits(enum dtype dtype)
{
    return panel_has_table(dtype);
}

INLINE void dot_columns(const __m256i weights[8], const int8_t *columns, __m256i sums[2])
{
#pragma GCC unroll 32
    for (int i = 0; i < 4; i++) {
        const __m256i four = broadcast_dword(columns + 4 * i);
        const __m256i lower = _mm256_maddubs_epi16(weights[i], four),
                      upper = _mm256_maddubs_epi16(weights[4 + i], four);
        sums[0] = i == 0 ? lower : _mm256_add_epi16(sums[0], lower);
        sums[1] = i == 0 ? upper : _mm256_add_epi16(sums[1], upper);
    }
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
