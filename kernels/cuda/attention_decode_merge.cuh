/* attention_decode_merge.cuh - how partial results of decode attention become one: each row (a query head) has D values and the
 * state of its softmax, whose maximum is in log2 units. A warp has whole rows, a lane four columns at a time. */
#ifndef KERNELS_CUDA_ATTENTION_DECODE_MERGE_CUH
#define KERNELS_CUDA_ATTENTION_DECODE_MERGE_CUH

#include "kernels/cuda/arrival.cuh"
#include "kernels/cuda/attention_decode.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/softmax.cuh"

/* Where the results of a head of a sequence go. */
struct destination {
    float *partial;    /* of its first row */
    size_t row_floats; /* from a row of a bundle to the next one */
    int32_t *counters;
    __nv_bfloat16 *out;
    int32_t first_head;
};

template <int D>
static __device__ __forceinline__ struct destination
destination_of(const decode_args &a, int32_t seq, int32_t head, int32_t token, int32_t first_head)
{
    size_t at = (size_t)seq * a.seq_heads + head, floats = (size_t)SPLITS_MAX * a.partial_floats;
    return {a.partial + at * floats, a.seq_heads * floats, a.counters + at * MERGE_WARPS,
            a.out + ((size_t)token * a.num_heads + first_head) * D, first_head};
}

/* A lane's columns of one row's running result. */
template <int VECTORS> struct row_result {
    float4 o[VECTORS];
    struct softmax_state softmax;
};

template <int D>
static __device__ __forceinline__ void row_read(struct row_result<decode_traits<D>::VECTORS> *r,
                                                const float *from)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < decode_traits<D>::VECTORS; i++)
        if (D % 128 == 0 || 4 * lane < D) r->o[i] = *(const float4 *)(from + 128 * i + 4 * lane);
    float2 state = *(const float2 *)(from + D);
    r->softmax.maximum = state.x;
    r->softmax.sum = state.y;
}

template <int D>
static __device__ __forceinline__ void row_write(float *to,
                                                 const struct row_result<decode_traits<D>::VECTORS> &r)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < decode_traits<D>::VECTORS; i++)
        if (D % 128 == 0 || 4 * lane < D) __stcg((float4 *)(to + 128 * i + 4 * lane), r.o[i]);
    if (lane == 0) __stcg((float2 *)(to + D), make_float2(r.softmax.maximum, r.softmax.sum));
}

/* r becomes the values and the sum of both; its maximum is the caller's. */
template <int VECTORS>
static __device__ __forceinline__ void row_merge_by(struct row_result<VECTORS> *r, const float4 *o, float sum,
                                                    const struct merge_factors &f)
{
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        r->o[i].x = merge(r->o[i].x, o[i].x, f);
        r->o[i].y = merge(r->o[i].y, o[i].y, f);
        r->o[i].z = merge(r->o[i].z, o[i].z, f);
        r->o[i].w = merge(r->o[i].w, o[i].w, f);
    }
    r->softmax.sum = merge(r->softmax.sum, sum, f);
}

/* r becomes the result of both: x comes behind it in the sequence. */
template <int VECTORS>
static __device__ __forceinline__ void row_merge(struct row_result<VECTORS> *r,
                                                 const struct row_result<VECTORS> &x)
{
    row_merge_by(r, x.o, x.softmax.sum, merge_factors_of(r->softmax.maximum, x.softmax.maximum));
    r->softmax.maximum = fmaxf(r->softmax.maximum, x.softmax.maximum);
}

template <int D, bool EXTRA>
static __device__ __forceinline__ void row_write_out(__nv_bfloat16 *to,
                                                     const struct row_result<decode_traits<D>::VECTORS> &r,
                                                     const float *sinks, int32_t head)
{
    int lane = threadIdx.x % 32;
    float sum = r.softmax.sum;
    if (EXTRA) sum = softmax_with_sink(sum, r.softmax.maximum, sinks, head);
    float scale = 1.0f / sum;
#pragma unroll
    for (int i = 0; i < decode_traits<D>::VECTORS; i++) {
        uint2 packed = {pack_bf16(r.o[i].x * scale, r.o[i].y * scale),
                        pack_bf16(r.o[i].z * scale, r.o[i].w * scale)};
        if (D % 128 == 0 || 4 * lane < D) *(uint2 *)(to + 128 * i + 4 * lane) = packed;
    }
}

