/* softcap.h - x[i] = cap tanh(x[i] / cap) in plain C for the compiler to vectorise: each instruction set includes it, and
 * all give the same bits.
 *
 * tanh(y) = (1 - e) / (1 + e) with e = e^-2|y| <= 1, which loses digits near 0: below 1/8 it is y (1 - y^2/3 + 2 y^4/15 -
 * 17 y^6/315). Relative error about 4e-7. Odd to the bit; NaN stays NaN. */
#ifndef KERNELS_CPU_SOFTCAP_H
#define KERNELS_CPU_SOFTCAP_H

#include "kernels/cpu/gate.h"

static inline uint32_t softcap_select(int32_t mask, float yes, float no)
{
    return (gate_bits(yes) & (uint32_t)mask) | (gate_bits(no) & ~(uint32_t)mask);
}

static inline void softcap(int count, float *x, float cap)
{
    const int32_t bits_of_43 = 0x422c0000, bits_of_eighth = 0x3e000000, bits_of_infinity = 0x7f800000;
    for (int i = 0; i < count; i++) {
        const float y = x[i] / cap;
        const int32_t bits = (int32_t)gate_bits(y),
                      magnitude = bits & 0x7fffffff; /* ordered like the floats */
        const int32_t clamped = magnitude < bits_of_43 ? magnitude : bits_of_43;
        const float e = gate_exp2(gate_float((uint32_t)clamped) * -0x1.715476p1f),
                    m = gate_float((uint32_t)magnitude);
        const float square = m * m,
                    near = m * (1.0f + square * (-1 / 3.0f + square * (2 / 15.0f + square * (-17 / 315.0f))));
        const int32_t is_near = (magnitude - bits_of_eighth) >> 31,
                      is_number = ~((bits_of_infinity - magnitude) >> 31);
        const float tanh_of_m = gate_float(softcap_select(is_near, near, (1.0f - e) / (1.0f + e)));
        const float result = gate_float(gate_bits(tanh_of_m * cap) | ((uint32_t)bits & 0x80000000u));
        x[i] = gate_float(softcap_select(is_number, result, x[i]));
    }
}

#endif
