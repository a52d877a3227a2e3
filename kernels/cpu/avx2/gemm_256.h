/* gemm_256.h - panel kernels over 256-bit registers, shared by the AVX2 and the AVX-VNNI set: products of integers, activations,
 * and the table's entries. Products of floats: floats_256.h.
 *
 * The panel of 16 rows is taken in two halves of 8: a register holds one f32 for each of 8 rows, or two
 * 16-bit or four 8-bit columns of each. Orders of summation: linear_kernels.h.
 *
 * With many rows of activations a block is taken in two halves of 16 columns, with activations of int16 in quarters of 8, so
 * that eight registers hold the weights of all 16 rows and what is broadcast of a row of activations serves both registers
 * of sums. The sums of a part wait in memory, and so do those of a tile between blocks. With FEW_ROWS at most it is the sums
 * of all rows that stay in registers, and weights are used as they are unpacked.
 *
 * The including file defines splits (whether its bytes must be of 5 bits at most, so that a table's values of 8 bits are
 * multiplied as two nibbles), dot_four (adds four columns of all 16 rows times those of one row of activations, which are in
 * all lanes; wide: of 7 bits), add_sums (of two of its sums), widen (its sums as 32-bit integers) and add_pairs (sum plus two products of
 * 16-bit integers in each lane) below this one. */
#ifndef KERNELS_CPU_AVX2_GEMM_256_H
#define KERNELS_CPU_AVX2_GEMM_256_H

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#include "base/check.h"
#include "files/dtype_blocks.h"
#include "kernels/cpu/avx2/floats_256.h"
#include "kernels/cpu/gate.h"
#include "kernels/cpu/linear_set.h"
#include "kernels/cpu/panel_grid.h"

enum { FEW_ROWS = 4 };

/* w = d u + m; [1] is that of the high 16 columns, which differs where panel_has_two_scales. */
struct block_scales {
    __m256 d[2], m[2];
};

INLINE bool splits(enum dtype dtype);
INLINE void dot_four(bool wide, const __m256i weights[2], __m256i columns, bool first, __m256i sums[2]);
INLINE __m256i widen(bool wide, __m256i sums);
INLINE __m256i add_sums(bool wide, __m256i low, __m256i high);
INLINE __m256i add_pairs(__m256i sum, __m256i weights, __m256i columns);

INLINE bool takes_int16(enum dtype dtype)
{
    return dtype == DTYPE_Q8_0 || dtype == DTYPE_Q6_K;
}

INLINE bool has_fifth_bits(enum dtype dtype)
{
    return dtype == DTYPE_Q5_0 || dtype == DTYPE_Q5_1 || dtype == DTYPE_Q5_K;
}

INLINE __m256i broadcast_dword(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

/* ---- scales of rows 8 half .. 8 half + 7 ---- */

INLINE __m256 load_u8(const uint8_t *p, int half)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadu_si64(p + half * HALF_ROWS)));
}

INLINE __m256 load_i8(const uint8_t *p, int half)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadu_si64(p + half * HALF_ROWS)));
}

/* Nibbles number shift / 4 of bytes. */
INLINE __m256 load_u4(const uint8_t *p, int half, int shift)
{
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadu_si64(p + half * HALF_ROWS));
    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(bytes, shift), _mm256_set1_epi32(15)));
}

/* Of the low or the high columns; all products are exact. */
INLINE __m256 load_grid_scale(enum dtype dtype, const uint8_t *header, const uint8_t *block, int half,
                              int second)
{
    const __m256 unit = _mm256_set1_ps(dtype_grid_step(dtype, 0)), two_units = _mm256_add_ps(unit, unit);
    const __m256 small = load_u4(block + panel_layout_of(dtype).scales, half, 4 * second);
    return _mm256_mul_ps(load_f16(header, half), _mm256_fmadd_ps(small, two_units, unit));
}

INLINE struct block_scales load_two_scales(enum dtype dtype, const uint8_t *header, const uint8_t *block,
                                           int half)
{
    const struct panel_layout l = panel_layout_of(dtype);
    const __m256 minus_bias = _mm256_set1_ps((float)-panel_unsigned_bias(dtype));
    const int at[2] = {l.scales, l.minimums};
    struct block_scales s;
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const uint8_t *const small = block + at[i];
        if (dtype_is_grid(dtype)) {
            s.d[i] = load_grid_scale(dtype, header, block, half, i);
            s.m[i] = _mm256_mul_ps(minus_bias, s.d[i]);
        } else if (dtype == DTYPE_Q2_K) {
            const __m256 minimums = _mm256_mul_ps(load_f16(header + 32, half), load_u4(small, half, 4));
            s.d[i] = _mm256_mul_ps(load_f16(header, half), load_u4(small, half, 0));
            s.m[i] = _mm256_sub_ps(_mm256_setzero_ps(), minimums);
        } else {
            s.d[i] = _mm256_mul_ps(load_f16(header, half), load_i8(small, half));
            s.m[i] = _mm256_mul_ps(minus_bias, s.d[i]);
        }
    }
    return s;
}

