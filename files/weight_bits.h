/* weight_bits.h - GPTQ's weights of 2, 3 or 8 bits, and compressed-tensors' of 2 to 7.
 *
 * A row's codes are one stream of bits, 32 in a word, the first in the lowest ones. GPTQ's words of all rows lie side by side: [cols * bits
 * / 32][rows]; zero points are such streams along the rows, [groups][rows * bits / 32], scales [groups][rows]. Where rows lead all three
 * lie the other way round, words rounded up. A weight is (code - zero) * scale, in f32. Thread: any. */
#ifndef FILES_WEIGHT_BITS_H
#define FILES_WEIGHT_BITS_H

#include "files/weight_view.h"

/* out[num] = columns [col, col + num) of a row of a view of WEIGHT_BITS. */
void weight_bits_to_f32(const struct weight_view *v, int64_t row, int64_t col, int num, float *out);

#endif
