/* gemm_512.h - panel kernels over 512-bit registers, shared by the AVX-512, VNNI and AMX sets.
 *
 * A register holds one f32 for each of the panel's 16 rows, or two 16-bit or four 8-bit columns of each.
 * Orders of summation: linear_kernels.h.
 *
 * Integers: a block of weights is unpacked once, into registers, and multiplied with all rows of the tile.
 * The sums of a tile stay in memory between blocks: a load and a store beside 8 to 16 multiplications cost
 * nothing, and there is no shape of tile to choose. Floats: floats_512.h.
 *
 * The including file defines dot_int8 and dot_int16 (weights of a block times one row) and widens below this one. */
#ifndef KERNELS_CPU_AVX512_GEMM_512_H
#define KERNELS_CPU_AVX512_GEMM_512_H

#include "files/dtype_blocks.h"
#include "kernels/cpu/avx512/floats_512.h"
#include "kernels/cpu/gate.h"
#include "kernels/cpu/linear_set.h"
#include "kernels/cpu/panel_grid.h"

/* w = d u + m; [1] is that of the high 16 columns, which differs where panel_has_two_scales. */
struct block_scales {
    __m512 d[2], m[2];
};

/* Sums of activations times weights over the low and the high 16 columns of a block. Where these have the
 * same scale low is the sum of both and high is not used. */
struct block_sums {
    __m512i low, high;
};

INLINE struct block_sums dot_int8(enum dtype dtype, const __m512i weights[8], const int8_t *columns);
INLINE struct block_sums dot_int16(enum dtype dtype, const __m512i weights[16], const int16_t *columns);

INLINE bool takes_int16(enum dtype dtype)
{
    return dtype == DTYPE_Q8_0 || dtype == DTYPE_Q6_K;
}

/* Whether weights become 16-bit integers: where takes_int16, and where the set has no product of their bytes. */
INLINE bool widens(enum dtype dtype);

/* Four int8 or two int16 columns of one row of activations, for all lanes. */
INLINE __m512i broadcast_dword(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

/* ---- scales ---- */

INLINE __m512 load_u8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

INLINE __m512 load_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

INLINE __m512 minus_bias_of(enum dtype dtype)
{
    return _mm512_set1_ps((float)-panel_unsigned_bias(dtype));
}

/* Nibbles number shift / 4 of 16 bytes. */
INLINE __m512 load_u4(const uint8_t *p, int shift)
{
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm512_cvtepi32_ps(
        _mm512_and_si512(_mm512_srli_epi32(bytes, (unsigned)shift), _mm512_set1_epi32(15)));
}

/* Of the low or the high columns; all products are exact. */
INLINE __m512 load_grid_scale(enum dtype dtype, const uint8_t *header, const uint8_t *block, int second)
{
    const __m512 unit = _mm512_set1_ps(dtype_grid_step(dtype, 0)), two_units = _mm512_add_ps(unit, unit);
    const __m512 small = load_u4(block + panel_layout_of(dtype).scales, 4 * second);
    return _mm512_mul_ps(load_f16(header), _mm512_fmadd_ps(small, two_units, unit));
}

INLINE struct block_scales load_two_scales(enum dtype dtype, const uint8_t *header, const uint8_t *block)
{
    const struct panel_layout l = panel_layout_of(dtype);
    const int at[2] = {l.scales, l.minimums};
    struct block_scales s;
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const uint8_t *const small = block + at[i];
        if (dtype_is_grid(dtype)) {
            s.d[i] = load_grid_scale(dtype, header, block, i);
            s.m[i] = _mm512_mul_ps(minus_bias_of(dtype), s.d[i]);
        } else if (dtype == DTYPE_Q2_K) {
            s.d[i] = _mm512_mul_ps(load_f16(header), load_u4(small, 0));
            s.m[i] =
                _mm512_sub_ps(_mm512_setzero_ps(), _mm512_mul_ps(load_f16(header + 32), load_u4(small, 4)));
        } else {
            s.d[i] = _mm512_mul_ps(load_f16(header), load_i8(small));
            s.m[i] = _mm512_mul_ps(minus_bias_of(dtype), s.d[i]);
        }
    }
    return s;
}