INLINE struct block_scales load_scales(enum dtype dtype, const uint8_t *header, const uint8_t *block,
                                       int half)
{
    const struct panel_layout l = panel_layout_of(dtype);
    const __m256 minus_bias = _mm256_set1_ps((float)-panel_unsigned_bias(dtype));
    struct block_scales s;
    if (panel_has_two_scales(dtype)) return load_two_scales(dtype, header, block, half);
    if (dtype == DTYPE_IQ4_XS || dtype_is_grid(dtype) || panel_has_one_scale(dtype)) {
        s.d[0] = dtype == DTYPE_IQ4_XS
                     ? _mm256_mul_ps(load_f16(header, half), load_i8(block + l.scales, half))
                 : dtype_is_grid(dtype) ? load_grid_scale(dtype, header, block, half, 0)
                                        : load_f16(header, half);
        s.m[0] = _mm256_mul_ps(minus_bias, s.d[0]);
    } else if (l.header_bytes) {
        const __m256 minimums = _mm256_mul_ps(load_f16(header + 32, half), load_u8(block + l.minimums, half));
        s.d[0] = _mm256_mul_ps(load_f16(header, half), load_u8(block + l.scales, half));
        s.m[0] = _mm256_sub_ps(_mm256_setzero_ps(), minimums);
    } else {
        s.d[0] = load_f16(block + l.scales, half);
        s.m[0] = l.minimums ? load_f16(block + l.minimums, half) : _mm256_mul_ps(minus_bias, s.d[0]);
    }
    s.d[1] = s.d[0];
    s.m[1] = s.m[0];
    return s;
}

/* ---- weights as bytes: a register holds four columns of each of 8 rows ---- */

INLINE __m256i load_bytes(const uint8_t *p, int half)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)(p + half * 32));
}

/* i: columns 4i .. 4i + 3 of the block, of which 4 .. 7 are the high nibbles. */
INLINE __m256i load_nibbles(const uint8_t *block, int half, int i)
{
    const __m256i both = load_bytes(block + i % 4 * 64, half);
    return _mm256_and_si256(i < 4 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
}

/* What nibbles stand for, 128 added, which the sign bit's change does. */
INLINE __m256i table_values(void)
{
    const __m128i values = load_16_bytes((const uint8_t *)dtype_iq4_values);
    return _mm256_broadcastsi128_si256(_mm_xor_si128(values, _mm_set1_epi8((char)0x80)));
}

/* i: columns 4i .. 4i + 3 of Q2_K and Q3_K, whose third bits are at high. */
INLINE __m256i load_two_bits(const uint8_t *block, int half, int i)
{
    const __m256i four = load_bytes(block + i / 4 * 64, half);
    return _mm256_and_si256(_mm256_srli_epi16(four, 2 * (i % 4)), _mm256_set1_epi8(3));
}

INLINE __m256i load_third_bits(const uint8_t *high, int half, int i)
{
    const __m256i all = load_bytes(high, half);
    const __m256i shifted = i < 2 ? _mm256_slli_epi16(all, 2 - i) : _mm256_srli_epi16(all, i - 2);
    return _mm256_and_si256(shifted, _mm256_set1_epi8(4));
}

/* Bit n of 32 becomes byte n: value or 0. */
INLINE __m256i spread_bits(uint32_t bits, char value)
{
    const __m256i byte_of = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit_of = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), byte_of);
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit_of), bit_of);
    return _mm256_and_si256(set, _mm256_set1_epi8(value));
}

/* A bit of each of columns 4i .. 4i + 3: value or 0. */
INLINE __m256i load_one_bit(const uint8_t *from, int half, int i, char value)
{
    uint32_t bits;
    memcpy(&bits, from + i * 8 + half * 4, sizeof bits);
    return spread_bits(bits, value);
}

/* 16 times the upper two bits of columns 4i .. 4i + 3. */
INLINE __m256i load_upper_bits(const uint8_t *high, int half, int i)
{
    const __m256i four = load_bytes(high + i / 4 * 64, half);
    const __m256i shifted =
        i % 4 < 2 ? _mm256_slli_epi16(four, 4 - 2 * (i % 4)) : _mm256_srli_epi16(four, 2 * (i % 4) - 4);
    return _mm256_and_si256(shifted, _mm256_set1_epi8(0x30));
}

