/* moe_choose.cuh - a token's experts: scores of its logits, the best of them, and their weights. */
#ifndef KERNELS_CUDA_MOE_CHOOSE_CUH
#define KERNELS_CUDA_MOE_CHOOSE_CUH

#include <math.h>

#include "kernels/cuda/moe.cuh"

namespace
{

struct choose_args {
    const float *logits, *router_bias, *choice_bias;
    int32_t *choices;
    float *weights, *shared_weight;
    int32_t num_tokens, num_experts, num_rows, num_chosen; /* num_rows: of logits */
    enum router_scores scores;
    bool normalize;
    float scale, near;
};

__device__ __forceinline__ float warp_max(float x)
{
    for (int mask = 16; mask > 0; mask /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, mask));
    return x;
}

__device__ __forceinline__ float warp_sum(float x)
{
    for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
    return x;
}

__device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Of logits that may have been written by other CTAs of the kernel. A lane's experts are lane, lane + 32, ... SPARSE: logits are
 * scores (ROUTER_SPARSE). */
template <bool SPARSE>
__device__ void make_scores(float *scores, const float *logits, const choose_args &a, int lane)
{
    constexpr int BATCH = 4; /* that are asked for at a time */
    float largest = -INFINITY, sum = 0;
    for (int first = lane; first < a.num_experts; first += 32 * BATCH) {
        float batch[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            batch[i] = first + 32 * i < a.num_experts ? __ldcg(logits + first + 32 * i) : 0.0f;
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            int e = first + 32 * i;
            if (e >= a.num_experts) continue;
            scores[e] = a.router_bias ? batch[i] + a.router_bias[e] : batch[i];
            largest = fmaxf(largest, scores[e]);
        }
    }
    if (SPARSE) return;
    largest = warp_max(largest);
    for (int e = lane; e < a.num_experts; e += 32) {
        scores[e] = a.scores == ROUTER_SIGMOID ? sigmoid(scores[e]) : expf(scores[e] - largest);
        sum += scores[e];
    }
    sum = warp_sum(sum);
    for (int e = lane; e < a.num_experts && a.scores == ROUTER_SOFTMAX; e += 32) scores[e] /= sum;
}

/* A NaN counts as the least, and -0 as 0. */
__device__ __forceinline__ uint32_t rank_of(float key)
{
    uint32_t bits = __float_as_uint((key > -INFINITY ? key : -INFINITY) + 0.0f);
    return bits ^ ((int32_t)bits < 0 ? 0xffffffffu : 0x80000000u);
}

/* A lane's experts, lane, lane + 32, ...: how good each is, larger for better ones, 0 for one that may not be chosen. */
template <int PER_LANE> struct lane_experts {
    uint32_t rank[PER_LANE];

    /* hidden: a bit each. */
    __device__ __forceinline__ void rank_all(const float *scores, uint32_t hidden, const choose_args &a)
    {
        int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            int e = lane + 32 * i;
            bool can_be = e < a.num_experts && !(hidden >> i & 1);
            rank[i] = can_be ? rank_of(scores[e] + (a.choice_bias ? a.choice_bias[e] : 0.0f)) : 0;
        }
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
#pragma unroll
        for (int i = 0; i < PER_LANE; i++)
            if (expert == (int32_t)threadIdx.x % 32 + 32 * i) rank[i] = 0;
    }
};

/* Of ROUTER_SPARSE. The order of logits says who was chosen before this one. */
__device__ float sparse_weight(const float *scores, const choose_args &a, int32_t chosen)
{
    const float best = scores[chosen];
    float sum = 0;
    for (int e = 0; e < a.num_experts; e++) {
        const float logit = scores[e], far = (best - logit) / fmaxf(fabsf(logit), best);
        if (logit > best || (logit == best && e < chosen) || far > a.near) continue;
        sum += expf(logit - best);
    }
    return 1 / sum;
}

/* By a warp, of 32 PER_LANE experts at most. Returns what lane i, i < num_chosen, has chosen, in no order; choices and weights are stored in the order of experts.
 * scores: shared, of the warp. hidden(): the lane's experts that may not be chosen, a bit each, once scores are there. */
template <bool SPARSE, int PER_LANE, typename HIDDEN>
__device__ __forceinline__ int32_t choose_experts(const choose_args &a, float *scores, int32_t token,
                                                  HIDDEN hidden)
{
    int lane = threadIdx.x % 32;
    float sum = 0;
    const float *logits = a.logits + (size_t)token * a.num_rows;
    make_scores<SPARSE>(scores, logits, a, lane);
    __syncwarp();
    struct lane_experts<PER_LANE> left;
    left.rank_all(scores, hidden(), a);
    int32_t mine = INT32_MAX; /* lane i has the i-th choice */
    for (int i = 0; i < a.num_chosen; i++) {
        int32_t best = left.best();
        if (lane == i) mine = best;
        sum += SPARSE ? sparse_weight(scores, a, best) : scores[best];
        left.take(best);
    }
    int place = 0; /* among the chosen, in the order of experts */
    for (int i = 0; i < a.num_chosen; i++) place += __shfl_sync(0xffffffffu, mine, i) < mine;
    if (lane < a.num_chosen) {
        size_t at = (size_t)token * a.num_chosen + place;
        a.choices[at] = mine;
        float weight = SPARSE ? sparse_weight(scores, a, mine) : scores[mine];
        a.weights[at] = (a.normalize ? weight / sum : weight) * a.scale;
    }
    if (a.shared_weight && lane == 0) a.shared_weight[token] = sigmoid(__ldcg(logits + a.num_experts));
    __syncwarp(); /* scores may be the next token's */
    return mine;
}

} // namespace

#endif
