/* gemm_512.h - panel kernels over 512-bit registers, shared by the AVX-512 and the VNNI set.
 *
 * A register holds one f32 for each of the panel's 16 rows, or four byte columns of each. Orders of
 * summation: linear_kernels.h.
 *
 * One block of weights is unpacked once, into registers (bytes) or a small array (f32), and multiplied with
 * all rows of the tile. The sums of a tile stay in memory between blocks: a load and a store beside 16 to 32
 * multiplications cost nothing, and there is no shape of tile to choose. A single row keeps its sum in a
 * register and uses the weights as they are unpacked.
 *
 * The including file defines block_dot (weights of a block times one row's quants) before it includes this
 * one. */
#ifndef KERNELS_CPU_AVX512_GEMM_512_H
#define KERNELS_CPU_AVX512_GEMM_512_H

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/cpu/linear_kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")

/* w = d u + m, apart for the low and the high 16 columns in Q6_K. */
struct block_scales {
    __m512 d[2], m[2];
};

/* Sums of quants times weights over the low and the high 16 columns; where nobody needs them apart the sum of
 * both is in low and high is not used. */
struct block_sums {
    __m512i low, high;
};

INLINE struct block_sums block_dot(enum dtype dtype, const __m512i weights[8], const int8_t *quants);

/* ---- scales ---- */

INLINE __m512 load_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

INLINE __m512 load_u8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

INLINE __m512 load_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

/* What was added to the signed integers of a dtype to make them unsigned. */
INLINE float bias_of(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_Q4_0:
        return 8;
    case DTYPE_Q5_0:
        return 16;
    case DTYPE_Q6_K:
        return 32;
    case DTYPE_Q8_0:
        return 128;
    default:
        return 0;
    }
}

INLINE struct block_scales load_scales(enum dtype dtype, const uint8_t *header, const uint8_t *block)
{
    const struct panel_layout l = panel_layout_of(dtype);
    struct block_scales s;
    if (dtype == DTYPE_Q6_K) {
        const __m512 super = load_f16(header), minus_bias = _mm512_set1_ps(-bias_of(dtype));
        s.d[0] = _mm512_mul_ps(super, load_i8(block + l.scales));
        s.d[1] = _mm512_mul_ps(super, load_i8(block + l.minimums));
        s.m[0] = _mm512_mul_ps(minus_bias, s.d[0]);
        s.m[1] = _mm512_mul_ps(minus_bias, s.d[1]);
        return s;
    }
    if (l.header_bytes) {
        const __m512 zero = _mm512_setzero_ps();
        s.d[0] = _mm512_mul_ps(load_f16(header), load_u8(block + l.scales));
        s.m[0] = _mm512_sub_ps(zero, _mm512_mul_ps(load_f16(header + 32), load_u8(block + l.minimums)));
    } else {
        s.d[0] = load_f16(block + l.scales);
        s.m[0] = l.minimums ? load_f16(block + l.minimums)
                            : _mm512_mul_ps(_mm512_set1_ps(-bias_of(dtype)), s.d[0]);
    }
    s.d[1] = s.d[0];
    s.m[1] = s.m[0];
    return s;
}

/* ---- integers: weights[i] holds columns 4i .. 4i + 3 of each row ---- */

INLINE __m512i load_bytes(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}