/* ---- weights of a grid ---- */

/* Entry j of each row, of types whose entries have upper bits. */
INLINE __m256i load_entries(enum dtype dtype, const uint8_t *block, int half, int j)
{
    const uint8_t *const high = block + panel_layout_of(dtype).high_bits;
    const int bits = panel_grid_upper_bits(dtype);
    const __m256i low = _mm256_cvtepu8_epi32(_mm_loadu_si64(block + 16 * j + half * HALF_ROWS));
    const __m256i words = bits == 4 ? _mm256_cvtepu16_epi32(load_16_bytes(high + half * HALF_ROWS * 2))
                                    : _mm256_cvtepu8_epi32(_mm_loadu_si64(high + half * HALF_ROWS));
    const __m256i upper =
        _mm256_and_si256(_mm256_srli_epi32(words, bits * j), _mm256_set1_epi32(panel_grid_upper_mask(dtype)));
    return _mm256_or_si256(low, _mm256_slli_epi32(upper, 8));
}

/* Columns 4i .. 4i + 3 of IQ1_*, of a word of their grid: 8 times its codes, and 2 where its sign does not take it away. */
INLINE __m256i ternary_of_word(const uint8_t *block, __m256i word, int half, int i)
{
    const uint8_t *const high = block + panel_layout_of(DTYPE_IQ1_S).high_bits;
    const __m256i signs = _mm256_cvtepu16_epi32(load_16_bytes(high + half * HALF_ROWS * 2));
    const __m256i is_negative = _mm256_srai_epi32(_mm256_slli_epi32(signs, 28 - i / 2 * 4), 31);
    const __m256i codes = i % 2 ? _mm256_srli_epi32(word, 1) : _mm256_slli_epi32(word, 3);
    return _mm256_or_si256(_mm256_and_si256(codes, _mm256_set1_epi8(0x18)),
                           _mm256_andnot_si256(is_negative, _mm256_set1_epi8(2)));
}

/* Columns 4i .. 4i + 3 of others: what codes stand for, by the columns' signs. */
INLINE __m256i signed_of_word(enum dtype dtype, const uint8_t *block, __m256i word, int half, int i)
{
    const __m256i table = _mm256_broadcastsi128_si256(load_16_bytes(panel_grid_values(dtype)));
    const __m256i shifted = panel_grid_num_entries(dtype) == 4 && i % 2 ? _mm256_srli_epi32(word, 4) : word;
    uint32_t signs;
    memcpy(&signs, block + panel_grid_signs(dtype) + i * 8 + half * 4, sizeof signs);
    const __m256i codes = _mm256_and_si256(shifted, _mm256_set1_epi8(7));
    return _mm256_shuffle_epi8(table, _mm256_or_si256(codes, spread_bits(signs, 8)));
}

/* What entry j of each row stands for; as in gemm_512.h. */
INLINE __m256i load_words(enum dtype dtype, const uint8_t *block, int half, int j)
{
    const uint32_t *const table = panel_grid_table(dtype);
    const uint8_t *const e = block + 16 * j + half * HALF_ROWS;
    if (panel_grid_upper_bits(dtype))
        return _mm256_i32gather_epi32((const int *)(const void *)table, load_entries(dtype, block, half, j),
                                      4);
#define WORD(i) (int)table[e[i]]
    return _mm256_setr_epi32(WORD(0), WORD(1), WORD(2), WORD(3), WORD(4), WORD(5), WORD(6), WORD(7));
#undef WORD
}

/* Columns 4i .. 4i + 3 of a word's entry, where Q8_0 has them. */
INLINE void expand_word(enum dtype dtype, const uint8_t *block, __m256i word, int half, int i, uint8_t *bytes)
{
    const __m256i four = panel_grid_adds_one(dtype) ? ternary_of_word(block, word, half, i)
                                                    : signed_of_word(dtype, block, word, half, i);
    _mm256_storeu_si256((__m256i *)(void *)(bytes + i * 64 + half * 32), four);
}

/* A block's unsigned integers, as bytes. */
INLINE void expand_grid(enum dtype dtype, const uint8_t *block, uint8_t bytes[PANEL_BLOCK * PANEL_ROWS])
{
    const int num = panel_grid_num_entries(dtype);
#pragma GCC unroll 32
    for (int j = 0; j < num; j++) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const __m256i word = load_words(dtype, block, half, j);
            expand_word(dtype, block, word, half, j * 8 / num, bytes);
            if (num == 4) expand_word(dtype, block, word, half, 2 * j + 1, bytes);
        }
    }
}

