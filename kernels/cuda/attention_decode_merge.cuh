/* attention_fold.cuh - how the results of decode attention are added up: each row (a query head) has D values, the maximum of
 * its scores in log2 units, and the sum of its weights. A warp has whole rows, a lane four columns at a time. */
#ifndef KERNELS_CUDA_ATTENTION_FOLD_CUH
#define KERNELS_CUDA_ATTENTION_FOLD_CUH

#include "kernels/cuda/attention_decode.cuh"
#include "kernels/cuda/mma.cuh"

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

/* A lane's columns of one row's running result. */
template <int VECTORS> struct row_sum {
    float4 o[VECTORS];
    float m, l;
};

template <int D>
static __device__ __forceinline__ void row_read(struct row_sum<decode_traits<D>::VECTORS> *r,
                                                const float *from)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < decode_traits<D>::VECTORS; i++)
        if (D % 128 == 0 || 4 * lane < D) r->o[i] = *(const float4 *)(from + 128 * i + 4 * lane);
    float2 ml = *(const float2 *)(from + D);
    r->m = ml.x;
    r->l = ml.y;
}

template <int D>
static __device__ __forceinline__ void row_write(float *to,
                                                 const struct row_sum<decode_traits<D>::VECTORS> &r)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < decode_traits<D>::VECTORS; i++)
        if (D % 128 == 0 || 4 * lane < D) __stcg((float4 *)(to + 128 * i + 4 * lane), r.o[i]);
    if (lane == 0) __stcg((float2 *)(to + D), make_float2(r.m, r.l));
}

/* What a running result of maximum m and a new one of maximum x are scaled by when they are added: exactly 1 for the larger. */
struct factors {
    float a, b;
};

static __device__ __forceinline__ struct factors factors_of(float m, float x)
{
    float top = fmaxf(m, x), base = top == -INFINITY ? 0.0f : top;
    return factors{exp2_fast(__fsub_rn(m, base)), exp2_fast(__fsub_rn(x, base))};
}

/* Appends x to r. Spelled out, so that every place where it is inlined rounds alike. */
template <int VECTORS>
static __device__ __forceinline__ void row_add(struct row_sum<VECTORS> *r, const float4 *o, float l,
                                               const struct factors &f)
{
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        r->o[i].x = __fmaf_rn(r->o[i].x, f.a, __fmul_rn(o[i].x, f.b));
        r->o[i].y = __fmaf_rn(r->o[i].y, f.a, __fmul_rn(o[i].y, f.b));
        r->o[i].z = __fmaf_rn(r->o[i].z, f.a, __fmul_rn(o[i].z, f.b));
        r->o[i].w = __fmaf_rn(r->o[i].w, f.a, __fmul_rn(o[i].w, f.b));
    }
    r->l = __fmaf_rn(r->l, f.a, __fmul_rn(l, f.b));
}

template <int VECTORS>
static __device__ __forceinline__ void row_append(struct row_sum<VECTORS> *r,
                                                  const struct row_sum<VECTORS> &x)
{
    row_add(r, x.o, x.l, factors_of(r->m, x.m));
    r->m = fmaxf(r->m, x.m);
}

template <int D>
static __device__ __forceinline__ void row_write_out(__nv_bfloat16 *to,
                                                     const struct row_sum<decode_traits<D>::VECTORS> &r)
{
    int lane = threadIdx.x % 32;
    float scale = 1.0f / r.l;
#pragma unroll
    for (int i = 0; i < decode_traits<D>::VECTORS; i++) {
        uint2 packed = {pack_bf16(r.o[i].x * scale, r.o[i].y * scale),
                        pack_bf16(r.o[i].z * scale, r.o[i].w * scale)};
        if (D % 128 == 0 || 4 * lane < D) *(uint2 *)(to + 128 * i + 4 * lane) = packed;
    }
}

/* What the splits of a head have left in memory. */
struct partials {
    const float *first;
    int32_t floats, num_splits, rows; /* floats: from split to split */
};

/* One row's partial results, appended in order. All factors are known at once: lane i has those of split i, from the
 * maximum of the splits before. */
template <int D, int TILES>
static __device__ __forceinline__ void fold_row(const struct partials &p, int row, __nv_bfloat16 *out)
{
    using T = decode_traits<D>;
    constexpr int BATCH = 16 / T::VECTORS / TILES; /* splits whose values are fetched at a time */
    int lane = threadIdx.x % 32;
    const float *from = p.first + row * T::ROW_FLOATS;
    float4 o[BATCH][T::VECTORS];
    auto fetch = [&](int32_t begin) {
#pragma unroll
        for (int i = 0; i < BATCH; i++)
#pragma unroll
            for (int v = 0; v < T::VECTORS; v++)
                if (begin + i < p.num_splits && (D % 128 == 0 || 4 * lane < D))
                    o[i][v] =
                        __ldcg((const float4 *)(from + (size_t)(begin + i) * p.floats + 128 * v + 4 * lane));
    };
    float2 ml = {-INFINITY, 0};
    if (lane < p.num_splits) ml = __ldcg((const float2 *)(from + (size_t)lane * p.floats + D));
    fetch(0);
    float top = ml.x;
    for (int i = 1; i < 32; i *= 2) {
        float before = __shfl_up_sync(0xffffffffu, top, i);
        if (lane >= i) top = fmaxf(top, before);
    }
    float before = __shfl_up_sync(0xffffffffu, top, 1);
    struct factors f = factors_of(lane > 0 ? before : -INFINITY, ml.x);
    struct row_sum<T::VECTORS> sum;
    for (int v = 0; v < T::VECTORS; v++) sum.o[v] = o[0][v];
    sum.l = __shfl_sync(0xffffffffu, ml.y, 0);
    for (int32_t begin = 0; begin < p.num_splits; begin += BATCH) {
        if (begin > 0) fetch(begin);
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            if (begin + i == 0) continue;
            if (begin + i >= p.num_splits) break;
            struct factors g = {__shfl_sync(0xffffffffu, f.a, begin + i),
                                __shfl_sync(0xffffffffu, f.b, begin + i)};
            row_add(&sum, o[i], __shfl_sync(0xffffffffu, ml.y, begin + i), g);
        }
    }
    row_write_out<D>(out + row * D, sum);
}

/* A folder's rows of a head whose splits were walked by several CTAs: the last one to arrive folds them. */
template <int D, int TILES>
static __device__ void fold_partials(struct partials p, int32_t *counter, int32_t num_mine, int folder,
                                     __nv_bfloat16 *out)
{
    int32_t num_arrived = 0;
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        num_arrived = add_acquire_release(counter, num_mine) + num_mine;
        if (num_arrived == p.num_splits) *counter = 0;
    }
    num_arrived = __shfl_sync(0xffffffffu, num_arrived, 0);
    __syncwarp();
    if (num_arrived < p.num_splits) return;
#pragma unroll 1
    for (int row = folder; row < p.rows; row += DECODE_FOLDERS) fold_row<D, TILES>(p, row, out);
}

#endif