INLINE void load_nibbles(const uint8_t *block, __m512i weights[8])
{
    const __m512i mask = _mm512_set1_epi8(15);
    UNROLL for (int i = 0; i < 4; i++)
    {
        const __m512i both = load_bytes(block + i * 64);
        weights[i] = _mm512_and_si512(both, mask);
        weights[i + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
    }
}

INLINE void add_fifth_bits(const uint8_t *high, __m512i weights[8])
{
    const __m512i sixteen = _mm512_set1_epi8(16);
    UNROLL for (int i = 0; i < 8; i++)
    {
        uint64_t bits;
        memcpy(&bits, high + i * 8, sizeof bits);
        weights[i] = _mm512_mask_add_epi8(weights[i], bits, weights[i], sixteen);
    }
}

INLINE void add_upper_bits(const uint8_t *high, __m512i weights[8])
{
    const __m512i mask = _mm512_set1_epi8(0x30);
    UNROLL for (int j = 0; j < 2; j++)
    {
        const __m512i upper = load_bytes(high + j * 64);
        const __m512i shifted[4] = {_mm512_slli_epi16(upper, 4), _mm512_slli_epi16(upper, 2), upper,
                                    _mm512_srli_epi16(upper, 2)};
        UNROLL for (int s = 0; s < 4; s++) /* weights | (shifted & mask) */
            weights[4 * j + s] = _mm512_ternarylogic_epi32(weights[4 * j + s], shifted[s], mask, 0xf8);
    }
}

/* The unsigned integers of a block. */
INLINE void load_unsigned(enum dtype dtype, const uint8_t *block, __m512i weights[8])
{
    const struct panel_layout l = panel_layout_of(dtype);
    if (dtype == DTYPE_Q8_0) {
        UNROLL for (int i = 0; i < 8; i++) weights[i] =
            _mm512_xor_si512(load_bytes(block + i * 64), _mm512_set1_epi8(-128));
        return;
    }
    load_nibbles(block, weights);
    if (dtype == DTYPE_Q5_0 || dtype == DTYPE_Q5_1 || dtype == DTYPE_Q5_K)
        add_fifth_bits(block + l.high_bits, weights);
    if (dtype == DTYPE_Q6_K) add_upper_bits(block + l.high_bits, weights);
}

/* ---- products over quants ---- */

INLINE __m512 add_row_quants(enum dtype dtype, const struct block_scales *s, const __m512i weights[8],
                             const int8_t *quants, const struct act_scale *x, __m512 acc)
{
    const struct block_sums sums = block_dot(dtype, weights, quants);
    const __m512 scale = _mm512_set1_ps(x->scale);
    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums.low), _mm512_mul_ps(s->d[0], scale), acc);
    if (dtype != DTYPE_Q6_K) return _mm512_fmadd_ps(s->m[0], _mm512_set1_ps(x->sum), acc);
    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums.high), _mm512_mul_ps(s->d[1], scale), acc);
    acc = _mm512_fmadd_ps(s->m[0], _mm512_set1_ps(x->sum_low), acc);
    return _mm512_fmadd_ps(s->m[1], _mm512_set1_ps(x->sum_high), acc);
}

INLINE void product_quants_row(enum dtype dtype, const uint8_t *panel, int64_t num_blocks,
                               const struct act_tile *x, float *acc)
{
    __m512 sum = _mm512_setzero_ps();
    for (int64_t b = 0; b < num_blocks; b++) {
        const uint8_t *const header = panel_header(dtype, panel, b), *const block =
                                                                         panel_block(dtype, panel, b);
        const struct block_scales s = load_scales(dtype, header, block);
        __m512i weights[8];
        load_unsigned(dtype, block, weights);
        sum = add_row_quants(dtype, &s, weights, x->quants + b * PANEL_BLOCK, &x->scales[b], sum);
    }
    _mm512_store_ps(acc, sum);
}

INLINE void product_quants(enum dtype dtype, const uint8_t *panel, int64_t num_blocks,
                           const struct act_tile *x, float *acc)
{
    const int num_rows = x->num_rows;
    if (num_rows == 1) {
        product_quants_row(dtype, panel, num_blocks, x, acc);
        return;
    }
    memset(acc, 0, (size_t)num_rows * PANEL_ROWS * sizeof *acc);
    const int8_t *quants = x->quants;
    const struct act_scale *scales = x->scales;
    for (int64_t b = 0; b < num_blocks; b++) {
        const uint8_t *const header = panel_header(dtype, panel, b), *const block =
                                                                         panel_block(dtype, panel, b);
        const struct block_scales s = load_scales(dtype, header, block);
        __m512i weights[8];
        load_unsigned(dtype, block, weights);
        for (int t = 0; t < num_rows; t++, quants += PANEL_BLOCK, scales++) {
            float *const at = acc + t * PANEL_ROWS;
            _mm512_store_ps(at, add_row_quants(dtype, &s, weights, quants, scales, _mm512_load_ps(at)));
        }
    }
}

/* ---- f32 weights: value k of a block is that of column k, Q8_0 and Q6_K times 2^24 ---- */

/* Byte c of each dword, moved to its top with zeros below: the signed byte times 2^24. */
INLINE __m512i byte_to_top(__m512i v, int c)
{
    const char z = -1;
    switch (c) {
    case 0:
        return _mm512_slli_epi32(v, 24);
    case 1:
        return _mm512_shuffle_epi8(
            v, _mm512_broadcast_i32x4(_mm_setr_epi8(z, z, z, 1, z, z, z, 5, z, z, z, 9, z, z, z, 13)));
    case 2:
        return _mm512_shuffle_epi8(
            v, _mm512_broadcast_i32x4(_mm_setr_epi8(z, z, z, 2, z, z, z, 6, z, z, z, 10, z, z, z, 14)));
    default:
        return _mm512_and_si512(v, _mm512_set1_epi32((int)0xff000000));
    }
}