/* What load_four takes a block's integers from. */
INLINE const uint8_t *integers_of(enum dtype dtype, const uint8_t *block,
                                  uint8_t expanded[PANEL_BLOCK * PANEL_ROWS])
{
    if (!dtype_is_grid(dtype)) return block;
    expand_grid(dtype, block, expanded);
    return expanded;
}

/* Columns 4i .. 4i + 3, of types whose bytes are of 5 bits at most, or come out of expand_grid. */
INLINE __m256i load_four(enum dtype dtype, const uint8_t *block, int half, int i)
{
    const uint8_t *const high = block + panel_layout_of(dtype).high_bits;
    if (dtype_is_grid(dtype)) return load_bytes(block + i * 64, half);
    if (dtype == DTYPE_Q1_0) return load_one_bit(block, half, i, 2);
    if (dtype == DTYPE_Q3_K)
        return _mm256_or_si256(load_two_bits(block, half, i), load_third_bits(high, half, i));
    if (panel_has_two_bits(dtype)) return load_two_bits(block, half, i);
    const __m256i nibbles = load_nibbles(block, half, i);
    if (panel_has_table(dtype)) return _mm256_shuffle_epi8(table_values(), nibbles);
    return has_fifth_bits(dtype) ? _mm256_or_si256(nibbles, load_one_bit(high, half, i, 16)) : nibbles;
}

/* 16 columns, the first (second = 0) or the others: [4 half + i] columns 4i .. 4i + 3 of them. */
INLINE void load_columns(enum dtype dtype, const uint8_t *block, int second, __m256i weights[8])
{
#pragma GCC unroll 32
    for (int r = 0; r < 8; r++) weights[r] = load_four(dtype, block, r / 4, r % 4 + 4 * second);
}

/* Columns 4i .. 4i + 3, of 6 or 8 bits, as 16-bit integers: those of the two dwords of activations. */
INLINE void load_four_wide(enum dtype dtype, const uint8_t *block, int half, int i, __m256i weights[2])
{
    const uint8_t *const high = block + panel_layout_of(dtype).high_bits;
    __m256i bytes = dtype == DTYPE_Q8_0 ? load_bytes(block + i * 64, half) : load_nibbles(block, half, i);
    if (dtype == DTYPE_Q6_K) bytes = _mm256_or_si256(bytes, load_upper_bits(high, half, i));
    weights[0] = _mm256_and_si256(bytes, _mm256_set1_epi16(255));
    weights[1] = _mm256_srli_epi16(bytes, 8);
}

/* Eight columns from 8 quarter on: [4 half + i] the columns of the i-th dword of activations. */
INLINE void load_wide(enum dtype dtype, const uint8_t *block, int quarter, __m256i weights[8])
{
#pragma GCC unroll 32
    for (int r = 0; r < 4; r++) load_four_wide(dtype, block, r / 2, r % 2 + 2 * quarter, weights + 2 * r);
}

/* ---- products of integers ---- */

/* An act_scale in all lanes; low is the sum of all columns where these do not have two scales. */
struct row_scales {
    __m256 scale, low, high;
};

INLINE struct row_scales load_row_scales(enum dtype dtype, const struct act_scale *x)
{
    if (!panel_has_two_scales(dtype))
        return (struct row_scales){_mm256_set1_ps(x->scale), _mm256_set1_ps(x->sum), _mm256_setzero_ps()};
    return (struct row_scales){_mm256_set1_ps(x->scale), _mm256_set1_ps(x->sum_low),
                               _mm256_set1_ps(x->sum_high)};
}

/* sum + d * scale * dot + ...: the end of a block for half a panel and one row; dots of the low and high columns apart
 * where these have two scales, where otherwise low is both. */
INLINE __m256 add_dots(enum dtype dtype, const struct block_scales *s, __m256i low, __m256i high,
                       const struct row_scales *x, __m256 sum)
{
    sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(low), _mm256_mul_ps(s->d[0], x->scale), sum);
    if (panel_has_two_scales(dtype))
        sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(high), _mm256_mul_ps(s->d[1], x->scale), sum);
    sum = _mm256_fmadd_ps(s->m[0], x->low, sum);
    return panel_has_two_scales(dtype) ? _mm256_fmadd_ps(s->m[1], x->high, sum) : sum;
}

