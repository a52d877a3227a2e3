/* linear_portable.cuh - products that every GPU from sm_80 on can compute, see linear_portable.cu. */
#ifndef KERNELS_CUDA_LINEAR_PORTABLE_CUH
#define KERNELS_CUDA_LINEAR_PORTABLE_CUH

#include "kernels/cuda/linear.cuh"

enum { LINEAR_PORTABLE_ROWS = 64 }; /* the most that the kernel for few rows can */

/* Rows of W that a CTA may own where there are few rows of x, and tiles where there are many (columns: rows of x; 224 and 256 want
 * a machine with much shared memory). They change the speed and nothing else. */
static const int32_t linear_portable_tile_rows[] = {16, 32, 64};
static const struct linear_choice linear_portable_tiles[] = {
    {LINEAR_PORTABLE, 256, 0, 128}, {LINEAR_PORTABLE, 224, 0, 128}, {LINEAR_PORTABLE, 128, 0, 128},
    {LINEAR_PORTABLE, 96, 0, 128},  {LINEAR_PORTABLE, 64, 0, 128},  {LINEAR_PORTABLE, 64, 0, 64}};

/* One that runs everywhere. */
struct linear_choice cuda_linear_portable_choice(int32_t rows);

/* out = x W^T (+ bias), or silu(gate) * up. False where the kernel cannot: K and N must be multiples of 8, with silu_mul N of 16. */
bool cuda_linear_portable(struct cuda_device *d, const struct linear_choice *c, int32_t rows, void *out,
                          const void *x, const struct linear *w, bool silu_mul);

#endif
