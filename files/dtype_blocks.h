/* dtype_blocks.h - what stands inside of GGUF's blocks, for kernels that keep it packed in an order of their own. */
#ifndef FILES_DTYPE_BLOCKS_H
#define FILES_DTYPE_BLOCKS_H

#include <stdint.h>

/* Little-endian, at any address. */
static inline uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t load_u32(const uint8_t *p)
{
    return (uint32_t)load_u16(p) | (uint32_t)load_u16(p + 2) << 16;
}

/* What the nibbles of IQ4_NL and IQ4_XS stand for. */
extern const int8_t dtype_iq4_values[16];

/* -32 .. 31, of columns 16 i .. 16 i + 15 (i < 16) of a Q3_K block, and of columns 32 i .. 32 i + 31 (i < 8) of an IQ4_XS one. */
int dtype_q3_k_scale(const uint8_t *block, int i);
int dtype_iq4_xs_scale(const uint8_t *block, int i);

/* 0 .. 2, one more than the value, of column j of a TQ1_0 block. */
int dtype_tq1_0_code(const uint8_t *block, int j);

#endif
