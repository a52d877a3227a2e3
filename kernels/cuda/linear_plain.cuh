/* linear_plain.cuh - the product that defines the bits of all others, see linear_plain.cu. */
#ifndef KERNELS_CUDA_LINEAR_PLAIN_CUH
#define KERNELS_CUDA_LINEAR_PLAIN_CUH

#include "kernels/cuda/linear.cuh"

/* out = x W^T, without bias or SiLU, for any shape with an even K. */
void cuda_linear_plain(struct cuda_device *d, int32_t rows, void *out, const void *x, const struct linear *w);

/* Whether out, which another kernel has computed, has those bits: all columns of 16 rows that lie evenly among the rows.
 * Waits for the stream. */
bool cuda_linear_is_plain(struct cuda_device *d, int32_t rows, const void *out, const void *x,
                          const struct linear *w);

#endif
