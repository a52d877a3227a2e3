/* machine.h - a GPU in a thread of the host: CTAs one after the other, the threads of a CTA as fibers that take turns wherever
 * they wait for one another. Every translated file (translate.py) includes this first.
 *
 * What it has of CUDA C is what kernels/cuda uses. Asynchronous copies end as late as they may (asm.h), so that a wait that is missing shows.
 * Launches run at once, on the caller's thread, one caller at a time; while a stream is captured they are kept for the graph. */
#ifndef EMULATOR_MACHINE_H
#define EMULATOR_MACHINE_H

#include <cublasLt.h>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/emulator/memory.h"

#undef __global__
#undef __device__
#undef __host__
#undef __launch_bounds__
#undef __grid_constant__
#undef __shared__ /* translate.py has left none */
#undef __forceinline__
#undef __noinline__
#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__
#pragma GCC diagnostic ignored "-Wunknown-pragmas"

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace emulated
{

enum { WARP_LANES = 32, WORDS_MAX = 12, CTA_THREADS_MAX = 1024 };

/* Of addresses of 32 bits, for an access at a multiple of alignment. */
static inline void *pointer_of(uint32_t shared_address, size_t alignment = 1)
{
    void *p = arena + (int32_t)shared_address;
    want_aligned(p, alignment);
    return p;
}

/* On the standard error, where the CTA and the thread are that run, if any do. */
void show_place(void);

/* What the lanes of mask have brought, words each. Returns when all of them are here. */
struct brought {
    uint32_t words[WARP_LANES][WORDS_MAX];
};
const struct brought *meet(uint32_t mask, const void *mine, size_t bytes);
int32_t lane(void);

/* Of the threads of a CTA that have not ended: sum of what they bring. Barrier 0, or one of so many threads. */
int32_t meet_all(int32_t mine);
void meet_some(int32_t barrier, int32_t threads, bool waits);

/* Lets the others go on: for whoever waits for something in memory, until somebody says that he has changed it. */
void yield(void);
void tell(void);

/* Until the kernel ahead has ended, for a CTA that has begun before that (run_grid). */
void wait_for_dependency(void);

void queue(cudaStream_t stream, std::function<void()> work);
/* A kernel runs when the next one comes, or somebody wants to see what it has done (finish_grids). May that one begin early, one of its
 * CTAs does: it goes as far as it can without what the kernel ahead will do. */
void run_grid(dim3 grid, dim3 block, size_t shared_bytes, bool begins_early, std::function<void()> body);
void finish_grids(void);

template <typename KERNEL> struct launch_of {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
    KERNEL kernel;
    bool begins_early;
    template <typename... ARGUMENTS> void operator()(ARGUMENTS... arguments) const
    {
        launch_of l = *this;
        queue(stream, [=] {
            run_grid(l.grid, l.block, l.shared_bytes, l.begins_early, [=] { l.kernel(arguments...); });
        });
    }
};

template <typename KERNEL>
launch_of<KERNEL> launch(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, KERNEL kernel,
                         bool begins_early = false)
{
    return {grid, block, shared_bytes, stream, kernel, begins_early};
}

/* Which is chosen of those that took some time, HUGE_VALF where they cannot: each time another one. */
static inline size_t turn(const std::vector<float> &ms)
{
    static size_t num_turns;
    const size_t first = num_turns++;
    for (size_t i = 0; i < ms.size(); i++)
        if (ms[(first + i) % ms.size()] < HUGE_VALF) return (first + i) % ms.size();
    return 0;
}

template <typename T> T exchanged(uint32_t mask, T mine, int32_t from)
{
    T theirs;
    static_assert(sizeof(T) <= sizeof(uint32_t) * WORDS_MAX);
    memcpy(&theirs, meet(mask, &mine, sizeof mine)->words[from], sizeof theirs);
    return theirs;
}

template <typename T, typename F> T reduced(uint32_t mask, T mine, F add)
{
    const struct brought *all = meet(mask, &mine, sizeof mine);
    T sum{};
    for (int32_t i = 0, num = 0; i < WARP_LANES; i++)
        if (mask >> i & 1) {
            T one;
            memcpy(&one, all->words[i], sizeof one);
            sum = num++ ? add(sum, one) : one;
        }
    return sum;
}

} // namespace emulated

#define __cvta_generic_to_shared(p) emulated::shared_address(p)

/* ---- of a warp and of a CTA ---- */

