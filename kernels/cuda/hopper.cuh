/* hopper.cuh - the sm_90 instructions that the fast kernels are made of: barriers in shared memory that count bytes, the
 * bulk tensor copy engine (TMA), and programmatic dependent launch. On older machines these bodies are empty: nothing that
 * uses them is launched there. Barriers that only count arrivals are there from sm_80 on. */
#ifndef KERNELS_CUDA_HOPPER_CUH
#define KERNELS_CUDA_HOPPER_CUH

#include <cuda.h>
#include <stdint.h>

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define HOPPER_ASM(...) asm volatile(__VA_ARGS__)
#else
#define HOPPER_ASM(...)
#endif

static __device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* On the same barrier of another CTA of the cluster. Orders nothing but what the barrier is for: reads by products that have
 * been waited for. */
static __device__ __forceinline__ void barrier_arrive_at(uint32_t barrier, uint32_t rank)
{
    HOPPER_ASM("{\n\t.reg .b32 remote;\n\tmapa.shared::cluster.u32 remote, %0, %1;\n\t"
               "mbarrier.arrive.shared::cluster.b64 _, [remote];\n\t}" ::"r"(barrier),
               "r"(rank)
               : "memory");
}

/* All threads of all CTAs of the cluster. */
static __device__ __forceinline__ void cluster_sync(void)
{
    HOPPER_ASM("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}

/* Makes initialised barriers visible to the copy engine. */
static __device__ __forceinline__ void barrier_init_fence(void)
{
    HOPPER_ASM("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared::cta.b64 state, [%0];\n\t}" ::"r"(barrier)
                 : "memory");
}

/* Once for a warp whose lanes have all read what the barrier is for. */
static __device__ __forceinline__ void warp_release(uint32_t barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

/* Arrives once this thread's asynchronous copies so far have come. */
static __device__ __forceinline__ void barrier_arrive_after_copies(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* Arrives, and makes the phase wait for that many bytes of bulk copies. */
static __device__ __forceinline__ void barrier_arrive_expect(uint32_t barrier, uint32_t bytes)
{
    HOPPER_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

static __device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    HOPPER_ASM("mbarrier.expect_tx.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* Waits until the phase of this parity is over. */
static __device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define BARRIER_WAIT "mbarrier.test_wait.parity.shared::cta.b64"
#else
#define BARRIER_WAIT "mbarrier.try_wait.parity.shared::cta.b64"
#endif
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "again: " BARRIER_WAIT " p, [%0], %1;\n\t"
                 "@p bra done;\n\tbra again;\n\tdone:\n\t}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
#undef BARRIER_WAIT
}

/* Box of a 2-D tensor map at column x, row y. */
static __device__ __forceinline__ void tensor_load_2d(uint32_t to_shared, const CUtensorMap *map,
                                                      uint32_t barrier, int32_t x, int32_t y)
{
    HOPPER_ASM("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
               "{%3, %4}], [%2];" ::"r"(to_shared),
               "l"(map), "r"(barrier), "r"(x), "r"(y)
               : "memory");
}

/* Bytes as they lie; a multiple of 16, as both addresses. */
static __device__ __forceinline__ void bulk_load(uint32_t to_shared, const void *from, uint32_t barrier,
                                                 uint32_t bytes)
{
    HOPPER_ASM(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            to_shared),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

/* The same for data that is read once: it leaves the L2 first. */
static __device__ __forceinline__ void tensor_stream_2d(uint32_t to_shared, const CUtensorMap *map,
                                                        uint32_t barrier, int32_t x, int32_t y)
{
    HOPPER_ASM(
        "{\n\t.reg .b64 policy;\n\tcreatepolicy.fractional.L2::evict_first.b64 policy, 1.0;\n\t"
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4}], [%2], policy;\n\t}" ::"r"(to_shared),
        "l"(map), "r"(barrier), "r"(x), "r"(y)
        : "memory");
}

/* Bytes that lie one after another and are read once, a multiple of 16. */
static __device__ __forceinline__ void bulk_stream(uint32_t to_shared, const void *from, uint32_t barrier,
                                                   uint32_t bytes)
{
    HOPPER_ASM(
        "{\n\t.reg .b64 policy;\n\tcreatepolicy.fractional.L2::evict_first.b64 policy, 1.0;\n\t"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %3, "
        "[%2], policy;\n\t}" ::"r"(to_shared),
        "l"(from), "r"(barrier), "r"(bytes)
        : "memory");
}

/* The same to the same place of every CTA of the cluster in mask, each of whose barriers counts the bytes. */
static __device__ __forceinline__ void tensor_multicast_2d(uint32_t to_shared, const CUtensorMap *map,
                                                           uint32_t barrier, int32_t x, int32_t y,
                                                           uint32_t mask)
{
    HOPPER_ASM(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to_shared),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "h"((uint16_t)mask)
        : "memory");
}

/* Box of a 4-D tensor map. */
static __device__ __forceinline__ void tensor_load_4d(uint32_t to_shared, const CUtensorMap *map,
                                                      uint32_t barrier, int32_t x, int32_t y, int32_t z,
                                                      int32_t w)
{
    HOPPER_ASM("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
               "{%3, %4, %5, %6}], "
               "[%2];" ::"r"(to_shared),
               "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}

static __device__ __forceinline__ void tensor_load_3d(uint32_t to_shared, const CUtensorMap *map,
                                                      uint32_t barrier, int32_t x, int32_t y, int32_t z)
{
    HOPPER_ASM("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
               "{%3, %4, %5}], [%2];" ::"r"(to_shared),
               "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
               : "memory");
}

/* The same for data that is read once: it leaves the L2 first. */
static __device__ __forceinline__ void tensor_stream_3d(uint32_t to_shared, const CUtensorMap *map,
                                                        uint32_t barrier, int32_t x, int32_t y, int32_t z)
{
    HOPPER_ASM(
        "{\n\t.reg .b64 policy;\n\tcreatepolicy.fractional.L2::evict_first.b64 policy, 1.0;\n\t"
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5}], [%2], policy;\n\t}" ::"r"(to_shared),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
        : "memory");
}

static __device__ __forceinline__ void tensor_stream_4d(uint32_t to_shared, const CUtensorMap *map,
                                                        uint32_t barrier, int32_t x, int32_t y, int32_t z,
                                                        int32_t w)
{
    HOPPER_ASM(
        "{\n\t.reg .b64 policy;\n\tcreatepolicy.fractional.L2::evict_first.b64 policy, 1.0;\n\t"
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], policy;\n\t}" ::"r"(to_shared),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
        : "memory");
}

