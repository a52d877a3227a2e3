/* bf16.h - bfloat16 to and from f32, inline: a bfloat16 is the upper half of an f32. */
#ifndef KERNELS_CPU_BF16_H
#define KERNELS_CPU_BF16_H

#include <stdint.h>
#include <string.h>

static inline float bf16_to_f32(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* To nearest, ties to even. A NaN gets its quiet bit set, lest rounding carry it into an infinity. */
static inline uint16_t bf16_from_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (uint16_t)((f != f ? bits | 0x400000 : rounded) >> 16);
}

#endif
