/* lora.h - what adapters of low rank add to a linear's results (kernels/device.h: lora_desc), in f32.
 *
 * Of each row of x that has an adapter down x is computed first, for all parts of the linear at once; what up makes of it is added
 * where the linear has a panel's sums (linear.c), bias included, before a gate. A row's sums are functions of the row, of its
 * adapter and of the shapes alone. */
#ifndef KERNELS_CPU_LORA_H
#define KERNELS_CPU_LORA_H

#include "kernels/cpu/linear_parts.h"

/* Of one adapter. */
struct lora_item {
    int32_t ranks[LINEAR_PARTS_MAX]; /* of each part; 0: it adds nothing */
    int32_t num_ranks;               /* of all parts */
    struct linear *down;             /* [num_ranks][K]; NULL: of no part */
    float *up[LINEAR_PARTS_MAX];     /* [panels of the part][rank][PANEL_ROWS], times the scale */
};

struct lora {
    int32_t num_items;
    int32_t num_ranks; /* the most that an item has */
    int32_t cols;      /* K */
    struct lora_item *items;
};

/* Rows of a product, and what down has made of them. */
struct lora_rows {
    const struct lora *lora;
    const int32_t *adapters;    /* [rows] */
    const float *const *narrow; /* [rows] each [num_ranks] of its adapter */
};

/* To sums [num_rows][PANEL_ROWS] of a part's panel, of rows from first_row on. */
void lora_add(const struct lora_rows *rows, const struct linear_kernels *kernels, int part, int64_t panel,
              int32_t first_row, int num_rows, float *sums);

#endif
