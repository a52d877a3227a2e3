#include "files/weight_factors.h"

#include "base/check.h"
#include "files/weight_bits.h"
#include "files/weight_bytes.h"
#include "files/weight_codes.h"

bool weight_takes_factors(const struct weight_view *v)
{
    if (v->scheme == WEIGHT_BITS) return true;
    const bool is_known = v->dtype == DTYPE_F8_E4M3 || v->dtype == DTYPE_I8 || v->dtype == DTYPE_F4_E2M1;
    return v->scheme == WEIGHT_SCALED && is_known && !v->codes.groups;
}

static void fp4_to_f32(const struct weight_view *v, int64_t row, int64_t col, int num, float *out)
{
    const struct weight_codes *c = &v->codes;
    const int64_t n = weight_view_file_row(v, row);
    dtype_row_to_f32(v->dtype, (const uint8_t *)v->data + (n * v->cols + col) / 2, num, out);
    for (int i = 0; i < num; i++) {
        const float scale = weight_scale_at(&c->scales, n / c->scale_rows, (col + i) / c->scale_cols);
        out[i] *= scale * c->scale_factor / c->scale_divisor;
    }
}

void weight_factors_to_f32(const struct weight_view *v, int64_t row, int64_t col, int num, float *out)
{
    assert_debug(weight_takes_factors(v) && col % 2 == 0 && num % 2 == 0);
    if (v->scheme == WEIGHT_BITS)
        weight_bits_to_f32(v, row, col, num, out);
    else if (v->dtype == DTYPE_F4_E2M1)
        fp4_to_f32(v, row, col, num, out);
    else
        weight_bytes_to_f32(v, row, col, num, out);
    for (int i = 0; i < num; i++) out[i] *= weight_scale_at(&v->codes.factors, col + i, 0);
}