/* This thread's ordinary writes to shared memory are seen by the copy engine and the tensor cores, once they have been told
 * of them. */
static __device__ __forceinline__ void shared_writes_fence(void)
{
    HOPPER_ASM("fence.proxy.async.shared::cta;" ::: "memory");
}

/* From shared memory to a box of a 2-D tensor map; what lies outside the map is not written. */
static __device__ __forceinline__ void tensor_store_2d(const CUtensorMap *map, uint32_t from_shared,
                                                       int32_t x, int32_t y)
{
    HOPPER_ASM("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"(from_shared), "r"(x), "r"(y)
               : "memory");
}

/* Closes a group of this thread's stores. */
static __device__ __forceinline__ void bulk_commit(void)
{
    HOPPER_ASM("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until all but so many groups of this thread have read their shared memory. */
template <int PENDING> static __device__ __forceinline__ void bulk_wait_read(void)
{
    HOPPER_ASM("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

static __device__ __forceinline__ void tensor_map_prefetch(const CUtensorMap *map)
{
    HOPPER_ASM("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Where tile number i of tile_rows rows begins, of a matrix that has num_rows. The last ones end with the matrix, but for fewer rows than
 * keep them at a multiple of alignment, and have rows of the one before, too, with the same results: to fetch a row that is not
 * there takes the copy engine longer than one that is. */
static __device__ __forceinline__ int32_t tile_begin(int32_t i, int32_t tile_rows, int32_t num_rows,
                                                     int32_t alignment)
{
    return min(i * tile_rows, (max(num_rows - tile_rows, 0) + alignment - 1) / alignment * alignment);
}

/* A value that all lanes of the warp have, in a way that the compiler sees it: only then do it and what is computed from it
 * (roles, stages, descriptors of products) live in registers of the warp, and products need not wait for them. A reduction
 * is what has its result there; of a shuffle's the compiler knows nothing. */
static __device__ __forceinline__ int32_t warp_uniform(int32_t value)
{
    return __reduce_max_sync(0xffffffff, value);
}

/* One lane of a warp whose lanes are all here. Unlike a comparison of lane numbers it tells the compiler that there is one:
 * without that each copy becomes a loop over the lanes that might want another one. */
static __device__ __forceinline__ bool elect_lane(void)
{
    uint32_t elected = threadIdx.x % 32 == 0;
    HOPPER_ASM("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}"
               : "=r"(elected));
    return elected;
}

/* Where a producer or a consumer stands in a ring of stages, and the parity of its barriers there. */
struct pipeline_state {
    int32_t stage;
    uint32_t parity;
    __device__ __forceinline__ void advance(int32_t num_stages)
    {
        if (++stage == num_stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/* The barriers of a ring's stages, 8 bytes each: at full one thread arrives, with the bytes that it asks for, at empty everyone
 * who has read a stage. By one thread, before the CTA's barrier. */
static __device__ __forceinline__ void ring_init(uint32_t full, uint32_t empty, int32_t num_stages,
                                                 uint32_t num_readers)
{
#pragma unroll 1
    for (int s = 0; s < num_stages; s++) {
        barrier_init(full + 8 * s, 1);
        barrier_init(empty + 8 * s, num_readers);
    }
    barrier_init_fence();
}

/* The next number, from 0 on, of a queue that the CTAs of a launch share. Whoever draws the last one sets it back. One launch
 * draws at a time, since each waits for the kernel ahead. */
static __device__ __forceinline__ int32_t queue_draw(int32_t *drawn, int32_t last)
{
    int32_t number = atomicAdd(drawn, 1);
    if (number == last) *drawn = 0;
    return number;
}

/* Programmatic dependent launch. Every kernel of the decode chain waits before it reads what the one before wrote, so that
 * "my predecessor is complete" implies that all before it are. */
static __device__ __forceinline__ void dependency_wait(void)
{
    HOPPER_ASM("griddepcontrol.wait;" ::: "memory");
}

/* The same for a thread that has something to do until then: the others wait, and thread 0 tells it, in shared memory, where 0 must
 * have stood. */
static __device__ __forceinline__ void dependency_wait_and_tell(int32_t *is_over)
{
    dependency_wait();
    if (threadIdx.x == 0) *(volatile int32_t *)is_over = 1;
}

/* Lets so many cycles pass. False as soon as the dependency is over. */
static __device__ __forceinline__ bool pause_unless_over(const int32_t *is_over, int32_t cycles)
{
    const int64_t begin = clock64();
    while (clock64() - begin < cycles)
        if (*(const volatile int32_t *)is_over) return false;
    return true;
}

static __device__ __forceinline__ void dependents_launch(void)
{
    HOPPER_ASM("griddepcontrol.launch_dependents;" ::: "memory");
}

#endif