/* The end of a block for one row, added to acc. */
INLINE void add_row(enum dtype dtype, const struct block_scales s[2], const __m256i low[2],
                    const __m256i high[2], const struct act_scale *scale, float *acc)
{
    const struct row_scales x = load_row_scales(dtype, scale);
    const __m256 first = add_dots(dtype, &s[0], low[0], high[0], &x, _mm256_load_ps(acc));
    const __m256 second = add_dots(dtype, &s[1], low[1], high[1], &x, _mm256_load_ps(acc + HALF_ROWS));
    _mm256_store_ps(acc, first);
    _mm256_store_ps(acc + HALF_ROWS, second);
}

INLINE void load_both_scales(enum dtype dtype, const uint8_t *header, const uint8_t *block,
                             struct block_scales s[2])
{
    s[0] = load_scales(dtype, header, block, 0);
    s[1] = load_scales(dtype, header, block, 1);
}

/* sums = 16 columns of all 16 rows times those of one row of activations. */
INLINE void dot_columns(bool wide, const __m256i weights[8], const int8_t *columns, __m256i sums[2])
{
#pragma GCC unroll 32
    for (int i = 0; i < 4; i++) {
        const __m256i both[2] = {weights[i], weights[4 + i]};
        dot_four(wide, both, broadcast_dword(columns + 4 * i), i == 0, sums);
    }
}

/* Whether integers are of 5 bits and have one scale: the sum of a whole block's products is too large for 16. */
INLINE bool parts_sum(enum dtype dtype)
{
    return has_fifth_bits(dtype) || dtype == DTYPE_IQ3_S || dtype == DTYPE_IQ1_S;
}

/* Whether the sum of a whole block's products is one. */
INLINE bool keeps_together(enum dtype dtype)
{
    return !panel_has_two_scales(dtype) && !parts_sum(dtype);
}

/* The end of a block for one row, from the sums of its low and high columns, or of all where these are together. */
INLINE void finish_int8(enum dtype dtype, const struct block_scales s[2], const __m256i first[2],
                        const __m256i second[2], const struct act_scale *scale, float *acc)
{
    __m256i low[2], high[2];
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        low[half] = widen(panel_has_seven_bits(dtype), first[half]);
        high[half] = keeps_together(dtype) ? low[half] : widen(panel_has_seven_bits(dtype), second[half]);
        if (parts_sum(dtype)) low[half] = _mm256_add_epi32(low[half], high[half]);
    }
    add_row(dtype, s, low, high, scale, acc);
}

/* The compiler may not move sums past here: it would add products up in trees, which take more registers. */
INLINE void keep_order(__m256i sums[2])
{
    __asm__("" : "+x"(sums[0]), "+x"(sums[1]));
}

/* One block times num_rows (a constant, FEW_ROWS at most) rows, whose sums stay in registers and whose weights are used as
 * they are unpacked. */
INLINE void add_few_int8(enum dtype dtype, const uint8_t *header, const uint8_t *block, const int8_t *columns,
                         const struct act_scale *scales, const int num_rows, float *acc)
{
    __m256i sums[2][FEW_ROWS][2];
    struct block_scales s[2];
    uint8_t expanded[PANEL_BLOCK * PANEL_ROWS];
    const uint8_t *const codes = integers_of(dtype, block, expanded);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const int part = keeps_together(dtype) ? 0 : i / 4;
        const bool first = keeps_together(dtype) ? i == 0 : i % 4 == 0;
        const __m256i weights[2] = {load_four(dtype, codes, 0, i), load_four(dtype, codes, 1, i)};
#pragma GCC unroll 8
        for (int t = 0; t < num_rows; t++) {
            dot_four(panel_has_seven_bits(dtype), weights, broadcast_dword(columns + t * PANEL_BLOCK + 4 * i),
                     first, sums[part][t]);
            keep_order(sums[part][t]);
        }
    }
    load_both_scales(dtype, header, block, s);
#pragma GCC unroll 8
    for (int t = 0; t < num_rows; t++)
        finish_int8(dtype, s, sums[0][t], sums[1][t], &scales[t], acc + t * PANEL_ROWS);
}