/* What the splits of a head have left in memory: rows of D values, maximum, sum. A bundle's rows stand apart, each where it would alone. */
struct partials {
    const float *first;
    int32_t floats, num_splits, rows; /* floats: from split to split */
    int32_t group, num_heads;
    size_t row_floats; /* from a row of a bundle to the next one */
};

/* One row's partial results, merged in order. All factors are known at once: lane i has those of split i, from the
 * maximum of the splits before. BATCH: splits whose values are fetched at a time, MOST: that there may be. */
template <int D, int BATCH, int MOST, bool EXTRA, bool BUNDLES>
static __device__ __forceinline__ void merge_row(const struct partials &p, int row, __nv_bfloat16 *out,
                                                 const float *sinks, int32_t first_head)
{
    using T = decode_traits<D>;
    int lane = threadIdx.x % 32;
    struct tile_row r = tile_row_of<BUNDLES>(p.group, row);
    const float *from = p.first + r.row * p.row_floats + r.head * T::ROW_FLOATS;
    float4 o[BATCH][T::VECTORS];
    auto fetch = [&](int32_t begin) {
        const float *at = from + (size_t)begin * p.floats + 4 * lane;
#pragma unroll
        for (int i = 0; i < BATCH; i++, at += p.floats)
#pragma unroll
            for (int v = 0; v < T::VECTORS; v++)
                if (begin + i < p.num_splits && (D % 128 == 0 || 4 * lane < D))
                    o[i][v] = __ldcg((const float4 *)(at + 128 * v));
    };
    float2 ml = {-INFINITY, 0};
    if (lane < p.num_splits) ml = __ldcg((const float2 *)(from + (size_t)lane * p.floats + D));
    fetch(0);
    float top = ml.x;
    for (int i = 1; i < MOST; i *= 2) {
        float before = __shfl_up_sync(0xffffffffu, top, i);
        if (lane >= i) top = fmaxf(top, before);
    }
    float before = __shfl_up_sync(0xffffffffu, top, 1);
    struct merge_factors f = merge_factors_of(lane > 0 ? before : -INFINITY, ml.x);
    struct row_result<T::VECTORS> sum;
    for (int v = 0; v < T::VECTORS; v++) sum.o[v] = o[0][v];
    sum.softmax.sum = __shfl_sync(0xffffffffu, ml.y, 0);
    if (EXTRA) sum.softmax.maximum = __shfl_sync(0xffffffffu, top, MOST - 1);
    int32_t begin = 0;
    do {
        if (begin > 0) fetch(begin);
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            if (begin + i == 0) continue;
            if (begin + i >= p.num_splits) break;
            struct merge_factors g = {__shfl_sync(0xffffffffu, f.first, begin + i),
                                      __shfl_sync(0xffffffffu, f.second, begin + i)};
            row_merge_by(&sum, o[i], __shfl_sync(0xffffffffu, ml.y, begin + i), g);
        }
        begin += BATCH;
    } while (BATCH < MOST && begin < p.num_splits);
    row_write_out<D, EXTRA>(out + (r.row * p.num_heads + r.head) * D, sum, sinks, first_head + r.head);
}

/* A warp's rows of a head whose splits were walked by several CTAs: the last one to arrive merges them. */
template <int D, int BATCH, int MOST, bool EXTRA, bool BUNDLES>
static __device__ void merge_partials(struct partials p, int32_t *counter, int32_t num_mine, int warp,
                                      __nv_bfloat16 *out, const float *sinks, int32_t first_head)
{
    if (!arrives_last(counter, num_mine, p.num_splits)) return;
#pragma unroll 1
    for (int row = warp; row < p.rows; row += MERGE_WARPS)
        merge_row<D, BATCH, MOST, EXTRA, BUNDLES>(p, row, out, sinks, first_head);
}

#endif
