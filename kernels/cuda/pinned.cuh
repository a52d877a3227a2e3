/* pinned.cuh - pinned memory of the host, for copies alone: kernels do not see it. */
#ifndef KERNELS_CUDA_PINNED_CUH
#define KERNELS_CUDA_PINNED_CUH

#include "kernels/cuda/device.cuh"

/* NULL, and the device's error, where there is no memory. */
void *cuda_pinned_alloc(struct cuda_device *d, size_t num_bytes);
/* NULL is nothing. */
void cuda_pinned_free(struct cuda_device *d, void *data);
/* All of it; the device does nothing with it any more. */
void cuda_pinned_forget(struct cuda_device *d);

#endif
