/* quantize.h - activations in the two forms that the panel kernels read, packed once for all threads.
 *
 *   values   f32, as they are
 *   quants   int8 with one f32 scale for 32 columns: q = round_to_even(x / scale), scale = max|x| / 127
 *
 * Rows are taken in tiles of at most ACT_TILE_ROWS. Within a tile of n rows both forms are block-major,
 * [block][row][32 columns], so that a kernel that has unpacked one block of weights finds all rows' columns
 * of it side by side. K is padded with zeros to a multiple of 32.
 *
 * The sums are of the quantised values, not of x: with w = d q + m a product's error is then sum(w e), e the
 * rounding errors of x. Exact sums would leave d sum(q e), about three times as large for 4-bit weights,
 * whose q are all positive.
 *
 * A block that holds NaN or an infinity has scale NaN and quants 0: the NaN reaches every output of its row.
 * One whose largest magnitude is below QUANTIZE_LEAST counts as zero. */
#ifndef KERNELS_CPU_QUANTIZE_H
#define KERNELS_CPU_QUANTIZE_H

#include <stddef.h>
#include <stdint.h>

enum { ACT_TILE_ROWS = 64 };

#define QUANTIZE_LEAST 1e-30f

/* Of one block of one row; sum_low is of its first 16 columns, sum of all 32, each times scale. */
struct act_scale {
    float scale, sum, sum_low, sum_high;
};

struct act_tile {
    int num_rows;
    const float *values;            /* [block][num_rows][32]; NULL unless packed */
    const int8_t *quants;           /* the same order; NULL unless packed */
    const struct act_scale *scales; /* [block][num_rows] */
};

/* Packs one row of cols values as row row of a tile of num_rows rows. */
void quantize_copy_row(const float *x, int64_t cols, int row, int num_rows, float *values);
typedef void quantize_row(const float *x, int64_t cols, int row, int num_rows, int8_t *quants,
                          struct act_scale *scales);

/* In plain C; the kernels' own are faster and give the same bits. */
quantize_row quantize_row_portable;

#endif
