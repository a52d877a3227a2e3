/* floats_256.h - products with weights that are floats, or codes of floats, over 256-bit registers.
 *
 * A panel's 16 rows are two halves of 8. A row of activations has two sums in each half (even and odd columns), and there are
 * 16 registers: weights are used as they are unpacked by two rows for both halves, by three to six for one half at a time;
 * more rows come by threes, whose activations are broadcast once for both halves, over a chunk that is unpacked into memory.
 * Order of summation: linear_kernels.h. */
#ifndef KERNELS_CPU_AVX2_FLOATS_256_H
#define KERNELS_CPU_AVX2_FLOATS_256_H

#include <immintrin.h>
#include <string.h>

#include "base/check.h"
#include "kernels/cpu/linear_kernels.h"

#define INLINE static inline __attribute__((always_inline))

enum { HALF_ROWS = PANEL_ROWS / 2 };

/* As in floats_512.h. */
INLINE void prefetch_ahead(const uint8_t *block, int bytes)
{
    for (int i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)((uintptr_t)block + 4096 + i), _MM_HINT_T0);
}

INLINE __m128i load_16_bytes(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

INLINE __m256 load_f16(const uint8_t *p, int half)
{
    return _mm256_cvtph_ps(load_16_bytes(p + half * HALF_ROWS * 2));
}

INLINE __m256 widen_bf16(const uint8_t *p, int half)
{
    const __m128i tops = load_16_bytes(p + half * HALF_ROWS * 2);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(tops), 16));
}

/* Column k of half a block. */
INLINE __m256 float_at(enum dtype dtype, const uint8_t *block, int half, int64_t k)
{
    switch (dtype) {
    case DTYPE_F32:
        return _mm256_loadu_ps((const float *)(const void *)(block + k * 64 + half * 32));
    case DTYPE_F16:
        return load_f16(block + k * 32, half);
    default:
        return widen_bf16(block + k * 32, half);
    }
}

/* As in floats_512.h. */
enum { INTEGER_BITS = 0x4b000000 };

struct code_scales {
    __m256 scale[2], zero;
};

INLINE struct code_scales load_code_scales(enum dtype dtype, const uint8_t *header, const uint8_t *block,
                                           int half)
{
    const struct panel_layout l = panel_layout_of(dtype);
    const float *const scales = (const float *)(const void *)(l.header_bytes ? header : block + l.scales);
    struct code_scales s = {{_mm256_setzero_ps(), _mm256_setzero_ps()}, _mm256_setzero_ps()};
    if (!panel_has_codes(dtype)) return s;
    s.scale[0] = s.scale[1] = dtype == DTYPE_MXFP4 ? widen_bf16(block + l.scales, half)
                                                   : _mm256_loadu_ps(scales + half * HALF_ROWS);
    if (dtype == DTYPE_F4_E2M1)
        s.scale[1] = _mm256_loadu_ps((const float *)(const void *)(block + l.minimums) + half * HALF_ROWS);
    /* codes become 2^-8 of their number, or twice it */
    const float unit = dtype == DTYPE_F8_E4M3 ? 256 : dtype == DTYPE_I8 || dtype == DTYPE_U4 ? 1 : 0.5f;
    for (int i = 0; i < 2 && unit != 1; i++) s.scale[i] = _mm256_mul_ps(s.scale[i], _mm256_set1_ps(unit));
    if (dtype == DTYPE_U4) {
        const __m256i zeros = _mm256_cvtepu8_epi32(_mm_loadu_si64(block + l.minimums + half * HALF_ROWS));
        s.zero = _mm256_castsi256_ps(_mm256_or_si256(zeros, _mm256_set1_epi32(INTEGER_BITS)));
    }
    return s;
}

struct float_pair {
    __m256 even, odd;
};

INLINE __m256 e4m3_at(const uint8_t *p)
{
    const __m128i codes = _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadu_si64(p)), 7);
    return _mm256_cvtph_ps(_mm_and_si128(codes, _mm_set1_epi16((short)0xbfff)));
}

INLINE __m256 i8_at(__m128i bytes)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

INLINE struct float_pair u4_pair(const uint8_t *p, __m256 zero)
{
    const __m256i both = _mm256_cvtepu8_epi32(_mm_loadu_si64(p)), bits = _mm256_set1_epi32(INTEGER_BITS);
    const __m256i even = _mm256_or_si256(_mm256_and_si256(both, _mm256_set1_epi32(15)), bits);
    const __m256i odd = _mm256_or_si256(_mm256_srli_epi32(both, 4), bits);
    return (struct float_pair){_mm256_sub_ps(_mm256_castsi256_ps(even), zero),
                               _mm256_sub_ps(_mm256_castsi256_ps(odd), zero)};
}

/* Twice the numbers, which are integers. */
INLINE struct float_pair e2m1_pair(const uint8_t *p)
{
    const __m128i twice = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    const __m128i both = _mm_loadu_si64(p), mask = _mm_set1_epi8(15);
    return (struct float_pair){i8_at(_mm_shuffle_epi8(twice, _mm_and_si128(both, mask))),
                               i8_at(_mm_shuffle_epi8(twice, _mm_and_si128(_mm_srli_epi16(both, 4), mask)))};
}

