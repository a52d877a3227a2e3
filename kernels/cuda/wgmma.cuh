/* wgmma.cuh - the sm_90a instructions of a warp group (4 warps): products whose operands lie in shared
 * memory, named barriers, and the split of the register file. Other machines get empty bodies: nothing that
 * uses them is launched there.
 *
 * Shared memory holds tiles of 64 columns of bf16 (128 bytes a row) in the layout that the copy engine writes
 * with its 128-byte swizzle: atoms of 8 rows, 1024 bytes each, 1024-byte aligned. A descriptor names where a
 * tile begins and the distances between atoms.
 *
 * A product runs on while the code goes on: fence before the first one that follows ordinary writes of its
 * registers, commit to close a group, wait until at most so many groups are under way. Accumulators must not
 * be touched before that; hold() keeps the compiler from moving their uses up.
 *
 * Accumulator d of m64nN, warp w of the group, lane l, g = l / 4, t = l % 4: d[4 n + 2 i + j] is row 16 w + g
 * + 8 i, column 8 n + 2 t + j. Two neighbouring groups of 8 columns, packed to bf16, are the A operand of 16
 * columns. */
#ifndef KERNELS_CUDA_WGMMA_CUH
#define KERNELS_CUDA_WGMMA_CUH

#include <stdint.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900 && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "CUDA_ARCHS: 9.0 wants compute_90a and sm_90a, without the a there are no wgmma instructions"
#endif
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WGMMA_BODY(...) __VA_ARGS__
#else
#define WGMMA_BODY(...)
#endif

/* Distances in bytes. For an operand whose rows are the index that is not summed (K major): rows is the
 * distance between atoms of 8 rows, columns is not used. For one whose rows are summed over (transposed):
 * rows is the distance between atoms of 8 rows, columns that between atoms of 64 columns. */
static __device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address, uint32_t rows, uint32_t columns)
{
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(columns >> 4) << 16 |
           (uint64_t)(rows >> 4) << 32 | 1ull << 62;
}

/* Of K major tiles of 64 columns: the low words count in 16 bytes, so that a step is an addition. */
static __device__ __forceinline__ uint32_t wgmma_descriptor_low(uint32_t address)
{
    return (uint32_t)wgmma_descriptor(address, 8 * 128, 16);
}

static __device__ __forceinline__ uint64_t wgmma_descriptor_of(uint32_t low)
{
    return wgmma_descriptor(0, 8 * 128, 0) | low;
}

/* Of a row of the N side that lies as it is, without a swizzle: what is 16 bytes on is the row after it. Steps as above. */
static __device__ __forceinline__ uint32_t wgmma_row_descriptor_low(uint32_t address)
{
    return (address & 0x3ffff) >> 4 | 1u << 16;
}

static __device__ __forceinline__ uint64_t wgmma_row_descriptor_of(uint32_t low)
{
    return low;
}

/* Of a K major tile without a swizzle: pieces of 8 rows of 16 bytes, 128 bytes each. rows: from 8 rows to the next ones, columns: from
 * 16 bytes of a row to the next ones. */
static __device__ __forceinline__ uint64_t wgmma_pieces_descriptor(uint32_t address, uint32_t rows,
                                                                   uint32_t columns)
{
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(columns >> 4) << 16 |
           (uint64_t)(rows >> 4) << 32;
}

static __device__ __forceinline__ void wgmma_fence(void)
{
    WGMMA_BODY(asm volatile("wgmma.fence.sync.aligned;" ::: "memory"));
}

