/* share.cu - what a member of a group of GPUs gives to all of them, over memory that they reach of each other.
 *
 * Little, in one kernel: every four bytes go to the others with the number of the share beside them, to a place of their own, where each
 * waits for those of all others and puts them into its rows. What has come says so itself: no flag is written behind it. There are two such
 * places in turns: who has all of a share has seen all others begin it, so they are done with the one before.
 *
 * Much, in two: share_kernel writes its columns to each member's rows and, when all of its CTAs have, the number of the share to a flag of
 * its own in each member's memory; share_end_kernel waits until the flags of all others have come as far, and kernels behind it see what
 * was written before the flags were. A member that is ahead may so write to what another one still reads, but not far: a share ends for
 * nobody before all have begun it. So where a share goes where the one before it went, or, as nobody knows where that was, is a step's
 * first, all come as far before it: a share of nothing.
 *
 * Members on one GPU, which are for tests, send little in one kernel and receive it in another, behind what all have sent: what waits for a kernel
 * that is queued later might keep that from running.
 *
 * Numbers are counted in device memory, so that a recorded graph counts on. */
#include "kernels/cuda/share.cuh"

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"

namespace
{

enum {
    SHARE_THREADS = 256,
    CTAS_PER_SM = 2,
    VECTOR_BYTES = 16,
    LITTLE_BYTES = 512 << 10, /* of a member's columns: up to so many in one kernel */
    PLACES = 2
};

struct share_flags {
    uint32_t *of[GROUP_MEMBERS_MAX]; /* each member's: [num] */
    int32_t num, idx;
};

struct share_rows {
    uint4 *to[GROUP_MEMBERS_MAX];
    const uint4 *from;
    const int32_t *rows;                        /* of little: where the i-th is, here; NULL: it is the i-th */
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

/* Two times four bytes, each with the number of the share beside it. */
struct place_args {
    uint4 *of[GROUP_MEMBERS_MAX]; /* each member's places: [PLACES][num members][LITTLE_BYTES / 8] */
};

__device__ __forceinline__ uint4 *place_of(uint4 *places, const share_flags &flags, uint32_t number,
                                           int32_t from)
{
    return places + ((size_t)(number % PLACES) * flags.num + from) * (LITTLE_BYTES / 8);
}

__device__ __forceinline__ void send(uint4 *to, uint2 values, uint32_t number)
{
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(values.x), "r"(number),
                 "r"(values.y), "r"(number)
                 : "memory");
}

__device__ __forceinline__ uint2 receive(const uint4 *from, uint32_t number)
{
    uint4 v;
    do {
        asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(from)
                     : "memory");
    } while (v.y != number || v.w != number);
    return make_uint2(v.x, v.z);
}

enum share_part { PART_SEND = 1, PART_RECEIVE = 2, PART_BOTH = 3 };

__device__ __forceinline__ size_t row_of(const share_rows &r, int32_t i)
{
    return r.rows ? r.rows[i] : i;
}

/* All CTAs are there at a time: there are no more than SMs. */
__global__ void __launch_bounds__(SHARE_THREADS)
    share_little_kernel(share_rows r, share_flags flags, place_args places, int32_t parts,
                        uint32_t *num_shares, uint32_t *arrivals)
{
    const int32_t width = 2 * r.width, num = r.num_rows * width,
                  begin = blockIdx.x * SHARE_THREADS + threadIdx.x, step = gridDim.x * SHARE_THREADS;
    const uint2 *from = (const uint2 *)r.from;
    uint2 *to = (uint2 *)r.to[flags.idx];
    dependents_launch();
    dependency_wait();
    const uint32_t number = *num_shares + 1;
    for (int32_t i = begin; i < num && parts & PART_SEND; i += step) {
        const size_t row = row_of(r, i / width);
        const uint2 values = from[row * width + i % width];
        for (int32_t m = 0; m < flags.num; m++)
            if (m != flags.idx) send(place_of(places.of[m], flags, number, flags.idx) + i, values, number);
        to[row * 2 * r.row_width + 2 * r.column + i % width] = values;
    }
    if (!(parts & PART_RECEIVE)) return;
    for (int32_t m = 0; m < flags.num; m++)
        for (int32_t i = begin; i < num && m != flags.idx; i += step)
            to[row_of(r, i / width) * 2 * r.row_width + m * width + i % width] =
                receive(place_of(places.of[flags.idx], flags, number, m) + i, number);
    __syncthreads();
    if (threadIdx.x != 0 || atomicAdd(arrivals, 1) != gridDim.x - 1) return;
    *arrivals = 0;
    *num_shares = number;
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
    uint4 *places;                           /* the same: of place_args */
    const void *last_to;                     /* of the share before it in this step */
    bool has_shared;                         /* in this step */
    bool is_little;                          /* the newest: it ends by itself */
    share_rows newest;                       /* that, for members on one GPU */
};

