/* alibi.h - ALiBi (Press et al., "Train Short, Test Long", 2022): scores fall with the distance from query to key, in each head at another
 * slope. Of n heads, the largest power of 2 among them, slopes are 2^(-most / n) and its powers; the heads behind have every second of
 * those that twice as many would have. Thread: any. */
#ifndef KERNELS_ALIBI_H
#define KERNELS_ALIBI_H

#include <math.h>
#include <stdint.h>

/* 0 <= head < num_heads. */
static inline float alibi_slope(float most, int32_t num_heads, int32_t head)
{
    int32_t n = 1;
    while (2 * n <= num_heads) n *= 2;
    const float power = head < n ? (float)(head + 1) : (float)(head - n) + 0.5f;
    return exp2f(-most * power / (float)n);
}

#endif
