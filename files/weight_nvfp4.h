/* weight_nvfp4.h - NVFP4 as GGUF files have it.
 *
 * A block has 64 columns of a row: four scales of e4m3, without a sign, then for each 16 columns eight bytes, whose low halves are the
 * first eight columns. A weight is its code's value times its scale times what all scales are multiplied by (codes.scale_factor). Thread: any. */
#ifndef FILES_WEIGHT_NVFP4_H
#define FILES_WEIGHT_NVFP4_H

#include "files/weight_view.h"

enum { NVFP4_COLS = 64, NVFP4_BYTES = 36, NVFP4_SCALE_COLS = 16, NVFP4_GGUF_ID = 40 };

/* Bytes of a row; 0: cols is no multiple of a block, or there are too many. */
uint64_t weight_nvfp4_row_bytes(uint64_t cols);
/* Of WEIGHT_NVFP4; data: as of other views. */
struct weight_view weight_nvfp4_view(const void *data, int64_t rows, int64_t cols);
/* A row of a view of those: its codes, two in a byte, columns in their order (WEIGHT_SCALED), and its scales [cols / 16] as e4m3; 0 in
 * the place of one that is no number. */
void weight_nvfp4_split(const struct weight_view *v, int64_t row, uint8_t *codes, uint8_t *scales);
/* out[num] = columns [col, col + num) of a row; whole blocks. */
void weight_nvfp4_to_f32(const struct weight_view *v, int64_t row, int64_t col, int num, float *out);

#endif