/* One block times a tile, added to acc. Short loops, whose operands all have registers, instead of one. */
INLINE void add_block_int8(enum dtype dtype, const uint8_t *header, const uint8_t *block,
                           const int8_t *columns, const struct act_scale *scales, int num_rows, float *acc)
{
    __m256i sums[2][ACT_TILE_ROWS][2];
    struct block_scales s[2];
    uint8_t expanded[PANEL_BLOCK * PANEL_ROWS];
    const uint8_t *const codes = integers_of(dtype, block, expanded);
#pragma GCC unroll 2
    for (int second = 0; second < 2; second++) {
        __m256i weights[8];
        load_columns(dtype, codes, second, weights);
#pragma GCC unroll 2
        for (int t = 0; t < num_rows; t++) {
            __m256i dots[2];
            dot_columns(panel_has_seven_bits(dtype), weights, columns + t * PANEL_BLOCK + 16 * second, dots);
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                if (second && keeps_together(dtype))
                    sums[0][t][half] = add_sums(panel_has_seven_bits(dtype), sums[0][t][half], dots[half]);
                else
                    sums[second][t][half] = dots[half];
            }
        }
    }
    load_both_scales(dtype, header, block, s);
#pragma GCC unroll 2
    for (int t = 0; t < num_rows; t++)
        finish_int8(dtype, s, sums[0][t], sums[1][t], &scales[t], acc + t * PANEL_ROWS);
}

/* sums[num_rows] of 16 bits: a block's products with the values that table has for its nibbles, 15 at most. */
INLINE void dot_table(__m256i table, const uint8_t *block, const int8_t *columns, int num_rows,
                      __m256i (*sums)[2])
{
#pragma GCC unroll 2
    for (int second = 0; second < 2; second++) {
        __m256i weights[8];
        load_columns(DTYPE_Q4_0, block, second, weights);
#pragma GCC unroll 32
        for (int i = 0; i < 8; i++) weights[i] = _mm256_shuffle_epi8(table, weights[i]);
#pragma GCC unroll 2
        for (int t = 0; t < num_rows; t++) {
            __m256i dots[2];
            dot_columns(false, weights, columns + t * PANEL_BLOCK + 16 * second, dots);
            sums[t][0] = second ? _mm256_add_epi16(sums[t][0], dots[0]) : dots[0];
            sums[t][1] = second ? _mm256_add_epi16(sums[t][1], dots[1]) : dots[1];
        }
    }
}

/* As add_block_int8, with values u = 16 h + l. */
INLINE void add_block_split(enum dtype dtype, const uint8_t *header, const uint8_t *block,
                            const int8_t *columns, const struct act_scale *scales, int num_rows, float *acc)
{
    const __m256i nibble = _mm256_set1_epi8(15), u = table_values();
    __m256i high[ACT_TILE_ROWS][2], low[ACT_TILE_ROWS][2];
    struct block_scales s[2];
    dot_table(_mm256_and_si256(_mm256_srli_epi16(u, 4), nibble), block, columns, num_rows, high);
    dot_table(_mm256_and_si256(u, nibble), block, columns, num_rows, low);
    load_both_scales(dtype, header, block, s);
#pragma GCC unroll 2
    for (int t = 0; t < num_rows; t++, acc += PANEL_ROWS) {
        __m256i dots[2];
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++)
            dots[half] = _mm256_add_epi32(_mm256_madd_epi16(high[t][half], _mm256_set1_epi16(16)),
                                          _mm256_madd_epi16(low[t][half], _mm256_set1_epi16(1)));
        add_row(dtype, s, dots, dots, &scales[t], acc);
    }
}

/* sums (+)= eight columns of all 16 rows, as 16-bit integers, times those of one row of activations. */
INLINE void dot_wide(const __m256i weights[8], const int16_t *columns, bool add, __m256i sums[2])
{
    __m256i lower = add ? sums[0] : _mm256_setzero_si256(), upper = add ? sums[1] : _mm256_setzero_si256();
#pragma GCC unroll 32
    for (int i = 0; i < 4; i++) {
        const __m256i two = broadcast_dword(columns + 2 * i);
        lower = add_pairs(lower, weights[i], two);
        upper = add_pairs(upper, weights[4 + i], two);
    }
    sums[0] = lower;
    sums[1] = upper;
}

/* As add_few_int8. */
INLINE void add_few_int16(enum dtype dtype, const uint8_t *header, const uint8_t *block,
                          const int16_t *columns, const struct act_scale *scales, const int num_rows,
                          float *acc)
{
    __m256i sums[2][FEW_ROWS][2];
    struct block_scales s[2];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        const int part = panel_has_two_scales(dtype) ? i / 8 : 0;
        const bool first = panel_has_two_scales(dtype) ? i % 8 == 0 : i == 0;
        __m256i wide[2][2];
        load_four_wide(dtype, block, 0, i / 2, wide[0]);
        load_four_wide(dtype, block, 1, i / 2, wide[1]);
#pragma GCC unroll 8
        for (int t = 0; t < num_rows; t++) {
            const __m256i two = broadcast_dword(columns + t * PANEL_BLOCK + 2 * i);
            __m256i *const sum = sums[part][t];
            if (first) sum[0] = sum[1] = _mm256_setzero_si256();
            sum[0] = add_pairs(sum[0], wide[0][i % 2], two);
            sum[1] = add_pairs(sum[1], wide[1][i % 2], two);
            keep_order(sum);
        }
    }
    load_both_scales(dtype, header, block, s);
