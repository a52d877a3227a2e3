/* moe_choose.cuh - a token's experts: scores of its logits, the best of them, and their weights. */
#ifndef KERNELS_CUDA_MOE_CHOOSE_CUH
#define KERNELS_CUDA_MOE_CHOOSE_CUH

#include <math.h>

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/load_kept.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/moe.cuh"

namespace
{

struct choose_args {
    const float *logits, *router_bias, *choice_bias, *score_factors;
    int32_t *choices;
    float *weights, *shared_weight;
    int32_t num_tokens, num_experts, num_rows, num_chosen; /* num_rows: of logits */
    bool normalize;
    float scale, near;
};

__device__ __forceinline__ float warp_sum(float x)
{
    for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
    return x;
}

__device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* A NaN counts as the least, and -0 as 0. */
__device__ __forceinline__ uint32_t rank_of(float key)
{
    uint32_t bits = __float_as_uint((key > -INFINITY ? key : -INFINITY) + 0.0f);
    return bits ^ ((int32_t)bits < 0 ? 0xffffffffu : 0x80000000u);
}

__device__ __forceinline__ float key_of(uint32_t rank)
{
    return __uint_as_float(rank ^ ((int32_t)rank < 0 ? 0x80000000u : 0xffffffffu));
}

/* x / sum of each, with the bits of a division, which has these steps, too. x: from 0 to 1; sum: from 1 on, or a NaN, which is that of
 * all the warp's. */
template <int N> __device__ __forceinline__ void divide(float (&x)[N], float sum)
{
    float guess = reciprocal_fast(sum), inverse = __fmaf_rn(guess, __fmaf_rn(-sum, guess, 1.0f), guess);
    bool is_small = false; /* rests are not exact */
#pragma unroll
    for (int i = 0; i < N; i++) is_small |= x[i] > 0 && x[i] < 0x1p-90f;
    if (is_small) {
#pragma unroll 1
        for (int i = 0; i < N; i++) {
            float first = x[0] / sum;
#pragma unroll
            for (int j = 0; j + 1 < N; j++) x[j] = x[j + 1];
            x[N - 1] = first;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        float quotient = x[i] * inverse;
        quotient = __fmaf_rn(__fmaf_rn(-quotient, sum, x[i]), inverse, quotient);
        x[i] = __fmaf_rn(__fmaf_rn(-quotient, sum, x[i]), inverse, quotient);
    }
}

/* Of a lane's experts, lane, lane + 32, ... */
template <int PER_LANE, typename CALL> __device__ __forceinline__ void for_experts_of_lane(CALL call)
{
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) call(i, (int32_t)threadIdx.x % 32 + 32 * i);
}

template <int PER_LANE>
__device__ __forceinline__ void load_logits(float (&to)[PER_LANE], const float *logits, int32_t num)
{
    for_experts_of_lane<PER_LANE>(
        [&](int i, int32_t e) { to[i] = e < num ? __ldcg(logits + e) : -INFINITY; });
}

/* Of a lane's experts; without biases -0, which changes no bit when it is added. Nobody's result: ahead of the dependency. */
template <int PER_LANE>
__device__ __forceinline__ void load_biases(float (&to)[PER_LANE], const float *biases, int32_t num)
{
    for_experts_of_lane<PER_LANE>([&](int i, int32_t) { to[i] = -0.0f; });
    if (biases)
        for_experts_of_lane<PER_LANE>([&](int i, int32_t e) { to[i] = load_kept(biases + min(e, num - 1)); });
}

template <int PER_LANE> struct lane_biases {
    float of_logit[PER_LANE], of_choice[PER_LANE];

    __device__ __forceinline__ lane_biases(const choose_args &a)
    {
        load_biases(of_logit, a.router_bias, a.num_experts);
        load_biases(of_choice, a.choice_bias, a.num_experts);
    }
};

/* What logits become, in a lane's registers; there are none behind the last expert, -INFINITY stands there. */
template <enum router_scores SCORES, int PER_LANE>
__device__ __forceinline__ void make_scores(float (&scores)[PER_LANE])
{
    uint32_t most = 0;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) most = max(most, rank_of(scores[i]));
    const float largest = key_of(__reduce_max_sync(0xffffffffu, most));
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        scores[i] = SCORES == ROUTER_SIGMOID ? sigmoid(scores[i]) : expf(scores[i] - largest);
        sum += scores[i];
    }
    if (SCORES == ROUTER_SOFTMAX) divide(scores, warp_sum(sum));
}

