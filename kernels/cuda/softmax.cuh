/* softmax.cuh - the online softmax of attention: what a row keeps of the scores that it has seen, so that more may follow. The
 * row's accumulators, sums of weighted values, go with it and are multiplied by the same factors.
 *
 * Spelled out in roundings, so that every place where it is inlined has the same bits. A row that has seen nothing has the
 * maximum -infinity and the sum 0; it adds nothing to another one. */
#ifndef KERNELS_CUDA_SOFTMAX_CUH
#define KERNELS_CUDA_SOFTMAX_CUH

#include <math.h>

#include "kernels/cuda/mma.cuh"

struct softmax_state {
    float maximum; /* of the scores */
    float sum;     /* of the weights, 2 to the power of (score - maximum) in log2 units */
};

/* What scores are compared with: a row that has seen nothing must not compute infinity - infinity. */
static __device__ __forceinline__ float softmax_base(float maximum)
{
    return maximum == -INFINITY ? 0.0f : maximum;
}

/* What two states are multiplied by when they become one: exactly 1 for that of the larger maximum. */
struct merge_factors {
    float first, second;
};

/* Of two maxima in log2 units. */
static __device__ __forceinline__ struct merge_factors merge_factors_of(float first, float second)
{
    float base = softmax_base(fmaxf(first, second));
    return merge_factors{exp2_fast(__fsub_rn(first, base)), exp2_fast(__fsub_rn(second, base))};
}

/* A sum, or an element of an accumulator, of both. */
static __device__ __forceinline__ float merge(float first, float second, const struct merge_factors &f)
{
    return __fmaf_rn(first, f.first, __fmul_rn(second, f.second));
}

/* Takes in a tile whose weights are computed from the new maximum, which is not below the old one. Returns what the sum and
 * the accumulators are to be multiplied by: exactly 1 where the maximum stays. scale_log2: from scores to log2 units. */
static __device__ __forceinline__ float softmax_raise(struct softmax_state *s, float maximum,
                                                      float scale_log2)
{
    float factor = exp2_fast(__fmul_rn(__fsub_rn(s->maximum, softmax_base(maximum)), scale_log2));
    s->maximum = maximum;
    return factor;
}

/* Of a finished row: its sum with that of a sink, a score in log2 units that has no value. base: the row's maximum in these
 * units. sinks: of all heads, as the model has them; NULL: none. A sink far above all scores leaves nothing of
 * them. */
static __device__ __forceinline__ float softmax_with_sink(float sum, float base, const float *sinks,
                                                          int32_t head)
{
    return sinks ? __fadd_rn(sum, exp2_fast(__fsub_rn(__fmul_rn(sinks[head], 1.4426950408889634f), base)))
                 : sum;
}

/* tanh(score * factor): what a soft cap makes of a score, in units of the cap. */
static __device__ __forceinline__ float softcap_score(float score, float factor)
{
    return tanh_fast(__fmul_rn(score, factor));
}

/* Over the four lanes that share a row of a product's C (mma.cuh). */
static __device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

static __device__ __forceinline__ float quad_sum(float x)
{
    x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/* Scores of two rows become weights; s as a product's C has them (wgmma.cuh): s[i] is of row i / 2 % 2, and a quad has all of a row. rescale:
 * what the rows' accumulators are to be multiplied by. scale: from a row's scores to log2 units, by []. */
template <int N, class SCALE>
static __device__ __forceinline__ void softmax(float (&s)[N], struct softmax_state (&r)[2],
                                               float (&rescale)[2], const SCALE &scale)
{
    float top[2][2] = {{r[0].maximum, -INFINITY}, {r[1].maximum, -INFINITY}}, sum[2][2] = {};
#pragma unroll
    for (int i = 0; i < N; i++) top[i / 2 % 2][i % 2] = fmaxf(top[i / 2 % 2][i % 2], s[i]);
    float base[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float maximum = quad_max(fmaxf(top[i][0], top[i][1]));
        base[i] = -__fmul_rn(softmax_base(maximum), scale[i]);
        rescale[i] = softmax_raise(&r[i], maximum, scale[i]);
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        s[i] = exp2_fast(__fmaf_rn(s[i], scale[i / 2 % 2], base[i / 2 % 2]));
        sum[i / 2 % 2][i % 2] = __fadd_rn(sum[i / 2 % 2][i % 2], s[i]);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) r[i].sum = __fmaf_rn(r[i].sum, rescale[i], __fadd_rn(sum[i][0], sum[i][1]));
}

template <int N>
static __device__ __forceinline__ void pack_weights(uint32_t (&p)[N / 2], const float (&s)[N])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) p[i] = pack_bf16(s[2 * i], s[2 * i + 1]);
}

#endif
