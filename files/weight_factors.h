/* weight_factors.h - codes whose columns have a factor each, which multiplies what a product has of that column: ModelOpt's AWQ and
 * SmoothQuant have taken it out of the weights, and say that activations are to be multiplied by it.
 *
 * FP8, int8 and NVFP4 in rows, and integers of any bits. A weight is (code - zero) * scale * factor, in f32. Thread: any. */
#ifndef FILES_WEIGHT_FACTORS_H
#define FILES_WEIGHT_FACTORS_H

#include "files/weight_view.h"

/* Whether a view is of a form whose columns may have factors. */
bool weight_takes_factors(const struct weight_view *v);
static inline bool weight_has_factors(const struct weight_view *v)
{
    return v->codes.factors.data;
}
/* out[num] = columns [col, col + num), both even, of a row of a view that has factors. */
void weight_factors_to_f32(const struct weight_view *v, int64_t row, int64_t col, int num, float *out);

#endif
