#include "files/weight_table.h"

#include <string.h>

#include "base/check.h"

static float float_at(const void *floats, int64_t i)
{
    float f;
    memcpy(&f, (const uint8_t *)floats + i * 4, sizeof f);
    return f;
}

static float scale_of(const struct weight_view *v, int64_t block)
{
    const struct weight_table *t = &v->codes.table;
    const void *const scales = v->codes.scales.data;
    if (!t->scale_values) return float_at(scales, block);
    const float unit = float_at(t->scale_units, block / t->scale_block);
    return float_at(t->scale_values, ((const uint8_t *)scales)[block]) * unit + t->scale_offset;
}

void weight_table_to_f32(const struct weight_view *v, int64_t row, int64_t col, int num, float *out)
{
    const int64_t file_row = v->slice.row_begin + row * v->slice.row_step, first = file_row * v->cols + col;
    const uint8_t *const codes = v->data;
    int64_t block = -1;
    float scale = 0;
    assert_debug(v->scheme == WEIGHT_TABLE && col >= 0 && col + num <= v->cols);
    for (int64_t i = first; i < first + num; i++) {
        if (i / v->codes.scale_cols != block) scale = scale_of(v, block = i / v->codes.scale_cols);
        out[i - first] = float_at(v->codes.table.values, codes[i / 2] >> (i % 2 ? 0 : 4) & 15) * scale;
    }
}
