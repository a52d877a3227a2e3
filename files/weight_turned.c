#include "files/weight_turned.h"

#include <string.h>

#include "base/check.h"

enum { TILE_ROWS = 64 /* next to each other in the file */ };

static int64_t bytes_in_row(const struct weight_view *v)
{
    return (int64_t)dtype_row_bytes(v->dtype == DTYPE_MXFP4 ? DTYPE_F4_E2M1 : v->dtype, (uint64_t)v->cols);
}

/* Rows that have one scale: as many as in the file, unless those that are meant begin within. */
static int64_t scale_rows_of(const struct weight_view *v)
{
    const struct weight_slice *s = &v->slice;
    const bool is_whole = s->row_step == 1 && s->row_begin % v->codes.scale_rows == 0;
    return is_whole ? v->codes.scale_rows : 1;
}

static int64_t num_scale_rows(const struct weight_view *v)
{
    return div_up(weight_view_num_rows(v), scale_rows_of(v));
}

uint64_t weight_turned_code_bytes(const struct weight_view *v)
{
    return (uint64_t)(weight_view_num_rows(v) * bytes_in_row(v));
}

uint64_t weight_turned_bytes(const struct weight_view *v)
{
    const uint64_t num_scales = (uint64_t)(num_scale_rows(v) * v->codes.scales.cols);
    return weight_turned_code_bytes(v) + num_scales * weight_scale_bytes(v->codes.scales.type);
}

void weight_turned_codes(const struct weight_view *v, int64_t begin, int64_t end, uint8_t *codes)
{
    const int64_t width = bytes_in_row(v);
    assert_debug(v->scheme == WEIGHT_TURNED && end <= weight_view_num_rows(v));
    for (int64_t tile = begin; tile < end; tile += TILE_ROWS) {
        const int64_t tile_end = min_of(tile + TILE_ROWS, end);
        for (int64_t i = 0; i < width; i++) {
            const uint8_t *const line = (const uint8_t *)v->data + i * v->rows;
            for (int64_t row = tile; row < tile_end; row++)
                codes[row * width + i] = line[weight_view_file_row(v, row)];
        }
    }
}

static void turn_scales(const struct weight_view *v, uint8_t *scales)
{
    const struct weight_side *from = &v->codes.scales;
    const uint64_t bytes = weight_scale_bytes(from->type);
    const int64_t own_rows = scale_rows_of(v);
    for (int64_t i = 0; i < num_scale_rows(v); i++) {
        const int64_t row = weight_view_file_row(v, i * own_rows) / v->codes.scale_rows;
        for (int64_t col = 0; col < from->cols; col++, scales += bytes)
            memcpy(scales, (const uint8_t *)from->data + (uint64_t)(col * from->rows + row) * bytes, bytes);
    }
}

struct weight_view weight_turned_view(const struct weight_view *v, uint8_t *memory)
{
    struct weight_view rows = weight_view_plain(memory, v->dtype, weight_view_num_rows(v), v->cols);
    uint8_t *const scales = memory + weight_turned_code_bytes(v);
    turn_scales(v, scales);
    rows.scheme = WEIGHT_SCALED;
    rows.codes = v->codes;
    rows.codes.scale_rows = scale_rows_of(v);
    rows.codes.scales.data = scales;
    rows.codes.scales.rows = num_scale_rows(v);
    return rows;
}
