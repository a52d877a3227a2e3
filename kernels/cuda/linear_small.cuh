/* linear_small.cuh - the own kernel for products of few rows, see linear_small.cu. */
#ifndef KERNELS_CUDA_LINEAR_SMALL_CUH
#define KERNELS_CUDA_LINEAR_SMALL_CUH

#include "kernels/cuda/linear.cuh"

enum {
    LINEAR_SMALL_ROWS = 64,     /* up to so many there is nothing better */
    LINEAR_SMALL_ROWS_MAX = 256 /* the most that it can; more than 128 with tiles of 112 rows only */
};

/* Rows of W that a CTA may own: they change the speed and nothing else. */
static const int32_t linear_small_tile_rows[] = {32, 48, 64, 112};

/* Whether the kernel can run this product at all: an sm_90 machine, few rows, K a multiple of 8, N of 16. */
bool cuda_linear_small_fits(const struct cuda_device *d, const struct linear *w, int32_t rows);

struct row_args; /* linear_row.cuh */

/* out = x W^T (+ bias), or silu(gate) * up. row: NULL, or says of what the kernel makes the only row, a norm of ROW_NORM_MAX columns at
 * most; then x is not read, and out is no logits. False where the driver cannot, or tiles are too narrow for so many rows. */
bool cuda_linear_small(struct cuda_device *d, int32_t tile_rows, int32_t rows, void *out, const void *x,
                       const struct linear *w, bool silu_mul, const struct row_args *row = NULL);

#endif
