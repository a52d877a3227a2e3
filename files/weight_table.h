/* weight_table.h - weights of four bits that a table has the values of, as bitsandbytes keeps them (NF4, FP4).
 *
 * The matrix is one row of values, cut into blocks of scale_cols whatever a row of it is: a weight is its code's value times its block's
 * scale, in f32. A scale is a float, or a code itself: its value times a unit, which is rounded, plus an offset. Thread: any. */
#ifndef FILES_WEIGHT_TABLE_H
#define FILES_WEIGHT_TABLE_H

#include "files/weight_view.h"

/* out[num] = columns [col, col + num) of a row of a view of WEIGHT_TABLE. */
void weight_table_to_f32(const struct weight_view *v, int64_t row, int64_t col, int num, float *out);

#endif
