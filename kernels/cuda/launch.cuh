/* launch.cuh - launches of kernels, and what the device remembers of each kernel that it has launched. Errors are the
 * device's (cuda_check), and a launch that returns false has left one. */
#ifndef KERNELS_CUDA_LAUNCH_CUH
#define KERNELS_CUDA_LAUNCH_CUH

#include "kernels/cuda/device.cuh"

/* With the device. */
void cuda_launches_open(struct cuda_device *d);
void cuda_launches_close(struct cuda_device *d);

/* Lets a kernel have so much dynamic shared memory: asked of CUDA once for a size and all below it. */
bool cuda_allow_shared(struct cuda_device *d, const void *kernel, size_t bytes);

/* Clusters of this configuration that the machine runs at a time, asked of CUDA once for a kernel. 0: an error. */
int32_t cuda_clusters_max(struct cuda_device *d, const void *kernel, const cudaLaunchConfig_t *config);

/* Cycles that an SM lets pass between requests of so many bytes ahead of its dependency: as many as they would take at twice
 * its share of the memory's rate. 0: not known. */
int32_t cuda_pause_ahead(const struct cuda_device *d, int32_t bytes);

/* A grid as CUDA takes them: along y and z there are fewer CTAs than along x. Rows, of which there may be many, are along x. */
static inline dim3 checked_grid(dim3 grid)
{
    assert_always(grid.x > 0 && grid.x <= INT32_MAX && grid.y > 0 && grid.y <= 65535 && grid.z > 0 &&
                  grid.z <= 65535);
    return grid;
}

/* Launches so that the kernel begins when all that was queued before it has ended. A step's first kernel is launched so, and
 * what earlier steps left in memory is then there for every kernel of the step, also ahead of its dependency: decode
 * attention, which fetches the pages of earlier steps there, counts on it (attention_decode_producer.cuh). */
template <typename... Parameters, typename... Arguments>
bool launch_after_all(struct cuda_device *d, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                      Arguments... arguments)
{
    kernel<<<checked_grid(grid), block, 0, d->stream>>>(Parameters(arguments)...);
    return cuda_check(d, cudaPeekAtLastError(), "launch");
}

/* As launch_dependent where early is true; where it is not, the kernel begins when all before it has ended, though it calls
 * dependency_wait. */
template <typename... Parameters, typename... Arguments>
bool launch_early(struct cuda_device *d, bool early, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                  size_t shared_bytes, Arguments... arguments)
{
    if (!cuda_allow_shared(d, (const void *)kernel, shared_bytes)) return false;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = checked_grid(grid);
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = d->stream;
    config.attrs = &attribute;
    config.numAttrs = d->is_hopper && early && !d->shares_gpu ? 1 : 0;
    return cuda_check(d, cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), "launch");
}

/* Launches so that the kernel may begin before the one ahead of it in the stream has ended: it must call dependency_wait
 * (hopper.cuh) before it touches what that one wrote. */
template <typename... Parameters, typename... Arguments>
bool launch_dependent(struct cuda_device *d, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                      size_t shared_bytes, Arguments... arguments)
{
    return launch_early(d, true, kernel, grid, block, shared_bytes, arguments...);
}

#endif