/* A lane's experts: how good each is, larger for better ones, 0 for one that may not be chosen. */
template <int PER_LANE> struct lane_experts {
    uint32_t rank[PER_LANE];

    /* hidden: a bit each. */
    __device__ __forceinline__ void rank_all(const float (&scores)[PER_LANE], const float (&biases)[PER_LANE],
                                             uint32_t hidden, int32_t num_experts)
    {
        for_experts_of_lane<PER_LANE>([&](int i, int32_t e) {
            bool can_be = e < num_experts && !(hidden >> i & 1);
            rank[i] = can_be ? rank_of(scores[i] + biases[i]) : 0;
        });
    }

    /* The best of the warp's, the lowest of equal ones. */
    __device__ __forceinline__ int32_t best(void) const
    {
        uint32_t most = rank[0];
        int32_t at = 0;
#pragma unroll
        for (int i = 1; i < PER_LANE; i++) {
            if (rank[i] > most) at = i;
            most = max(most, rank[i]);
        }
        uint32_t most_of_all = __reduce_max_sync(0xffffffffu, most);
        int32_t mine = (int32_t)threadIdx.x % 32 + 32 * at;
        return __reduce_min_sync(0xffffffffu, most == most_of_all ? mine : INT32_MAX);
    }

    __device__ __forceinline__ void take(int32_t expert)
    {
        for_experts_of_lane<PER_LANE>([&](int i, int32_t e) {
            if (e == expert) rank[i] = 0;
        });
    }
};

/* Of ROUTER_SPARSE. The order of logits says who was chosen before this one. */
__device__ __forceinline__ float sparse_weight(const float *scores, const choose_args &a, int32_t chosen)
{
    const float best = scores[chosen];
    float sum = 0;
#pragma unroll 1
    for (int e = 0; e < a.num_experts; e++) {
        const float logit = scores[e], far = (best - logit) / fmaxf(fabsf(logit), best);
        if (logit > best || (logit == best && e < chosen) || far > a.near) continue;
        sum += expf(logit - best);
    }
    return 1 / sum;
}

/* What a lane below num_chosen has: an expert, its weight, and its place among the chosen, in the order of experts. Others: INT32_MAX. */
struct lane_choice {
    int32_t expert, place;
    float weight;
};

/* By a warp, of 32 PER_LANE experts at most. scores: the lane's logits, then its scores; all: shared, of the warp, where scores go.
 * hidden(): the lane's experts that may not be chosen, a bit each, once scores are there. */
template <enum router_scores SCORES, int PER_LANE, typename HIDDEN>
__device__ __forceinline__ struct lane_choice
choose_experts(const choose_args &a, float *all, float (&scores)[PER_LANE],
               const lane_biases<PER_LANE> &biases, HIDDEN hidden)
{
    const int lane = threadIdx.x % 32;
    float sum = 0, last = 0; /* of a choice's, which comes after the next one is made */
    struct lane_choice mine = {INT32_MAX, 0, 0};
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) scores[i] += biases.of_logit[i];
    if constexpr (SCORES != ROUTER_SPARSE) make_scores<SCORES>(scores);
    for_experts_of_lane<PER_LANE>([&](int i, int32_t e) {
        if (e < a.num_experts) all[e] = scores[i];
    });
    __syncwarp();
    struct lane_experts<PER_LANE> left;
    left.rank_all(scores, biases.of_choice, hidden(), a.num_experts);
#pragma unroll 1
    for (int i = 0; i < a.num_chosen; i++) { /* lane i has the i-th choice */
        sum += last;
        int32_t best = left.best();
        last = SCORES == ROUTER_SPARSE ? sparse_weight(all, a, best) : all[best];
        if (lane == i) mine = {best, 0, last};
        left.take(best);
    }
    sum += last;
#pragma unroll 1
    for (int i = 0; i < a.num_chosen; i += 4)
#pragma unroll
        for (int j = 0; j < 4; j++) mine.place += __shfl_sync(0xffffffffu, mine.expert, i + j) < mine.expert;
    mine.weight = (a.normalize ? mine.weight / sum : mine.weight) * a.scale;
    if (a.score_factors && lane < a.num_chosen) mine.weight *= a.score_factors[mine.expert];
    __syncwarp(); /* what is shared may be the next token's */
    return mine;
}

} // namespace

#endif
