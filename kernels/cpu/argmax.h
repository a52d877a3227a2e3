/* argmax.h - the highest of a row of results while a product computes it, so that nobody need store the row.
 *
 * Each lane of a panel keeps the highest of the columns that it has seen, in ascending order, and the first
 * of equal ones (-0 equals 0); NaNs leave a mark. Which lane or thread saw a column does not matter in the
 * end.
 *
 * In plain C for the compiler to vectorise: each instruction set includes it. Values are compared as integers
 * in the same order, as compilers will not turn comparisons of floats (which may trap) into masks. */
#ifndef KERNELS_CPU_ARGMAX_H
#define KERNELS_CPU_ARGMAX_H

#include <stdint.h>
#include <string.h>

#include "kernels/cpu/panel.h"

/* One row, as one thread saw it. */
struct argmax {
    _Alignas(64) int32_t highest[PANEL_ROWS]; /* keys */
    int32_t cols[PANEL_ROWS];                 /* -1: nothing above -INFINITY yet */
    int32_t has_nan[PANEL_ROWS]; /* not 0: there was a NaN with its sign set; other NaNs are highest */
};

/* Keys of the infinities; those of NaNs lie beyond. */
#define ARGMAX_MINUS_INFINITY (-0x7f800001)
#define ARGMAX_INFINITY 0x7f800000

/* Ordered like the floats. */
static inline int32_t argmax_key(float value)
{
    int32_t bits;
    value += 0.0f; /* of -0 makes 0 */
    memcpy(&bits, &value, sizeof bits);
    return bits ^ ((bits >> 31) & 0x7fffffff);
}

/* results[num_rows][PANEL_ROWS] are columns first_col and up of each row. */
static inline void argmax_add(int num_rows, const float *restrict results, int32_t first_col,
                              struct argmax *restrict rows)
{
    for (int t = 0; t < num_rows; t++) {
        struct argmax *const a = &rows[t];
        for (int lane = 0; lane < PANEL_ROWS; lane++) {
            const int32_t key = argmax_key(results[t * PANEL_ROWS + lane]), highest = a->highest[lane];
            a->cols[lane] = key > highest ? first_col + lane : a->cols[lane];
            a->highest[lane] = key > highest ? key : highest;
            a->has_nan[lane] |= key < ARGMAX_MINUS_INFINITY;
        }
    }
}

static inline void argmax_clear(struct argmax *a)
{
    for (int lane = 0; lane < PANEL_ROWS; lane++) {
        a->highest[lane] = ARGMAX_MINUS_INFINITY;
        a->cols[lane] = -1;
        a->has_nan[lane] = 0;
    }
}

/* The row's column of num threads' shares, stride apart; -1 when the row holds a NaN or a +infinity, or
 * nothing but -infinity. */
static inline int32_t argmax_col(const struct argmax *shares, int num, int stride)
{
    int32_t highest = ARGMAX_MINUS_INFINITY, col = -1;
    for (int i = 0; i < num; i++, shares += stride) {
        for (int lane = 0; lane < PANEL_ROWS; lane++) {
            const int32_t key = shares->highest[lane], lane_col = shares->cols[lane];
            if (shares->has_nan[lane]) return -1;
            if (lane_col >= 0 && (key > highest || (key == highest && lane_col < col))) col = lane_col;
            highest = key > highest ? key : highest;
        }
    }
    return highest < ARGMAX_INFINITY ? col : -1;
}

#endif
