/* linear_large.cuh - the own kernel for products of many rows, see linear_large.cu. */
#ifndef KERNELS_CUDA_LINEAR_LARGE_CUH
#define KERNELS_CUDA_LINEAR_LARGE_CUH

#include "kernels/cuda/linear.cuh"

/* CTAs of a cluster: they change speed and power and nothing else. Two take less power, one leaves less of a
 * short product's last tile empty and chooses how wide tiles are. */
static const int32_t linear_large_clusters[] = {2, 1};
static const int32_t linear_large_widths[] = {256, 240, 224, 192, 160, 128};

/* The width with which the last round of tiles, one on each of num_sms, leaves the least empty. */
int32_t linear_large_width(int32_t num_sms, int32_t rows, int32_t n);

/* Whether the kernel can run this product at all: an sm_90 machine, bf16 results, K a multiple of 8, N of 16.
 */
bool cuda_linear_large_fits(const struct cuda_device *d, const struct linear *w);

/* out = x W^T (+ bias), or silu(gate) * up. width: rows of W a tile, 0 for linear_large_width's; a cluster of
 * two has 256. False where the driver cannot. */
bool cuda_linear_large(struct cuda_device *d, int32_t cluster, int32_t width, int32_t rows, void *out,
                       const void *x, const struct linear *w, bool silu_mul);

#endif