INLINE struct block_scales load_scales(enum dtype dtype, const uint8_t *header, const uint8_t *block)
{
    const struct panel_layout l = panel_layout_of(dtype);
    struct block_scales s;
    if (panel_has_two_scales(dtype)) return load_two_scales(dtype, header, block);
    if (dtype == DTYPE_IQ4_XS || dtype_is_grid(dtype) || panel_has_one_scale(dtype)) {
        s.d[0] = dtype == DTYPE_IQ4_XS  ? _mm512_mul_ps(load_f16(header), load_i8(block + l.scales))
                 : dtype_is_grid(dtype) ? load_grid_scale(dtype, header, block, 0)
                                        : load_f16(header);
        s.m[0] = _mm512_mul_ps(minus_bias_of(dtype), s.d[0]);
    } else if (l.header_bytes) {
        const __m512 zero = _mm512_setzero_ps();
        s.d[0] = _mm512_mul_ps(load_f16(header), load_u8(block + l.scales));
        s.m[0] = _mm512_sub_ps(zero, _mm512_mul_ps(load_f16(header + 32), load_u8(block + l.minimums)));
    } else {
        s.d[0] = load_f16(block + l.scales);
        s.m[0] = l.minimums ? load_f16(block + l.minimums) : _mm512_mul_ps(minus_bias_of(dtype), s.d[0]);
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
#pragma GCC unroll 32
    for (int i = 0; i < 4; i++) {
        const __m512i both = load_bytes(block + i * 64);
        weights[i] = _mm512_and_si512(both, mask);
        weights[i + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
    }
}

INLINE void add_fifth_bits(const uint8_t *high, __m512i weights[8])
{
    const __m512i sixteen = _mm512_set1_epi8(16);
#pragma GCC unroll 32
    for (int i = 0; i < 8; i++) {
        uint64_t bits;
        memcpy(&bits, high + i * 8, sizeof bits);
        weights[i] = _mm512_mask_add_epi8(weights[i], bits, weights[i], sixteen);
    }
}

INLINE void add_upper_bits(const uint8_t *high, __m512i weights[8])
{
    const __m512i mask = _mm512_set1_epi8(0x30);
#pragma GCC unroll 32
    for (int j = 0; j < 2; j++) {
        const __m512i upper = load_bytes(high + j * 64);
        const __m512i shifted[4] = {_mm512_slli_epi16(upper, 4), _mm512_slli_epi16(upper, 2), upper,
                                    _mm512_srli_epi16(upper, 2)};
#pragma GCC unroll 32
        for (int s = 0; s < 4; s++) /* weights | (shifted & mask) */
            weights[4 * j + s] = _mm512_ternarylogic_epi32(weights[4 * j + s], shifted[s], mask, 0xf8);
    }
}

/* Nibbles become what they stand for, 128 added, which the sign bit's change does. */
INLINE void look_up(__m512i weights[8])
{
    const __m128i values = _mm_loadu_si128((const __m128i *)(const void *)dtype_iq4_values);
    const __m512i table = _mm512_broadcast_i32x4(_mm_xor_si128(values, _mm_set1_epi8((char)0x80)));
#pragma GCC unroll 32
    for (int i = 0; i < 8; i++) weights[i] = _mm512_shuffle_epi8(table, weights[i]);
}

INLINE void load_two_bits(const uint8_t *block, __m512i weights[8])
{
#pragma GCC unroll 32
    for (int i = 0; i < 8; i++)
        weights[i] = _mm512_and_si512(_mm512_srli_epi16(load_bytes(block + i / 4 * 64), 2 * (i % 4)),
                                      _mm512_set1_epi8(3));
}

/* 2 or 0. */
INLINE void load_one_bit(const uint8_t *block, __m512i weights[8])
{
#pragma GCC unroll 32
    for (int i = 0; i < 8; i++) {
        uint64_t bits;
        memcpy(&bits, block + i * 8, sizeof bits);
        weights[i] = _mm512_maskz_set1_epi8(bits, 2);
    }
}

INLINE void add_third_bits(const uint8_t *high, __m512i weights[8])
{
    const __m512i third = load_bytes(high), four = _mm512_set1_epi8(4);
#pragma GCC unroll 32
    for (int i = 0; i < 8; i++) {
        const __m512i shifted = i < 2 ? _mm512_slli_epi16(third, 2 - i) : _mm512_srli_epi16(third, i - 2);
        weights[i] = _mm512_ternarylogic_epi32(weights[i], shifted, four, 0xf8);
    }
}

/* Entry j of each row, of types whose entries have upper bits. */
INLINE __m512i load_entries(enum dtype dtype, const uint8_t *block, int j)
{
    const uint8_t *const high = block + panel_layout_of(dtype).high_bits;
    const int bits = panel_grid_upper_bits(dtype);
    const __m512i low =
        _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(block + 16 * j)));
    const __m512i words = bits == 4
                              ? _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)high))
                              : _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)high));
    const __m512i upper = _mm512_and_si512(_mm512_srli_epi32(words, (unsigned)(bits * j)),
                                           _mm512_set1_epi32(panel_grid_upper_mask(dtype)));
    return _mm512_or_si512(low, _mm512_slli_epi32(upper, 8));
}

