/* launch.cu - what the device remembers of its kernels: see launch.cuh. */
#include "kernels/cuda/launch.cuh"

#include <unordered_map>

namespace
{

struct kernel_facts {
    size_t shared_bytes;  /* dynamic ones, that it may have */
    int32_t num_clusters; /* 0: not asked yet */
};

const float AHEAD_RATE = 2.0f; /* kernels/notebook/cuda_linear.md */

/* Not known is no error: whoever launches next looks for one. */
float memory_share(const struct cuda_device *d)
{
    int memory_khz, bus_bits, sm_khz;
    if (cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, d->ordinal) != cudaSuccess ||
        cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, d->ordinal) != cudaSuccess ||
        cudaDeviceGetAttribute(&sm_khz, cudaDevAttrClockRate, d->ordinal) != cudaSuccess || sm_khz <= 0) {
        cudaGetLastError();
        return 0;
    }
    return 2.0f * (float)memory_khz * (float)bus_bits / 8 / (float)sm_khz / (float)d->num_sms;
}

} // namespace

struct launches {
    float memory_share; /* bytes a cycle of the memory's rate for each SM; 0: not known */
    std::unordered_map<const void *, struct kernel_facts> kernels;
};

void cuda_launches_open(struct cuda_device *d)
{
    d->launches = new struct launches();
    d->launches->memory_share = memory_share(d);
}

void cuda_launches_close(struct cuda_device *d)
{
    delete d->launches;
    d->launches = NULL;
}

bool cuda_allow_shared(struct cuda_device *d, const void *kernel, size_t bytes)
{
    if (bytes == 0) return true;
    struct kernel_facts *facts = &d->launches->kernels[kernel];
    if (bytes <= facts->shared_bytes && !d->shares_gpu) return true;
    if (!CUDA_CHECK(d, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes)))
        return false;
    facts->shared_bytes = bytes;
    return true;
}

int32_t cuda_pause_ahead(const struct cuda_device *d, int32_t bytes)
{
    const float rate = AHEAD_RATE * d->launches->memory_share;
    return rate > 0 ? (int32_t)((float)bytes / rate) : 0;
}

int32_t cuda_clusters_max(struct cuda_device *d, const void *kernel, const cudaLaunchConfig_t *config)
{
    int32_t *num_clusters = &d->launches->kernels[kernel].num_clusters;
    if (*num_clusters == 0) CUDA_CHECK(d, cudaOccupancyMaxActiveClusters(num_clusters, kernel, config));
    return *num_clusters;
}
