/* dtype_grids.h - GGUF's types of one to three bits that have four or eight values under one index into a grid (grid_codes.h).
 *
 * A block of 256 columns is eight groups of 32; a weight is the block's scale, times its group's step, times a small integer:
 *
 *     IQ2_*        +- 8, 25 or 43, in a grid of 8 columns, steps of (2 s + 1) / 8
 *     IQ3_XXS      +- 4, 12, .. 52 or 62, of 4 columns, (2 s + 1) / 4
 *     IQ3_S        +- 1, 3, .. 15, of 4 columns, 2 s + 1
 *     IQ1_S, _M    8 v + 1 or 8 v - 1 with v of -1, 0 and 1 in a grid of 8 columns, (2 s + 1) / 8
 *
 * All products are exact in f32. Thread: any. */
#ifndef FILES_DTYPE_GRIDS_H
#define FILES_DTYPE_GRIDS_H

#include "files/dtype.h"

enum { GRID_COLUMNS = 32, GRID_GROUPS_MAX = 8 };

/* What a block has of 32 columns. */
struct grid_group {
    uint16_t entries[GRID_GROUPS_MAX]; /* of the grid, for each 4 or 8 columns */
    uint32_t signs; /* bit k: column k is negative; of IQ1_*: it is 8 v - 1, the same for all of an entry */
    uint8_t scales[2]; /* s of the low 16 columns, of the high ones */
};

/* Columns under one index: 4 or 8. */
static inline int dtype_grid_width(enum dtype dtype)
{
    return dtype == DTYPE_IQ3_XXS || dtype == DTYPE_IQ3_S ? 4 : 8;
}

/* What a block's scale is multiplied by, for a group whose scale is s. */
static inline float dtype_grid_step(enum dtype dtype, uint8_t s)
{
    const float unit = dtype == DTYPE_IQ3_S ? 1 : dtype == DTYPE_IQ3_XXS ? 0.25f : 0.125f;
    return (float)(2 * s + 1) * unit;
}

/* Columns 32 i .. 32 i + 31 of a block. */
struct grid_group dtype_grid_group(enum dtype dtype, const uint8_t *block, int i);

/* The block's scale, an f16. */
uint16_t dtype_grid_scale(enum dtype dtype, const uint8_t *block);

/* The integers of a group. */
void dtype_grid_values(enum dtype dtype, const struct grid_group *g, int16_t values[GRID_COLUMNS]);

#endif
