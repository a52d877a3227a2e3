/* weight_bits.h - GPTQ's weights of 2, 3 or 8 bits, compressed-tensors' of 2 to 7, MLX's of 2 to 8, and torchao's and ModelOpt's of 4.
 *
 * A row's codes are one stream of bits, 32 in a word, the first in the lowest ones. GPTQ's words of all rows lie side by side: [cols * bits
 * / 32][rows]; zero points are such streams along the rows, [groups][rows * bits / 32], scales [groups][rows]. Where rows lead all three
 * lie the other way round, words rounded up. A weight is (code - zero) * scale, in f32.
 *
 * MLX's have offsets in the place of zero points: code * scale + offset, which GGUF's Q4_1 and Q5_1 have as well, with both in F16.
 * torchao's have them with a zero: (code - 8) * scale + offset. Its tiles are tinygemm's, of four bits: words [rows / 8][cols / 128][32][4],
 * rounded up, columns to 1,024; the words of a lane are of row lane / 4 and of 32 columns each, of which it has lane % 4 * 2 and that behind it in
 * each eight: the first ones of the four eights in the low half of a word, the others in the high one, in the order 0, 1, 2, 3 of the eights. Scales
 * and offsets alternate: [cols / scale_cols][rows][2]. Thread: any. */
#ifndef FILES_WEIGHT_BITS_H
#define FILES_WEIGHT_BITS_H

#include "files/weight_view.h"

/* out[num] = columns [col, col + num) of a row of a view of WEIGHT_BITS. */
void weight_bits_to_f32(const struct weight_view *v, int64_t row, int64_t col, int num, float *out);

/* As many 128 columns as a row of tiles has. */
int64_t weight_bits_tiles_of_row(int64_t cols);

/* Whether a view has offsets, no zeros, and all rows that it means lie in blocks as they are: of Q4_1, of five bits of Q5_1. Of a scale or an offset
 * that F16 has not, no weight of its group may be off by more than 2^-12 of the largest of all. */
bool weight_bits_fit_blocks(const struct weight_view *v);
enum dtype weight_bits_block_dtype(const struct weight_view *v);
/* A row as one of those. */
void weight_bits_to_blocks(const struct weight_view *v, int64_t row, uint8_t *out);

#endif
