/* norm.h - RMSNorm of one row in f32, its sum of squares in an order that depends on n alone. */
#ifndef KERNELS_CPU_NORM_H
#define KERNELS_CPU_NORM_H

#include <stdint.h>

/* out[n] = x[n] / sqrt(mean(x^2) + eps) * weight[n]. out may be x. */
void norm_row(float *out, const float *x, const float *weight, float eps, int32_t n);

#endif
