/* linear_parts.h - what a linear is made of: weights.c creates it, linear.c multiplies with it. */
#ifndef KERNELS_CPU_LINEAR_PARTS_H
#define KERNELS_CPU_LINEAR_PARTS_H

#include "kernels/cpu/linear.h"
#include "kernels/cpu/linear_kernels.h"

enum { LINEAR_ALIGNMENT = 64 };

struct part {
    enum dtype dtype;
    struct panel_kernel kernel;
    int32_t num_rows, first_row; /* rows of the stacked weight */
    int64_t num_panels, first_panel;
    uint64_t panel_bytes;
    uint8_t *panels;
};

struct linear {
    enum linear_kind kind;
    int num_parts;
    struct part parts[LINEAR_PARTS_MAX];
    int32_t rows, cols; /* N, K */
    int64_t num_blocks, num_panels;
    act_pack *pack[ACT_FORM_COUNT]; /* NULL: no part takes this form */
    const struct linear_kernels *kernels;
    gate_mul *gate_mul; /* LINEAR_GATE_UP, LINEAR_UP */
    float gate_values[GATE_VALUES];
    bool has_gate_values; /* gate_mul takes them */
    float softcap;        /* of logits */
    float *bias;          /* [num_panels][PANEL_ROWS], NULL: none */
    int32_t *order;       /* [cols]: column k of all panels is column order[k] of the weight; NULL: k */
    uint8_t *memory;
    uint64_t bytes;
};

#endif
