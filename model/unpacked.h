/* unpacked.h - matrices as BF16 in host memory, for a device that has no kernels for their type, until it has taken them.
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

/* view, a plain matrix of a type that has blocks of 256 columns, becomes one of BF16, each value rounded, until unpacked_clear. STATUS_NO_MEMORY. */
int unpacked_make(struct unpacked *u, struct weight_view *view, struct error *err) must_check;
/* Frees all that were made. */
void unpacked_clear(struct unpacked *u);

#endif
