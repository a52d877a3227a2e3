/* vector.h - the vector operations that the loops in kernels/cpu/ *_loops.h are written in, for AVX-512. */
#ifndef KERNELS_CPU_AVX512_VECTOR_H
#define KERNELS_CPU_AVX512_VECTOR_H

#include <immintrin.h>
#include <stdint.h>

#include "kernels/cpu/exp2_constants.h"

#define VECTOR_LANES 16
#define VECTOR_REGISTERS 32

typedef __m512 vector;

static inline vector vector_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void vector_store(float *p, vector x)
{
    _mm512_storeu_ps(p, x);
}
static inline vector vector_set(float x)
{
    return _mm512_set1_ps(x);
}
static inline vector vector_add(vector a, vector b)
{
    return _mm512_add_ps(a, b);
}
static inline vector vector_sub(vector a, vector b)
{
    return _mm512_sub_ps(a, b);
}
static inline vector vector_mul(vector a, vector b)
{
    return _mm512_mul_ps(a, b);
}
static inline vector vector_div(vector a, vector b)
{
    return _mm512_div_ps(a, b);
}
static inline vector vector_fma(vector a, vector b, vector c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vector vector_max(vector a, vector b)
{
    return _mm512_max_ps(a, b);
}

static inline vector vector_load_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline vector vector_load_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
}

/* e4m3 values / 256: the f16 whose exponent and mantissa begin with theirs. */
static inline vector vector_load_e4m3(const uint8_t *p)
{
    __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p));
    return _mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xbfff)));
}

/* Twice as many, the widening shared. */
static inline void vector_load_e4m3_pair(vector v[2], const uint8_t *p)
{
    __m512i wide = _mm512_slli_epi16(_mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)p)), 7);
    wide = _mm512_and_si512(wide, _mm512_set1_epi16((short)0xbfff));
    v[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(wide));
    v[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(wide, 1));
}

/* The first n lanes from memory, the others filled; reads nothing beyond. */
static inline vector vector_load_part(const float *p, int n, float fill)
{
    return _mm512_mask_loadu_ps(_mm512_set1_ps(fill), (__mmask16)((1u << n) - 1), p);
}

static inline void vector_store_part(float *p, int n, vector x)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x);
}

/* Lanes [first, end) of x, fill elsewhere. */
static inline vector vector_keep(vector x, int first, int end, float fill)
{
    __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __mmask16 keep = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(first)) &
                     _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32(end));
    return _mm512_mask_blend_ps(keep, _mm512_set1_ps(fill), x);
}

/* Lanes of x whose bits are set, the first one's the lowest; fill elsewhere. */
static inline vector vector_keep_bits(vector x, uint32_t bits, float fill)
{
    return _mm512_mask_blend_ps((__mmask16)bits, _mm512_set1_ps(fill), x);
}

/* value where x >= least or x is a NaN, else 0. */
static inline vector vector_zero_below(vector value, vector x, vector least)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ), value);
}

/* One bit a lane. */
static inline uint32_t vector_at_least(vector x, vector least)
{
    return _mm512_cmp_ps_mask(x, least, _CMP_GE_OQ);
}
static inline uint32_t vector_is_nan(vector x)
{
    return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
}

/* Across lanes: halves onto each other, so the order is fixed. */
static inline float vector_sum(vector x)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

static inline float vector_largest(vector x)
{
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

static inline vector vector_exp2(vector x)
{
    /* max returns its second operand when one is a NaN: NaN stays NaN. */
    vector bounded = _mm512_max_ps(vector_set(EXP2_LEAST - 2), x);
    vector n = _mm512_roundscale_ps(bounded, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vector f = vector_sub(bounded, n);
    vector p = vector_set(EXP2_C6);
    p = vector_fma(p, f, vector_set(EXP2_C5));
    p = vector_fma(p, f, vector_set(EXP2_C4));
    p = vector_fma(p, f, vector_set(EXP2_C3));
    p = vector_fma(p, f, vector_set(EXP2_C2));
    p = vector_fma(p, f, vector_set(EXP2_C1));
    p = vector_fma(p, f, vector_set(1.0f));
    return vector_zero_below(_mm512_scalef_ps(p, n), x, vector_set(EXP2_LEAST));
}

#endif