struct block_values {
    __m512i bytes[8]; /* Q8_0 and Q6_K: the signed integers */
    const uint8_t *floats;
};

INLINE struct block_values load_values(enum dtype dtype, const uint8_t *block)
{
    struct block_values v = {.floats = block};
    if (dtype == DTYPE_Q8_0) {
        UNROLL for (int i = 0; i < 8; i++) v.bytes[i] = load_bytes(block + i * 64);
    }
    if (dtype == DTYPE_Q6_K) {
        load_unsigned(dtype, block, v.bytes);
        UNROLL for (int i = 0; i < 8; i++) v.bytes[i] = _mm512_sub_epi8(v.bytes[i], _mm512_set1_epi8(32));
    }
    return v;
}

INLINE __m512 value_at(enum dtype dtype, const struct block_values *v, int k)
{
    switch (dtype) {
    case DTYPE_F32:
        return _mm512_loadu_ps(v->floats + k * 64);
    case DTYPE_F16:
        return load_f16(v->floats + k * 32);
    case DTYPE_BF16: {
        const __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)(v->floats + k * 32));
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
    }
    default:
        return _mm512_cvtepi32_ps(byte_to_top(v->bytes[k / 4], k % 4));
    }
}

/* Scales that fit value_at. */
INLINE struct block_scales load_value_scales(enum dtype dtype, const uint8_t *header, const uint8_t *block)
{
    struct block_scales s;
    s.d[0] = s.d[1] = _mm512_set1_ps(1);
    if (dtype != DTYPE_Q8_0 && dtype != DTYPE_Q6_K) return s;
    s = load_scales(dtype, header, block);
    s.d[0] = _mm512_mul_ps(s.d[0], _mm512_set1_ps(0x1p-24f));
    s.d[1] = _mm512_mul_ps(s.d[1], _mm512_set1_ps(0x1p-24f));
    return s;
}

/* ---- products over values ---- */

INLINE __m512 add_half_sums(enum dtype dtype, const struct block_scales *s, __m512 low, __m512 high,
                            __m512 acc)
{
    if (dtype == DTYPE_Q6_K) return _mm512_fmadd_ps(s->d[1], high, _mm512_fmadd_ps(s->d[0], low, acc));
    return _mm512_fmadd_ps(s->d[0], _mm512_add_ps(low, high), acc);
}

INLINE void product_values_row(enum dtype dtype, const uint8_t *panel, int64_t num_blocks,
                               const struct act_tile *x, float *acc)
{
    __m512 sum = _mm512_setzero_ps();
    for (int64_t b = 0; b < num_blocks; b++) {
        const uint8_t *const header = panel_header(dtype, panel, b), *const block =
                                                                         panel_block(dtype, panel, b);
        const struct block_scales s = load_value_scales(dtype, header, block);
        const struct block_values v = load_values(dtype, block);
        const float *const values = x->values + b * PANEL_BLOCK;
        __m512 low = _mm512_setzero_ps(), high = _mm512_setzero_ps();
        UNROLL for (int k = 0; k < 16; k++)
        {
            low = _mm512_fmadd_ps(value_at(dtype, &v, k), _mm512_set1_ps(values[k]), low);
            high = _mm512_fmadd_ps(value_at(dtype, &v, k + 16), _mm512_set1_ps(values[k + 16]), high);
        }
        sum = add_half_sums(dtype, &s, low, high, sum);
    }
    _mm512_store_ps(acc, sum);
}

/* num_rows is a constant: two sums of each row stay in registers. */
INLINE void add_rows_values(enum dtype dtype, int num_rows, const struct block_scales *s,
                            const float weights[PANEL_BLOCK][PANEL_ROWS], const float *x, float *acc)
{
    __m512 low[12], high[12];
    UNROLL for (int t = 0; t < num_rows; t++) low[t] = high[t] = _mm512_setzero_ps();
    for (int k = 0; k < 16; k++) {
        const __m512 w_low = _mm512_load_ps(weights[k]), w_high = _mm512_load_ps(weights[k + 16]);
        UNROLL for (int t = 0; t < num_rows; t++)
        {
            low[t] = _mm512_fmadd_ps(w_low, _mm512_set1_ps(x[t * PANEL_BLOCK + k]), low[t]);
            high[t] = _mm512_fmadd_ps(w_high, _mm512_set1_ps(x[t * PANEL_BLOCK + k + 16]), high[t]);
        }
    }
    UNROLL for (int t = 0; t < num_rows; t++)
    {
        float *const at = acc + t * PANEL_ROWS;
        _mm512_store_ps(at, add_half_sums(dtype, s, low[t], high[t], _mm512_load_ps(at)));
    }
}