/* Columns k and k + 1 of half a block, k even. */
INLINE struct float_pair pair_at(enum dtype dtype, const uint8_t *block, int half, int k,
                                 const struct code_scales *s)
{
    const uint8_t *const bytes = block + k * PANEL_ROWS + half * HALF_ROWS, *const nibbles =
                                                                                block + k / 2 * PANEL_ROWS +
                                                                                half * HALF_ROWS;
    struct float_pair pair;
    if (!panel_has_codes(dtype))
        return (struct float_pair){float_at(dtype, block, half, k), float_at(dtype, block, half, k + 1)};
    if (dtype == DTYPE_F8_E4M3)
        pair = (struct float_pair){e4m3_at(bytes), e4m3_at(bytes + PANEL_ROWS)};
    else if (dtype == DTYPE_I8)
        pair = (struct float_pair){i8_at(_mm_loadu_si64(bytes)), i8_at(_mm_loadu_si64(bytes + PANEL_ROWS))};
    else
        pair = dtype == DTYPE_U4 ? u4_pair(nibbles, s->zero) : e2m1_pair(nibbles);
    const __m256 scale = s->scale[k >= PANEL_BLOCK / 2];
    return (struct float_pair){_mm256_mul_ps(pair.even, scale), _mm256_mul_ps(pair.odd, scale)};
}

/* A chunk of K of one panel. */
struct float_chunk {
    const uint8_t *panel;
    int64_t first_block;
    int num_blocks;
    const float *x; /* the tile's activations, blocks stride apart */
    int64_t stride;
};

/* Rows whose sums stay in registers, of both halves of a panel or of one at a time. */
enum { FLOATS_ROWS_BOTH = 2, FLOATS_ROWS = 6 };

struct float_sums {
    __m256 even[2][FLOATS_ROWS], odd[2][FLOATS_ROWS];
};

INLINE void clear_sums(struct float_sums *s, int num_halves, int num_rows)
{
#pragma GCC unroll 32
    for (int i = 0; i < num_halves * num_rows; i++)
        s->even[i / num_rows][i % num_rows] = s->odd[i / num_rows][i % num_rows] = _mm256_setzero_ps();
}

/* acc: of the first half. */
INLINE void add_sums_floats(const struct float_sums *s, int num_halves, int num_rows, float *acc)
{
#pragma GCC unroll 32
    for (int i = 0; i < num_halves * num_rows; i++) {
        const int half = i / num_rows, t = i % num_rows;
        float *const at = acc + t * PANEL_ROWS + half * HALF_ROWS;
        _mm256_store_ps(at,
                        _mm256_add_ps(_mm256_load_ps(at), _mm256_add_ps(s->even[half][t], s->odd[half][t])));
    }
}

/* acc += chunk, for the tile's num_rows rows and num_halves halves of the panel from first_half on, all three constants:
 * weights are used as they are unpacked. */
INLINE void add_few_floats(enum dtype dtype, int first_half, int num_halves, int num_rows,
                           const struct float_chunk *c, float *acc)
{
    struct float_sums sums;
    const float *x = c->x;
    clear_sums(&sums, num_halves, num_rows);
    for (int b = 0; b < c->num_blocks; b++, x += c->stride) {
        const uint8_t *const header = panel_header(dtype, c->panel, c->first_block + b);
        const uint8_t *const block = panel_block(dtype, c->panel, c->first_block + b);
        struct code_scales s[2];
#pragma GCC unroll 2
        for (int i = 0; i < num_halves; i++) s[i] = load_code_scales(dtype, header, block, first_half + i);
        if (!first_half) prefetch_ahead(block, panel_layout_of(dtype).block_bytes);
#pragma GCC unroll 2
        for (int k = 0; k < PANEL_BLOCK; k += 2) {
#pragma GCC unroll 2
            for (int i = 0; i < num_halves; i++) {
                const struct float_pair w = pair_at(dtype, block, first_half + i, k, &s[i]);
#pragma GCC unroll 32
                for (int t = 0; t < num_rows; t++) {
                    const float *const at = x + t * PANEL_BLOCK + k;
                    sums.even[i][t] = _mm256_fmadd_ps(w.even, _mm256_set1_ps(at[0]), sums.even[i][t]);
                    sums.odd[i][t] = _mm256_fmadd_ps(w.odd, _mm256_set1_ps(at[1]), sums.odd[i][t]);
                }
            }
        }
    }
    add_sums_floats(&sums, num_halves, num_rows, acc + first_half * HALF_ROWS);
}

