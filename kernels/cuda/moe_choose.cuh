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

/* In shared memory, of a warp. */
struct choose_room {
    float scores[MOE_EXPERTS_MAX];
    bool taken[MOE_EXPERTS_MAX];
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
    float largest = -INFINITY, sum = 0;
    for (int e = lane; e < a.num_experts; e += 32) {
        scores[e] = __ldcg(logits + e);
        if (a.router_bias) scores[e] += a.router_bias[e];
        largest = fmaxf(largest, scores[e]);
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

/* The best of the experts that are not taken, the lowest of equal ones; a NaN counts as the least. */
__device__ int best_other(const float *scores, const bool *taken, const choose_args &a, int lane)
{
    float best = -INFINITY;
    int index = INT32_MAX;
    for (int e = lane; e < a.num_experts; e += 32) {
        if (taken[e]) continue;
        float key = scores[e] + (a.choice_bias ? a.choice_bias[e] : 0.0f);
        if (index < INT32_MAX && !(key > best)) continue;
        best = key > -INFINITY ? key : -INFINITY;
        index = e;
    }
    for (int mask = 16; mask > 0; mask /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, best, mask);
        int other_index = __shfl_xor_sync(0xffffffffu, index, mask);
        if (other_index == INT32_MAX) continue;
        if (index == INT32_MAX || other > best || (other == best && other_index < index)) {
            best = other;
            index = other_index;
        }
    }
    return index;
}

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

/* By a warp. Returns what lane i, i < num_chosen, has chosen, in no order; choices and weights are stored in the order of experts.
 * hide: takes experts that may not be chosen, once their scores are there. */
template <bool SPARSE, typename HIDE>
__device__ __forceinline__ int32_t choose_experts(const choose_args &a, struct choose_room *room,
                                                  int32_t token, HIDE hide)
{
    int lane = threadIdx.x % 32;
    float *scores = room->scores, sum = 0;
    bool *taken = room->taken;
    const float *logits = a.logits + (size_t)token * a.num_rows;
    for (int e = lane; e < a.num_experts; e += 32) taken[e] = false;
    make_scores<SPARSE>(scores, logits, a, lane);
    __syncwarp();
    hide(room);
    int32_t mine = INT32_MAX; /* lane i has the i-th choice */
    for (int i = 0; i < a.num_chosen; i++) {
        int best = best_other(scores, taken, a, lane);
        if (lane == i) mine = best;
        sum += SPARSE ? sparse_weight(scores, a, best) : scores[best];
        __syncwarp();
        if (lane == 0) taken[best] = true;
        __syncwarp();
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
    __syncwarp(); /* the room may have its next token */
    return mine;
}

} // namespace

#endif