static inline void __syncthreads(void)
{
    emulated::meet_all(0);
}
static inline int __syncthreads_count(int x)
{
    return emulated::meet_all(x != 0);
}
static inline int __syncthreads_or(int x)
{
    return emulated::meet_all(x != 0) > 0;
}
static inline void __syncwarp(uint32_t mask = ~0u)
{
    emulated::meet(mask, NULL, 0);
}
template <typename T> T __shfl_sync(uint32_t mask, T x, int from, int width = 32)
{
    return emulated::exchanged(mask, x, emulated::lane() / width * width + from % width);
}
template <typename T> T __shfl_xor_sync(uint32_t mask, T x, int distance)
{
    return emulated::exchanged(mask, x, emulated::lane() ^ distance);
}
template <typename T> T __shfl_up_sync(uint32_t mask, T x, int distance)
{
    return emulated::exchanged(
        mask, x, std::max(0, emulated::lane() < distance ? emulated::lane() : emulated::lane() - distance));
}
static inline uint32_t __ballot_sync(uint32_t mask, int x)
{
    uint32_t mine = x ? 1u << emulated::lane() : 0;
    return emulated::reduced(mask, mine, [](uint32_t a, uint32_t b) { return a | b; });
}
template <typename T> T __reduce_add_sync(uint32_t mask, T x)
{
    return emulated::reduced(mask, x, [](T a, T b) { return a + b; });
}
template <typename T> T __reduce_max_sync(uint32_t mask, T x)
{
    return emulated::reduced(mask, x, [](T a, T b) { return a > b ? a : b; });
}
template <typename T> T __reduce_min_sync(uint32_t mask, T x)
{
    return emulated::reduced(mask, x, [](T a, T b) { return a < b ? a : b; });
}

/* ---- of a thread ---- */

static inline void __threadfence(void) {}
static inline void __threadfence_system(void) {}
template <typename T> T __ldcg(const T *p)
{
    return *p;
}
template <typename T> void __stcg(T *p, T x)
{
    *p = x;
}
template <typename T, typename U> T atomicAdd(T *p, U x)
{
    T before = *p;
    *p = before + (T)x;
    return before;
}
template <typename T, typename U> T atomicMax(T *p, U x)
{
    T before = *p;
    *p = std::max(before, (T)x);
    return before;
}
template <typename T, typename U> T atomicMin(T *p, U x)
{
    T before = *p;
    *p = std::min(before, (T)x);
    return before;
}
template <typename T, typename U> T atomicOr(T *p, U x)
{
    T before = *p;
    *p = before | (T)x;
    return before;
}
template <typename T, typename U> T atomicExch(T *p, U x)
{
    T before = *p;
    *p = (T)x;
    return before;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
/* A NaN becomes 0, what is too large the largest. */
static inline int __float2int_rn(float x)
{
    if (x != x) return 0;
    return x >= 0x1p31f ? INT32_MAX : x < -0x1p31f ? INT32_MIN : (int)nearbyintf(x);
}
#define __expf(x) expf(x)
#define __logf(x) logf(x)
static inline float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}
static inline int __popc(uint32_t x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((uint32_t)x) : 32;
}
static inline int __clzll(long long x)
{
    return x ? __builtin_clzll((uint64_t)x) : 64;
}
static inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}
template <typename TO, typename FROM> TO emulated_bits(FROM x)
{
    TO y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline float __uint_as_float(uint32_t x)
{
    return emulated_bits<float>(x);
}
static inline float __int_as_float(int32_t x)
{
    return emulated_bits<float>(x);
}
static inline uint32_t __float_as_uint(float x)
{
    return emulated_bits<uint32_t>(x);
}
static inline int32_t __float_as_int(float x)
{
    return emulated_bits<int32_t>(x);
}
static inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector)
{
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) out |= (uint32_t)(both >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
    return out;
}
static inline __nv_bfloat16 emulated_fma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c)
{
    return __double2bfloat16(
        fma((double)__bfloat162float(a), (double)__bfloat162float(b), (double)__bfloat162float(c)));
}
static inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c)
{
    return {emulated_fma(a.x, b.x, c.x), emulated_fma(a.y, b.y, c.y)};
}
static inline long long clock64(void)
{
    static thread_local long long now;
    return now += 1 << 24;
}
template <typename A, typename B> std::common_type_t<A, B> min(A a, B b)
{
    using T = std::common_type_t<A, B>;
    return (T)a < (T)b ? (T)a : (T)b;
}
template <typename A, typename B> std::common_type_t<A, B> max(A a, B b)
{
    using T = std::common_type_t<A, B>;
    return (T)a > (T)b ? (T)a : (T)b;
}

template <typename KERNEL> cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, KERNEL *kernel)
{
    return cudaFuncGetAttributes(a, (const void *)kernel);
}

template <typename... PARAMETERS, typename... ARGUMENTS>
cudaError_t emulated_launch(const cudaLaunchConfig_t *c, void (*kernel)(PARAMETERS...),
                            ARGUMENTS... arguments)
{
    emulated::launch(c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream, kernel,
                     c->numAttrs > 0)(PARAMETERS(arguments)...);
    return cudaSuccess;
}
#define cudaLaunchKernelEx emulated_launch

#include "tests/emulator/asm.h"

#define __CUDACC__

#endif