/* acc += chunk, for num_rows (a constant) rows from row first, of unpacked weights [columns][PANEL_ROWS]. */
INLINE void add_rows_floats(int num_rows, const float *weights, const struct float_chunk *c, int first,
                            float *acc)
{
    struct float_sums sums;
    const float *x = c->x + first * PANEL_BLOCK;
    clear_sums(&sums, 2, num_rows);
    for (int b = 0; b < c->num_blocks; b++, x += c->stride) {
        for (int k = 0; k < PANEL_BLOCK; k += 2, weights += 2 * PANEL_ROWS) {
            const __m256 even[2] = {_mm256_load_ps(weights), _mm256_load_ps(weights + HALF_ROWS)};
#pragma GCC unroll 32
            for (int t = 0; t < num_rows; t++) {
                const __m256 x_even = _mm256_set1_ps(x[t * PANEL_BLOCK + k]);
                sums.even[0][t] = _mm256_fmadd_ps(even[0], x_even, sums.even[0][t]);
                sums.even[1][t] = _mm256_fmadd_ps(even[1], x_even, sums.even[1][t]);
            }
            const __m256 odd[2] = {_mm256_load_ps(weights + PANEL_ROWS),
                                   _mm256_load_ps(weights + PANEL_ROWS + HALF_ROWS)};
#pragma GCC unroll 32
            for (int t = 0; t < num_rows; t++) {
                const __m256 x_odd = _mm256_set1_ps(x[t * PANEL_BLOCK + k + 1]);
                sums.odd[0][t] = _mm256_fmadd_ps(odd[0], x_odd, sums.odd[0][t]);
                sums.odd[1][t] = _mm256_fmadd_ps(odd[1], x_odd, sums.odd[1][t]);
            }
        }
    }
    add_sums_floats(&sums, 2, num_rows, acc + first * PANEL_ROWS);
}

/* All rows of the tile, in groups as large as the registers allow. */
INLINE void add_tile_floats(int num_rows, const float *weights, const struct float_chunk *c, float *acc)
{
    int t = 0;
    for (; num_rows - t >= 3; t += 3) add_rows_floats(3, weights, c, t, acc);
    if (num_rows - t == 2) add_rows_floats(2, weights, c, t, acc);
    if (num_rows - t == 1) add_rows_floats(1, weights, c, t, acc);
}

/* out[columns][PANEL_ROWS] */
INLINE void unpack_blocks(enum dtype dtype, const struct float_chunk *c, float *out)
{
    for (int b = 0; b < c->num_blocks; b++) {
        const uint8_t *const header = panel_header(dtype, c->panel, c->first_block + b);
        const uint8_t *const block = panel_block(dtype, c->panel, c->first_block + b);
        const struct code_scales s[2] = {load_code_scales(dtype, header, block, 0),
                                         load_code_scales(dtype, header, block, 1)};
        prefetch_ahead(block, panel_layout_of(dtype).block_bytes);
        for (int k = 0; k < PANEL_BLOCK; k += 2, out += 2 * PANEL_ROWS) {
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                const struct float_pair w = pair_at(dtype, block, half, k, &s[half]);
                _mm256_store_ps(out + half * HALF_ROWS, w.even);
                _mm256_store_ps(out + PANEL_ROWS + half * HALF_ROWS, w.odd);
            }
        }
    }
}

INLINE void add_many_floats(enum dtype dtype, int num_rows, const struct float_chunk *c, float *acc)
{
    _Alignas(32) float weights[LINEAR_CHUNK_BLOCKS * PANEL_BLOCK * PANEL_ROWS];
    unpack_blocks(dtype, c, weights);
    add_tile_floats(num_rows, weights, c, acc);
}

/* few: the tile's number of rows, a constant, or 0 where they are more than FLOATS_ROWS. */
INLINE void product_floats_of(enum dtype dtype, int few, const uint8_t *panel, int64_t num_blocks,
                              const struct act_tile *x, float *acc)
{
    struct float_chunk c = {.panel = panel, .x = x->columns, .stride = (int64_t)x->num_rows * PANEL_BLOCK};
    memset(acc, 0, (size_t)x->num_rows * PANEL_ROWS * sizeof *acc);
    for (; c.first_block < num_blocks; c.first_block += c.num_blocks, c.x += c.num_blocks * c.stride) {
        c.num_blocks = (int)min_of(num_blocks - c.first_block, LINEAR_CHUNK_BLOCKS);
        if (!few) {
            add_many_floats(dtype, x->num_rows, &c, acc);
        } else if (few <= FLOATS_ROWS_BOTH) {
            add_few_floats(dtype, 0, 2, few, &c, acc);
        } else {
            add_few_floats(dtype, 0, 1, few, &c, acc);
            add_few_floats(dtype, 1, 1, few, &c, acc);
        }
    }
}

INLINE void product_floats(enum dtype dtype, const uint8_t *panel, int64_t num_blocks,
                           const struct act_tile *x, float *acc)
{
    switch (x->num_rows) {
#define CASE_FEW(n)                                                                                          \
    case n:                                                                                                  \
        product_floats_of(dtype, n, panel, num_blocks, x, acc);                                              \
        return;
        CASE_FEW(1)
        CASE_FEW(2)
        CASE_FEW(3)
        CASE_FEW(4)
        CASE_FEW(5)
        CASE_FEW(6)
#undef CASE_FEW
    }
    product_floats_of(dtype, 0, panel, num_blocks, x, acc);
}

#endif
