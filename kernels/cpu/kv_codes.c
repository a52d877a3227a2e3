#include "kernels/cpu/kv_codes.h"

#include <float.h>
#include <math.h>
#include <string.h>

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* |x| <= 127; 1.5 * 2^23 leaves the nearest integer in the low bits. */
static inline uint8_t integer_code(float x)
{
    return (uint8_t)bits_of(x + 0x1.8p23f);
}

/* |x| <= 448. Below 2^-6 the codes are multiples of 2^-9, which are the last bit of what is added. */
static inline uint8_t e4m3_code(float x)
{
    uint32_t sign = bits_of(x) >> 24 & 0x80;
    float size = fabsf(x);
    uint32_t bits = bits_of(size), small = bits_of(size + 0x1p14f) & 0xf,
             normal = ((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120 << 3);
    return (uint8_t)(sign | (size < 0x1p-6f ? small : normal));
}

/* NaN where an element is not finite: the bits of such are above those of all others. */
static float largest_of(const float *x, int n)
{
    int32_t largest = 0;
    for (int i = 0; i < n; i++) {
        int32_t size = (int32_t)(bits_of(x[i]) & 0x7fffffff);
        largest = size > largest ? size : largest;
    }
    float size;
    memcpy(&size, &largest, sizeof size);
    return size <= FLT_MAX ? size : NAN;
}

float kv_codes_store(uint8_t *codes, int stride, const float *x, int n, enum dtype dtype)
{
    float largest = largest_of(x, n), unit = largest / (dtype == DTYPE_I8 ? 127.0f : 448.0f);
    if (!(unit >= FLT_MIN)) { /* NaN too */
        for (int i = 0; i < n; i++) codes[i * stride] = 0;
        return unit == unit ? 0.0f : unit;
    }
    if (dtype == DTYPE_I8) {
        for (int i = 0; i < n; i++) codes[i * stride] = integer_code(x[i] / unit);
        return unit;
    }
    for (int i = 0; i < n; i++) codes[i * stride] = e4m3_code(x[i] / unit);
    return unit * 256.0f;
}
