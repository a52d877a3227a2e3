/* gemm_512.h - panel kernels over 512-bit registers, shared by the AVX-512 and the VNNI set.
 *
 * A register holds one f32 for each of the panel's 16 rows, or two 16-bit or four 8-bit columns of each.
 * Orders of summation: linear_kernels.h.
 *
 * Integers: a block of weights is unpacked once, into registers, and multiplied with all rows of the tile.
 * The sums of a tile stay in memory between blocks: a load and a store beside 8 to 16 multiplications cost
 * nothing, and there is no shape of tile to choose. Floats: a chunk of weights is unpacked into a small array
 * and multiplied with groups of rows whose sums stay in registers. A single row uses the weights as they are
 * unpacked.
 *
 * The including file defines dot_int8 and dot_int16 (weights of a block times one row) below this one. */
#ifndef KERNELS_CPU_AVX512_GEMM_512_H
#define KERNELS_CPU_AVX512_GEMM_512_H

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#include "base/check.h"
#include "kernels/cpu/linear_kernels.h"

#define INLINE static inline __attribute__((always_inline))

/* w = d u + m; [1] is that of the high 16 columns, which differs in Q6_K alone. */
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

/* Four int8 or two int16 columns of one row of activations, for all lanes. */
INLINE __m512i broadcast_dword(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

/* A decode step reads each weight once: the hardware's prefetcher alone keeps fewer lines in flight. The
 * distance is that of the best rate measured (kernels/README.md). */
INLINE void prefetch_ahead(const uint8_t *block, int bytes)
{
    for (int i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)((uintptr_t)block + 4096 + i), _MM_HINT_T0);
}

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

INLINE struct block_scales load_scales(enum dtype dtype, const uint8_t *header, const uint8_t *block)
{
    const struct panel_layout l = panel_layout_of(dtype);
    struct block_scales s;
    if (dtype == DTYPE_Q6_K) {
        const __m512 super = load_f16(header), minus_bias = _mm512_set1_ps(-linear_unsigned_bias(dtype));
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
                            : _mm512_mul_ps(_mm512_set1_ps(-linear_unsigned_bias(dtype)), s.d[0]);
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

/* The unsigned integers of a block as bytes. */
INLINE void load_unsigned(enum dtype dtype, const uint8_t *block, __m512i weights[8])
{
    const struct panel_layout l = panel_layout_of(dtype);
    if (dtype == DTYPE_Q8_0) {
#pragma GCC unroll 32
        for (int i = 0; i < 8; i++) weights[i] = load_bytes(block + i * 64);
        return;
    }
    load_nibbles(block, weights);
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

/* Weights of a block as its activations need them: 8 registers of bytes or 16 of 16-bit integers. */
INLINE void load_weights(enum dtype dtype, const uint8_t *block, __m512i weights[16])
{
    __m512i bytes[8];
    load_unsigned(dtype, block, takes_int16(dtype) ? bytes : weights);
    if (takes_int16(dtype)) widen(bytes, weights);
}

INLINE __m512 add_row_integers(enum dtype dtype, const struct block_scales *s, const __m512i weights[16],
                               const uint8_t *columns, const struct act_scale *x, __m512 acc)
{
    const struct block_sums sums = takes_int16(dtype)
                                       ? dot_int16(dtype, weights, (const int16_t *)(const void *)columns)
                                       : dot_int8(dtype, weights, (const int8_t *)columns);
    const __m512 scale = _mm512_set1_ps(x->scale);
    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums.low), _mm512_mul_ps(s->d[0], scale), acc);
    if (dtype != DTYPE_Q6_K) return _mm512_fmadd_ps(s->m[0], _mm512_set1_ps(x->sum), acc);
    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums.high), _mm512_mul_ps(s->d[1], scale), acc);
    acc = _mm512_fmadd_ps(s->m[0], _mm512_set1_ps(x->sum_low), acc);
    return _mm512_fmadd_ps(s->m[1], _mm512_set1_ps(x->sum_high), acc);
}

