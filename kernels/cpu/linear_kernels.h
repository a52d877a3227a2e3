/* linear_kernels.h - the table of panel kernels that each instruction set provides.
 *
 * A panel kernel computes 16 outputs for every row of a tile of activations:
 *
 *     acc[row][lane] = sum over k of x[row][k] * w[lane][k]
 *
 * Order of the sum, for each (row, lane) by itself, fused multiply-adds, blocks b of 32 columns ascending,
 * acc from 0. Over f32 values, with q the packed integers (floats: q = w, d = 1):
 *
 *     low  = sum of x q over columns 0..15 of the block, high = the same over 16..31; both ascending, from 0
 *     acc  = fma(d, low + high, acc)                       Q6_K: acc = fma(d_high, high, fma(d_low, low,
 * acc))
 *
 * Over int8 quants a of the activations with scale s and sums (quantize.h), with u the unsigned integers of
 * the weight, w = d u + m:
 *
 *     acc = fma(m, sum, fma((float)sum of a u, d * s, acc))            the integer sum is exact
 *     Q6_K:  the products of low and high in this order, then their minimums in this order
 *
 * So the AVX2, AVX-512 and VNNI kernels of one dtype and form agree bit for bit. Which form a dtype has is a
 * matter of the set: int8 where the set multiplies bytes faster than floats at that width. */
#ifndef KERNELS_CPU_LINEAR_KERNELS_H
#define KERNELS_CPU_LINEAR_KERNELS_H

#include "kernels/cpu/panel.h"
#include "kernels/cpu/quantize.h"

/* acc[x->num_rows][PANEL_ROWS], aligned to 64, is overwritten. */
typedef void panel_product(const uint8_t *panel, int64_t num_blocks, const struct act_tile *x, float *acc);

struct linear_kernels {
    quantize_row *quantize_row;
    panel_product *over_values[DTYPE_COUNT]; /* at least one of the two for each dtype */
    panel_product *over_quants[DTYPE_COUNT];
};

/* The portable set is over values only and rounds products and sums apart (no fused multiply-add):
 * acc += sum of x w over the block's 32 columns, ascending, from 0, with w unpacked to f32. */
extern const struct linear_kernels linear_kernels_portable, linear_kernels_avx2, linear_kernels_avx512,
    linear_kernels_avx512vnni;

#endif
