/* vector.h - the vector operations that the loops in kernels/cpu/ *_loops.h are written in, for AVX2. */
#ifndef KERNELS_CPU_AVX2_VECTOR_H
#define KERNELS_CPU_AVX2_VECTOR_H

#include <immintrin.h>
#include <stdint.h>

#include "kernels/cpu/exp2_constants.h"

#define VECTOR_LANES 8
#define VECTOR_REGISTERS 16

typedef __m256 vector;

static inline vector vector_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void vector_store(float *p, vector x)
{
    _mm256_storeu_ps(p, x);
}
static inline vector vector_set(float x)
{
    return _mm256_set1_ps(x);
}
static inline vector vector_add(vector a, vector b)
{
    return _mm256_add_ps(a, b);
}
static inline vector vector_sub(vector a, vector b)
{
    return _mm256_sub_ps(a, b);
}
static inline vector vector_mul(vector a, vector b)
{
    return _mm256_mul_ps(a, b);
}
static inline vector vector_div(vector a, vector b)
{
    return _mm256_div_ps(a, b);
}
static inline vector vector_fma(vector a, vector b, vector c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline vector vector_max(vector a, vector b)
{
    return _mm256_max_ps(a, b);
}

static inline vector vector_load_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline vector vector_load_i8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)));
}

/* e4m3 values / 256: the f16 whose exponent and mantissa begin with theirs. */
static inline vector vector_load_e4m3(const uint8_t *p)
{
    __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64((const void *)p));
    return _mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16((short)0xbfff)));
}

/* Twice as many, the widening shared. */
static inline void vector_load_e4m3_pair(vector v[2], const uint8_t *p)
{
    __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p)), 7);
    wide = _mm256_and_si256(wide, _mm256_set1_epi16((short)0xbfff));
    v[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(wide));
    v[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(wide, 1));
}

/* All ones in lanes [first, end). */
static inline __m256i vector_lane_mask(int first, int end)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(first), lane),
                               _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
}

/* Lanes [first, end) of x, fill elsewhere. */
static inline vector vector_keep(vector x, int first, int end, float fill)
{
    return _mm256_blendv_ps(vector_set(fill), x, _mm256_castsi256_ps(vector_lane_mask(first, end)));
}

/* Lanes of x whose bits are set, the first one's the lowest; fill elsewhere. */
static inline vector vector_keep_bits(vector x, uint32_t bits, float fill)
{
    __m256i own = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i keep = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), own), own);
    return _mm256_blendv_ps(vector_set(fill), x, _mm256_castsi256_ps(keep));
}

/* The first n lanes from memory, the others filled; reads nothing beyond. */
static inline vector vector_load_part(const float *p, int n, float fill)
{
    return vector_keep(_mm256_maskload_ps(p, vector_lane_mask(0, n)), 0, n, fill);
}

static inline void vector_store_part(float *p, int n, vector x)
{
    _mm256_maskstore_ps(p, vector_lane_mask(0, n), x);
}

/* value where x >= least or x is a NaN, else 0. */
static inline vector vector_zero_below(vector value, vector x, vector least)
{
    return _mm256_and_ps(_mm256_cmp_ps(x, least, _CMP_NLT_UQ), value);
}

/* One bit a lane. */
static inline uint32_t vector_at_least(vector x, vector least)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x, least, _CMP_GE_OQ));
}

static inline uint32_t vector_is_nan(vector x)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

/* Across lanes: halves onto each other, so the order is fixed. */
static inline float vector_sum(vector x)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

static inline float vector_largest(vector x)
{
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

static inline vector vector_exp2(vector x)
{
    /* max returns its second operand when one is a NaN: NaN stays NaN. */
    vector bounded = _mm256_max_ps(vector_set(EXP2_LEAST), x);
    vector n = _mm256_round_ps(bounded, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vector f = vector_sub(bounded, n);
    vector p = vector_set(EXP2_C6);
    p = vector_fma(p, f, vector_set(EXP2_C5));
    p = vector_fma(p, f, vector_set(EXP2_C4));
    p = vector_fma(p, f, vector_set(EXP2_C3));
    p = vector_fma(p, f, vector_set(EXP2_C2));
    p = vector_fma(p, f, vector_set(EXP2_C1));
    p = vector_fma(p, f, vector_set(1.0f));
    /* Times 2^n: n is at least -126, where f >= 0 and so p >= 1, so the exponent field stays positive. For a
     * NaN the conversion gives 0x80000000, which the shift makes 0. */
    __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    vector scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
    return vector_zero_below(scaled, x, vector_set(EXP2_LEAST));
}

#endif