/* rows: x->num_rows, or the constant 1, for which the sum stays in a register. */
INLINE void product_integers_rows(enum dtype dtype, const uint8_t *panel, int64_t num_blocks,
                                  const struct act_tile *x, int num_rows, float *acc)
{
    const int row_bytes = act_block_bytes(takes_int16(dtype) ? ACT_INT16 : ACT_INT8);
    const uint8_t *columns = x->columns;
    const struct act_scale *scales = x->scales;
    __m512 single = _mm512_setzero_ps();
    memset(acc, 0, (size_t)num_rows * PANEL_ROWS * sizeof *acc);
    for (int64_t b = 0; b < num_blocks; b++) {
        const uint8_t *const header = panel_header(dtype, panel, b), *const block =
                                                                         panel_block(dtype, panel, b);
        const struct block_scales s = load_scales(dtype, header, block);
        __m512i weights[16];
        prefetch_ahead(block, panel_layout_of(dtype).block_bytes);
        load_weights(dtype, block, weights);
        if (num_rows == 1) {
            single = add_row_integers(dtype, &s, weights, columns, scales, single);
            columns += row_bytes;
            scales++;
            continue;
        }
        for (int t = 0; t < num_rows; t++, columns += row_bytes, scales++) {
            float *const at = acc + t * PANEL_ROWS;
            _mm512_store_ps(at, add_row_integers(dtype, &s, weights, columns, scales, _mm512_load_ps(at)));
        }
    }
    if (num_rows == 1) _mm512_store_ps(acc, single);
}

INLINE void product_integers(enum dtype dtype, const uint8_t *panel, int64_t num_blocks,
                             const struct act_tile *x, float *acc)
{
    if (x->num_rows == 1)
        product_integers_rows(dtype, panel, num_blocks, x, 1, acc);
    else
        product_integers_rows(dtype, panel, num_blocks, x, x->num_rows, acc);
}

/* ---- products of floats ---- */

/* Column k of a panel. */
INLINE __m512 float_at(enum dtype dtype, const uint8_t *panel, int64_t k)
{
    switch (dtype) {
    case DTYPE_F32:
        return _mm512_loadu_ps(panel + k * 64);
    case DTYPE_F16:
        return load_f16(panel + k * 32);
    default: {
        const __m256i tops = _mm256_loadu_si256((const __m256i *)(const void *)(panel + k * 32));
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(tops), 16));
    }
    }
}

INLINE void product_floats_row(enum dtype dtype, const uint8_t *panel, int64_t num_blocks, const float *x,
                               float *acc)
{
    __m512 sum = _mm512_setzero_ps(), even = sum, odd = sum;
    for (int64_t b = 0; b < num_blocks; b++) {
        const int64_t first = b * PANEL_BLOCK;
        prefetch_ahead(panel_block(dtype, panel, b), panel_layout_of(dtype).block_bytes);
        for (int64_t k = first; k < first + PANEL_BLOCK; k += 2) {
            even = _mm512_fmadd_ps(float_at(dtype, panel, k), _mm512_set1_ps(x[k]), even);
            odd = _mm512_fmadd_ps(float_at(dtype, panel, k + 1), _mm512_set1_ps(x[k + 1]), odd);
        }
        if ((b + 1) % LINEAR_CHUNK_BLOCKS && b + 1 < num_blocks) continue;
        sum = _mm512_add_ps(sum, _mm512_add_ps(even, odd));
        even = odd = _mm512_setzero_ps();
    }
    _mm512_store_ps(acc, sum);
}

/* acc += a chunk of unpacked weights times num_rows (a constant) rows of a tile whose blocks are stride
 * apart. */
INLINE void add_rows_floats(int num_rows, const float *weights, int num_blocks, const float *x,
                            int64_t stride, float *acc)
{
    __m512 even[12], odd[12];
#pragma GCC unroll 32
    for (int t = 0; t < num_rows; t++) even[t] = odd[t] = _mm512_setzero_ps();
    for (int b = 0; b < num_blocks; b++, x += stride) {
        for (int k = 0; k < PANEL_BLOCK; k += 2, weights += 2 * PANEL_ROWS) {
            const __m512 w_even = _mm512_loadu_ps(weights), w_odd = _mm512_loadu_ps(weights + PANEL_ROWS);
#pragma GCC unroll 32
            for (int t = 0; t < num_rows; t++) {
                even[t] = _mm512_fmadd_ps(w_even, _mm512_set1_ps(x[t * PANEL_BLOCK + k]), even[t]);
                odd[t] = _mm512_fmadd_ps(w_odd, _mm512_set1_ps(x[t * PANEL_BLOCK + k + 1]), odd[t]);
            }
        }
    }
#pragma GCC unroll 32
    for (int t = 0; t < num_rows; t++) {
        float *const at = acc + t * PANEL_ROWS;
        _mm512_store_ps(at, _mm512_add_ps(_mm512_load_ps(at), _mm512_add_ps(even[t], odd[t])));
    }
}

