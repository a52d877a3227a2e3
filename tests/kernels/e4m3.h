/* e4m3.h - bytes, written apart from what is tested: what a device multiplies for a model whose rows are quantised, too. */
#ifndef TESTS_KERNELS_E4M3_H
#define TESTS_KERNELS_E4M3_H

#include <math.h>
#include <stdint.h>

static double e4m3_value(uint8_t code)
{
    int exponent = code >> 3 & 15, mantissa = code & 7;
    double magnitude = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return code & 128 ? -magnitude : magnitude;
}

/* The nearest magnitude, of two equally near ones that with the even code; what is too large becomes the largest. */
__attribute__((unused)) static double e4m3_nearest(double v)
{
    int best = 0;
    for (int code = 1; code < 127; code++) {
        double closer = fabs(fabs(v) - e4m3_value((uint8_t)best)) - fabs(fabs(v) - e4m3_value((uint8_t)code));
        if (closer > 0 || (closer == 0 && code % 2 == 0)) best = code;
    }
    return copysign(e4m3_value((uint8_t)best), v);
}

/* factor times so many columns of a row, whose largest value becomes 448 where factor is 1. */
__attribute__((unused)) static void e4m3_quantise(const float *x, int32_t count, float factor, double *out)
{
    float most = 0;
    for (int32_t i = 0; i < count; i++) most = fmaxf(most, fabsf(x[i]));
    const float inverse = most > 0 ? factor * 448 / most : 0, scale = most / 448;
    for (int32_t i = 0; i < count; i++) out[i] = e4m3_nearest((double)(x[i] * inverse)) * (double)scale;
}

/* The same as integers: the largest value becomes 127. */
__attribute__((unused)) static void int8_quantise(const float *x, int32_t count, float factor, double *out)
{
    float most = 0;
    for (int32_t i = 0; i < count; i++) most = fmaxf(most, fabsf(x[i]));
    const float inverse = most > 0 ? factor * 127 / most : 0, scale = most / 127;
    for (int32_t i = 0; i < count; i++) out[i] = nearbyint((double)(x[i] * inverse)) * (double)scale;
}

#endif
