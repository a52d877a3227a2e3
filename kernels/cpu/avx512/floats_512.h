/* floats_512.h - products with weights that are floats, or codes of floats, over 512-bit registers.
 *
 * A chunk of weights is unpacked into a small array and multiplied with groups of rows whose sums stay in
 * registers. Few rows use the weights as they are unpacked. Order of summation: linear_kernels.h. */
#ifndef KERNELS_CPU_AVX512_FLOATS_512_H
#define KERNELS_CPU_AVX512_FLOATS_512_H

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#include "base/check.h"
#include "kernels/cpu/linear_kernels.h"

#define INLINE static inline __attribute__((always_inline))

/* A decode step reads each weight once: the hardware's prefetcher alone keeps fewer lines in flight. The
 * distance is that of the best rate measured (kernels/notebook/cpu_linear.md). */
INLINE void prefetch_ahead(const uint8_t *block, int bytes)
{
    for (int i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)((uintptr_t)block + 4096 + i), _MM_HINT_T0);
}

INLINE __m512 load_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

INLINE __m512 widen_bf16(const uint8_t *p)
{
    const __m256i tops = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(tops), 16));
}

/* Column k of a block. */
INLINE __m512 float_at(enum dtype dtype, const uint8_t *block, int64_t k)
{
    switch (dtype) {
    case DTYPE_F32:
        return _mm512_loadu_ps(block + k * 64);
    case DTYPE_F16:
        return load_f16(block + k * 32);
    default:
        return widen_bf16(block + k * 32);
    }
}

/* ---- codes: weights are the f32 numbers (code - zero) * scale, as panel.c computes them ---- */

/* An integer below 2^23 in these bits is the float 2^23 plus it: subtracting two such is exact. */
enum { INTEGER_BITS = 0x4b000000 };

/* [1]: of the columns from 16 on. */
struct code_scales {
    __m512 scale[2], zero;
};

INLINE struct code_scales load_code_scales(enum dtype dtype, const uint8_t *header, const uint8_t *block)
{
    const struct panel_layout l = panel_layout_of(dtype);
    struct code_scales s = {{_mm512_setzero_ps(), _mm512_setzero_ps()}, _mm512_setzero_ps()};
    if (!panel_has_codes(dtype)) return s;
    s.scale[0] = dtype == DTYPE_MXFP4 ? widen_bf16(block + l.scales)
                                      : _mm512_loadu_ps(l.header_bytes ? header : block + l.scales);
    if (dtype == DTYPE_F8_E4M3) s.scale[0] = _mm512_mul_ps(s.scale[0], _mm512_set1_ps(256));
    s.scale[1] = dtype == DTYPE_F4_E2M1 ? _mm512_loadu_ps(block + l.minimums) : s.scale[0];
    if (dtype == DTYPE_U4) {
        const __m128i zeros = _mm_loadu_si128((const __m128i *)(const void *)(block + l.minimums));
        s.zero = _mm512_castsi512_ps(
            _mm512_or_si512(_mm512_cvtepu8_epi32(zeros), _mm512_set1_epi32(INTEGER_BITS)));
    }
    return s;
}

struct float_pair {
    __m512 even, odd;
};

/* As f16 with the exponent of that format the number is 2^-8 of what it was. */
INLINE struct float_pair e4m3_pair(const uint8_t *block, int k)
{
    const __m256i codes = _mm256_loadu_si256((const __m256i *)(const void *)(block + k * PANEL_ROWS));
    const __m512i halves =
        _mm512_and_si512(_mm512_slli_epi16(_mm512_cvtepi8_epi16(codes), 7), _mm512_set1_epi16((short)0xbfff));
    return (struct float_pair){_mm512_cvtph_ps(_mm512_castsi512_si256(halves)),
                               _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1))};
}

