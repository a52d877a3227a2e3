/* unpacked.h - matrices in another form, in host memory, where a device has no kernels for that of their file, until it has taken them.
 * GGUF's rare types, what a table has the values of, GPTQ's other numbers of bits, HQQ's and codes with factors become BF16; ternary weights become
 * TQ2_0, codes with offsets Q4_1 or Q5_1 where that fits, else BF16, or F32 where they are few; GGUF's NVFP4 becomes what checkpoints have: the same codes in the order of their columns, and the same
 * scales apart from them. Rows that do not lie one after another, and codes that lie transposed, become some that do. Rows of a head may want
 * length 1.
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
/* Whether its values are plain, but lie transposed or in runs of rows. */
bool unpacked_is_scattered(const struct weight_view *view);
/* view, one that is needed or scattered, becomes another until unpacked_clear: of WEIGHT_SCALED where it is of NVFP4 and takes_codes; of that
 * where it is of WEIGHT_TURNED, or in blocks where it is ternary or has offsets and fits, and then may be needed again; of its type where it is
 * scattered, else of BF16, each value rounded. STATUS_NO_MEMORY. */
int unpacked_make(struct unpacked *u, struct weight_view *view, bool takes_codes,
                  struct error *err) must_check;
/* Rows of a plain view of F32, F16 or BF16 become their own divided by their lengths, rounded to its type. STATUS_UNSUPPORTED for others,
 * STATUS_NO_MEMORY. */
int unpacked_make_unit_rows(struct unpacked *u, struct weight_view *view, struct error *err) must_check;
/* Frees all that were made. */
void unpacked_clear(struct unpacked *u);

#endif
