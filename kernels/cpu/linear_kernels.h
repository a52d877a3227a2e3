/* linear_kernels.h - the table of panel kernels that each instruction set provides.
 *
 * A panel kernel computes 16 outputs for every row of a tile of activations:
 *
 *     acc[row][lane] = sum over k of x[row][k] * w[lane][k]
 *
 * A dtype's kernel takes activations in one form: int8 for weights of up to 5 bits, where multiplying bytes is
 * much faster than multiplying floats; int16 for 6 and 8 bit weights, which costs no more than f32 and
 * unpacks faster; f32 for floats. The order of the sum, for each (row, lane) by itself, with acc from 0:
 *
 *   integers  with u the weight's integers made unsigned, w = d u + m, activations s a (quantize.h), for each block
 *                 acc = fma(m, sum, fma((float)sum of a u, d * s, acc))      the integer sum is exact
 *             two scales (panel_has_two_scales): two products (columns 0..15, 16..31), then their two minimums, in this order
 *   floats    for each chunk of LINEAR_CHUNK_BLOCKS blocks
 *                 even = sum over its even columns, odd = over its odd ones  both fused, ascending, from 0
 *                 acc += even + odd
 *
 * So all sets but the portable one agree bit for bit. The portable set takes f32 throughout and rounds
 * products and sums apart: for each block acc += sum of x w, ascending, from 0, with w unpacked to f32. */
#ifndef KERNELS_CPU_LINEAR_KERNELS_H
#define KERNELS_CPU_LINEAR_KERNELS_H

#include "kernels/cpu/argmax.h"
#include "kernels/cpu/lora_row.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/quantize.h"
#include "kernels/device.h"

enum { LINEAR_CHUNK_BLOCKS = 4, PANELS_MAX = 2 };

/* One panel, or two of one dtype that a kernel may take together: what it loads of the activations then
 * serves both. acc[i][row][PANEL_ROWS] of panel i, aligned to 64, is overwritten. */
struct panels {
    int num;
    const uint8_t *data[PANELS_MAX];
    float *acc[PANELS_MAX];
};

typedef void panel_product(const struct panels *p, int64_t num_blocks, const struct act_tile *x);

struct panel_kernel {
    panel_product *product;
    enum act_form form;
};

typedef void gate_mul(int count, float *gate, const float *up); /* gate.h */

struct linear_kernels {
    act_pack *pack[ACT_FORM_COUNT]; /* NULL where no kernel takes the form */
    struct panel_kernel of[DTYPE_COUNT];
    gate_mul *gate_mul[GATE_FUNCTION_COUNT];
    void (*argmax_add)(int num_rows, const float *results, int32_t first_col,
                       struct argmax *rows);                                               /* argmax.h */
    void (*lora_add_row)(float *sums, const float *up, const float *narrow, int32_t rank); /* lora_row.h */
};

extern const struct linear_kernels linear_kernels_portable, linear_kernels_avx2, linear_kernels_avx2vnni,
    linear_kernels_avx512, linear_kernels_avx512vnni, linear_kernels_avx512amx;

#endif