/* Codes of 2 bits times 8, and 2 where the entry's sign does not take it away. */
INLINE void load_ternary_grid(const uint8_t *block, const __m512i words[4], __m512i weights[8])
{
    const __m512i mask = _mm512_set1_epi8(0x18), two = _mm512_set1_epi8(2);
    const __m512i high = _mm512_cvtepu16_epi32(
        _mm256_loadu_si256((const __m256i *)(const void *)(block + panel_layout_of(DTYPE_IQ1_S).high_bits)));
#pragma GCC unroll 32
    for (int j = 0; j < 4; j++) {
        const __mmask16 adds = _mm512_testn_epi32_mask(high, _mm512_set1_epi32(8 << (4 * j)));
        const __m512i add = _mm512_maskz_mov_epi32(adds, two);
        const __m512i first = _mm512_slli_epi32(words[j], 3), second = _mm512_srli_epi32(words[j], 1);
        weights[2 * j] = _mm512_ternarylogic_epi32(add, first, mask, 0xf8); /* add | (first & mask) */
        weights[2 * j + 1] = _mm512_ternarylogic_epi32(add, second, mask, 0xf8);
    }
}

/* Codes become what they stand for, by their columns' signs. */
INLINE void look_up_signed(enum dtype dtype, const uint8_t *signs, __m512i weights[8])
{
    const __m512i table =
        _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)panel_grid_values(dtype)));
#pragma GCC unroll 32
    for (int i = 0; i < 8; i++) {
        uint64_t bits;
        memcpy(&bits, signs + i * 8, sizeof bits);
        weights[i] = _mm512_mask_add_epi8(weights[i], bits, weights[i], _mm512_set1_epi8(8));
        weights[i] = _mm512_shuffle_epi8(table, weights[i]);
    }
}

/* What entry j of each row stands for. A gather takes longer than loads of 16 words, but these want indices that lie in memory. */
INLINE __m512i load_words(enum dtype dtype, const uint8_t *block, int j)
{
    const uint32_t *const table = panel_grid_table(dtype);
    const uint8_t *const e = block + 16 * j;
    if (panel_grid_upper_bits(dtype))
        return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), 0xffff, load_entries(dtype, block, j),
                                           table, 4);
#define WORD(i) (int)table[e[i]]
    return _mm512_setr_epi32(WORD(0), WORD(1), WORD(2), WORD(3), WORD(4), WORD(5), WORD(6), WORD(7), WORD(8),
                             WORD(9), WORD(10), WORD(11), WORD(12), WORD(13), WORD(14), WORD(15));
#undef WORD
}

INLINE void load_grid(enum dtype dtype, const uint8_t *block, __m512i weights[8])
{
    const int num = panel_grid_num_entries(dtype);
    __m512i words[8];
#pragma GCC unroll 32
    for (int j = 0; j < num; j++) words[j] = load_words(dtype, block, j);
    if (panel_grid_adds_one(dtype)) {
        load_ternary_grid(block, words, weights);
        return;
    }
#pragma GCC unroll 32
    for (int i = 0; i < 8; i++) {
        const __m512i shifted = i % 2 ? _mm512_srli_epi32(words[i / 2], 4) : words[i / 2];
        weights[i] = num == 8 ? words[i] : _mm512_and_si512(shifted, _mm512_set1_epi8(3));
    }
    look_up_signed(dtype, block + panel_grid_signs(dtype), weights);
}

/* The unsigned integers of a block as bytes. */
INLINE void load_unsigned(enum dtype dtype, const uint8_t *block, __m512i weights[8])
{
    const struct panel_layout l = panel_layout_of(dtype);
    if (dtype == DTYPE_Q8_0) {
#pragma GCC unroll 32
        for (int i = 0; i < 8; i++) weights[i] = load_bytes(block + i * 64);
        return;
    }
    if (dtype_is_grid(dtype)) {
        load_grid(dtype, block, weights);
        return;
    }
    if (dtype == DTYPE_Q1_0) {
        load_one_bit(block, weights);
        return;
    }
    if (panel_has_two_bits(dtype)) {
        load_two_bits(block, weights);
        if (dtype == DTYPE_Q3_K) add_third_bits(block + l.high_bits, weights);
        return;
    }
    load_nibbles(block, weights);
    if (panel_has_table(dtype)) look_up(weights);
    if (dtype == DTYPE_Q5_0 || dtype == DTYPE_Q5_1 || dtype == DTYPE_Q5_K)
        add_fifth_bits(block + l.high_bits, weights);
    if (dtype == DTYPE_Q6_K) add_upper_bits(block + l.high_bits, weights);
}

