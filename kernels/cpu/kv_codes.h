/* kv_codes.h - one token's K or V of one head as codes of 8 bits and a scale: element = scale * number of its code.
 *
 *   I8        the code is a signed integer; scale = largest / 127
 *   F8_E4M3   the number is the code's value / 256, which is the f16 of the same bits moved to their places;
 *             scale = 256 * largest / 448
 *
 * The scale comes from the token alone, so it needs no calibration, nothing saturates, and the codes do not depend on
 * what runs beside. Rounding is to nearest, ties to even. */
#ifndef KERNELS_CPU_KV_CODES_H
#define KERNELS_CPU_KV_CODES_H

#include <stdint.h>

#include "files/dtype.h"

/* Codes of x[n] to codes[0], codes[stride], ...; returns the scale: 0 for a vector whose elements are all below what
 * an f32 can scale, NaN where one is not finite. */
float kv_codes_store(uint8_t *codes, int stride, const float *x, int n, enum dtype dtype);

/* The number of a code. */
static inline float kv_code_number(uint8_t code, enum dtype dtype)
{
    if (dtype == DTYPE_I8) return (float)(int8_t)code;
    return dtype_f16_to_f32((uint16_t)((code & 0x80) << 8 | (code & 0x7f) << 7));
}

#endif