/* All rows of the tile, in groups as large as the registers allow. */
INLINE void add_tile_values(enum dtype dtype, int num_rows, const struct block_scales *s,
                            const float weights[PANEL_BLOCK][PANEL_ROWS], const float *x, float *acc)
{
    int t = 0;
#define ADD_ROWS(n)                                                                                          \
    for (; num_rows - t >= (n); t += (n))                                                                    \
    add_rows_values(dtype, (n), s, weights, x + t * PANEL_BLOCK, acc + t * PANEL_ROWS)
    ADD_ROWS(12);
    ADD_ROWS(8);
    ADD_ROWS(4);
    ADD_ROWS(2);
    ADD_ROWS(1);
#undef ADD_ROWS
}

INLINE void product_values(enum dtype dtype, const uint8_t *panel, int64_t num_blocks,
                           const struct act_tile *x, float *acc)
{
    if (x->num_rows == 1) {
        product_values_row(dtype, panel, num_blocks, x, acc);
        return;
    }
    memset(acc, 0, (size_t)x->num_rows * PANEL_ROWS * sizeof *acc);
    for (int64_t b = 0; b < num_blocks; b++) {
        const uint8_t *const header = panel_header(dtype, panel, b), *const block =
                                                                         panel_block(dtype, panel, b);
        const struct block_scales s = load_value_scales(dtype, header, block);
        const struct block_values v = load_values(dtype, block);
        _Alignas(64) float weights[PANEL_BLOCK][PANEL_ROWS];
        UNROLL for (int k = 0; k < PANEL_BLOCK; k++) _mm512_store_ps(weights[k], value_at(dtype, &v, k));
        add_tile_values(dtype, x->num_rows, &s, weights, x->values + b * x->num_rows * PANEL_BLOCK, acc);
    }
}

#define DEFINE_PRODUCT(form, dtype)                                                                          \
    static void form##_##dtype(const uint8_t *panel, int64_t num_blocks, const struct act_tile *x,           \
                               float *acc)                                                                   \
    {                                                                                                        \
        product_##form(dtype, panel, num_blocks, x, acc);                                                    \
    }

/* ---- activations ---- */

INLINE void quantize_block_512(const float *x, int8_t *quants, struct act_scale *out)
{
    const __m512 x_low = _mm512_loadu_ps(x), x_high = _mm512_loadu_ps(x + 16);
    /* The order of magnitudes as integers puts infinities and NaNs on top. */
    const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);
    const uint32_t largest_bits =
        _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(x_low), no_sign),
                                                 _mm512_and_si512(_mm512_castps_si512(x_high), no_sign)));
    float largest;
    memcpy(&largest, &largest_bits, sizeof largest);
    const bool finite = largest_bits < 0x7f800000;
    if (!finite || largest < QUANTIZE_LEAST) {
        const float all = finite ? 0 : __builtin_nanf("");
        memset(quants, 0, PANEL_BLOCK);
        *out = (struct act_scale){all, all, all, all};
        return;
    }
    const __m512 inverse = _mm512_set1_ps(127.0f / largest);
    const __m512i low = _mm512_cvtps_epi32(_mm512_mul_ps(x_low, inverse));
    const __m512i high = _mm512_cvtps_epi32(_mm512_mul_ps(x_high, inverse));
    _mm_storeu_si128((__m128i *)(void *)quants, _mm512_cvtepi32_epi8(low));
    _mm_storeu_si128((__m128i *)(void *)(quants + 16), _mm512_cvtepi32_epi8(high));
    const int sum_low = _mm512_reduce_add_epi32(low), sum_high = _mm512_reduce_add_epi32(high);
    const float scale = largest / 127.0f;
    *out = (struct act_scale){scale, scale * (float)(sum_low + sum_high), scale * (float)sum_low,
                              scale * (float)sum_high};
}

static void quantize_row_512(const float *x, int64_t cols, int row, int num_rows, int8_t *quants,
                             struct act_scale *scales)
{
    for (int64_t b = 0; b < panel_num_blocks(cols); b++) {
        const int64_t at = b * num_rows + row;
        quantize_block_512(x + b * PANEL_BLOCK, quants + at * PANEL_BLOCK, &scales[at]);
    }
}

#endif
