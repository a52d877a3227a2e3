/* gate.h - gate[i] = f(gate[i]) * up[i] in plain C for the compiler to vectorise: each instruction set includes it,
 * and all give the same bits.
 *
 *   SiLU                          f(x) = x / (1 + e^-x)
 *   GELU, approximated with tanh  f(x) = x / (1 + e^-y), y = sqrt(8 / pi) (x + 0.044715 x^3)
 *   GELU                          f(x) = x Phi(x), by erfc(z) = t e^(-z^2 + P(t)), t = 1 / (1 + z / 2), z = |x| / sqrt(2)
 *   ReLU                          f(x) = x above 0, 0 below
 *   clamped swish                 f(x) = x / (1 + e^-y), y = 1.702 x, x at most 7; up becomes 1 + up within -7 to 7
 *   xIELU (Huang & Schlag, 2024)  f(x) = a x^2 + c x above 0, b (e^x - 1 - x) + c x below; up is a, b, c
 *
 * With e = e^-|y| <= 1 that is x / (1 + e) or, for y < 0, x e / (1 + e): nothing overflows. |y| counts as 87 at
 * most there: below y = -87 the result is x 2^-125, not the still smaller true one. Relative error of SiLU about 3e-7.
 * NaN in either operand stays NaN; what is clamped turns an infinity into one, as it would hide it otherwise.
 *
 * Choices are made on the bits, as compilers will not turn comparisons of floats (which may trap) into masks.
 */
#ifndef KERNELS_CPU_GATE_H
#define KERNELS_CPU_GATE_H

#include <stdint.h>
#include <string.h>

#include "kernels/cpu/exp2_portable.h"

static inline uint32_t gate_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float gate_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2^x for -126 <= x <= 0. */
static inline float gate_exp2(float x)
{
    const float shifted = x + 0x1.8p23f; /* the nearest integer, in the low bits */
    const float p = exp2_fraction(x - (shifted - 0x1.8p23f));
    return gate_float(gate_bits(p) + (gate_bits(shifted) << 23));
}

/* x / (1 + e^-y) */
static inline float gate_value(float x, float y)
{
    const int32_t bits_of_87 = 0x42ae0000, bits_of_1 = 0x3f800000;
    const int32_t bits = (int32_t)gate_bits(y), negative = bits >> 31; /* all ones or zero */
    const int32_t magnitude = bits & 0x7fffffff;                       /* ordered like the floats */
    const int32_t clamped = magnitude < bits_of_87 ? magnitude : bits_of_87;
    const float e = gate_exp2(gate_float((uint32_t)clamped) * -0x1.715476p0f);
    const int32_t factor = ((int32_t)gate_bits(e) & negative) | (bits_of_1 & ~negative);
    return x * gate_float((uint32_t)factor) / (1.0f + e);
}

static inline void silu_mul(int count, float *restrict gate, const float *restrict up)
{
    for (int i = 0; i < count; i++) gate[i] = gate_value(gate[i], gate[i]) * up[i];
}

static inline void gelu_mul(int count, float *restrict gate, const float *restrict up)
{
    for (int i = 0; i < count; i++) {
        const float x = gate[i];
        gate[i] = gate_value(x, 1.59576912f * (x + 0.044715f * x * x * x)) * up[i];
    }
}

/* min(x, 7), NaN for infinities too. Floats that are not negative are ordered like their bits. */
static inline float gate_at_most_7(float x)
{
    const int32_t bits_of_7 = 0x40e00000, bits = (int32_t)gate_bits(x);
    return gate_float((uint32_t)(bits < bits_of_7 ? bits : bits_of_7)) + x * 0.0f;
}

/* x within -7 to 7, NaN for infinities too. */
static inline float gate_within_7(float x)
{
    const uint32_t bits = gate_bits(x), sign = bits & 0x80000000;
    return gate_float(gate_bits(gate_at_most_7(gate_float(bits ^ sign))) | sign);
}

static inline void clamped_swish_mul(int count, float *restrict gate, const float *restrict up)
{
    for (int i = 0; i < count; i++) {
        const float x = gate_at_most_7(gate[i]);
        gate[i] = gate_value(x, 1.702f * x) * (gate_within_7(up[i]) + 1.0f);
    }
}