static __device__ __forceinline__ void wgmma_commit(void)
{
    WGMMA_BODY(asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"));
}

template <int PENDING> static __device__ __forceinline__ void wgmma_wait(void)
{
    WGMMA_BODY(asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"));
}

template <int N> static __device__ __forceinline__ void wgmma_hold(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

template <int N> static __device__ __forceinline__ void wgmma_hold(int32_t (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(d[i])::"memory");
}

/* The first so many sums as operands of an instruction (C: "+f" of floats, "+r" of integers), and their names in it. */
#define SUMS_AT(C, i)                                                                                        \
    C(d[i]), C(d[i + 1]), C(d[i + 2]), C(d[i + 3]), C(d[i + 4]), C(d[i + 5]), C(d[i + 6]), C(d[i + 7])
#define SUMS_4(C) C(d[0]), C(d[1]), C(d[2]), C(d[3])
#define SUMS_8(C) SUMS_AT(C, 0)
#define SUMS_16(C) SUMS_8(C), SUMS_AT(C, 8)
#define SUMS_24(C) SUMS_16(C), SUMS_AT(C, 16)
#define SUMS_32(C) SUMS_24(C), SUMS_AT(C, 24)
#define SUMS_40(C) SUMS_32(C), SUMS_AT(C, 32)
#define SUMS_48(C) SUMS_40(C), SUMS_AT(C, 40)
#define SUMS_56(C) SUMS_48(C), SUMS_AT(C, 48)
#define SUMS_64(C) SUMS_56(C), SUMS_AT(C, 56)
#define SUMS_72(C) SUMS_64(C), SUMS_AT(C, 64)
#define SUMS_80(C) SUMS_72(C), SUMS_AT(C, 72)
#define SUMS_88(C) SUMS_80(C), SUMS_AT(C, 80)
#define SUMS_96(C) SUMS_88(C), SUMS_AT(C, 88)
#define SUMS_104(C) SUMS_96(C), SUMS_AT(C, 96)
#define SUMS_112(C) SUMS_104(C), SUMS_AT(C, 104)
#define SUMS_120(C) SUMS_112(C), SUMS_AT(C, 112)
#define SUMS_128(C) SUMS_120(C), SUMS_AT(C, 120)
#define NAMES_4 "%0, %1, %2, %3"
#define NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define NAMES_16 NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_24 NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define NAMES_32 NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_40 NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define NAMES_48 NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_56 NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define NAMES_64 NAMES_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_72 NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define NAMES_80 NAMES_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define NAMES_88 NAMES_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define NAMES_96 NAMES_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES_104 NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define NAMES_112 NAMES_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define NAMES_120 NAMES_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define NAMES_128 NAMES_120 ", %120, %121, %122, %123, %124, %125, %126, %127"

/* d (64 x N) = or += A B, both in shared memory. SUM, C: of the sums; COUNT: N / 2 of them a thread; the numbers of the operands
 * behind them follow. KIND: columns of an instruction and types; MORE: of floats that neither operand is negated, and which one is
 * transposed, where the types let that be said. */
#define DEFINE_WGMMA(FUNCTION, SUM, C, KIND, MORE, N, COUNT, A, B, ADD)                                      \
    static __device__ __forceinline__ void FUNCTION(SUM(&d)[COUNT], uint64_t a, uint64_t b, int add)         \
    {                                                                                                        \
        WGMMA_BODY(asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #ADD ", 0;\n\t"                     \
                                "wgmma.mma_async.sync.aligned.m64n" #N KIND " {" NAMES_##COUNT               \
                                "}, %" #A ", %" #B ", p" MORE ";\n\t}"                                       \
                                : SUMS_##COUNT(C)                                                            \
                                : "l"(a), "l"(b), "r"(add)));                                                \
    }

/* A (64 x 16) and B (16 x N) of bf16, K major. */
#define DEFINE_WGMMA_SHARED(...)                                                                             \
    DEFINE_WGMMA(wgmma_shared, float, "+f", "k16.f32.bf16.bf16", ", 1, 1, 0, 0", __VA_ARGS__)
DEFINE_WGMMA_SHARED(8, 4, 4, 5, 6)
DEFINE_WGMMA_SHARED(16, 8, 8, 9, 10)
DEFINE_WGMMA_SHARED(32, 16, 16, 17, 18)
DEFINE_WGMMA_SHARED(48, 24, 24, 25, 26)
DEFINE_WGMMA_SHARED(64, 32, 32, 33, 34)
DEFINE_WGMMA_SHARED(80, 40, 40, 41, 42)
DEFINE_WGMMA_SHARED(112, 56, 56, 57, 58)
DEFINE_WGMMA_SHARED(128, 64, 64, 65, 66)
DEFINE_WGMMA_SHARED(160, 80, 80, 81, 82)
DEFINE_WGMMA_SHARED(192, 96, 96, 97, 98)
DEFINE_WGMMA_SHARED(224, 112, 112, 113, 114)
DEFINE_WGMMA_SHARED(240, 120, 120, 121, 122)
DEFINE_WGMMA_SHARED(256, 128, 128, 129, 130)

/* The same with B transposed. */
#define DEFINE_WGMMA_SHARED_TRANSPOSED(...)                                                                  \
    DEFINE_WGMMA(wgmma_shared_transposed, float, "+f", "k16.f32.bf16.bf16", ", 1, 1, 0, 1", __VA_ARGS__)
DEFINE_WGMMA_SHARED_TRANSPOSED(128, 64, 64, 65, 66)
DEFINE_WGMMA_SHARED_TRANSPOSED(256, 128, 128, 129, 130)

/* The same with A in registers, and B K major or transposed in shared memory. */
#define DEFINE_WGMMA_REGISTERS(N, COUNT, A0, A1, A2, A3, B, TRANSPOSE, ADD)                                  \
    template <int TRANSPOSED>                                                                                \
    static __device__ __forceinline__ void wgmma_registers(float(&d)[COUNT], const uint32_t *a, uint64_t b,  \
                                                           int add)                                          \
    {                                                                                                        \
        WGMMA_BODY(asm volatile(                                                                             \
            "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #ADD ", 0;\n\t"                                         \
            "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" NAMES_##COUNT                       \
            "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", p, 1, 1, %" #TRANSPOSE ";\n\t}"           \
            : SUMS_##COUNT("+f")                                                                             \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(TRANSPOSED), "r"(add)));               \
    }
DEFINE_WGMMA_REGISTERS(8, 4, 4, 5, 6, 7, 8, 9, 10)
DEFINE_WGMMA_REGISTERS(16, 8, 8, 9, 10, 11, 12, 13, 14)
DEFINE_WGMMA_REGISTERS(32, 16, 16, 17, 18, 19, 20, 21, 22)
DEFINE_WGMMA_REGISTERS(64, 32, 32, 33, 34, 35, 36, 37, 38)
DEFINE_WGMMA_REGISTERS(96, 48, 48, 49, 50, 51, 52, 53, 54)
DEFINE_WGMMA_REGISTERS(128, 64, 64, 65, 66, 67, 68, 69, 70)
DEFINE_WGMMA_REGISTERS(192, 96, 96, 97, 98, 99, 100, 101, 102)
DEFINE_WGMMA_REGISTERS(256, 128, 128, 129, 130, 131, 132, 133, 134)

/* Every warp of a group calls it, before its role's code. */
template <int REGISTERS> static __device__ __forceinline__ void registers_raise(void)
{
    WGMMA_BODY(asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS)));
}

template <int REGISTERS> static __device__ __forceinline__ void registers_lower(void)
{
    WGMMA_BODY(asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS)));
}

/* Barriers 1..15 among that many threads; 0 is __syncthreads. */
static __device__ __forceinline__ void named_barrier_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

static __device__ __forceinline__ void named_barrier_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#endif
