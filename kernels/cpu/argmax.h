/* argmax.h - the highest of a row of results while a product computes it, so that nobody need store the row.
 *
 * Each lane of a panel keeps the highest of the columns that it has seen, in ascending order, and the first
 * of equal ones (-0 equals 0); NaNs leave a mark. Which lane or thread saw a column does not matter in the
 * end. In plain C on vectors: each instruction set includes it. */
#ifndef KERNELS_CPU_ARGMAX_H
#define KERNELS_CPU_ARGMAX_H

#include <math.h>
#include <stdint.h>

#include "kernels/cpu/panel.h"

typedef float argmax_floats __attribute__((vector_size(PANEL_ROWS * 4)));
typedef int32_t argmax_ints __attribute__((vector_size(PANEL_ROWS * 4)));

/* One row, as one thread saw it. */
struct argmax {
    argmax_floats highest;
    argmax_ints cols; /* -1: nothing above -INFINITY yet */
    argmax_ints has_nan;
};

/* results[num_rows][PANEL_ROWS] are columns first_col and up of each row. */
static inline void argmax_add(int num_rows, const float *results, int32_t first_col, struct argmax *rows)
{
    const argmax_ints cols = first_col + (argmax_ints){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int t = 0; t < num_rows; t++) {
        const argmax_floats values = *(const argmax_floats *)(const void *)(results + t * PANEL_ROWS);
        const argmax_ints higher = values > rows[t].highest;
        rows[t].has_nan |= values != values;
        rows[t].cols = (cols & higher) | (rows[t].cols & ~higher);
        rows[t].highest =
            (argmax_floats)(((argmax_ints)values & higher) | ((argmax_ints)rows[t].highest & ~higher));
    }
}

static inline void argmax_clear(struct argmax *a)
{
    *a = (struct argmax){.highest = (argmax_floats){0} - INFINITY, .cols = (argmax_ints){0} - 1};
}

/* The row's column of num threads' shares, stride apart; -1 when the row holds a NaN or a +infinity, or
 * nothing but -infinity. */
static inline int32_t argmax_col(const struct argmax *shares, int num, int stride)
{
    float highest = -INFINITY;
    int32_t col = -1;
    for (int i = 0; i < num; i++, shares += stride) {
        for (int lane = 0; lane < PANEL_ROWS; lane++) {
            const float value = shares->highest[lane];
            if (shares->has_nan[lane]) return -1;
            if (shares->cols[lane] < 0 || value < highest) continue;
            if (value > highest || shares->cols[lane] < col) col = shares->cols[lane];
            highest = value;
        }
    }
    return highest < INFINITY ? col : -1;
}

#endif
