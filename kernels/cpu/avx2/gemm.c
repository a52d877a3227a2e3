/* gemm.c - panel kernels for AVX2 with FMA and F16C.
 *
 * The panel of 16 rows is taken in two halves of 8: a 32-byte register holds one f32 for each of 8 rows, or
 * four byte columns of each. Orders of summation: linear_kernels.h; the same bits as the AVX-512 set's.
 *
 * 4 and 5 bit weights times int8 activations by vpmaddubsw: see avx512/gemm.c for why that cannot overflow.
 * All else through f32. Sums of a tile stay in memory between blocks. */
#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#include "base/check.h"
#include "kernels/cpu/linear_kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")

enum { HALF_ROWS = PANEL_ROWS / 2 };

/* w = d u + m (over quants) or d q (over values), apart for the low and the high 16 columns in Q6_K. */
struct block_scales {
    __m256 d[2], m;
};

/* ---- scales of rows 8 half .. 8 half + 7 ---- */

INLINE __m128i load_16_bytes(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

INLINE __m256 load_f16(const uint8_t *p, int half)
{
    return _mm256_cvtph_ps(load_16_bytes(p + half * HALF_ROWS * 2));
}

INLINE __m256 load_u8(const uint8_t *p, int half)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadu_si64(p + half * HALF_ROWS)));
}

INLINE __m256 load_i8(const uint8_t *p, int half)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadu_si64(p + half * HALF_ROWS)));
}

INLINE struct block_scales load_scales(enum dtype dtype, const uint8_t *header, const uint8_t *block,
                                       int half)
{
    const struct panel_layout l = panel_layout_of(dtype);
    struct block_scales s;
    s.m = _mm256_setzero_ps();
    if (dtype == DTYPE_Q6_K) {
        s.d[0] = _mm256_mul_ps(load_f16(header, half), load_i8(block + l.scales, half));
        s.d[1] = _mm256_mul_ps(load_f16(header, half), load_i8(block + l.minimums, half));
        return s;
    }
    if (l.header_bytes) {
        s.d[0] = _mm256_mul_ps(load_f16(header, half), load_u8(block + l.scales, half));
        s.m =
            _mm256_sub_ps(s.m, _mm256_mul_ps(load_f16(header + 32, half), load_u8(block + l.minimums, half)));
    } else if (l.scales) {
        s.d[0] = load_f16(block + l.scales, half);
        if (l.minimums) s.m = load_f16(block + l.minimums, half);
        if (dtype == DTYPE_Q4_0) s.m = _mm256_mul_ps(_mm256_set1_ps(-8), s.d[0]);
        if (dtype == DTYPE_Q5_0) s.m = _mm256_mul_ps(_mm256_set1_ps(-16), s.d[0]);
    } else {
        s.d[0] = _mm256_set1_ps(1);
    }
    s.d[1] = s.d[0];
    return s;
}

/* ---- integers: weights[i] holds columns 4i .. 4i + 3 of each of 8 rows ---- */

INLINE __m256i load_bytes(const uint8_t *p, int half)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)(p + half * 32));
}

INLINE void load_nibbles(const uint8_t *block, int half, __m256i weights[8])
{
    const __m256i mask = _mm256_set1_epi8(15);
    UNROLL for (int i = 0; i < 4; i++)
    {
        const __m256i both = load_bytes(block + i * 64, half);
        weights[i] = _mm256_and_si256(both, mask);
        weights[i + 4] = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
    }
}

/* Bit n of 32 becomes byte n: 16 or 0. */
INLINE __m256i spread_bits(uint32_t bits)
{
    const __m256i byte_of = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit_of = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), byte_of);
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit_of), bit_of);
    return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

INLINE void add_fifth_bits(const uint8_t *high, int half, __m256i weights[8])
{
    UNROLL for (int i = 0; i < 8; i++)
    {
        uint32_t bits;
        memcpy(&bits, high + i * 8 + half * 4, sizeof bits);
        weights[i] = _mm256_or_si256(weights[i], spread_bits(bits));
    }
}

INLINE void add_upper_bits(const uint8_t *high, int half, __m256i weights[8])
{
    const __m256i mask = _mm256_set1_epi8(0x30);
    UNROLL for (int j = 0; j < 2; j++)
    {
        const __m256i upper = load_bytes(high + j * 64, half);
        const __m256i shifted[4] = {_mm256_slli_epi16(upper, 4), _mm256_slli_epi16(upper, 2), upper,
                                    _mm256_srli_epi16(upper, 2)};
        UNROLL for (int s = 0; s < 4; s++) weights[4 * j + s] =
            _mm256_or_si256(weights[4 * j + s], _mm256_and_si256(shifted[s], mask));
    }
}

