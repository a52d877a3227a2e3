/* launch.cu - what the device remembers of its kernels: see launch.cuh. */
#include "kernels/cuda/launch.cuh"

#include <unordered_map>

namespace
{

struct kernel_facts {
    size_t shared_bytes;  /* dynamic ones, that it may have */
    int32_t num_clusters; /* 0: not asked yet */
};

} // namespace

struct launches {
    std::unordered_map<const void *, struct kernel_facts> kernels;
};

void cuda_launches_open(struct cuda_device *d)
{
    d->launches = new struct launches();
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
    if (bytes <= facts->shared_bytes) return true;
    if (!CUDA_CHECK(d, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes)))
        return false;
    facts->shared_bytes = bytes;
    return true;
}

int32_t cuda_clusters_max(struct cuda_device *d, const void *kernel, const cudaLaunchConfig_t *config)
{
    int32_t *num_clusters = &d->launches->kernels[kernel].num_clusters;
    if (*num_clusters == 0) CUDA_CHECK(d, cudaOccupancyMaxActiveClusters(num_clusters, kernel, config));
    return *num_clusters;
}
