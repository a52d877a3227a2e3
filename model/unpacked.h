/* unpacked.h - matrices as BF16 in host memory, where a device has no kernels for their form, until it has taken them: GGUF's rare types,
 * what a table has the values of, and GPTQ's other numbers of bits.
 *
 * Thread: one at a time; the work is spread over threads of its own. */
#ifndef MODEL_UNPACKED_H
#define MODEL_UNPACKED_H

#include "files/weight_view.h"

struct unpacked_matrix;

/* All zero: none. */
struct unpacked {
    struct unpacked_matrix *first;
};

/* Whether a device that has rare types, or has not, takes a view only so. */
bool unpacked_is_needed(const struct weight_view *view, bool has_rare_dtypes);
/* view, of WEIGHT_TABLE, WEIGHT_BITS or blocks of 256 columns, becomes one of BF16, each value rounded, until unpacked_clear. STATUS_NO_MEMORY. */
int unpacked_make(struct unpacked *u, struct weight_view *view, struct error *err) must_check;
/* Frees all that were made. */
void unpacked_clear(struct unpacked *u);

#endif
