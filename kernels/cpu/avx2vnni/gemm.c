/* gemm.c - panel kernels for AVX2 with AVX-VNNI: the dot products of VNNI without AVX-512.
 *
 * vpdpbusd and vpdpwssd as in avx512vnni/dot.h, over 256 bits: 8 instructions instead of 16 for half a block
 * of 4-bit weights. The sums are the same integers as in the other sets. */
#include "kernels/cpu/avx2/gemm_256.h"

INLINE bool splits(enum dtype dtype)
{
    (void)dtype;
    return false;
}

INLINE void dot_four(bool wide, const __m256i weights[2], __m256i columns, bool first, __m256i sums[2])
{
    (void)wide;
    if (first) sums[0] = sums[1] = _mm256_setzero_si256();
    sums[0] = _mm256_dpbusd_avx_epi32(sums[0], weights[0], columns);
    sums[1] = _mm256_dpbusd_avx_epi32(sums[1], weights[1], columns);
}

INLINE __m256i widen(bool wide, __m256i sums)
{
    (void)wide;
    return sums;
}

INLINE __m256i add_sums(bool wide, __m256i low, __m256i high)
{
    (void)wide;
    return _mm256_add_epi32(low, high);
}

INLINE __m256i add_pairs(__m256i sum, __m256i weights, __m256i columns)
{
    return _mm256_dpwssd_avx_epi32(sum, weights, columns);
}

DEFINE_KERNELS(linear_kernels_avx2vnni, integers);