#pragma GCC unroll 8
    for (int t = 0; t < num_rows; t++)
        add_row(dtype, s, sums[0][t], sums[panel_has_two_scales(dtype)][t], &scales[t], acc + t * PANEL_ROWS);
}

INLINE void add_block_int16(enum dtype dtype, const uint8_t *header, const uint8_t *block,
                            const int16_t *columns, const struct act_scale *scales, int num_rows, float *acc)
{
    __m256i sums[2][ACT_TILE_ROWS][2];
    struct block_scales s[2];
#pragma GCC unroll 4
    for (int quarter = 0; quarter < 4; quarter++) {
        const int second = panel_has_two_scales(dtype) ? quarter / 2 : 0;
        const bool add = panel_has_two_scales(dtype) ? quarter % 2 : quarter > 0;
        __m256i weights[8];
        load_wide(dtype, block, quarter, weights);
#pragma GCC unroll 2
        for (int t = 0; t < num_rows; t++)
            dot_wide(weights, columns + t * PANEL_BLOCK + 8 * quarter, add, sums[second][t]);
    }
    load_both_scales(dtype, header, block, s);
#pragma GCC unroll 2
    for (int t = 0; t < num_rows; t++)
        add_row(dtype, s, sums[0][t], sums[panel_has_two_scales(dtype)][t], &scales[t], acc + t * PANEL_ROWS);
}

typedef void block_product(const uint8_t *header, const uint8_t *block, const void *columns,
                           const struct act_scale *scales, int num_rows, float *acc);

INLINE void product_integers(enum dtype dtype, block_product *add_block, const uint8_t *panel,
                             int64_t num_blocks, const struct act_tile *x, float *acc)
{
    const enum act_form form = takes_int16(dtype) ? ACT_INT16 : ACT_INT8;
    memset(acc, 0, (size_t)x->num_rows * PANEL_ROWS * sizeof *acc);
    for (int64_t b = 0; b < num_blocks; b++) {
        const uint8_t *const block = panel_block(dtype, panel, b);
        const int64_t first = b * x->num_rows;
        prefetch_ahead(block, panel_layout_of(dtype).block_bytes);
        add_block(panel_header(dtype, panel, b), block,
                  (const uint8_t *)x->columns + first * act_block_bytes(form), x->scales + first, x->num_rows,
                  acc);
    }
}

/* ---- activations ---- */

INLINE int sum_of_lanes(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* The order of magnitudes as integers puts infinities and NaNs on top. */
INLINE uint32_t largest_magnitude_bits(const __m256 x[4])
{
    const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
    __m256i largest = _mm256_setzero_si256();
#pragma GCC unroll 32
    for (int i = 0; i < 4; i++)
        largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(x[i]), no_sign));
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1)));
}

/* q in -limit .. limit; as quantize.c does it. */
INLINE struct act_scale quantize_block(const float *from, float limit, __m256i q[4])
{
    __m256 x[4];
    float largest;
#pragma GCC unroll 32
    for (int i = 0; i < 4; i++) x[i] = _mm256_loadu_ps(from + 8 * i);
    const uint32_t largest_bits = largest_magnitude_bits(x);
    memcpy(&largest, &largest_bits, sizeof largest);
    if (largest_bits >= 0x7f800000 || largest < QUANTIZE_LEAST) {
        const float all = largest_bits >= 0x7f800000 ? __builtin_nanf("") : 0;
#pragma GCC unroll 32
        for (int i = 0; i < 4; i++) q[i] = _mm256_setzero_si256();
        return (struct act_scale){all, all, all, all};
    }
    const __m256 inverse = _mm256_set1_ps(limit / largest);
#pragma GCC unroll 32
    for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(x[i], inverse));
    const int low = sum_of_lanes(_mm256_add_epi32(q[0], q[1])),
              high = sum_of_lanes(_mm256_add_epi32(q[2], q[3]));
    const float scale = largest / limit;
    return (struct act_scale){scale, scale * (float)(low + high), scale * (float)low, scale * (float)high};
}

