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
                                .slice = {.row_end = rows, .col_end = cols}};
}

struct weight_view weight_view_rows(const struct weight_view *v, int64_t first_row, int64_t rows)
{
    assert_debug(v->scheme == WEIGHT_PLAIN && first_row >= 0 && rows >= 0 && first_row <= v->rows - rows);
    uint64_t begin = (uint64_t)first_row * dtype_row_bytes(v->dtype, (uint64_t)v->cols);
    return weight_view_plain((const char *)v->data + begin, v->dtype, rows, v->cols);
}

int weight_view_check_plain(const struct weight_view *v, struct error *err)
{
    const struct weight_slice *s = &v->slice;
    if (v->scheme != WEIGHT_PLAIN || v->scales.data || v->zeros.data)
        return error_set(err, STATUS_UNSUPPORTED,
                         "this device takes no weights with scales of their own (scheme %d)", (int)v->scheme);
    if (s->row_begin != 0 || s->row_end != v->rows || s->col_begin != 0 || s->col_end != v->cols)
        return error_set(err, STATUS_UNSUPPORTED,
                         "this device takes no part of a weight: rows %" PRId64 " to %" PRId64
                         " and columns %" PRId64 " to %" PRId64 " of %" PRId64 " x %" PRId64,
                         s->row_begin, s->row_end, s->col_begin, s->col_end, v->rows, v->cols);
    return STATUS_OK;
}
