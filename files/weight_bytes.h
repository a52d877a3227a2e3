/* weight_bytes.h - FP8 and int8 with scales of fewer columns than kernels take: MXFP8, integers in groups of 32 or 64, and those with zero
 * points.
 *
 * Rows of codes, scales [rows / scale_rows][cols / scale_cols], zero points, a byte each, as scales lie, or in words of four
 * rows [rows / 4][cols / scale_cols]. A weight is (code - zero) * scale, in f32. Thread: any. */
#ifndef FILES_WEIGHT_BYTES_H
#define FILES_WEIGHT_BYTES_H

#include "files/weight_view.h"

enum { WEIGHT_BYTES_GROUP = 128 /* of columns, and multiples, kernels take the scales */ };

/* Whether v is of such bytes. */
bool weight_bytes_are_fine(const struct weight_view *v);

/* out[num] = columns [col, col + num) of a row of such a view, or of one of bytes with coarser scales. */
void weight_bytes_to_f32(const struct weight_view *v, int64_t row, int64_t col, int num, float *out);

#endif
