/* share.cu - what a member of a group of GPUs gives to all of them, over memory that they reach of each other.
 *
 * share_kernel writes its columns to each member's rows and, when all of its CTAs have, a number to a flag of its own in each member's
 * memory: the count of its shares. share_end_kernel waits until the flags of all others have come as far; kernels behind it see what was
 * written before the flags were. Counts are in device memory, so that a recorded graph counts on. */
#include "kernels/cuda/share.cuh"

#include <string.h>

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"

namespace
{

enum { SHARE_THREADS = 256, CTAS_PER_SM = 2, VECTOR_BYTES = 16 };

struct share_flags {
    uint32_t *of[GROUP_MEMBERS_MAX]; /* each member's: [num] */
    int32_t num, idx;
};

struct share_rows {
    uint4 *to[GROUP_MEMBERS_MAX];
    const uint4 *from;
    int32_t num_rows, width, row_width, column; /* vectors */
};

/* What this thread has written before, and what it knows of that others of its GPU have, is there for who reads the flag. */
__device__ __forceinline__ void store_flag(uint32_t *flag, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

__device__ __forceinline__ uint32_t load_flag(const uint32_t *flag)
{
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

/* Whether this thread block is the last one to come here; the counter is 0 then. */
__device__ __forceinline__ bool is_last(uint32_t *arrivals)
{
    __shared__ bool last;
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(arrivals, 1) == gridDim.x - 1;
        if (last) *arrivals = 0;
    }
    __syncthreads();
    return last;
}

__global__ void __launch_bounds__(SHARE_THREADS)
    share_kernel(share_rows r, share_flags flags, const uint32_t *num_shares, uint32_t *arrivals)
{
    const int64_t num = (int64_t)r.num_rows * r.width;
    dependents_launch();
    dependency_wait();
    for (int64_t i = blockIdx.x * (int64_t)SHARE_THREADS + threadIdx.x; i < num;
         i += (int64_t)gridDim.x * SHARE_THREADS) {
        const int64_t row = i / r.width, at = row * r.row_width + r.column + i % r.width;
        const uint4 values = r.from[i];
        for (int32_t m = 0; m < flags.num; m++) r.to[m][at] = values;
    }
    if (!is_last(arrivals) || threadIdx.x >= flags.num) return;
    __threadfence_system();
    store_flag(flags.of[threadIdx.x] + flags.idx, *num_shares + 1);
}

/* One warp. */
__global__ void share_end_kernel(share_flags flags, uint32_t *num_shares)
{
    dependents_launch();
    dependency_wait();
    const uint32_t num = *num_shares + 1;
    if (threadIdx.x < flags.num)
        while ((int32_t)(load_flag(flags.of[flags.idx] + threadIdx.x) - num) < 0) continue;
    __syncwarp();
    if (threadIdx.x == 0) *num_shares = num;
}

int reach(int ordinal, int other, struct error *err)
{
    int can = 0;
    if (cudaDeviceCanAccessPeer(&can, ordinal, other) != cudaSuccess || !can)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the GPUs %d and %d cannot reach each other's memory, which computing as one wants",
                         ordinal, other);
    const cudaError_t result = cudaDeviceEnablePeerAccess(other, 0);
    cudaGetLastError(); /* that they do already is no error */
    if (result == cudaSuccess || result == cudaErrorPeerAccessAlreadyEnabled) return STATUS_OK;
    return error_set(err, STATUS_DEVICE, "the GPU %d cannot reach the memory of the GPU %d: %s", ordinal,
                     other, cudaGetErrorString(result));
}

} // namespace

struct membership {
    struct device *const *members;
    int num, idx;
    uint32_t *flags, *num_shares, *arrivals; /* device memory: [num] [1] [1] */
};

int cuda_join(struct device *device, struct device *const *members, int num, int idx, struct error *err)
{
    struct cuda_device *d = cuda_enter(device);
    assert_always(num <= GROUP_MEMBERS_MAX && members[idx] == device);
    int status = STATUS_OK;
    for (int i = 0; i < num && !status; i++)
        if (i != idx) status = reach(d->ordinal, cuda_of(members[i])->ordinal, err);
    if (status) return status;
    struct membership *m = d->membership = new struct membership();
    m->members = members;
    m->num = num;
    m->idx = idx;
    if (!(m->flags = (uint32_t *)cuda_alloc(device, ((size_t)num + 2) * 4, "shares")))
        return error_set(err, STATUS_NO_MEMORY, "the GPU has no room for flags");
    m->num_shares = m->flags + num;
    m->arrivals = m->num_shares + 1;
    return CUDA_CHECK(d, cudaStreamSynchronize(d->stream))
               ? STATUS_OK
               : error_set(err, STATUS_DEVICE, "flags could not be cleared");
}

void cuda_membership_forget(struct cuda_device *d)
{
    delete d->membership;
    d->membership = NULL;
}

int cuda_members(const struct cuda_device *d, struct device *const **members)
{
    *members = d->membership->members;
    return d->membership->num;
}

void cuda_select(struct device *device)
{
    cuda_enter(device);
}

namespace
{

share_flags flags_of(const struct membership *m)
{
    share_flags f = {};
    f.num = m->num;
    f.idx = m->idx;
    for (int i = 0; i < m->num; i++) f.of[i] = cuda_of(m->members[i])->membership->flags;
    return f;
}

} // namespace

void cuda_share(struct device *device, const struct batch *b, enum row_set rows, void *const *to,
                const void *from, int32_t width, int32_t row_width, int32_t column)
{
    struct cuda_device *d = cuda_of(device);
    const struct membership *m = d->membership;
    const int32_t per_vector = VECTOR_BYTES / (int32_t)sizeof(__nv_bfloat16);
    assert_always(width % per_vector == 0 && row_width % per_vector == 0 && column % per_vector == 0);
    share_rows r = {};
    for (int i = 0; i < m->num; i++) r.to[i] = (uint4 *)to[i];
    r.from = (const uint4 *)from;
    r.num_rows = batch_num_rows(b, rows);
    r.width = width / per_vector;
    r.row_width = row_width / per_vector;
    r.column = column / per_vector;
    const int64_t ctas = ((int64_t)r.num_rows * r.width + SHARE_THREADS - 1) / SHARE_THREADS;
    launch_dependent(d, share_kernel,
                     dim3((unsigned)max(min(ctas, (int64_t)CTAS_PER_SM * d->num_sms), (int64_t)1)),
                     dim3(SHARE_THREADS), 0, r, flags_of(m), (const uint32_t *)m->num_shares, m->arrivals);
}

void cuda_share_end(struct device *device)
{
    struct cuda_device *d = cuda_of(device);
    launch_dependent(d, share_end_kernel, dim3(1), dim3(32), 0, flags_of(d->membership),
                     d->membership->num_shares);
}
