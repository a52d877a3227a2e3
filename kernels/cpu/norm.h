/* norm.h - sums over a row in f32, in an order that depends on n alone, RMSNorm and LayerNorm. */
#ifndef KERNELS_CPU_NORM_H
#define KERNELS_CPU_NORM_H

#include <stdint.h>

float row_sum(const float *x, int32_t n);
/* Of products. */
float row_dot(const float *a, const float *b, int32_t n);

/* out[n] = x[n] / sqrt(mean(x^2) + eps) * weight[n]. out may be x. */
void norm_row(float *out, const float *x, const float *weight, float eps, int32_t n);
/* out[n] = (x[n] - mean(x)) / sqrt(var(x) + eps) * weight[n] + bias[n]; bias NULL: none. out may be x. */
void layer_norm_row(float *out, const float *x, const float *weight, const float *bias, float eps, int32_t n);

#endif
