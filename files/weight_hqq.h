/* weight_hqq.h - HQQ's weights of 1, 2, 3, 4 or 8 bits (WEIGHT_HQQ).
 *
 * All values of a matrix, a row behind the other, are a table of groups: lines of scale_cols values each that are one, or, where they lie down
 * it, columns of so many lines. Lines are cut into as many parts as a byte has codes (of three bits a word of 32, which has ten; the last part may
 * lack lines), and the codes at one place of all parts are one byte or word: the first part's in the highest bits that are codes. A weight is
 * (code - zero) * scale, with a float for both of each group, in f32. Thread: any. */
#ifndef FILES_WEIGHT_HQQ_H
#define FILES_WEIGHT_HQQ_H

#include "files/weight_view.h"

/* Bytes of the codes of num values in groups of so many. */
uint64_t weight_hqq_bytes(int bits, int64_t num, int64_t group, bool groups_lie_down);
/* out[num] = columns [col, col + num) of a row of a view of WEIGHT_HQQ. */
void weight_hqq_to_f32(const struct weight_view *v, int64_t row, int64_t col, int num, float *out);

#endif