/* The even bytes of weights[i] become the 16-bit wide[2 i], the odd ones wide[2 i + 1]. */
INLINE void widen(const __m512i weights[8], __m512i wide[16])
{
#pragma GCC unroll 32
    for (int i = 0; i < 8; i++) {
        wide[2 * i] = _mm512_and_si512(weights[i], _mm512_set1_epi16(255));
        wide[2 * i + 1] = _mm512_srli_epi16(weights[i], 8);
    }
}

/* ---- products of integers ---- */

/* Weights of a block as they are multiplied: 8 registers of bytes or 16 of 16-bit integers. */
INLINE void load_weights(enum dtype dtype, const uint8_t *block, __m512i weights[16])
{
    __m512i bytes[8];
    load_unsigned(dtype, block, widens(dtype) ? bytes : weights);
    if (widens(dtype)) widen(bytes, weights);
}

/* The end of a block for one row and panel. */
INLINE __m512 add_sums(enum dtype dtype, const struct block_scales *s, struct block_sums sums,
                       const struct act_scale *x, __m512 acc)
{
    const __m512 scale = _mm512_set1_ps(x->scale);
    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums.low), _mm512_mul_ps(s->d[0], scale), acc);
    if (!panel_has_two_scales(dtype)) return _mm512_fmadd_ps(s->m[0], _mm512_set1_ps(x->sum), acc);
    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums.high), _mm512_mul_ps(s->d[1], scale), acc);
    acc = _mm512_fmadd_ps(s->m[0], _mm512_set1_ps(x->sum_low), acc);
    return _mm512_fmadd_ps(s->m[1], _mm512_set1_ps(x->sum_high), acc);
}

/* int8 columns as 16-bit integers, 0 2 1 3 of every four, as ACT_INT16 has them. */
INLINE void widen_columns(const uint8_t *columns, int num_rows, int16_t *wide)
{
    const __m128i order = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    for (int t = 0; t < num_rows; t++, columns += PANEL_BLOCK, wide += PANEL_BLOCK) {
        const __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)columns);
        const __m256i ordered = _mm256_shuffle_epi8(bytes, _mm256_broadcastsi128_si256(order));
        _mm512_store_si512(wide, _mm512_cvtepi8_epi16(ordered));
    }
}

/* columns: int16 where widens. */
INLINE struct block_sums dot_row(enum dtype dtype, const __m512i weights[16], const uint8_t *columns)
{
    return widens(dtype) ? dot_int16(dtype, weights, (const int16_t *)(const void *)columns)
                         : dot_int8(dtype, weights, (const int8_t *)columns);
}

/* num_panels is a constant; num_rows is x->num_rows, or the constant 1, for which the sums stay in registers.
 */
INLINE void product_integers_of(enum dtype dtype, int num_panels, const uint8_t *const *panels,
                                int64_t num_blocks, const struct act_tile *x, int num_rows, float *const *acc)
{
    const int row_bytes = act_block_bytes(takes_int16(dtype) ? ACT_INT16 : ACT_INT8),
              dot_bytes = act_block_bytes(widens(dtype) ? ACT_INT16 : ACT_INT8);
    const bool to_widen = dot_bytes != row_bytes;
    const uint8_t *columns = x->columns;
    const struct act_scale *scales = x->scales;
    _Alignas(64) int16_t wide[ACT_TILE_ROWS * PANEL_BLOCK];
    __m512 single[PANELS_MAX] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int p = 0; p < num_panels; p++) memset(acc[p], 0, (size_t)num_rows * PANEL_ROWS * sizeof(float));
    for (int64_t b = 0; b < num_blocks; b++) {
        struct block_scales s[PANELS_MAX];
        __m512i weights[PANELS_MAX][16];
#pragma GCC unroll 2
        for (int p = 0; p < num_panels; p++) {
            const uint8_t *const block = panel_block(dtype, panels[p], b);
            prefetch_ahead(block, panel_layout_of(dtype).block_bytes);
            s[p] = load_scales(dtype, panel_header(dtype, panels[p], b), block);
            load_weights(dtype, block, weights[p]);
        }
        if (to_widen) widen_columns(columns, num_rows, wide);
        const uint8_t *row_columns = to_widen ? (const uint8_t *)wide : columns;
        columns += num_rows * row_bytes;
        for (int t = 0; t < num_rows; t++, row_columns += dot_bytes, scales++) {
            struct block_sums sums[PANELS_MAX];
#pragma GCC unroll 2
            for (int p = 0; p < num_panels; p++) sums[p] = dot_row(dtype, weights[p], row_columns);
#pragma GCC unroll 2
            for (int p = 0; p < num_panels; p++) {
                float *const at = acc[p] + t * PANEL_ROWS;
                if (num_rows == 1)
                    single[p] = add_sums(dtype, &s[p], sums[p], scales, single[p]);
                else
                    _mm512_store_ps(at, add_sums(dtype, &s[p], sums[p], scales, _mm512_load_ps(at)));
            }
        }
    }
    for (int p = 0; p < num_panels && num_rows == 1; p++) _mm512_store_ps(acc[p], single[p]);
}