INLINE struct float_pair i8_pair(const uint8_t *block, int k)
{
    const __m128i even = _mm_loadu_si128((const __m128i *)(const void *)(block + k * PANEL_ROWS));
    const __m128i odd = _mm_loadu_si128((const __m128i *)(const void *)(block + (k + 1) * PANEL_ROWS));
    return (struct float_pair){_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(even)),
                               _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(odd))};
}

INLINE __m512i nibble_pair(const uint8_t *block, int k)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(block + k / 2 * PANEL_ROWS)));
}

INLINE struct float_pair u4_pair(const uint8_t *block, int k, __m512 zero)
{
    const __m512i both = nibble_pair(block, k), bits = _mm512_set1_epi32(INTEGER_BITS);
    const __m512i even = _mm512_ternarylogic_epi32(both, _mm512_set1_epi32(15), bits, 0xea); /* (a & b) | c */
    const __m512i odd = _mm512_or_si512(_mm512_srli_epi32(both, 4), bits);
    return (struct float_pair){_mm512_sub_ps(_mm512_castsi512_ps(even), zero),
                               _mm512_sub_ps(_mm512_castsi512_ps(odd), zero)};
}

INLINE struct float_pair e2m1_pair(const uint8_t *block, int k)
{
    const __m512 values = _mm512_loadu_ps(dtype_e2m1_values);
    const __m512i both = nibble_pair(block, k); /* the permutation reads the lowest four bits */
    return (struct float_pair){_mm512_permutexvar_ps(both, values),
                               _mm512_permutexvar_ps(_mm512_srli_epi32(both, 4), values)};
}

/* Columns k and k + 1 of a block, k even. */
INLINE struct float_pair pair_at(enum dtype dtype, const uint8_t *block, int k, const struct code_scales *s)
{
    struct float_pair pair;
    if (!panel_has_codes(dtype))
        return (struct float_pair){float_at(dtype, block, k), float_at(dtype, block, k + 1)};
    switch (dtype) {
    case DTYPE_F8_E4M3:
        pair = e4m3_pair(block, k);
        break;
    case DTYPE_I8:
        pair = i8_pair(block, k);
        break;
    case DTYPE_U4:
        pair = u4_pair(block, k, s->zero);
        break;
    default:
        pair = e2m1_pair(block, k);
    }
    const __m512 scale = s->scale[k >= PANEL_BLOCK / 2];
    return (struct float_pair){_mm512_mul_ps(pair.even, scale), _mm512_mul_ps(pair.odd, scale)};
}

/* ---- products ---- */

/* Few rows (num_rows is a constant) use the weights as they are unpacked: all sums stay in registers, those
 * of two panels or of more rows. */
enum { ROWS_FEW = 4, ROWS_FEW_ALONE = 8 };

