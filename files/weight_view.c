#include "files/weight_view.h"

#include <inttypes.h>
#include <stdbool.h>

#include "base/check.h"

struct weight_view weight_view_plain(const void *data, enum dtype dtype, int64_t rows, int64_t cols)
{
    assert_debug(rows >= 0 && cols >= 0);
    return (struct weight_view){.data = data,
                                .dtype = dtype,
                                .rows = rows,
                                .cols = cols,
                                .scheme = WEIGHT_PLAIN,
                                .slice = {.row_end = rows, .col_end = cols, .row_step = 1}};
}

struct weight_view weight_view_rows(const struct weight_view *v, int64_t first_row, int64_t rows)
{
    assert_debug(first_row >= 0 && rows >= 0 && first_row <= weight_view_num_rows(v) - rows);
    if (v->scheme == WEIGHT_PLAIN) {
        uint64_t begin = (uint64_t)first_row * dtype_row_bytes(v->dtype, (uint64_t)v->cols);
        return weight_view_plain((const char *)v->data + begin, v->dtype, rows, v->cols);
    }
    struct weight_view part = *v;
    part.slice.row_begin += first_row * v->slice.row_step;
    part.slice.row_end = part.slice.row_begin + rows * v->slice.row_step;
    return part;
}

int64_t weight_view_num_rows(const struct weight_view *v)
{
    return v->data ? (v->slice.row_end - v->slice.row_begin) / v->slice.row_step : 0;
}

uint64_t weight_view_bytes(const struct weight_view *v)
{
    static const uint64_t scale_bytes[] = {
        [SCALE_F32] = 4, [SCALE_F16] = 2, [SCALE_BF16] = 2, [SCALE_E4M3] = 1, [SCALE_E8M0] = 1};
    const struct weight_side *scales = &v->codes.scales, *zeros = &v->codes.zeros;
    uint64_t bytes = (uint64_t)weight_view_num_rows(v) * dtype_row_bytes(v->dtype, (uint64_t)v->cols);
    if (v->scheme == WEIGHT_PLAIN) return bytes;
    uint64_t sides = (uint64_t)scales->rows * (uint64_t)scales->cols * scale_bytes[scales->type] +
                     (uint64_t)zeros->rows * (uint64_t)zeros->cols / 2;
    return bytes + sides * (uint64_t)weight_view_num_rows(v) / (uint64_t)v->rows;
}

static int refuse_type(const struct weight_view *v, struct error *err)
{
    return error_set(
        err, STATUS_UNSUPPORTED, "this device has no products with weights of type %s%s; the CPU device has",
        dtype_infos[v->dtype].text, v->scheme == WEIGHT_PLAIN ? "" : " that have scales of their own");
}

int weight_view_check_whole(const struct weight_view *v, struct error *err)
{
    const struct weight_slice *s = &v->slice;
    if (v->scheme != WEIGHT_PLAIN || v->codes.scales.data || v->codes.zeros.data) return refuse_type(v, err);
    if (s->row_begin == 0 && s->row_end == v->rows && s->col_begin == 0 && s->col_end == v->cols)
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "this device takes no part of a weight: rows %" PRId64 " to %" PRId64
                     " and columns %" PRId64 " to %" PRId64 " of %" PRId64 " x %" PRId64,
                     s->row_begin, s->row_end, s->col_begin, s->col_end, v->rows, v->cols);
}

int weight_view_check_plain(const struct weight_view *v, struct error *err)
{
    return v->dtype >= DTYPE_MXFP4 ? refuse_type(v, err) : weight_view_check_whole(v, err);
}
