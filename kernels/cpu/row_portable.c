/* row_portable.c - row_kernels.h in plain C. */
#include <math.h>

#include "base/check.h"
#include "kernels/cpu/exp2_portable.h"
#include "kernels/cpu/row_kernels.h"

static float row_max(const float *x, int32_t n, bool *has_nan)
{
    float max = -INFINITY;
    *has_nan = false;
    for (int32_t i = 0; i < n; i++) {
        if (isnan(x[i])) *has_nan = true;
        if (x[i] > max) max = x[i];
    }
    return max;
}

static int32_t row_gather(const float *x, int32_t n, float threshold, int32_t *indices, int32_t capacity)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n && count < capacity; i++)
        if (x[i] >= threshold) indices[count++] = i;
    return count;
}

static float weight_of(float x, float max, float scale, float threshold)
{
    return x < threshold ? 0.0f : exp2_portable((x - max) * scale);
}

static double row_sum_exp(const float *x, int32_t n, float max, float scale, float threshold)
{
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) sum += (double)weight_of(x[i], max, scale, threshold);
    return sum;
}

static void row_exp_segments(float *x, int32_t n, float max, float scale, float threshold, double *sums)
{
    for (int32_t begin = 0; begin < n; begin += ROW_SEGMENT) {
        int32_t end = min_of(begin + ROW_SEGMENT, n);
        double sum = 0.0;
        for (int32_t i = begin; i < end; i++) {
            x[i] = weight_of(x[i], max, scale, threshold);
            sum += (double)x[i];
        }
        sums[begin / ROW_SEGMENT] = sum;
    }
}

const struct row_kernels row_kernels_portable = {row_max, row_gather, row_sum_exp, row_exp_segments};