INLINE bool has_fifth_bits(enum dtype dtype)
{
    return dtype == DTYPE_Q5_0 || dtype == DTYPE_Q5_1 || dtype == DTYPE_Q5_K;
}

/* The unsigned integers of a 4 or 5 bit block. */
INLINE void load_unsigned(enum dtype dtype, const uint8_t *block, int half, __m256i weights[8])
{
    load_nibbles(block, half, weights);
    if (has_fifth_bits(dtype)) add_fifth_bits(block + panel_layout_of(dtype).high_bits, half, weights);
}

/* ---- products over quants ---- */

INLINE __m256i dot_four(const __m256i weights[4], const int8_t *quants)
{
    __m256i sum = _mm256_setzero_si256();
    UNROLL for (int i = 0; i < 4; i++)
    {
        int32_t four;
        memcpy(&four, quants + 4 * i, sizeof four);
        const __m256i products = _mm256_maddubs_epi16(weights[i], _mm256_set1_epi32(four));
        sum = i ? _mm256_add_epi16(sum, products) : products;
    }
    return sum;
}

INLINE __m256i block_dot(enum dtype dtype, const __m256i weights[8], const int8_t *quants)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i low = dot_four(weights, quants), high = dot_four(weights + 4, quants + 16);
    if (!has_fifth_bits(dtype)) return _mm256_madd_epi16(_mm256_add_epi16(low, high), ones);
    return _mm256_add_epi32(_mm256_madd_epi16(low, ones), _mm256_madd_epi16(high, ones));
}

INLINE __m256 add_row_quants(enum dtype dtype, const struct block_scales *s, const __m256i weights[8],
                             const int8_t *quants, const struct act_scale *x, __m256 acc)
{
    const __m256 dot = _mm256_cvtepi32_ps(block_dot(dtype, weights, quants));
    acc = _mm256_fmadd_ps(dot, _mm256_mul_ps(s->d[0], _mm256_set1_ps(x->scale)), acc);
    return _mm256_fmadd_ps(s->m, _mm256_set1_ps(x->sum), acc);
}

INLINE void product_quants(enum dtype dtype, const uint8_t *panel, int64_t num_blocks,
                           const struct act_tile *x, float *acc)
{
    const int num_rows = x->num_rows;
    memset(acc, 0, (size_t)num_rows * PANEL_ROWS * sizeof *acc);
    for (int64_t b = 0; b < num_blocks; b++) {
        const uint8_t *const header = panel_header(dtype, panel, b), *const block =
                                                                         panel_block(dtype, panel, b);
        for (int half = 0; half < 2; half++) {
            const struct block_scales s = load_scales(dtype, header, block, half);
            const int8_t *quants = x->quants + b * num_rows * PANEL_BLOCK;
            const struct act_scale *scales = x->scales + b * num_rows;
            __m256i weights[8];
            load_unsigned(dtype, block, half, weights);
            for (int t = 0; t < num_rows; t++, quants += PANEL_BLOCK, scales++) {
                float *const at = acc + t * PANEL_ROWS + half * HALF_ROWS;
                _mm256_store_ps(at, add_row_quants(dtype, &s, weights, quants, scales, _mm256_load_ps(at)));
            }
        }
    }
}

/* ---- f32 weights: value k of a block is that of column k, Q8_0 and Q6_K times 2^24 ---- */

/* Byte c of each dword, moved to its top with zeros below: the signed byte times 2^24. */
INLINE __m256i byte_to_top(__m256i v, int c)
{
    switch (c) {
    case 0:
        return _mm256_slli_epi32(v, 24);
    case 1:
        return _mm256_and_si256(_mm256_slli_epi32(v, 16), _mm256_set1_epi32((int)0xff000000));
    case 2:
        return _mm256_and_si256(_mm256_slli_epi32(v, 8), _mm256_set1_epi32((int)0xff000000));
    default:
        return _mm256_and_si256(v, _mm256_set1_epi32((int)0xff000000));
    }
}

struct block_values {
    __m256i bytes[8]; /* Q8_0 and Q6_K: the signed integers */
    const uint8_t *floats;
};

INLINE struct block_values load_values(enum dtype dtype, const uint8_t *block, int half)
{
    struct block_values v = {.floats = block};
    if (dtype == DTYPE_Q8_0) {
        UNROLL for (int i = 0; i < 8; i++) v.bytes[i] = load_bytes(block + i * 64, half);
    }
    if (dtype == DTYPE_Q6_K) {
        load_nibbles(block, half, v.bytes);
        add_upper_bits(block + panel_layout_of(dtype).high_bits, half, v.bytes);
        UNROLL for (int i = 0; i < 8; i++) v.bytes[i] = _mm256_sub_epi8(v.bytes[i], _mm256_set1_epi8(32));
    }
    return v;
}

