#include "files/weight_bytes.h"

#include "base/check.h"
#include "files/weight_codes.h"

bool weight_bytes_are_fine(const struct weight_view *v)
{
    const struct weight_codes *c = &v->codes;
    if (v->scheme != WEIGHT_SCALED || (v->dtype != DTYPE_F8_E4M3 && v->dtype != DTYPE_I8)) return false;
    return c->zeros.data || (c->scale_cols < v->cols && c->scale_cols % WEIGHT_BYTES_GROUP != 0);
}

static float value_of(const struct weight_view *v, uint8_t code)
{
    return v->dtype == DTYPE_I8 ? (float)(int8_t)(code ^ v->codes.flip) : dtype_e4m3_to_f32(code);
}

static float zero_at(const struct weight_view *v, int64_t row, int64_t group)
{
    const struct weight_side *z = &v->codes.zeros;
    if (!z->data) return 0;
    if (v->codes.zeros_are_apart)
        return value_of(v, ((const uint8_t *)z->data)[row / v->codes.scale_rows * z->cols + group]);
    return value_of(v, ((const uint8_t *)z->data)[(row / 4 * z->cols + group) * 4 + row % 4]);
}

void weight_bytes_to_f32(const struct weight_view *v, int64_t row, int64_t col, int num, float *out)
{
    const struct weight_codes *c = &v->codes;
    const int64_t n = weight_view_file_row(v, row);
    const uint8_t *const codes = (const uint8_t *)v->data + n * v->cols;
    assert_debug(col >= 0 && col + num <= v->cols);
    for (int64_t k = col; k < col + num; k++) {
        const int64_t group = weight_group_of(v, k);
        const float scale = weight_scale_at(&c->scales, n / c->scale_rows, group);
        out[k - col] =
            (value_of(v, codes[k]) - zero_at(v, n, group)) * (scale * c->scale_factor / c->scale_divisor);
    }
}
