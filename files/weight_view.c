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
                                .slice = {.row_end = rows, .col_end = cols, .row_step = 1, .row_run = 1}};
}

struct weight_view weight_view_transposed(const void *data, enum dtype dtype, int64_t rows, int64_t cols)
{
    assert_debug(dtype_infos[dtype].block_values == 1);
    struct weight_view v = weight_view_plain(data, dtype, rows, cols);
    v.scheme = WEIGHT_TRANSPOSED;
    return v;
}

uint64_t weight_scale_bytes(enum scale_type type)
{
    static const uint64_t bytes[] = {
        [SCALE_F32] = 4, [SCALE_F16] = 2, [SCALE_BF16] = 2, [SCALE_E4M3] = 1, [SCALE_E8M0] = 1};
    return bytes[type];
}

bool weight_view_has_own_rows(const struct weight_view *v)
{
    return !weight_view_has_codes(v) ||
           (v->scheme == WEIGHT_SCALED && v->codes.scale_rows == 1 && !v->codes.zeros.data);
}

static bool is_whole(const struct weight_view *v)
{
    return v->slice.row_begin == 0 && v->slice.row_end == v->rows && v->slice.row_step == 1;
}

static struct weight_view own_rows(const struct weight_view *v, int64_t first_row, int64_t rows)
{
    struct weight_view part = *v;
    struct weight_side *const scales = &part.codes.scales;
    const uint64_t value_bytes =
        dtype_row_bytes(v->dtype == DTYPE_MXFP4 ? DTYPE_F4_E2M1 : v->dtype, (uint64_t)v->cols);
    part.data = (const char *)v->data + (uint64_t)first_row * value_bytes;
    scales->data = (const char *)scales->data +
                   (uint64_t)first_row * (uint64_t)scales->cols * weight_scale_bytes(scales->type);
    part.rows = part.slice.row_end = scales->rows = rows;
    return part;
}

struct weight_view weight_view_rows(const struct weight_view *v, int64_t first_row, int64_t rows)
{
    assert_debug(first_row >= 0 && rows >= 0 && first_row <= weight_view_num_rows(v) - rows);
    if (v->scheme == WEIGHT_PLAIN && is_whole(v)) {
        uint64_t begin = (uint64_t)first_row * dtype_row_bytes(v->dtype, (uint64_t)v->cols);
        return weight_view_plain((const char *)v->data + begin, v->dtype, rows, v->cols);
    }
    if (v->scheme == WEIGHT_SCALED && weight_view_has_own_rows(v) && is_whole(v))
        return own_rows(v, first_row, rows);
    struct weight_view part = *v;
    part.slice.row_begin += first_row * v->slice.row_step;
    part.slice.row_end = part.slice.row_begin + rows * v->slice.row_step;
    return part;
}

struct weight_view weight_view_every(const struct weight_view *v, int64_t first, int64_t step)
{
    assert_debug(first >= 0 && first < step && v->slice.row_step == 1);
    struct weight_view part = *v;
    part.slice.row_begin += first;
    part.slice.row_step = step;
    return part;
}

struct weight_view weight_view_runs(const struct weight_view *v, int64_t first, int64_t step, int64_t run)
{
    assert_debug(run > 0 && first + run <= step && weight_view_num_rows(v) % step == 0);
    struct weight_view part = weight_view_every(v, first, step);
    part.slice.row_run = run;
    return part;
}

int64_t weight_view_num_rows(const struct weight_view *v)
{
    const struct weight_slice *s = &v->slice;
    return v->data ? div_up(s->row_end - s->row_begin, s->row_step) * s->row_run : 0;
}

uint64_t weight_view_bytes(const struct weight_view *v)
{
    const struct weight_side *scales = &v->codes.scales, *zeros = &v->codes.zeros,
                             *offsets = &v->codes.offsets;
    uint64_t bytes = (uint64_t)weight_view_num_rows(v) * dtype_row_bytes(v->dtype, (uint64_t)v->cols);
    if (v->scheme == WEIGHT_TERNARY) return bytes / 4; /* codes in two bits of a byte */
    if (!weight_view_has_codes(v)) return bytes;
    if (offsets->data) bytes = bytes * v->codes.bits / 8;
    uint64_t sides = (uint64_t)scales->rows * (uint64_t)scales->cols * weight_scale_bytes(scales->type) +
                     (uint64_t)zeros->rows * (uint64_t)zeros->cols / 2 +
                     (uint64_t)offsets->rows * (uint64_t)offsets->cols * weight_scale_bytes(offsets->type);
    return bytes + sides * (uint64_t)weight_view_num_rows(v) / (uint64_t)v->rows;
}

static int refuse_type(const struct weight_view *v, struct error *err)
{
    return error_set(err, STATUS_UNSUPPORTED,
                     "this device has no products with weights of type %s%s; the CPU device has",
                     dtype_infos[v->dtype].text,
                     v->scheme == WEIGHT_PLAIN        ? ""
                     : v->scheme == WEIGHT_TRANSPOSED ? " that lie transposed"
                                                      : " that have scales of their own");
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

static int64_t num_values(const struct weight_view *v)
{
    return v->cols == 1 ? weight_view_num_rows(v) : v->cols;
}

int weight_view_check_vector(const struct weight_view *v, int64_t num, struct error *err)
{
    if (!v->data) return STATUS_OK;
    if (v->scheme != WEIGHT_PLAIN || dtype_is_code(v->dtype)) return refuse_type(v, err);
    if ((v->rows == 1 || v->cols == 1) && num_values(v) == num) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "a vector of %" PRId64 " values where %" PRId64 " are expected",
                     num_values(v), num);
}

void weight_view_row_to_f32(const struct weight_view *v, int64_t row, float *out)
{
    const size_t row_bytes = dtype_row_bytes(v->dtype, (uint64_t)v->cols);
    dtype_row_to_f32(v->dtype, (const char *)v->data + (size_t)row * row_bytes, v->cols, out);
}

void weight_view_vector_to_f32(const struct weight_view *v, float *out)
{
    const uint64_t value_bytes = dtype_row_bytes(v->dtype, 1);
    if (v->cols != 1) {
        dtype_row_to_f32(v->dtype, v->data, v->cols, out);
        return;
    }
    for (int64_t i = 0; i < weight_view_num_rows(v); i++)
        dtype_row_to_f32(v->dtype,
                         (const uint8_t *)v->data + (uint64_t)weight_view_file_row(v, i) * value_bytes, 1,
                         out + i);
}
