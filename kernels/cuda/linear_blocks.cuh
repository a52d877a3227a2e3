/* linear_blocks.cuh - products of few rows with weights as a GGUF file has them, see linear_blocks.cu. */
#ifndef KERNELS_CUDA_LINEAR_BLOCKS_CUH
#define KERNELS_CUDA_LINEAR_BLOCKS_CUH

#include "kernels/cuda/linear.cuh"

enum { LINEAR_BLOCKS_ROWS = 64 }; /* at most; beyond it the weight is unpacked first */

/* Rows of W that a CTA may own: they change the speed and nothing else. */
static const int32_t linear_blocks_tile_rows[] = {16, 32, 48, 64, 128};

/* out = x W^T (+ bias), or silu(gate) * up. False where the kernel cannot: too many rows, or no room in shared memory. */
bool cuda_linear_blocks(struct cuda_device *d, int32_t tile_rows, int32_t rows, void *out, const void *x,
                        const struct linear *w, bool silu_mul);

#endif
