/* dtype.c - unpacking of every weight type, one block at a time.
 *
 * The arithmetic follows ggml's reference dequantisation operation by operation (which product is rounded
 * first matters in the last bit), so that a model unpacked here equals one unpacked there. */
#include "files/dtype.h"

#include <string.h>

#include "base/check.h"
#include "files/dtype_blocks.h"
#include "files/dtype_grids.h"

const struct dtype_info dtype_infos[DTYPE_COUNT] = {
#define X(name, text, values, bytes, gguf) [name] = {text, values, bytes, gguf},
    DTYPE_LIST(X)
#undef X
};

int dtype_from_gguf(uint32_t gguf_id)
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (!dtype_is_code(i) && (uint32_t)dtype_infos[i].gguf_id == gguf_id) return i;
    return -1;
}

uint64_t dtype_row_bytes(enum dtype dtype, uint64_t cols)
{
    assert_debug((unsigned)dtype < DTYPE_COUNT);
    const struct dtype_info *info = &dtype_infos[dtype];
    uint64_t bytes;
    if (cols % (uint64_t)info->block_values) return 0;
    if (!checked_mul(cols / (uint64_t)info->block_values, (uint64_t)info->block_bytes, &bytes)) return 0;
    return bytes;
}

/* ---- 16-bit floats ---- */

static float float_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

float dtype_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 0x1F, fraction = h & 0x3FF;
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24 is exact */
        float magnitude = (float)fraction * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    uint32_t exponent_f32 = exponent == 31 ? 255 : exponent + (127 - 15);
    return float_from_bits(sign | exponent_f32 << 23 | fraction << 13);
}

/* Drops the low bits of n, rounding to nearest, ties to even. */
static uint32_t shift_right_rounded(uint32_t n, int bits)
{
    assert_debug(bits >= 1 && bits <= 31);
    uint32_t half = 1u << (bits - 1), rest = n & ((1u << bits) - 1), result = n >> bits;
    return result + (rest > half || (rest == half && (result & 1)));
}

uint16_t dtype_f32_to_f16(float f)
{
    uint32_t bits = bits_of_float(f), magnitude = bits & 0x7FFFFFFF;
    uint16_t sign = (uint16_t)((bits >> 16) & 0x8000);
    if (magnitude > 0x7F800000) return (uint16_t)(sign | 0x7E00 | ((magnitude >> 13) & 0x1FF));
    if (magnitude >= 0x477FF000) return (uint16_t)(sign | 0x7C00); /* 65520 and up round to infinity */
    if (magnitude >= 0x38800000) /* a carry out of the fraction runs into the exponent, as it should */
        return (uint16_t)(sign | shift_right_rounded(magnitude - ((uint32_t)(127 - 15) << 23), 13));
    int shift = 126 - (int)(magnitude >> 23); /* subnormal: in units of 2^-24 */
    if (shift > 24) return sign;
    return (uint16_t)(sign | shift_right_rounded((magnitude & 0x7FFFFF) | 0x800000, shift));
}

float dtype_bf16_to_f32(uint16_t h)
{
    return float_from_bits((uint32_t)h << 16);
}

