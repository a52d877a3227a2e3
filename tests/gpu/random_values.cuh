/* random_values.cuh - numbers that benches of products fill x and weights with: a function of place and seed. */
#ifndef TESTS_GPU_RANDOM_VALUES_CUH
#define TESTS_GPU_RANDOM_VALUES_CUH

#include <cuda_bf16.h>
#include <stdint.h>

static __device__ uint32_t random_word(size_t i, uint32_t seed)
{
    uint32_t h = (uint32_t)i * 2654435761u ^ (uint32_t)(i >> 32) * 40503u ^ seed;
    for (int k = 0; k < 2; k++) {
        h = (h ^ h >> 16) * 0x45d9f3bu;
        h = (h ^ h >> 13) * 0x119de1f3u;
    }
    return h ^ h >> 16;
}

/* Between -1 and 1. */
static __global__ void fill_x(__nv_bfloat16 *p, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        p[i] = __float2bfloat16((float)(int32_t)random_word(i, 7) * 0x1p-31f);
}

#endif