/* P is Chebyshev's fit of Press et al., "Numerical Recipes", erfcc: relative error below 1.2e-7. z counts as 9 at most. */
static inline float gate_gelu(float x)
{
    const int32_t bits_of_9 = 0x41100000;
    const int32_t bits = (int32_t)gate_bits(x * 0.70710678f), negative = bits >> 31;
    const int32_t magnitude = bits & 0x7fffffff;
    const float z = gate_float((uint32_t)(magnitude < bits_of_9 ? magnitude : bits_of_9));
    const float t = 1.0f / (1.0f + 0.5f * z);
    float p = 0.17087277f;
    p = p * t - 0.82215223f;
    p = p * t + 1.48851587f;
    p = p * t - 1.13520398f;
    p = p * t + 0.27886807f;
    p = p * t - 0.18628806f;
    p = p * t + 0.09678418f;
    p = p * t + 0.37409196f;
    p = p * t + 1.00002368f;
    p = p * t - 1.26551223f;
    const float tail = 0.5f * t * gate_exp2((p - z * z) * 0x1.715476p0f); /* Phi(-|x|) */
    const float phi =
        gate_float((gate_bits(tail) & (uint32_t)negative) | (gate_bits(1.0f - tail) & ~(uint32_t)negative));
    return x * phi;
}

static inline void exact_gelu_mul(int count, float *restrict gate, const float *restrict up)
{
    for (int i = 0; i < count; i++) gate[i] = gate_gelu(gate[i]) * up[i];
}

/* NaN for infinities too: what is no number shows. */
static inline void relu_squared_mul(int count, float *restrict gate, const float *restrict up)
{
    for (int i = 0; i < count; i++) {
        const float x = gate[i], positive = (x > 0 ? x : 0.0f) + x * 0.0f;
        gate[i] = positive * positive * up[i];
    }
}

/* NaN for infinities too. */
static inline void relu_mul(int count, float *restrict gate, const float *restrict up)
{
    for (int i = 0; i < count; i++) {
        const float x = gate[i], positive = (x > 0 ? x : 0.0f) + x * 0.0f;
        gate[i] = positive * up[i];
    }
}

/* e^x - 1 - x of x <= 0: from -1/2 on by its series, whose error is 1e-7 of it. */
static inline float gate_bend(float x)
{
    const int32_t bits_of_87 = 0x42ae0000, bits_of_half = 0x3f000000;
    const int32_t magnitude = (int32_t)(gate_bits(x) & 0x7fffffff);
    const int32_t clamped = magnitude < bits_of_87 ? magnitude : bits_of_87;
    const uint32_t is_small = magnitude < bits_of_half ? 0xffffffff : 0;
    const float far = gate_exp2(gate_float((uint32_t)clamped) * -0x1.715476p0f) - 1.0f - x;
    float p = 1.0f / 40320;
    p = p * x + 1.0f / 5040;
    p = p * x + 1.0f / 720;
    p = p * x + 1.0f / 120;
    p = p * x + 1.0f / 24;
    p = p * x + 1.0f / 6;
    p = p * x + 0.5f;
    return gate_float((gate_bits(x * x * p) & is_small) | (gate_bits(far) & ~is_small));
}

static inline void xielu(int count, float *restrict gate, const float *restrict values)
{
    for (int i = 0; i < count; i++) {
        const float x = gate[i];
        const uint32_t negative = (uint32_t)((int32_t)gate_bits(x) >> 31);
        const float below = gate_float(gate_bits(x) & negative), above = gate_float(gate_bits(x) & ~negative);
        gate[i] = values[0] * above * above + values[1] * gate_bend(below) + values[2] * x;
    }
}

/* Those of an instruction set, in the order of enum gate_function. */
#define GATE_FUNCTIONS                                                                                       \
    {                                                                                                        \
        silu_mul, gelu_mul, clamped_swish_mul, exact_gelu_mul, relu_squared_mul, relu_mul, xielu             \
    }

#endif