INLINE __m256 value_at(enum dtype dtype, const struct block_values *v, int half, int k)
{
    switch (dtype) {
    case DTYPE_F32:
        return _mm256_loadu_ps((const float *)(const void *)(v->floats + k * 64 + half * 32));
    case DTYPE_F16:
        return load_f16(v->floats + k * 32, half);
    case DTYPE_BF16: {
        const __m128i top = load_16_bytes(v->floats + k * 32 + half * 16);
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(top), 16));
    }
    default:
        return _mm256_cvtepi32_ps(byte_to_top(v->bytes[k / 4], k % 4));
    }
}

/* Scales that fit value_at. */
INLINE struct block_scales load_value_scales(enum dtype dtype, const uint8_t *header, const uint8_t *block,
                                             int half)
{
    struct block_scales s = load_scales(dtype, header, block, half);
    if (dtype != DTYPE_Q8_0 && dtype != DTYPE_Q6_K) return s;
    s.d[0] = _mm256_mul_ps(s.d[0], _mm256_set1_ps(0x1p-24f));
    s.d[1] = _mm256_mul_ps(s.d[1], _mm256_set1_ps(0x1p-24f));
    return s;
}

/* ---- products over values ---- */

INLINE __m256 add_half_sums(enum dtype dtype, const struct block_scales *s, __m256 low, __m256 high,
                            __m256 acc)
{
    if (dtype == DTYPE_Q6_K) return _mm256_fmadd_ps(s->d[1], high, _mm256_fmadd_ps(s->d[0], low, acc));
    return _mm256_fmadd_ps(s->d[0], _mm256_add_ps(low, high), acc);
}

INLINE __m256 add_row_values(enum dtype dtype, const struct block_scales *s, const struct block_values *v,
                             int half, const float *x, __m256 acc)
{
    __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
    UNROLL for (int k = 0; k < 16; k++)
    {
        low = _mm256_fmadd_ps(value_at(dtype, v, half, k), _mm256_set1_ps(x[k]), low);
        high = _mm256_fmadd_ps(value_at(dtype, v, half, k + 16), _mm256_set1_ps(x[k + 16]), high);
    }
    return add_half_sums(dtype, s, low, high, acc);
}

/* num_rows is a constant: two sums of each row stay in registers. acc is that of the half. */
INLINE void add_rows_values(enum dtype dtype, int num_rows, const struct block_scales *s,
                            const float weights[PANEL_BLOCK][HALF_ROWS], const float *x, float *acc)
{
    __m256 low[6], high[6];
    UNROLL for (int t = 0; t < num_rows; t++) low[t] = high[t] = _mm256_setzero_ps();
    for (int k = 0; k < 16; k++) {
        const __m256 w_low = _mm256_load_ps(weights[k]), w_high = _mm256_load_ps(weights[k + 16]);
        UNROLL for (int t = 0; t < num_rows; t++)
        {
            low[t] = _mm256_fmadd_ps(w_low, _mm256_set1_ps(x[t * PANEL_BLOCK + k]), low[t]);
            high[t] = _mm256_fmadd_ps(w_high, _mm256_set1_ps(x[t * PANEL_BLOCK + k + 16]), high[t]);
        }
    }
    UNROLL for (int t = 0; t < num_rows; t++)
    {
        float *const at = acc + t * PANEL_ROWS;
        _mm256_store_ps(at, add_half_sums(dtype, s, low[t], high[t], _mm256_load_ps(at)));
    }
}

/* All rows of the tile, in groups as large as the registers allow. */
INLINE void add_tile_values(enum dtype dtype, int num_rows, const struct block_scales *s,
                            const float weights[PANEL_BLOCK][HALF_ROWS], const float *x, float *acc)
{
    int t = 0;
#define ADD_ROWS(n)                                                                                          \
    for (; num_rows - t >= (n); t += (n))                                                                    \
    add_rows_values(dtype, (n), s, weights, x + t * PANEL_BLOCK, acc + t * PANEL_ROWS)
    ADD_ROWS(6);
    ADD_ROWS(3);
    ADD_ROWS(1);
#undef ADD_ROWS
}

INLINE void product_values_half(enum dtype dtype, const uint8_t *header, const uint8_t *block, int half,
                                int num_rows, const float *x, float *acc)
{
    const struct block_scales s = load_value_scales(dtype, header, block, half);
    const struct block_values v = load_values(dtype, block, half);
    if (num_rows == 1) {
        _mm256_store_ps(acc, add_row_values(dtype, &s, &v, half, x, _mm256_load_ps(acc)));
        return;
    }
    _Alignas(32) float weights[PANEL_BLOCK][HALF_ROWS];
    UNROLL for (int k = 0; k < PANEL_BLOCK; k++) _mm256_store_ps(weights[k], value_at(dtype, &v, half, k));
    add_tile_values(dtype, num_rows, &s, weights, x, acc);
}

