/* row_loops.h - row_kernels.h written in the operations of a vector.h; included once for each instruction
 * set, after its vector.h. The last vector of a row is loaded and stored in part. */
#ifndef KERNELS_CPU_ROW_LOOPS_H
#define KERNELS_CPU_ROW_LOOPS_H

#include <math.h>

#include "kernels/cpu/row_kernels.h"

static inline vector load_upto(const float *x, int32_t i, int32_t n, float fill)
{
    return i + VECTOR_LANES <= n ? vector_load(x + i) : vector_load_part(x + i, n - i, fill);
}

static float row_max(const float *x, int32_t n, bool *has_nan)
{
    vector largest[4];
    for (int j = 0; j < 4; j++) largest[j] = vector_set(-INFINITY);
    uint32_t nan_lanes = 0;
    int32_t i = 0;
    for (; i + 4 * VECTOR_LANES <= n; i += 4 * VECTOR_LANES) {
        for (int j = 0; j < 4; j++) {
            vector value = vector_load(x + i + j * VECTOR_LANES);
            nan_lanes |= vector_is_nan(value);
            largest[j] = vector_max(largest[j], value);
        }
    }
    for (; i < n; i += VECTOR_LANES) {
        vector value = load_upto(x, i, n, -INFINITY);
        nan_lanes |= vector_is_nan(value);
        largest[0] = vector_max(largest[0], value);
    }
    *has_nan = nan_lanes != 0;
    return vector_largest(vector_max(vector_max(largest[0], largest[1]), vector_max(largest[2], largest[3])));
}

static int32_t row_gather(const float *x, int32_t n, float threshold, int32_t *indices, int32_t capacity)
{
    int32_t count = 0;
    vector least = vector_set(threshold);
    for (int32_t i = 0; i < n; i += VECTOR_LANES) {
        uint32_t lanes = vector_at_least(load_upto(x, i, n, NAN), least);
        for (; lanes; lanes &= lanes - 1) {
            if (count == capacity) return count;
            indices[count++] = i + __builtin_ctz(lanes);
        }
    }
    return count;
}

static inline vector weight_of(vector x, vector max, vector scale, vector least)
{
    return vector_zero_below(vector_exp2(vector_mul(vector_sub(x, max), scale)), x, least);
}

/* The sum of one segment; the weights are written to out unless it is NULL. */
static double exp_segment(const float *x, int32_t n, vector max, vector scale, vector least, float *out)
{
    vector sum[2] = {vector_set(0.0f), vector_set(0.0f)};
    for (int32_t i = 0, j = 0; i < n; i += VECTOR_LANES, j ^= 1) {
        vector weight = weight_of(load_upto(x, i, n, -INFINITY), max, scale, least);
        sum[j] = vector_add(sum[j], weight);
        if (!out) continue;
        if (i + VECTOR_LANES <= n)
            vector_store(out + i, weight);
        else
            vector_store_part(out + i, n - i, weight);
    }
    return (double)vector_sum(vector_add(sum[0], sum[1]));
}

static double row_sum_exp(const float *x, int32_t n, float max, float scale, float threshold)
{
    double sum = 0.0;
    for (int32_t i = 0; i < n; i += ROW_SEGMENT) {
        int32_t in_segment = n - i < ROW_SEGMENT ? n - i : ROW_SEGMENT;
        sum +=
            exp_segment(x + i, in_segment, vector_set(max), vector_set(scale), vector_set(threshold), NULL);
    }
    return sum;
}

static void row_exp_segments(float *x, int32_t n, float max, float scale, float threshold, double *sums)
{
    for (int32_t i = 0; i < n; i += ROW_SEGMENT) {
        int32_t in_segment = n - i < ROW_SEGMENT ? n - i : ROW_SEGMENT;
        sums[i / ROW_SEGMENT] =
            exp_segment(x + i, in_segment, vector_set(max), vector_set(scale), vector_set(threshold), x + i);
    }
}

#endif