uint16_t dtype_f32_to_bf16(float f)
{
    uint32_t bits = bits_of_float(f);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

/* ---- small floats ---- */

const float dtype_e2m1_values[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

float dtype_e4m3_to_f32(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80) << 24, magnitude = code & 0x7F;
    if (magnitude == 0x7F) return float_from_bits(sign | 0x7FC00000);
    if (magnitude < 8) return sign ? -(float)magnitude * 0x1p-9f : (float)magnitude * 0x1p-9f;
    return float_from_bits(sign | ((magnitude << 20) + ((uint32_t)(127 - 7) << 23)));
}

float dtype_e8m0_to_f32(uint8_t code)
{
    if (code == 0) return 0x1p-127f;
    return float_from_bits(code == 255 ? 0x7FC00000 : (uint32_t)code << 23);
}

/* ---- packed types ---- */

static float load_f16(const uint8_t *p)
{
    return dtype_f16_to_f32(load_u16(p));
}

/* d f16, then 16 bytes whose low halves are values 0..15 and whose high halves are values 16..31. */
static void unpack_q4_0(const uint8_t *p, float *y)
{
    float d = load_f16(p);
    const uint8_t *qs = p + 2;
    for (int j = 0; j < 16; j++) {
        y[j] = (float)((qs[j] & 15) - 8) * d;
        y[j + 16] = (float)((qs[j] >> 4) - 8) * d;
    }
}

static void unpack_q4_1(const uint8_t *p, float *y)
{
    float d = load_f16(p), m = load_f16(p + 2);
    const uint8_t *qs = p + 4;
    for (int j = 0; j < 16; j++) {
        y[j] = (float)(qs[j] & 15) * d + m;
        y[j + 16] = (float)(qs[j] >> 4) * d + m;
    }
}

/* The fifth bit of value j is bit j of a u32 before the nibbles. */
static int value_5bit(const uint8_t *qs, uint32_t high_bits, int j)
{
    int low = j < 16 ? qs[j] & 15 : qs[j - 16] >> 4;
    return low | (int)((high_bits >> j & 1) << 4);
}

static void unpack_q5_0(const uint8_t *p, float *y)
{
    float d = load_f16(p);
    uint32_t high_bits = load_u32(p + 2);
    for (int j = 0; j < 32; j++) y[j] = (float)(value_5bit(p + 6, high_bits, j) - 16) * d;
}

static void unpack_q5_1(const uint8_t *p, float *y)
{
    float d = load_f16(p), m = load_f16(p + 2);
    uint32_t high_bits = load_u32(p + 4);
    for (int j = 0; j < 32; j++) y[j] = (float)value_5bit(p + 8, high_bits, j) * d + m;
}

static void unpack_q8_0(const uint8_t *p, float *y)
{
    float d = load_f16(p);
    for (int j = 0; j < 32; j++) y[j] = (float)(int8_t)p[2 + j] * d;
}

/* The eight 6-bit scales and eight 6-bit minima of Q4_K and Q5_K share 12 bytes: the first four of each lie
 * whole in bytes 0..3 and 4..7, the others are a nibble in bytes 8..11 and the top two bits of those. */
static void unpack_scale_min(const uint8_t *s, int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
    }
}

/* 32 values of Q4_K or Q5_K: sub-blocks 2i and 2i + 1 are the low and high halves of the same 32 bytes. high
 * (NULL for Q4_K) holds one bit a sub-block. */
static void unpack_k_sub_block(const uint8_t *p, const uint8_t *qs, const uint8_t *high, int j, float *y)
{
    int scale, min;
    unpack_scale_min(p + 4, j, &scale, &min);
    float d = load_f16(p) * (float)scale, m = load_f16(p + 2) * (float)min;
    for (int i = 0; i < 32; i++) {
        int q = j & 1 ? qs[i] >> 4 : qs[i] & 15;
        if (high) q += (high[i] >> j & 1) << 4;
        y[i] = d * (float)q - m;
    }
}

static void unpack_q4_k(const uint8_t *p, float *y)
{
    for (int j = 0; j < 8; j++) unpack_k_sub_block(p, p + 16 + j / 2 * 32, NULL, j, y + j * 32);
}

static void unpack_q5_k(const uint8_t *p, float *y)
{
    for (int j = 0; j < 8; j++) unpack_k_sub_block(p, p + 48 + j / 2 * 32, p + 16, j, y + j * 32);
}

/* Two halves of 128 values. In each, group g of 32 values takes its low four bits from one of 64 bytes
 * (groups 0 and 1 the low nibbles, 2 and 3 the high ones) and its high two bits from bits 2g of 32 bytes. */
static void unpack_q6_k(const uint8_t *p, float *y)
{
    float d = load_f16(p + 208);
    for (int j = 0; j < 256; j++) {
        int half = j / 128, group = j % 128 / 32, i = j % 32;
        const uint8_t *low = p + half * 64 + (group & 1) * 32, *high = p + 128 + half * 32;
        int8_t scale = (int8_t)p[192 + half * 8 + group * 2 + i / 16];
        int q = (group < 2 ? low[i] & 15 : low[i] >> 4) | (high[i] >> (2 * group) & 3) << 4;
        y[j] = d * (float)scale * (float)(q - 32);
    }
}

/* Value j of Q2_K and Q3_K: its low two bits are a quarter of byte j % 32 of its half of 128 values; 16 values have a scale. */
static int low_two_bits(const uint8_t *qs, int j)
{
    return qs[j / 128 * 32 + j % 32] >> (j % 128 / 32 * 2) & 3;
}

static void unpack_q2_k(const uint8_t *p, float *y)
{
    float d = load_f16(p + 80), min = load_f16(p + 82);
    for (int j = 0; j < 256; j++) {
        float scale = d * (float)(p[j / 16] & 15), m = min * (float)(p[j / 16] >> 4);
        y[j] = scale * (float)low_two_bits(p + 16, j) - m;
    }
}

/* Of the sixteen 6-bit scales of Q3_K, 32 too large, 8 bytes have the low halves and 4 bytes the upper two bits. */
int dtype_q3_k_scale(const uint8_t *block, int i)
{
    const uint8_t *s = block + 96;
    int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
    return (low | (s[8 + i % 4] >> (i / 4 * 2) & 3) << 4) - 32;
}