INLINE void product_values(enum dtype dtype, const uint8_t *panel, int64_t num_blocks,
                           const struct act_tile *x, float *acc)
{
    memset(acc, 0, (size_t)x->num_rows * PANEL_ROWS * sizeof *acc);
    for (int64_t b = 0; b < num_blocks; b++) {
        const uint8_t *const header = panel_header(dtype, panel, b), *const block =
                                                                         panel_block(dtype, panel, b);
        const float *const values = x->values + b * x->num_rows * PANEL_BLOCK;
        for (int half = 0; half < 2; half++)
            product_values_half(dtype, header, block, half, x->num_rows, values, acc + half * HALF_ROWS);
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
    UNROLL for (int i = 0; i < 4; i++) largest =
        _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(x[i]), no_sign));
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1)));
}

static void quantize_block(const float *from, int8_t *quants, struct act_scale *out)
{
    __m256 x[4];
    __m256i q[4];
    float largest;
    UNROLL for (int i = 0; i < 4; i++) x[i] = _mm256_loadu_ps(from + 8 * i);
    const uint32_t largest_bits = largest_magnitude_bits(x);
    memcpy(&largest, &largest_bits, sizeof largest);
    const bool finite = largest_bits < 0x7f800000;
    if (!finite || largest < QUANTIZE_LEAST) {
        const float all = finite ? 0 : __builtin_nanf("");
        memset(quants, 0, PANEL_BLOCK);
        *out = (struct act_scale){all, all, all, all};
        return;
    }
    const __m256 inverse = _mm256_set1_ps(127.0f / largest);
    UNROLL for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(x[i], inverse));
    /* The packs work on each half of a register, so that its dwords come out in the order 0 4 1 5 2 6 3 7. */
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((__m256i *)(void *)quants, _mm256_permutevar8x32_epi32(bytes, order));
    const int low = sum_of_lanes(_mm256_add_epi32(q[0], q[1])),
              high = sum_of_lanes(_mm256_add_epi32(q[2], q[3]));
    const float scale = largest / 127.0f;
    *out = (struct act_scale){scale, scale * (float)(low + high), scale * (float)low, scale * (float)high};
}

static void quantize_row_avx2(const float *x, int64_t cols, int row, int num_rows, int8_t *quants,
                              struct act_scale *scales)
{
    for (int64_t b = 0; b < panel_num_blocks(cols); b++) {
        const int64_t at = b * num_rows + row;
        quantize_block(x + b * PANEL_BLOCK, quants + at * PANEL_BLOCK, &scales[at]);
    }
}

#define DEFINE_PRODUCT(form, dtype)                                                                          \
    static void form##_##dtype(const uint8_t *panel, int64_t num_blocks, const struct act_tile *x,           \
                               float *acc)                                                                   \
    {                                                                                                        \
        product_##form(dtype, panel, num_blocks, x, acc);                                                    \
    }
DEFINE_PRODUCT(quants, DTYPE_Q4_0)
DEFINE_PRODUCT(quants, DTYPE_Q4_1)
DEFINE_PRODUCT(quants, DTYPE_Q5_0)
DEFINE_PRODUCT(quants, DTYPE_Q5_1)
DEFINE_PRODUCT(quants, DTYPE_Q4_K)
DEFINE_PRODUCT(quants, DTYPE_Q5_K)
DEFINE_PRODUCT(values, DTYPE_Q8_0)
DEFINE_PRODUCT(values, DTYPE_Q6_K)
DEFINE_PRODUCT(values, DTYPE_F32)
DEFINE_PRODUCT(values, DTYPE_F16)
DEFINE_PRODUCT(values, DTYPE_BF16)

const struct linear_kernels linear_kernels_avx2 = {
    .quantize_row = quantize_row_avx2,
    .over_values = {[DTYPE_F32] = values_DTYPE_F32,
                    [DTYPE_F16] = values_DTYPE_F16,
                    [DTYPE_BF16] = values_DTYPE_BF16,
                    [DTYPE_Q8_0] = values_DTYPE_Q8_0,
                    [DTYPE_Q6_K] = values_DTYPE_Q6_K},
    .over_quants = {[DTYPE_Q4_0] = quants_DTYPE_Q4_0,
                    [DTYPE_Q4_1] = quants_DTYPE_Q4_1,
                    [DTYPE_Q5_0] = quants_DTYPE_Q5_0,
                    [DTYPE_Q5_1] = quants_DTYPE_Q5_1,
                    [DTYPE_Q4_K] = quants_DTYPE_Q4_K,
                    [DTYPE_Q5_K] = quants_DTYPE_Q5_K},
};