static void pack_int8(const float *x, int64_t cols, int row, int num_rows, void *columns,
                      struct act_scale *scales)
{
    for (int64_t b = 0; b < panel_num_blocks(cols); b++) {
        const int64_t at = b * num_rows + row;
        __m256i q[4];
        scales[at] = quantize_block(x + b * PANEL_BLOCK, 127, q);
        /* The packs work on each half of a register: dwords come out in the order 0 4 1 5 2 6 3 7. */
        const __m256i bytes =
            _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        _mm256_storeu_si256((__m256i *)columns + at, _mm256_permutevar8x32_epi32(bytes, order));
    }
}

/* Sixteen columns in the order 0 2 1 3 of every four. */
INLINE __m256i pack_16_columns(__m256i q0, __m256i q1)
{
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(q0, q1), 0xd8);
    return _mm256_shuffle_epi8(words, order);
}

static void pack_int16(const float *x, int64_t cols, int row, int num_rows, void *columns,
                       struct act_scale *scales)
{
    for (int64_t b = 0; b < panel_num_blocks(cols); b++) {
        const int64_t at = b * num_rows + row;
        __m256i *const to = (__m256i *)columns + at * 2;
        __m256i q[4];
        scales[at] = quantize_block(x + b * PANEL_BLOCK, 32767, q);
        _mm256_storeu_si256(to, pack_16_columns(q[0], q[1]));
        _mm256_storeu_si256(to + 1, pack_16_columns(q[2], q[3]));
    }
}

#define DEFINE_PRODUCT(kind, dtype) DEFINE_PRODUCT_##kind(dtype)

#define DEFINE_PRODUCT_floats(dtype)                                                                         \
    static void product_##dtype(const struct panels *p, int64_t num_blocks, const struct act_tile *x)        \
    {                                                                                                        \
        for (int i = 0; i < p->num; i++) product_floats(dtype, p->data[i], num_blocks, x, p->acc[i]);        \
    }

/* num_rows: a constant where few. No rows are few to what splits, whose sums take twice the registers. */
INLINE void add_block(enum dtype dtype, bool few, const uint8_t *header, const uint8_t *block,
                      const void *columns, const struct act_scale *scales, int num_rows, float *acc)
{
    if (few && splits(dtype))
        assert_debug(false);
    else if (splits(dtype))
        add_block_split(dtype, header, block, columns, scales, num_rows, acc);
    else if (few && takes_int16(dtype))
        add_few_int16(dtype, header, block, columns, scales, num_rows, acc);
    else if (few)
        add_few_int8(dtype, header, block, columns, scales, num_rows, acc);
    else if (takes_int16(dtype))
        add_block_int16(dtype, header, block, columns, scales, num_rows, acc);
    else
        add_block_int8(dtype, header, block, columns, scales, num_rows, acc);
}

/* A block is a function of its own: where it was not, the counters of the loop over rows had no registers left, and numbers
 * of rows shared their weights' unpacking, in memory. */
#define DEFINE_BLOCK(name, dtype, few, rows)                                                                 \
    static __attribute__((noinline)) void name(const uint8_t *header, const uint8_t *block,                  \
                                               const void *columns, const struct act_scale *scales,          \
                                               int num_rows, float *acc)                                     \
    {                                                                                                        \
        (void)num_rows;                                                                                      \
        add_block(dtype, few, header, block, columns, scales, rows, acc);                                    \
    }

#define DEFINE_PRODUCT_integers(dtype)                                                                       \
    DEFINE_BLOCK(add_1_##dtype, dtype, true, 1)                                                              \
    DEFINE_BLOCK(add_2_##dtype, dtype, true, 2)                                                              \
    DEFINE_BLOCK(add_3_##dtype, dtype, true, 3)                                                              \
    DEFINE_BLOCK(add_4_##dtype, dtype, true, 4)                                                              \
    DEFINE_BLOCK(add_many_##dtype, dtype, false, num_rows)                                                   \
    static void product_##dtype(const struct panels *p, int64_t num_blocks, const struct act_tile *x)        \
    {                                                                                                        \
        static block_product *const few[FEW_ROWS] = {add_1_##dtype, add_2_##dtype, add_3_##dtype,            \
                                                     add_4_##dtype};                                         \
        assert_debug(x->num_rows > 0);                                                                       \
        const bool is_few = x->num_rows <= FEW_ROWS && !splits(dtype);                                       \
        block_product *const product = is_few ? few[x->num_rows - 1] : add_many_##dtype;                     \
        for (int i = 0; i < p->num; i++)                                                                     \
            product_integers(dtype, product, p->data[i], num_blocks, x, p->acc[i]);                          \
    }

#endif