/* -4 to 3; bit j / 32 of byte j % 32 says that it is not negative. */
static int value_q3_k(const uint8_t *p, int j)
{
    return low_two_bits(p + 32, j) - (p[j % 32] >> (j / 32) & 1 ? 0 : 4);
}

static void unpack_q3_k(const uint8_t *p, float *y)
{
    float d = load_f16(p + 108);
    for (int j = 0; j < 256; j++) y[j] = d * (float)dtype_q3_k_scale(p, j / 16) * (float)value_q3_k(p, j);
}

/* ---- types of three values ---- */

/* Digit i of five, base 3, of which a byte holds 256 / 243 of the fraction, rounded up. */
static int digit_of_three(uint8_t byte, int i)
{
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    return (uint8_t)(byte * powers[i]) * 3 >> 8;
}

int dtype_tq1_0_code(const uint8_t *block, int j)
{
    if (j < 160) return digit_of_three(block[j % 32], j / 32);
    if (j < 240) return digit_of_three(block[32 + (j - 160) % 16], (j - 160) / 16);
    return digit_of_three(block[48 + (j - 240) % 4], (j - 240) / 4);
}

/* 32 and 16 bytes of five values each, 4 bytes of four, d f16. */
static void unpack_tq1_0(const uint8_t *p, float *y)
{
    float d = load_f16(p + 52);
    for (int j = 0; j < 256; j++) y[j] = d * (float)(dtype_tq1_0_code(p, j) - 1);
}

/* Two bits as in Q2_K, d f16. */
static void unpack_tq2_0(const uint8_t *p, float *y)
{
    float d = load_f16(p + 64);
    for (int j = 0; j < 256; j++) y[j] = d * (float)(low_two_bits(p, j) - 1);
}

/* ---- types of two and of four values ---- */

/* d f16, 16 bytes of eight signs: a bit that is set is d. */
static void unpack_q1_0(const uint8_t *p, float *y)
{
    const float d = load_f16(p);
    for (int j = 0; j < 128; j++) y[j] = p[2 + j / 8] >> (j % 8) & 1 ? d : -d;
}

/* d f16, 16 bytes of four values: -1, 0, 1 and 2. */
static void unpack_q2_0(const uint8_t *p, float *y)
{
    const float d = load_f16(p);
    for (int j = 0; j < 64; j++) y[j] = d * (float)((p[2 + j / 4] >> (j % 4 * 2) & 3) - 1);
}

/* ---- types that look values up in a grid ---- */

static void unpack_grid(enum dtype dtype, const uint8_t *p, float *y)
{
    float d = dtype_f16_to_f32(dtype_grid_scale(dtype, p));
    for (int i = 0; i < 8; i++) {
        struct grid_group g = dtype_grid_group(dtype, p, i);
        int16_t values[GRID_COLUMNS];
        dtype_grid_values(dtype, &g, values);
        for (int k = 0; k < GRID_COLUMNS; k++, y++)
            *y = d * dtype_grid_step(dtype, g.scales[k / 16]) * (float)values[k];
    }
}

#define UNPACK_GRID(name, dtype)                                                                             \
    static void unpack_##name(const uint8_t *p, float *y)                                                    \
    {                                                                                                        \
        unpack_grid(dtype, p, y);                                                                            \
    }
UNPACK_GRID(iq2_xxs, DTYPE_IQ2_XXS)
UNPACK_GRID(iq2_xs, DTYPE_IQ2_XS)
UNPACK_GRID(iq2_s, DTYPE_IQ2_S)
UNPACK_GRID(iq3_xxs, DTYPE_IQ3_XXS)
UNPACK_GRID(iq3_s, DTYPE_IQ3_S)
UNPACK_GRID(iq1_s, DTYPE_IQ1_S)
UNPACK_GRID(iq1_m, DTYPE_IQ1_M)

/* ---- types of four bits that stand for uneven steps ---- */

const int8_t dtype_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

static void unpack_iq4_nl(const uint8_t *p, float *y)
{
    float d = load_f16(p);
    for (int j = 0; j < 16; j++) {
        y[j] = (float)dtype_iq4_values[p[2 + j] & 15] * d;
        y[j + 16] = (float)dtype_iq4_values[p[2 + j] >> 4] * d;
    }
}

int dtype_iq4_xs_scale(const uint8_t *block, int i)
{
    int low = block[4 + i / 2] >> (i % 2 * 4) & 15;
    return (low | (load_u16(block + 2) >> (2 * i) & 3) << 4) - 32;
}

