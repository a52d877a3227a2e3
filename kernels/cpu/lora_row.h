/* lora_row.h - what up of an adapter makes of a row, in C for any instruction set: each includes it, and all give the same bits. */
#ifndef KERNELS_CPU_LORA_ROW_H
#define KERNELS_CPU_LORA_ROW_H

#include <stdint.h>

#include "kernels/cpu/panel.h"

/* A panel's columns of one rank; left to itself the compiler vectorises over ranks. */
typedef float lora_lanes __attribute__((vector_size(PANEL_ROWS * sizeof(float)), aligned(4), may_alias));

/* sums[PANEL_ROWS] += sum over r, ascending, of narrow[r] * up[r][PANEL_ROWS], that from 0. */
static inline void lora_add_row(float *restrict sums, const float *restrict up, const float *restrict narrow,
                                int32_t rank)
{
    const lora_lanes *lanes = (const lora_lanes *)up;
    lora_lanes added = {0};
    for (int32_t r = 0; r < rank; r++) added += narrow[r] * lanes[r];
    *(lora_lanes *)sums += added;
}

#endif
