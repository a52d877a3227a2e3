/* panel_grid.h - blocks of a panel whose weights are looked up in a grid: IQ1_*, IQ2_*, IQ3_* (files/dtype_grids.h).
 *
 *     entry j of row r: its low 8 bits at byte j * 16 + r       j < 4, each for 8 columns; IQ3_*: j < 8, each for 4
 *     the columns' signs behind them as Q5_*'s fifth bits, 1 for a negative one; not of IQ1_*
 *     the entries' upper bits of row r: IQ2_XS, IQ2_S two of each in a byte, IQ3_S one of each in a byte; IQ1_* nibbles of
 *     16 bits, whose highest bit is the columns' sign
 *     scales: a byte for each row, the low columns' s in the low nibble, the high ones' in the high one
 *
 * So one word of a table is what four or eight columns of a row have: it holds, for each entry, the codes of columns c
 * and, where it has eight, c + 4 in byte c, in its low and its high nibble. */
#ifndef KERNELS_CPU_PANEL_GRID_H
#define KERNELS_CPU_PANEL_GRID_H

#include <stdbool.h>

#include "files/dtype_grids.h"
#include "kernels/cpu/panel.h"

extern const uint32_t panel_grid_iq2_xxs[256], panel_grid_iq2_xs[512], panel_grid_iq2_s[1024],
    panel_grid_iq3_xxs[256], panel_grid_iq3_s[512], panel_grid_iq1[2048];

/* What a code stands for, panel_unsigned_bias added; [code + 8] of a negative column. */
extern const uint8_t panel_grid_iq2_values[16], panel_grid_iq3_xxs_values[16], panel_grid_iq3_s_values[16];

PANEL_INLINE const uint32_t *panel_grid_table(enum dtype dtype)
{
    return dtype == DTYPE_IQ2_XXS   ? panel_grid_iq2_xxs
           : dtype == DTYPE_IQ2_XS  ? panel_grid_iq2_xs
           : dtype == DTYPE_IQ2_S   ? panel_grid_iq2_s
           : dtype == DTYPE_IQ3_XXS ? panel_grid_iq3_xxs
           : dtype == DTYPE_IQ3_S   ? panel_grid_iq3_s
                                    : panel_grid_iq1;
}

PANEL_INLINE const uint8_t *panel_grid_values(enum dtype dtype)
{
    return dtype == DTYPE_IQ3_XXS ? panel_grid_iq3_xxs_values
           : dtype == DTYPE_IQ3_S ? panel_grid_iq3_s_values
                                  : panel_grid_iq2_values;
}

/* Whether codes stand for 8 v and a column is one more or one less, instead of being positive or negative. */
PANEL_INLINE bool panel_grid_adds_one(enum dtype dtype)
{
    return dtype == DTYPE_IQ1_S || dtype == DTYPE_IQ1_M;
}

/* Entries of 32 columns. */
PANEL_INLINE int panel_grid_num_entries(enum dtype dtype)
{
    return GRID_COLUMNS / dtype_grid_width(dtype);
}

/* Where signs are, of types that have them. */
PANEL_INLINE int panel_grid_signs(enum dtype dtype)
{
    return panel_grid_num_entries(dtype) * PANEL_ROWS;
}

/* Bits for each entry beside its low 8; 0: none. */
PANEL_INLINE int panel_grid_upper_bits(enum dtype dtype)
{
    if (panel_grid_adds_one(dtype)) return 4;
    return !panel_layout_of(dtype).high_bits ? 0 : dtype == DTYPE_IQ3_S ? 1 : 2;
}

/* Of these those that are an entry's. */
PANEL_INLINE int panel_grid_upper_mask(enum dtype dtype)
{
    return panel_grid_adds_one(dtype) ? 7 : dtype == DTYPE_IQ3_S ? 1 : 3;
}

/* Of one row; a block was zero before. */
void panel_grid_put(enum dtype dtype, uint8_t *block, int row, const struct grid_group *g);
struct grid_group panel_grid_get(enum dtype dtype, const uint8_t *block, int row);

#endif