/* d f16, the upper two bits of eight scales, their low halves in 4 bytes, then 16 bytes for 32 values. */
static void unpack_iq4_xs(const uint8_t *p, float *y)
{
    for (int b = 0; b < 8; b++) {
        float d = load_f16(p) * (float)dtype_iq4_xs_scale(p, b);
        for (int j = 0; j < 16; j++) {
            uint8_t pair = p[8 + b * 16 + j];
            y[b * 32 + j] = d * (float)dtype_iq4_values[pair & 15];
            y[b * 32 + j + 16] = d * (float)dtype_iq4_values[pair >> 4];
        }
    }
}

/* A power of two, then 16 bytes: nibbles as in Q4_0. */
static void unpack_mxfp4(const uint8_t *p, float *y)
{
    float d = dtype_e8m0_to_f32(p[0]);
    for (int j = 0; j < 16; j++) {
        y[j] = dtype_e2m1_values[p[1 + j] & 15] * d;
        y[j + 16] = dtype_e2m1_values[p[1 + j] >> 4] * d;
    }
}

static void unpack_f8(const uint8_t *p, float *y)
{
    *y = dtype_e4m3_to_f32(*p);
}

static void unpack_i8(const uint8_t *p, float *y)
{
    *y = (float)(int8_t)*p;
}

static void unpack_u4(const uint8_t *p, float *y)
{
    y[0] = (float)(*p & 15);
    y[1] = (float)(*p >> 4);
}

static void unpack_f4(const uint8_t *p, float *y)
{
    y[0] = dtype_e2m1_values[*p & 15];
    y[1] = dtype_e2m1_values[*p >> 4];
}

static void row_of_f16(const uint8_t *p, int64_t cols, float *y)
{
    for (int64_t i = 0; i < cols; i++) y[i] = load_f16(p + 2 * i);
}

static void row_of_bf16(const uint8_t *p, int64_t cols, float *y)
{
    for (int64_t i = 0; i < cols; i++) y[i] = dtype_bf16_to_f32(load_u16(p + 2 * i));
}

void dtype_row_to_f32(enum dtype dtype, const void *row, int64_t cols, float *out)
{
    static void (*const unpack[DTYPE_COUNT])(const uint8_t *block, float *values) = {
        [DTYPE_Q4_0] = unpack_q4_0,     [DTYPE_Q4_1] = unpack_q4_1,     [DTYPE_Q5_0] = unpack_q5_0,
        [DTYPE_Q5_1] = unpack_q5_1,     [DTYPE_Q8_0] = unpack_q8_0,     [DTYPE_Q4_K] = unpack_q4_k,
        [DTYPE_Q5_K] = unpack_q5_k,     [DTYPE_Q6_K] = unpack_q6_k,     [DTYPE_Q2_K] = unpack_q2_k,
        [DTYPE_Q3_K] = unpack_q3_k,     [DTYPE_IQ4_NL] = unpack_iq4_nl, [DTYPE_IQ4_XS] = unpack_iq4_xs,
        [DTYPE_MXFP4] = unpack_mxfp4,   [DTYPE_F8_E4M3] = unpack_f8,    [DTYPE_I8] = unpack_i8,
        [DTYPE_U4] = unpack_u4,         [DTYPE_F4_E2M1] = unpack_f4,    [DTYPE_IQ2_XXS] = unpack_iq2_xxs,
        [DTYPE_IQ2_XS] = unpack_iq2_xs, [DTYPE_IQ2_S] = unpack_iq2_s,   [DTYPE_IQ3_XXS] = unpack_iq3_xxs,
        [DTYPE_IQ3_S] = unpack_iq3_s,   [DTYPE_IQ1_S] = unpack_iq1_s,   [DTYPE_IQ1_M] = unpack_iq1_m,
        [DTYPE_TQ1_0] = unpack_tq1_0,   [DTYPE_TQ2_0] = unpack_tq2_0,   [DTYPE_Q1_0] = unpack_q1_0,
        [DTYPE_Q2_0] = unpack_q2_0,
    };
    assert_debug((unsigned)dtype < DTYPE_COUNT);
    const struct dtype_info *info = &dtype_infos[dtype];
    assert_debug(cols >= 0 && cols % info->block_values == 0);
    if (dtype == DTYPE_F32) {
        memcpy(out, row, (size_t)cols * sizeof *out);
    } else if (dtype == DTYPE_F16) {
        row_of_f16(row, cols, out);
    } else if (dtype == DTYPE_BF16) {
        row_of_bf16(row, cols, out);
    } else {
        const uint8_t *block = row;
        for (int64_t i = 0; i < cols; i += info->block_values, block += info->block_bytes)
            unpack[dtype](block, out + i);
    }
}
