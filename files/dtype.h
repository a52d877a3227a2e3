/* dtype.h - element types of weights, activations and K/V, and the byte layout of the packed ones.
 *
 * A packed type stores blocks of block_values consecutive values of one row in block_bytes bytes;
 * a row's length must be a multiple of block_values. The layouts are GGUF's (ggml), little endian.
 *
 * Codes are what quantised checkpoints keep beside scales of their own (weight_view.h); by itself a code is the number
 * that it encodes. Those of four bits lie two in a byte, the first in the low half. */
#ifndef FILES_DTYPE_H
#define FILES_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

/*        name        text     block_values  block_bytes  GGUF's id */
#define DTYPE_LIST(X)                                                                                        \
    X(DTYPE_F32, "F32", 1, 4, 0)                                                                             \
    X(DTYPE_F16, "F16", 1, 2, 1)                                                                             \
    X(DTYPE_BF16, "BF16", 1, 2, 30)                                                                          \
    X(DTYPE_IQ2_XXS, "IQ2_XXS", 256, 66, 16)                                                                 \
    X(DTYPE_IQ2_XS, "IQ2_XS", 256, 74, 17)                                                                   \
    X(DTYPE_IQ2_S, "IQ2_S", 256, 82, 22)                                                                     \
    X(DTYPE_IQ3_XXS, "IQ3_XXS", 256, 98, 18)                                                                 \
    X(DTYPE_IQ3_S, "IQ3_S", 256, 110, 21)                                                                    \
    X(DTYPE_IQ1_S, "IQ1_S", 256, 50, 19)                                                                     \
    X(DTYPE_IQ1_M, "IQ1_M", 256, 56, 29)                                                                     \
    X(DTYPE_TQ1_0, "TQ1_0", 256, 54, 34)                                                                     \
    X(DTYPE_TQ2_0, "TQ2_0", 256, 66, 35)                                                                     \
    X(DTYPE_Q1_0, "Q1_0", 128, 18, 41)                                                                       \
    X(DTYPE_Q2_0, "Q2_0", 64, 18, 42)                                                                        \
    X(DTYPE_Q4_0, "Q4_0", 32, 18, 2)                                                                         \
    X(DTYPE_Q4_1, "Q4_1", 32, 20, 3)                                                                         \
    X(DTYPE_Q5_0, "Q5_0", 32, 22, 6)                                                                         \
    X(DTYPE_Q5_1, "Q5_1", 32, 24, 7)                                                                         \
    X(DTYPE_Q8_0, "Q8_0", 32, 34, 8)                                                                         \
    X(DTYPE_Q4_K, "Q4_K", 256, 144, 12)                                                                      \
    X(DTYPE_Q5_K, "Q5_K", 256, 176, 13)                                                                      \
    X(DTYPE_Q6_K, "Q6_K", 256, 210, 14)                                                                      \
    X(DTYPE_Q2_K, "Q2_K", 256, 84, 10)                                                                       \
    X(DTYPE_Q3_K, "Q3_K", 256, 110, 11)                                                                      \
    X(DTYPE_IQ4_NL, "IQ4_NL", 32, 18, 20)                                                                    \
    X(DTYPE_IQ4_XS, "IQ4_XS", 256, 136, 23)                                                                  \
    X(DTYPE_MXFP4, "MXFP4", 32, 17, 39)                                                                      \
    X(DTYPE_F8_E4M3, "F8_E4M3", 1, 1, DTYPE_NOT_IN_GGUF) /* 448 at most, no infinities */                    \
    X(DTYPE_I8, "I8", 1, 1, DTYPE_NOT_IN_GGUF)                                                               \
    X(DTYPE_U4, "U4", 2, 1, DTYPE_NOT_IN_GGUF)                                                               \
    X(DTYPE_F4_E2M1, "F4_E2M1", 2, 1, DTYPE_NOT_IN_GGUF)

enum { DTYPE_NOT_IN_GGUF = -1 };

enum dtype {
#define X(name, text, values, bytes, gguf) name,
    DTYPE_LIST(X)
#undef X
        DTYPE_COUNT
};

struct dtype_info {
    const char *text;
    int block_values, block_bytes;
    int gguf_id;
};

extern const struct dtype_info dtype_infos[DTYPE_COUNT];

/* The dtype with this GGUF id, or -1 when flashd does not know it. */
int dtype_from_gguf(uint32_t gguf_id);

/* Codes: F8_E4M3 and what follows it. */
static inline bool dtype_is_code(enum dtype dtype)
{
    return dtype >= DTYPE_F8_E4M3;
}

/* Values are looked up in groups of four or eight, in a grid of those that the format has (dtype_grids.h). */
static inline bool dtype_is_grid(enum dtype dtype)
{
    return dtype >= DTYPE_IQ2_XXS && dtype <= DTYPE_IQ1_M;
}

/* GGUF's types of less than three and a half bits that have no kernels on every device (device.h). */
static inline bool dtype_is_rare(enum dtype dtype)
{
    return dtype >= DTYPE_IQ2_XXS && dtype <= DTYPE_Q2_0;
}

/* Bytes of a row of cols values; 0 when cols is no multiple of the block or the result overflows. */
uint64_t dtype_row_bytes(enum dtype dtype, uint64_t cols);

/* Unpacks a whole row of cols values to f32, exactly (every packed value is a product and sum of
 * f16 scales and small integers, computed in f32 in the order that ggml's reference does). */
void dtype_row_to_f32(enum dtype dtype, const void *row, int64_t cols, float *out);

float dtype_f16_to_f32(uint16_t h);
uint16_t dtype_f32_to_f16(float f); /* round to nearest, ties to even */
float dtype_bf16_to_f32(uint16_t h);
uint16_t dtype_f32_to_bf16(float f); /* round to nearest, ties to even; NaN stays NaN */
float dtype_e4m3_to_f32(uint8_t code);
float dtype_e8m0_to_f32(uint8_t code); /* a power of two; 255 is NaN */

extern const float dtype_e2m1_values[16];

#endif