INLINE void product_floats_few(enum dtype dtype, int num_panels, int num_rows, const struct panels *p,
                               int64_t num_blocks, const float *x)
{
    __m512 sum[PANELS_MAX][ROWS_FEW_ALONE], even[PANELS_MAX][ROWS_FEW_ALONE], odd[PANELS_MAX][ROWS_FEW_ALONE];
#pragma GCC unroll 8
    for (int i = 0; i < num_panels * num_rows; i++)
        sum[i / num_rows][i % num_rows] = even[i / num_rows][i % num_rows] = odd[i / num_rows][i % num_rows] =
            _mm512_setzero_ps();
    for (int64_t b = 0; b < num_blocks; b++, x += num_rows * PANEL_BLOCK) {
        const uint8_t *blocks[PANELS_MAX];
        struct code_scales scales[PANELS_MAX];
#pragma GCC unroll 2
        for (int i = 0; i < num_panels; i++) {
            blocks[i] = panel_block(dtype, p->data[i], b);
            scales[i] = load_code_scales(dtype, panel_header(dtype, p->data[i], b), blocks[i]);
            prefetch_ahead(blocks[i], panel_layout_of(dtype).block_bytes);
        }
        for (int k = 0; k < PANEL_BLOCK; k += 2) {
#pragma GCC unroll 2
            for (int i = 0; i < num_panels; i++) {
                const struct float_pair w = pair_at(dtype, blocks[i], k, &scales[i]);
#pragma GCC unroll 8
                for (int t = 0; t < num_rows; t++) {
                    const float *const at = x + t * PANEL_BLOCK + k;
                    even[i][t] = _mm512_fmadd_ps(w.even, _mm512_set1_ps(at[0]), even[i][t]);
                    odd[i][t] = _mm512_fmadd_ps(w.odd, _mm512_set1_ps(at[1]), odd[i][t]);
                }
            }
        }
        if ((b + 1) % LINEAR_CHUNK_BLOCKS && b + 1 < num_blocks) continue;
#pragma GCC unroll 8
        for (int i = 0; i < num_panels * num_rows; i++) {
            const int n = i / num_rows, t = i % num_rows;
            sum[n][t] = _mm512_add_ps(sum[n][t], _mm512_add_ps(even[n][t], odd[n][t]));
            even[n][t] = odd[n][t] = _mm512_setzero_ps();
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < num_panels * num_rows; i++)
        _mm512_store_ps(p->acc[i / num_rows] + i % num_rows * PANEL_ROWS, sum[i / num_rows][i % num_rows]);
}

/* A chunk of K. */
struct chunk {
    const float *weights[PANELS_MAX]; /* [columns][PANEL_ROWS] of each panel */
    int num_blocks;
    const float *x; /* the tile's activations, blocks stride apart */
    int64_t stride;
};

/* acc += chunk, for num_rows rows from row first; num_panels and num_rows are constants. */
INLINE void add_rows_floats(int num_panels, int num_rows, const struct chunk *c, int first, float *const *acc)
{
    __m512 even[PANELS_MAX][12], odd[PANELS_MAX][12];
    const float *w[PANELS_MAX] = {c->weights[0], c->weights[1]}, *x = c->x + first * PANEL_BLOCK;
#pragma GCC unroll 32
    for (int i = 0; i < num_panels * num_rows; i++)
        even[i / num_rows][i % num_rows] = odd[i / num_rows][i % num_rows] = _mm512_setzero_ps();
    for (int b = 0; b < c->num_blocks; b++, x += c->stride) {
        for (int k = 0; k < PANEL_BLOCK; k += 2) {
            __m512 w_even[PANELS_MAX], w_odd[PANELS_MAX];
#pragma GCC unroll 2
            for (int p = 0; p < num_panels; p++, w[p - 1] += 2 * PANEL_ROWS) {
                w_even[p] = _mm512_loadu_ps(w[p]);
                w_odd[p] = _mm512_loadu_ps(w[p] + PANEL_ROWS);
            }
#pragma GCC unroll 32
            for (int t = 0; t < num_rows; t++) {
                const __m512 x_even = _mm512_set1_ps(x[t * PANEL_BLOCK + k]);
                const __m512 x_odd = _mm512_set1_ps(x[t * PANEL_BLOCK + k + 1]);
#pragma GCC unroll 2
                for (int p = 0; p < num_panels; p++) {
                    even[p][t] = _mm512_fmadd_ps(w_even[p], x_even, even[p][t]);
                    odd[p][t] = _mm512_fmadd_ps(w_odd[p], x_odd, odd[p][t]);
                }
            }
        }
    }
#pragma GCC unroll 32
    for (int i = 0; i < num_panels * num_rows; i++) {
        const int p = i / num_rows, t = i % num_rows;
        float *const at = acc[p] + (first + t) * PANEL_ROWS;
        _mm512_store_ps(at, _mm512_add_ps(_mm512_load_ps(at), _mm512_add_ps(even[p][t], odd[p][t])));
    }
}

/* All rows of the tile, in groups as large as the registers allow. */
INLINE void add_tile_floats(int num_panels, int num_rows, const struct chunk *c, float *const *acc)
{
    int t = 0;
    for (; num_panels == 1 && num_rows - t >= 12; t += 12) add_rows_floats(num_panels, 12, c, t, acc);
    for (; num_rows - t >= 6; t += 6) add_rows_floats(num_panels, 6, c, t, acc);
    for (; num_rows - t >= 4; t += 4) add_rows_floats(num_panels, 4, c, t, acc);
    for (; num_rows - t >= 2; t += 2) add_rows_floats(num_panels, 2, c, t, acc);
    for (; num_rows - t >= 1; t += 1) add_rows_floats(num_panels, 1, c, t, acc);
}

/* out[columns][PANEL_ROWS] */
INLINE void unpack_blocks(enum dtype dtype, const uint8_t *panel, int64_t first, int num_blocks, float *out)
{
    for (int b = 0; b < num_blocks; b++, out += PANEL_BLOCK * PANEL_ROWS) {
        const uint8_t *const block = panel_block(dtype, panel, first + b);
        const struct code_scales s = load_code_scales(dtype, panel_header(dtype, panel, first + b), block);
        prefetch_ahead(block, panel_layout_of(dtype).block_bytes);
        for (int k = 0; k < PANEL_BLOCK; k += 2) {
            const struct float_pair w = pair_at(dtype, block, k, &s);
            _mm512_store_ps(out + k * PANEL_ROWS, w.even);
            _mm512_store_ps(out + (k + 1) * PANEL_ROWS, w.odd);
        }
    }
}

INLINE void product_floats_of(enum dtype dtype, int num_panels, const struct panels *p, int64_t num_blocks,
                              const struct act_tile *x)
{
    switch (num_panels == 1 || x->num_rows <= ROWS_FEW ? x->num_rows : 0) {
#define CASE_FEW(n)                                                                                          \
    case n:                                                                                                  \
        product_floats_few(dtype, (n) <= ROWS_FEW ? num_panels : 1, n, p, num_blocks, x->columns);           \
        return;
        CASE_FEW(1)
        CASE_FEW(2)
        CASE_FEW(3)
        CASE_FEW(4)
        CASE_FEW(5)
        CASE_FEW(6)
        CASE_FEW(7)
        CASE_FEW(8)
#undef CASE_FEW
    }
    struct chunk c = {.x = x->columns, .stride = (int64_t)x->num_rows * PANEL_BLOCK};
    for (int i = 0; i < num_panels; i++)
        memset(p->acc[i], 0, (size_t)x->num_rows * PANEL_ROWS * sizeof(float));
    for (int64_t b = 0; b < num_blocks; b += LINEAR_CHUNK_BLOCKS, c.x += LINEAR_CHUNK_BLOCKS * c.stride) {
        _Alignas(64) float unpacked[PANELS_MAX][LINEAR_CHUNK_BLOCKS * PANEL_BLOCK * PANEL_ROWS];
        c.num_blocks = (int)min_of(num_blocks - b, LINEAR_CHUNK_BLOCKS);
        for (int i = 0; i < num_panels; i++) {
            const uint8_t *const from = panel_block(dtype, p->data[i], b);
            c.weights[i] = dtype == DTYPE_F32 ? (const float *)(const void *)from : unpacked[i];
            if (dtype != DTYPE_F32) unpack_blocks(dtype, p->data[i], b, c.num_blocks, unpacked[i]);
        }
        add_tile_floats(num_panels, x->num_rows, &c, p->acc);
    }
}

INLINE void product_floats(enum dtype dtype, const struct panels *p, int64_t num_blocks,
                           const struct act_tile *x)
{
    const bool one_by_one = p->num == 1 || (x->num_rows > ROWS_FEW && x->num_rows <= ROWS_FEW_ALONE);
    if (!one_by_one) {
        product_floats_of(dtype, 2, p, num_blocks, x);
        return;
    }
    for (int i = 0; i < p->num; i++)
        product_floats_of(dtype, 1, &(struct panels){1, {p->data[i]}, {p->acc[i]}}, num_blocks, x);
}

#endif
