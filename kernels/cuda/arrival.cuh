/* arrival.cuh - warps that work on the same thing leave their results in memory, and the last one finishes it. */
#ifndef KERNELS_CUDA_ARRIVAL_CUH
#define KERNELS_CUDA_ARRIVAL_CUH

#include <stdint.h>

/* Publishes what this warp wrote, and sees what those wrote that added before. Returns the value before. */
static __device__ __forceinline__ int32_t add_acquire_release(int32_t *counter, int32_t count)
{
    int32_t before;
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counter), "r"(count)
                 : "memory");
    return before;
}

/* A warp brings count of total: whether nothing is missing now. The counter is 0 again then. */
static __device__ __forceinline__ bool arrives_last(int32_t *counter, int32_t count, int32_t total)
{
    int32_t num_arrived = 0;
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        num_arrived = add_acquire_release(counter, count) + count;
        if (num_arrived == total) *counter = 0;
    }
    num_arrived = __shfl_sync(0xffffffffu, num_arrived, 0);
    __syncwarp();
    return num_arrived == total;
}

#endif
