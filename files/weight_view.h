/* weight_view.h - a weight where its file keeps it. */
#ifndef FILES_WEIGHT_VIEW_H
#define FILES_WEIGHT_VIEW_H

#include <stdint.h>

#include "files/dtype.h"

/* A matrix as a model file holds it: rows x cols, row-major, rows of dtype_row_bytes(dtype, cols).
 * data may be unaligned. Borrowed: valid until the model file is closed. */
struct weight_view {
    const void *data; /* NULL: this weight does not exist (a bias that the model has not) */
    enum dtype dtype;
    int64_t rows, cols;
};

#endif