int cuda_join(struct device *device, struct device *const *members, int num, int idx, struct error *err)
{
    struct cuda_device *d = cuda_enter(device);
    assert_always(num <= GROUP_MEMBERS_MAX && members[idx] == device);
    int status = STATUS_OK;
    for (int i = 0; i < num && !status; i++)
        if (cuda_of(members[i])->ordinal != d->ordinal)
            status = reach(d->ordinal, cuda_of(members[i])->ordinal, err);
    if (status) return status;
    struct membership *m = d->membership = new struct membership();
    m->members = members;
    for (int i = 0; i < num; i++) d->shares_gpu |= i != idx && cuda_of(members[i])->ordinal == d->ordinal;
    m->num = num;
    m->idx = idx;
    m->flags = (uint32_t *)cuda_alloc(device, ((size_t)num + 2) * 4, "shares");
    m->places = (uint4 *)cuda_alloc(device, (size_t)PLACES * num * LITTLE_BYTES * 2, "shares");
    if (!m->flags || !m->places)
        return error_set(err, STATUS_NO_MEMORY, "the GPU has no room for what others give it");
    m->num_shares = m->flags + num;
    m->arrivals = m->num_shares + 1;
    return CUDA_CHECK(d, cudaStreamSynchronize(d->stream))
               ? STATUS_OK
               : error_set(err, STATUS_DEVICE, "flags could not be cleared");
}

bool cuda_is_needed_by_others(const struct cuda_device *d)
{
    const struct membership *m = d->membership;
    for (int i = m ? m->idx + 1 : 0; m && i < m->num; i++)
        if (cuda_of(m->members[i])->ordinal == d->ordinal) return true;
    return false;
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

int64_t num_vectors_of(const share_rows &r)
{
    return (int64_t)r.num_rows * r.width;
}

void share_little(struct cuda_device *d, const share_rows &r, enum share_part parts)
{
    const struct membership *m = d->membership;
    const int64_t ctas = (2 * num_vectors_of(r) + SHARE_THREADS - 1) / SHARE_THREADS;
    place_args places = {};
    for (int i = 0; i < m->num; i++) places.of[i] = cuda_of(m->members[i])->membership->places;
    launch_dependent(d, share_little_kernel, dim3((unsigned)min(ctas, (int64_t)d->num_sms)),
                     dim3(SHARE_THREADS), 0, r, flags_of(m), places, (int32_t)parts, m->num_shares,
                     m->arrivals);
}

void share_much(struct cuda_device *d, const share_rows &r)
{
    const struct membership *m = d->membership;
    const int64_t ctas = (num_vectors_of(r) + SHARE_THREADS - 1) / SHARE_THREADS,
                  most = (int64_t)CTAS_PER_SM * d->num_sms;
    launch_dependent(d, share_kernel, dim3((unsigned)max(min(ctas, most), (int64_t)1)), dim3(SHARE_THREADS),
                     0, r, flags_of(m), (const uint32_t *)m->num_shares, m->arrivals);
}

void wait_for_shares(struct cuda_device *d)
{
    launch_dependent(d, share_end_kernel, dim3(1), dim3(32), 0, flags_of(d->membership),
                     d->membership->num_shares);
}

} // namespace

void cuda_share_step(struct cuda_device *d)
{
    if (d->membership) d->membership->has_shared = false;
}

bool cuda_share_is_little(int32_t num_rows, int64_t row_bytes)
{
    return num_rows > 0 && num_rows * row_bytes <= LITTLE_BYTES;
}

namespace
{

share_rows rows_of(const struct membership *m, int32_t num_rows, const void *from, int64_t row_bytes)
{
    share_rows r = {};
    assert_always(row_bytes % VECTOR_BYTES == 0);
    r.from = (const uint4 *)from;
    r.num_rows = num_rows;
    r.width = (int32_t)(row_bytes / VECTOR_BYTES);
    r.row_width = r.width * m->num;
    r.column = r.width * m->idx;
    return r;
}

void begin_share(struct cuda_device *d, const share_rows &r)
{
    struct membership *m = d->membership;
    const void *to = r.to[m->idx];
    m->is_little = cuda_share_is_little(r.num_rows, (int64_t)r.width * VECTOR_BYTES);
    m->newest = r;
    if (m->is_little) {
        share_little(d, r, d->shares_gpu ? PART_SEND : PART_BOTH);
    } else {
        if (to && (!m->has_shared || to == m->last_to)) {
            share_much(d, {});
            wait_for_shares(d);
        }
        share_much(d, r);
    }
    m->last_to = to;
    m->has_shared = true;
}

} // namespace

void cuda_share(struct device *device, const struct batch *b, enum row_set rows, void *const *to,
                const void *from, int64_t row_bytes)
{
    struct cuda_device *d = cuda_of(device);
    share_rows r = rows_of(d->membership, batch_num_rows(b, rows), from, row_bytes);
    for (int i = 0; i < d->membership->num; i++) r.to[i] = (uint4 *)to[i];
    begin_share(d, r);
}

void cuda_share_placed(struct cuda_device *d, int32_t num_rows, void *to, const void *from, int64_t row_bytes,
                       const int32_t *rows)
{
    share_rows r = rows_of(d->membership, num_rows, from, row_bytes);
    assert_always(cuda_share_is_little(num_rows, row_bytes));
    r.to[d->membership->idx] = (uint4 *)to;
    r.rows = rows;
    begin_share(d, r);
}

void cuda_share_nothing(struct cuda_device *d)
{
    begin_share(d, {});
}

void cuda_share_end(struct device *device)
{
    struct cuda_device *d = cuda_of(device);
    if (!d->membership->is_little)
        wait_for_shares(d);
    else if (d->shares_gpu)
        share_little(d, d->membership->newest, PART_RECEIVE);
}
