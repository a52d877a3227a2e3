/* row_kernels.h - scans over one row of logits, for sampling. A row has n values in any alignment.
 * Sums run in a fixed order that depends on n alone. */
#ifndef KERNELS_CPU_ROW_KERNELS_H
#define KERNELS_CPU_ROW_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

enum { ROW_SEGMENT = 1024 }; /* values that share one entry of sums in exp_segments */

struct row_kernels {
    /* The largest value (-INFINITY for n = 0); *has_nan: whether any value is a NaN (the maximum is then
     * meaningless). */
    float (*max)(const float *x, int32_t n, bool *has_nan);
    /* Indices of the values >= threshold, ascending, at most capacity of them; returns how many were stored.
     */
    int32_t (*gather)(const float *x, int32_t n, float threshold, int32_t *indices, int32_t capacity);
    /* Sum of exp2((x - max) * scale) over the values >= threshold; max is at least every value, scale > 0. */
    double (*sum_exp)(const float *x, int32_t n, float max, float scale, float threshold);
    /* x = exp2((x - max) * scale), or 0 where x < threshold; sums[i] is the sum of segment i. */
    void (*exp_segments)(float *x, int32_t n, float max, float scale, float threshold, double *sums);
};

extern const struct row_kernels row_kernels_portable, row_kernels_avx2, row_kernels_avx512;

#endif
