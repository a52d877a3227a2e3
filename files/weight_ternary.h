/* weight_ternary.h - BitNet's weights: -1, 0 or 1 times one scale for all of a matrix.
 *
 * WEIGHT_TERNARY: codes of two bits, 0, 1 and 2 for -1, 0 and 1 (3 for 2), folded in four: bits 2 i and 2 i + 1 of the bytes
 * [rows / 4][cols] are of the rows from i rows / 4 on; where rows lead they lie one behind another, as GGUF's I2_S has them: of 128 columns
 * those from 32 i on in bits 6 - 2 i and 7 - 2 i of 32 bytes. The scale is scale_factor / scale_divisor.
 * WEIGHT_TERNARY_FLOATS: plain values that become such. The scale is their mean magnitude, rounded to their type; each is divided by that
 * as it was and rounded, halves to 0. scale_factor is the mean once weight_ternary_row_sum has been asked for all rows. Thread: any. */
#ifndef FILES_WEIGHT_TERNARY_H
#define FILES_WEIGHT_TERNARY_H

#include "files/weight_view.h"

enum { TERNARY_GGUF_COLS = 128, TERNARY_GGUF_ID = 36 };

/* Of a tensor of I2_S, behind whose codes lies its scale: 32 bytes, a float of 32 bits and others. 0: no such size is possible. */
uint64_t weight_ternary_gguf_bytes(uint64_t rows, uint64_t cols);
/* Without data yet. */
struct weight_view weight_ternary_gguf_view(int64_t rows, int64_t cols);
/* Of one with data: takes the scale behind it. False: that is 0, or no number. */
bool weight_ternary_gguf_take_scale(struct weight_view *v) must_check;

/* The sum of the magnitudes of row n of all rows, of values that become ternary. */
double weight_ternary_row_sum(const struct weight_view *v, int64_t n);
/* Their scale_factor from the sum of all. */
float weight_ternary_mean(const struct weight_view *v, double sum);

/* Whether TQ2_0 has such columns and, but for its rounding to F16, such a scale. */
bool weight_ternary_fits_blocks(const struct weight_view *v);
/* A row as one of TQ2_0. */
void weight_ternary_to_blocks(const struct weight_view *v, int64_t row, uint8_t *out);
/* out[num] = columns [col, col + num) of a row, num <= 256. */
void weight_ternary_to_f32(const struct weight_view *v, int64_t row, int64_t col, int num, float *out);

#endif
