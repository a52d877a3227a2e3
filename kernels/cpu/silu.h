/* silu.h - gate[i] = silu(gate[i]) * up[i] in plain C without branches, for the compiler to vectorise.
 *
 * silu(x) = x / (1 + e^-x); with e = e^-|x| <= 1 it is x / (1 + e) or, for x < 0, x e / (1 + e): nothing
 * overflows. Relative error about 3e-7; below x = -87 the result is a number of that size, not the still
 * smaller true one. NaN in either operand stays NaN. */
#ifndef KERNELS_CPU_SILU_H
#define KERNELS_CPU_SILU_H

#include <stdint.h>
#include <string.h>

#include "kernels/cpu/exp2_constants.h"

/* 2^x for -126 <= x <= 0. */
static inline float silu_exp2(float x)
{
    const float shifted = x + 0x1.8p23f; /* the nearest integer, in the low bits */
    const float f = x - (shifted - 0x1.8p23f);
    float p = EXP2_C6;
    uint32_t n, bits;
    p = p * f + EXP2_C5;
    p = p * f + EXP2_C4;
    p = p * f + EXP2_C3;
    p = p * f + EXP2_C2;
    p = p * f + EXP2_C1;
    p = p * f + 1.0f;
    memcpy(&n, &shifted, sizeof n);
    memcpy(&bits, &p, sizeof bits);
    bits += n << 23;
    memcpy(&p, &bits, sizeof p);
    return p;
}

static inline void silu_mul(int count, float *restrict gate, const float *restrict up)
{
    for (int i = 0; i < count; i++) {
        const float x = gate[i];
        const float exponent = -__builtin_fabsf(x) * 0x1.715476p0f;
        const float e = silu_exp2(exponent > EXP2_LEAST ? exponent : EXP2_LEAST);
        gate[i] = x * (x < 0 ? e : 1.0f) / (1.0f + e) * up[i];
    }
}

#endif
