/* gemm.c - panel kernels for AVX-512 with VNNI: all integer weights times int8 activations by vpdpbusd.
 *
 * It multiplies unsigned by signed bytes and adds four products to a 32-bit lane, without saturation: 8
 * instructions for a block of 16 x 32 weights. Signed weights are made unsigned (q + 128, 32, 16 or 8), which
 * load_scales takes back by way of the minimum. Two chains of four, as the latency of one instruction is that
 * of several issue slots. */
#include "kernels/cpu/avx512/gemm_512.h"

INLINE __m512i dot_four(const __m512i weights[4], const int8_t *quants)
{
    __m512i sum = _mm512_setzero_si512();
    UNROLL for (int i = 0; i < 4; i++)
    {
        int32_t four;
        memcpy(&four, quants + 4 * i, sizeof four);
        sum = _mm512_dpbusd_epi32(sum, weights[i], _mm512_set1_epi32(four));
    }
    return sum;
}

INLINE struct block_sums block_dot(enum dtype dtype, const __m512i weights[8], const int8_t *quants)
{
    const __m512i low = dot_four(weights, quants), high = dot_four(weights + 4, quants + 16);
    return (struct block_sums){dtype == DTYPE_Q6_K ? low : _mm512_add_epi32(low, high), high};
}

DEFINE_PRODUCT(quants, DTYPE_Q4_0)
DEFINE_PRODUCT(quants, DTYPE_Q4_1)
DEFINE_PRODUCT(quants, DTYPE_Q5_0)
DEFINE_PRODUCT(quants, DTYPE_Q5_1)
DEFINE_PRODUCT(quants, DTYPE_Q8_0)
DEFINE_PRODUCT(quants, DTYPE_Q4_K)
DEFINE_PRODUCT(quants, DTYPE_Q5_K)
DEFINE_PRODUCT(quants, DTYPE_Q6_K)
DEFINE_PRODUCT(values, DTYPE_F32)
DEFINE_PRODUCT(values, DTYPE_F16)
DEFINE_PRODUCT(values, DTYPE_BF16)

const struct linear_kernels linear_kernels_avx512vnni = {
    .quantize_row = quantize_row_512,
    .over_values =
        {[DTYPE_F32] = values_DTYPE_F32, [DTYPE_F16] = values_DTYPE_F16, [DTYPE_BF16] = values_DTYPE_BF16},
    .over_quants = {[DTYPE_Q4_0] = quants_DTYPE_Q4_0,
                    [DTYPE_Q4_1] = quants_DTYPE_Q4_1,
                    [DTYPE_Q5_0] = quants_DTYPE_Q5_0,
                    [DTYPE_Q5_1] = quants_DTYPE_Q5_1,
                    [DTYPE_Q8_0] = quants_DTYPE_Q8_0,
                    [DTYPE_Q4_K] = quants_DTYPE_Q4_K,
                    [DTYPE_Q5_K] = quants_DTYPE_Q5_K,
                    [DTYPE_Q6_K] = quants_DTYPE_Q6_K},
};
