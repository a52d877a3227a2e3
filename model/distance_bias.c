#include "model/distance_bias.h"

#include <stdlib.h>

/* transformers has 8 + floor(8 log(n / 8) / log(128 / 8)) of the half from n = 8 on: one more each time that n^2 has doubled. */
int32_t distance_bucket(int32_t distance)
{
    enum { HALF = DISTANCE_BUCKETS / 2, NEAR = HALF / 2 };
    const int32_t n = abs(distance), behind = distance > 0 ? HALF : 0;
    int32_t far = NEAR;
    if (n < NEAR) return behind + n;
    while (far < HALF - 1 && n * n >= (NEAR * NEAR) << (far - NEAR + 1)) far++;
    return behind + far;
}

void distance_bias_fill(const struct weight_view *buckets, float *row, float *out)
{
    for (int32_t i = 0; i < DISTANCE_ROW; i++) {
        weight_view_row_to_f32(buckets, distance_bucket(i - DISTANCE_REACH), row);
        for (int64_t head = 0; head < buckets->cols; head++) out[head * DISTANCE_ROW + i] = row[head];
    }
}
