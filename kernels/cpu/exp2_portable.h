/* exp2_portable.h - exp2 in plain C; see exp2_constants.h for its domain. */
#ifndef KERNELS_CPU_EXP2_PORTABLE_H
#define KERNELS_CPU_EXP2_PORTABLE_H

#include <stdint.h>
#include <string.h>

#include "kernels/cpu/exp2_constants.h"

/* 2^f for |f| <= 0.5. */
static inline float exp2_fraction(float f)
{
    float p = EXP2_C6;
    p = p * f + EXP2_C5;
    p = p * f + EXP2_C4;
    p = p * f + EXP2_C3;
    p = p * f + EXP2_C2;
    p = p * f + EXP2_C1;
    p = p * f + 1.0f;
    return p;
}

static inline float exp2_portable(float x)
{
    /* Adding and subtracting 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits. */
    const float round = 0x1.8p23f;
    if (!(x >= EXP2_LEAST)) return x < EXP2_LEAST ? 0.0f : x;
    float shifted = x + round;
    float p = exp2_fraction(x - (shifted - round));
    uint32_t n, bits;
    memcpy(&n, &shifted, sizeof n);
    memcpy(&bits, &p, sizeof bits);
    bits += n << 23;
    memcpy(&p, &bits, sizeof p);
    return p;
}

#endif
