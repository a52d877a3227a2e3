/* weight_view.h - a weight where its file keeps it. */
#ifndef FILES_WEIGHT_VIEW_H
#define FILES_WEIGHT_VIEW_H

#include <stdint.h>

#include "base/status.h"
#include "files/dtype.h"

/* How a matrix's values stand for weights. */
enum weight_scheme {
    WEIGHT_PLAIN, /* as the dtype says; blocks of GGUF's types carry their own scales */
};

/* Scales or zero points that lie apart from the values, row-major; data NULL: none. */
struct weight_side {
    const void *data;
    enum dtype dtype;
    int64_t rows, cols;
};

/* Rows [row_begin, row_end) and columns [col_begin, col_end): the part that is meant. */
struct weight_slice {
    int64_t row_begin, row_end, col_begin, col_end;
};

/* A matrix as a model file holds it: rows x cols, row-major, rows of dtype_row_bytes(dtype, cols).
 * data may be unaligned. Borrowed: valid until the model file is closed. All zero: no weight. */
struct weight_view {
    const void *data; /* NULL: this weight does not exist (a bias that the model has not) */
    enum dtype dtype;
    int64_t rows, cols;
    enum weight_scheme scheme;
    struct weight_side scales, zeros;
    struct weight_slice slice;
};

/* A whole matrix of plain values. */
struct weight_view weight_view_plain(const void *data, enum dtype dtype, int64_t rows, int64_t cols);
/* Rows [first_row, first_row + rows) of one, as a whole matrix. */
struct weight_view weight_view_rows(const struct weight_view *v, int64_t first_row, int64_t rows);

/* For a device that takes nothing else: STATUS_UNSUPPORTED and a sentence unless v is whole and plain. */
int weight_view_check_plain(const struct weight_view *v, struct error *err) must_check;

#endif