/* Two panels at once where the registers hold both blocks: their weights share the broadcasts of the
 * activations. */
INLINE void product_integers(enum dtype dtype, const struct panels *p, int64_t num_blocks,
                             const struct act_tile *x)
{
    if (p->num == 2 && !widens(dtype)) {
        if (x->num_rows == 1)
            product_integers_of(dtype, 2, p->data, num_blocks, x, 1, p->acc);
        else
            product_integers_of(dtype, 2, p->data, num_blocks, x, x->num_rows, p->acc);
        return;
    }
    for (int i = 0; i < p->num; i++) {
        if (x->num_rows == 1)
            product_integers_of(dtype, 1, p->data + i, num_blocks, x, 1, p->acc + i);
        else
            product_integers_of(dtype, 1, p->data + i, num_blocks, x, x->num_rows, p->acc + i);
    }
}

#define DEFINE_PRODUCT(kind, dtype)                                                                          \
    static void product_##dtype(const struct panels *p, int64_t num_blocks, const struct act_tile *x)        \
    {                                                                                                        \
        product_##kind(dtype, p, num_blocks, x);                                                             \
    }

/* ---- activations ---- */

/* q in -limit .. limit; as quantize.c does it. */
INLINE struct act_scale quantize_block(const float *x, float limit, __m512i q[2])
{
    const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
    /* The order of magnitudes as integers puts infinities and NaNs on top. */
    const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);
    const uint32_t largest_bits =
        _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low), no_sign),
                                                 _mm512_and_si512(_mm512_castps_si512(high), no_sign)));
    float largest;
    memcpy(&largest, &largest_bits, sizeof largest);
    if (largest_bits >= 0x7f800000 || largest < QUANTIZE_LEAST) {
        const float all = largest_bits >= 0x7f800000 ? __builtin_nanf("") : 0;
        q[0] = q[1] = _mm512_setzero_si512();
        return (struct act_scale){all, all, all, all};
    }
    const __m512 inverse = _mm512_set1_ps(limit / largest);
    q[0] = _mm512_cvtps_epi32(_mm512_mul_ps(low, inverse));
    q[1] = _mm512_cvtps_epi32(_mm512_mul_ps(high, inverse));
    const int sum_low = _mm512_reduce_add_epi32(q[0]), sum_high = _mm512_reduce_add_epi32(q[1]);
    const float scale = largest / limit;
    return (struct act_scale){scale, scale * (float)(sum_low + sum_high), scale * (float)sum_low,
                              scale * (float)sum_high};
}

static void pack_int8(const float *x, int64_t cols, int row, int num_rows, void *columns,
                      struct act_scale *scales)
{
    for (int64_t b = 0; b < panel_num_blocks(cols); b++) {
        const int64_t at = b * num_rows + row;
        __m128i *const to = (__m128i *)columns + at * 2;
        __m512i q[2];
        scales[at] = quantize_block(x + b * PANEL_BLOCK, 127, q);
        _mm_storeu_si128(to, _mm512_cvtepi32_epi8(q[0]));
        _mm_storeu_si128(to + 1, _mm512_cvtepi32_epi8(q[1]));
    }
}

static void pack_int16(const float *x, int64_t cols, int row, int num_rows, void *columns,
                       struct act_scale *scales)
{
    /* Columns 0 2 1 3 of every four. */
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    for (int64_t b = 0; b < panel_num_blocks(cols); b++) {
        const int64_t at = b * num_rows + row;
        __m256i *const to = (__m256i *)columns + at * 2;
        __m512i q[2];
        scales[at] = quantize_block(x + b * PANEL_BLOCK, 32767, q);
        _mm256_storeu_si256(to, _mm256_shuffle_epi8(_mm512_cvtepi32_epi16(q[0]), order));
        _mm256_storeu_si256(to + 1, _mm256_shuffle_epi8(_mm512_cvtepi32_epi16(q[1]), order));
    }
}

#endif
