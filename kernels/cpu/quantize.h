/* quantize.h - activations in the forms that the panel kernels read, packed once for all threads.
 *
 *   ACT_F32     as they are
 *   ACT_INT8    integers with one scale for 32 columns: q = round_to_even(x 127 / max|x|)
 *   ACT_INT16   the same with 32767: as good as f32
 *
 * Rows are taken in tiles of at most ACT_TILE_ROWS. Within a tile of n rows all forms are block-major,
 * [block][row][32 columns], so that a kernel that has unpacked one block of weights finds all rows' columns
 * of it side by side. K is padded with zeros to a multiple of 32. ACT_INT16 has columns 4i .. 4i + 3 in the
 * order 4i, 4i + 2, 4i + 1, 4i + 3: weights are bytes, and their even and odd bytes are the cheap ones to
 * widen.
 *
 * The sums are of the quantised values, not of x: with w = d q + m a product's error is then sum(w e), e the
 * rounding errors of x. Exact sums would leave d sum(q e), about three times as large for 4-bit weights,
 * whose q are all positive.
 *
 * A block that holds NaN or an infinity has scale NaN and integers 0: the NaN reaches every output of its
 * row. One whose largest magnitude is below QUANTIZE_LEAST counts as zero. */
#ifndef KERNELS_CPU_QUANTIZE_H
#define KERNELS_CPU_QUANTIZE_H

#include <stddef.h>
#include <stdint.h>

enum { ACT_TILE_ROWS = 64 };

enum act_form { ACT_F32, ACT_INT8, ACT_INT16, ACT_FORM_COUNT };

#define QUANTIZE_LEAST 1e-30f

/* Of one block of one row; sum_low is of its first 16 columns, sum of all 32, each times scale. */
struct act_scale {
    float scale, sum, sum_low, sum_high;
};

struct act_tile {
    int num_rows;
    const void *columns;            /* [block][num_rows][32] float, int8_t or int16_t */
    const struct act_scale *scales; /* [block][num_rows]; of the integer forms */
};

/* Packs one row of cols values as row row of a tile of num_rows rows. The integer forms need whole blocks; in
 * plain C; the kernels' own are faster and give the same bits. ACT_F32 leaves scales alone. */
typedef void act_pack(const float *x, int64_t cols, int row, int num_rows, void *columns,
                      struct act_scale *scales);
act_pack act_pack_f32, act_pack_int8, act_pack_int16;

/* Bytes of 32 columns. */
static inline int act_block_bytes(enum act_form form)
{
    return form == ACT_F32 ? 128 : form == ACT_INT16 ? 64 : 32;
}

#endif