/* All rows of the tile, in groups as large as the registers allow. */
INLINE void add_tile_floats(int num_rows, const float *weights, int num_blocks, const float *x, float *acc)
{
    const int64_t stride = (int64_t)num_rows * PANEL_BLOCK;
    int t = 0;
#define ADD_ROWS(n)                                                                                          \
    for (; num_rows - t >= (n); t += (n))                                                                    \
    add_rows_floats((n), weights, num_blocks, x + t * PANEL_BLOCK, stride, acc + t * PANEL_ROWS)
    ADD_ROWS(12);
    ADD_ROWS(8);
    ADD_ROWS(4);
    ADD_ROWS(2);
    ADD_ROWS(1);
#undef ADD_ROWS
}

INLINE void product_floats(enum dtype dtype, const uint8_t *panel, int64_t num_blocks,
                           const struct act_tile *x, float *acc)
{
    if (x->num_rows == 1) {
        product_floats_row(dtype, panel, num_blocks, x->columns, acc);
        return;
    }
    memset(acc, 0, (size_t)x->num_rows * PANEL_ROWS * sizeof *acc);
    for (int64_t b = 0; b < num_blocks; b += LINEAR_CHUNK_BLOCKS) {
        _Alignas(64) float unpacked[LINEAR_CHUNK_BLOCKS * PANEL_BLOCK * PANEL_ROWS];
        const int chunk = (int)min_of(num_blocks - b, LINEAR_CHUNK_BLOCKS);
        const uint8_t *const from = panel_block(dtype, panel, b);
        const float *weights = (const float *)(const void *)from;
        if (dtype != DTYPE_F32) {
            for (int k = 0; k < chunk * PANEL_BLOCK; k++)
                _mm512_store_ps(unpacked + k * PANEL_ROWS, float_at(dtype, from, k));
            weights = unpacked;
        }
        add_tile_floats(x->num_rows, weights, chunk,
                        (const float *)x->columns + b * x->num_rows * PANEL_BLOCK, acc);
    }
}

#define DEFINE_PRODUCT(kind, dtype)                                                                          \
    static void product_##dtype(const uint8_t *panel, int64_t num_blocks, const struct act_tile *x,          \
                                float *acc)                                                                  \
    {                                                                                                        \
        product_##kind(dtype, panel, num_blocks, x, acc);                                                    \
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

/* The whole table, under the name of the set. */
#define DEFINE_KERNELS(set)                                                                                  \
    DEFINE_PRODUCT(floats, DTYPE_F32)                                                                        \
    DEFINE_PRODUCT(floats, DTYPE_F16)                                                                        \
    DEFINE_PRODUCT(floats, DTYPE_BF16)                                                                       \
    DEFINE_PRODUCT(integers, DTYPE_Q4_0)                                                                     \
    DEFINE_PRODUCT(integers, DTYPE_Q4_1)                                                                     \
    DEFINE_PRODUCT(integers, DTYPE_Q5_0)                                                                     \
    DEFINE_PRODUCT(integers, DTYPE_Q5_1)                                                                     \
    DEFINE_PRODUCT(integers, DTYPE_Q8_0)                                                                     \
    DEFINE_PRODUCT(integers, DTYPE_Q4_K)                                                                     \
    DEFINE_PRODUCT(integers, DTYPE_Q5_K)                                                                     \
    DEFINE_PRODUCT(integers, DTYPE_Q6_K)                                                                     \
    const struct linear_kernels set = {                                                                      \
        .pack = {act_pack_f32, pack_int8, pack_int16},                                                       \
        .of = {[DTYPE_F32] = {product_DTYPE_F32, ACT_F32},                                                   \
               [DTYPE_F16] = {product_DTYPE_F16, ACT_F32},                                                   \
               [DTYPE_BF16] = {product_DTYPE_BF16, ACT_F32},                                                 \
               [DTYPE_Q4_0] = {product_DTYPE_Q4_0, ACT_INT8},                                                \
               [DTYPE_Q4_1] = {product_DTYPE_Q4_1, ACT_INT8},                                                \
               [DTYPE_Q5_0] = {product_DTYPE_Q5_0, ACT_INT8},                                                \
               [DTYPE_Q5_1] = {product_DTYPE_Q5_1, ACT_INT8},                                                \
               [DTYPE_Q8_0] = {product_DTYPE_Q8_0, ACT_INT16},                                               \
               [DTYPE_Q4_K] = {product_DTYPE_Q4_K, ACT_INT8},                                                \
               [DTYPE_Q5_K] = {product_DTYPE_Q5_K, ACT_INT8},                                                \
               [DTYPE_Q6_K] = {product_DTYPE_Q6_K, ACT_INT16}},                                              \
    }

#endif
