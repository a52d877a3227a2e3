/* moe_routing.cu - who goes to which expert.
 *
 *   logits    x router^T in f32 (moe_logits.cuh), or by fused multiply-adds where the router is not of bf16
 *   choose    a warp a token: the best num_chosen, in the order of experts; pairs are counted
 *   group     each expert's first row, and tiles
 *   gather    a token's pairs get their rows, and x is copied there
 *
 * Up to MOE_SHARED_TOKENS tokens nothing is gathered: each chosen expert gets a row for every token, computes them all, and the pairs are
 * those that are asked for. The last CTA of the logits waits for those of the others, in memory, chooses and groups then: it is the last
 * one to begin, and the others wait for nobody.
 *
 * Where among an expert's rows a pair stands changes nothing of its results, which are sums along K in order. So atomics may
 * place the pairs as they come: a token's bits do not depend on who else chose its experts. */
#include <type_traits>

#include "kernels/cuda/bf16.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/moe.cuh"
#include "kernels/cuda/moe_choose.cuh"
#include "kernels/cuda/moe_logits.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace
{

enum {
    WARPS = 4,
    THREADS = WARPS * 32,
    FMA_TOKENS = 8, /* that share what is read of the router */
    GATHER_THREADS = 256,
    WIDE_TOKENS = 512, /* from so many on a CTA has more logits */
};

static_assert((int)WARPS == (int)LOGIT_SLICES, "a warp a slice");

/* Expert blockIdx.y * WARPS + warp, for FMA_TOKENS tokens. The last row may be the shared expert's gate. */
__global__ void __launch_bounds__(THREADS)
    fma_logits_kernel(float *logits, const __nv_bfloat16 *x, const float *router, int32_t num_rows,
                      int32_t hidden, int32_t num_tokens)
{
    int expert = blockIdx.y * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    int32_t first = blockIdx.x * FMA_TOKENS;
    if (expert >= num_rows) return;
    float sum[FMA_TOKENS] = {};
    dependency_wait();
    for (int i = 4 * lane; i < hidden; i += 4 * 32) {
        float4 w = *(const float4 *)(router + (size_t)expert * hidden + i);
#pragma unroll
        for (int t = 0; t < FMA_TOKENS; t++) {
            if (first + t >= num_tokens) break;
            float4 v = load_bf16x4(x + (size_t)(first + t) * hidden + i);
            sum[t] = __fmaf_rn(v.x, w.x, sum[t]);
            sum[t] = __fmaf_rn(v.y, w.y, sum[t]);
            sum[t] = __fmaf_rn(v.z, w.z, sum[t]);
            sum[t] = __fmaf_rn(v.w, w.w, sum[t]);
        }
    }
#pragma unroll
    for (int t = 0; t < FMA_TOKENS; t++) {
        float total = sum[t];
        for (int mask = 16; mask > 0; mask /= 2) total += __shfl_xor_sync(0xffffffffu, total, mask);
        if (lane == 0 && first + t < num_tokens) logits[(size_t)(first + t) * num_rows + expert] = total;
    }
}

/* By a CTA of a warp a slice. */
template <int ROWS, int COLS>
__device__ __forceinline__ void store_logits_tile(const float (&sums)[ROWS][COLS][4], const logit_args &a)
{
    using tile_of_cta = logit_tile<ROWS, COLS>;
    __shared__ __align__(8) tile_of_cta tile;
    tile.put(threadIdx.x / 32, sums);
    __syncthreads();
    tile.add(a, threadIdx.x, [&](int32_t token, int32_t expert, float logit) {
        a.logits[(size_t)token * a.num_experts + expert] = logit;
    });
}

/* Of a step's tokens, fewer than WIDE_TOKENS. */
__global__ void __launch_bounds__(THREADS) logits_kernel(logit_args a)
{
    const int32_t slice = threadIdx.x / 32, first_expert = blockIdx.y * LOGIT_EXPERTS;
    float sums[1][1][4] = {};
    uint4 w[LOGIT_BATCH];
    dependents_launch();
    load_logit_weights(w, a, slice, first_expert, 0);
    dependency_wait();
    sum_logit_slice(sums, a, slice, blockIdx.x * LOGIT_ROWS, first_expert, w);
    store_logits_tile<1, 1>(sums, a);
}

template <int ROWS, int COLS> __global__ void __launch_bounds__(THREADS) wide_logits_kernel(logit_args a)
{
    float sums[ROWS][COLS][4] = {};
    dependents_launch();
    dependency_wait();
    sum_wide_logit_slice<ROWS, COLS>(sums, a, blockIdx.x * LOGIT_ROWS * ROWS,
                                     blockIdx.y * LOGIT_EXPERTS * COLS);
    store_logits_tile<ROWS, COLS>(sums, a);
}

/* Experts of a lane where a warp chooses: few of them where that will do. */
enum { PER_LANE_LEAST = 4, PER_LANE_FEW = 8, PER_LANE_MAX = MOE_EXPERTS_MAX / 32 };

/* A warp of its own for each token: CTAs that wait for their dependency are put where there is room, many of them on one SM, whose warps
 * then have to share its schedulers. Shared memory: the token's scores. */
template <enum router_scores SCORES, int PER_LANE, typename HIDDEN>
__device__ __forceinline__ void choose_token(const choose_args &a, float *all, int32_t *counts, HIDDEN hidden)
{
    const size_t token = blockIdx.x;
    const float *logits = a.logits + token * a.num_rows;
    float scores[PER_LANE];
    dependents_launch();
    const lane_biases<PER_LANE> biases(a);
    dependency_wait();
    load_logits(scores, logits, a.num_experts);
    const lane_choice mine = choose_experts<SCORES>(a, all, scores, biases, hidden);
    if ((int32_t)threadIdx.x < a.num_chosen) {
        const size_t at = token * a.num_chosen + mine.place;
        a.choices[at] = mine.expert;
        a.weights[at] = mine.weight;
        atomicAdd(&counts[mine.expert], 1);
    }
    if (a.shared_weight && threadIdx.x == 0) a.shared_weight[token] = sigmoid(__ldcg(logits + a.num_experts));
}

template <enum router_scores SCORES, int PER_LANE>
__global__ void choose_kernel(choose_args a, int32_t *counts)
{
    extern __shared__ __align__(16) unsigned char shared[];
    choose_token<SCORES, PER_LANE>(a, (float *)shared, counts, [] { return 0u; });
}

struct choose_groups_args {
    choose_args choose;
    int32_t num_groups, num_chosen_groups;
    bool by_two;
};

/* How good a group is: its best, or the sum of its best two. */
__device__ float score_of_group(const float *scores, const choose_groups_args &a, int32_t group)
{
    const int32_t size = a.choose.num_experts / a.num_groups;
    float best = -INFINITY, second = -INFINITY;
    for (int32_t e = group * size; e < (group + 1) * size; e++) {
        float key = scores[e] + (a.choose.choice_bias ? a.choose.choice_bias[e] : 0.0f);
        if (key > best) {
            second = best;
            best = key;
        } else if (key > second) {
            second = key;
        }
    }
    return a.by_two ? best + second : best;
}

/* A group is hidden if there are as many better ones as are wanted; of equal ones the lower is better. */
__device__ bool is_group_hidden(const float *groups, const choose_groups_args &a, int32_t group)
{
    int32_t num_better = 0;
    for (int32_t h = 0; h < a.num_groups; h++)
        num_better += groups[h] > groups[group] || (groups[h] == groups[group] && h < group);
    return num_better >= a.num_chosen_groups;
}

/* The lane's experts in hidden groups, a bit each. groups: shared, of the warp. */
__device__ uint32_t hidden_by_groups(const float *scores, float *groups, const choose_groups_args &a)
{
    const int32_t size = a.choose.num_experts / a.num_groups, lane = threadIdx.x % 32;
    uint32_t hidden = 0;
    for (int32_t g = lane; g < a.num_groups; g += 32) groups[g] = score_of_group(scores, a, g);
    __syncwarp();
    for (int32_t e = lane; e < a.choose.num_experts; e += 32)
        hidden |= (uint32_t)is_group_hidden(groups, a, e / size) << e / 32;
    return hidden;
}

template <enum router_scores SCORES, int PER_LANE>
__global__ void choose_groups_kernel(choose_groups_args a, int32_t *counts)
{
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ float of_groups[MOE_GROUPS_MAX];
    float *scores = (float *)shared;
    choose_token<SCORES, PER_LANE>(a.choose, scores, counts,
                                   [&] { return hidden_by_groups(scores, of_groups, a); });
}

struct group_args {
    int32_t *counts, *next, *num_tiles;
    struct moe_tile *tiles;
    int32_t num_experts, tile_rows;
};

/* One CTA, thread e for expert e: where each expert's rows and tiles begin. */
__global__ void __launch_bounds__(MOE_EXPERTS_MAX) group_kernel(group_args a)
{
    __shared__ uint64_t ends[MOE_EXPERTS_MAX]; /* of this expert and all before: rows low, tiles high */
    int e = threadIdx.x;
    bool exists = e < a.num_experts;
    dependency_wait();
    int32_t count = exists ? a.counts[e] : 0;
    if (exists) a.counts[e] = 0;
    int32_t num_tiles = (count + a.tile_rows - 1) / a.tile_rows;
    int32_t num_rows = (count + MOE_GROUP_ROWS - 1) / MOE_GROUP_ROWS * MOE_GROUP_ROWS;
    ends[e] = (uint64_t)num_tiles << 32 | (uint32_t)num_rows;
    for (int step = 1; step < (int)blockDim.x; step *= 2) {
        __syncthreads();
        uint64_t before = e >= step ? ends[e - step] : 0;
        __syncthreads();
        ends[e] += before;
    }
    int32_t first = (int32_t)(uint32_t)ends[e] - num_rows, first_tile = (int32_t)(ends[e] >> 32) - num_tiles;
    for (int32_t i = 0; i < num_tiles; i++)
        a.tiles[first_tile + i] = {e, first + i * a.tile_rows, min(count - i * a.tile_rows, a.tile_rows)};
    if (exists) a.next[e] = first;
    if (e == a.num_experts - 1) *a.num_tiles = (int32_t)(ends[e] >> 32);
}

struct gather_args {
    uint4 *out; /* [rows][num_vectors] */
    const uint4 *x;
    const int32_t *choices;
    int32_t *next, *rows;
    int32_t num_chosen, num_vectors;
    float *scales; /* [num_scales][pitch] */
    const float *x_scales;
    int32_t num_scales, pitch, x_pitch; /* num_scales 0: rows have none */
};

/* A CTA a token. */
__global__ void __launch_bounds__(GATHER_THREADS) gather_kernel(gather_args a)
{
    __shared__ int32_t rows[MOE_CHOSEN_MAX];
    size_t token = blockIdx.x, pair = token * a.num_chosen + threadIdx.x;
    dependents_launch();
    dependency_wait();
    if ((int32_t)threadIdx.x < a.num_chosen)
        a.rows[pair] = rows[threadIdx.x] = atomicAdd(&a.next[a.choices[pair]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < a.num_vectors; i += GATHER_THREADS) {
        uint4 v = a.x[token * a.num_vectors + i];
        for (int c = 0; c < a.num_chosen; c++) a.out[(size_t)rows[c] * a.num_vectors + i] = v;
    }
    for (int i = threadIdx.x; i < a.num_scales; i += GATHER_THREADS) {
        float v = a.x_scales[(size_t)i * a.x_pitch + token];
        for (int c = 0; c < a.num_chosen; c++) a.scales[(size_t)i * a.pitch + rows[c]] = v;
    }
}

/* ---- few tokens ---- */

using logits_tile = logit_tile<1, 1>;

struct few_args {
    logit_args logits; /* to where NOT_THERE stands between launches */
    choose_args choose;
    int32_t *rows, *num_tiles;
    struct moe_tile *tiles;
};

/* No logit has these bits: a NaN of ours has others. */
enum { NOT_THERE = -1 };

/* For the CTA that chooses, which waits for the word itself. */
__device__ __forceinline__ void publish(float *to, float logit)
{
    *(volatile int32_t *)to = __float_as_int(logit == logit ? logit : NAN);
}

/* Takes a lane's logits when all of the warp's are there, and leaves NOT_THERE. */
template <int PER_LANE>
__device__ __forceinline__ void await_logits(float (&to)[PER_LANE], float *logits, int32_t num)
{
    volatile int32_t *from = (volatile int32_t *)logits;
    bool is_missing;
    do {
        is_missing = false;
        for_experts_of_lane<PER_LANE>([&](int i, int32_t e) {
            int32_t word = e < num ? from[e] : __float_as_int(-INFINITY);
            is_missing |= word == NOT_THERE;
            to[i] = __int_as_float(word);
        });
    } while (__ballot_sync(0xffffffffu, is_missing));
    for_experts_of_lane<PER_LANE>([&](int i, int32_t e) {
        if (e < num) from[e] = NOT_THERE;
    });
}

/* Tiles of the experts that anybody chose, MOE_GROUP_ROWS rows each. places: for each expert, 1 where it was chosen; its
 * place among them when this returns. By a CTA. */
__device__ __forceinline__ void place_experts(int32_t *places, const few_args &a)
{
    __shared__ int32_t counts[WARPS];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int32_t num_before = 0;
#pragma unroll 1
    for (int32_t first = 0; first < a.choose.num_experts; first += THREADS) {
        int32_t e = first + threadIdx.x;
        bool chosen = e < a.choose.num_experts && places[e];
        uint32_t mask = __ballot_sync(0xffffffffu, chosen);
        if (lane == 0) counts[warp] = __popc(mask);
        __syncthreads();
        int32_t place = num_before + __popc(mask & ((1u << lane) - 1));
        for (int w = 0; w < WARPS; w++) {
            place += w < warp ? counts[w] : 0;
            num_before += counts[w];
        }
        if (chosen) {
            places[e] = place;
            a.tiles[place] = {e, place * MOE_GROUP_ROWS, a.choose.num_tokens};
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) *a.num_tiles = num_before;
}

/* Of all tokens' experts. places: shared, 1 for each that was chosen. By a CTA. */
__device__ __forceinline__ void group_few(int32_t *places, const few_args &a)
{
    __syncthreads();
    place_experts(places, a);
    __syncthreads();
    for (int32_t pair = threadIdx.x; pair < a.choose.num_tokens * a.choose.num_chosen; pair += THREADS)
        a.rows[pair] = places[a.choose.choices[pair]] * MOE_GROUP_ROWS + pair / a.choose.num_chosen;
}

/* By a warp. IS_ONE: there is no other token, and the experts' places are known. */
template <bool IS_ONE, enum router_scores SCORES, int PER_LANE>
__device__ __forceinline__ void choose_few(const few_args &a, int32_t token, float *all, int32_t *places,
                                           const lane_biases<PER_LANE> &biases)
{
    const choose_args &c = a.choose;
    const int32_t lane = threadIdx.x % 32;
    float *logits = a.logits.logits + (size_t)token * c.num_rows, scores[PER_LANE];
    await_logits(scores, logits, c.num_experts);
    const lane_choice mine = choose_experts<SCORES>(c, all, scores, biases, [] { return 0u; });
    if (lane < c.num_chosen) {
        const size_t at = (size_t)token * c.num_chosen + mine.place;
        c.weights[at] = mine.weight;
        if (IS_ONE) {
            a.rows[at] = mine.place * MOE_GROUP_ROWS;
            a.tiles[at] = {mine.expert, mine.place * MOE_GROUP_ROWS, 1};
            if (lane == 0) *a.num_tiles = c.num_chosen;
        } else {
            c.choices[at] = mine.expert;
            places[mine.expert] = 1;
        }
    }
    if (!c.shared_weight) return;
    float gate[1];
    await_logits(gate, logits + c.num_experts, 1);
    if (lane == 0) c.shared_weight[token] = sigmoid(gate[0]);
}

/* By the last CTA, when what its warps have of the logits is on its way. scores: of each warp's token, [E]. */
template <bool IS_ONE, enum router_scores SCORES, int PER_LANE>
__device__ __forceinline__ void choose_all_few(const few_args &a, float *scores, int32_t *places)
{
    const int32_t warp = threadIdx.x / 32;
    const lane_biases<PER_LANE> biases(a.choose);
#pragma unroll 1
    for (int32_t token = warp; token < a.choose.num_tokens; token += WARPS)
        choose_few<IS_ONE, SCORES>(a, token, scores + warp * a.choose.num_experts, places, biases);
    if (!IS_ONE) group_few(places, a);
}

/* What this CTA has of the logits is on its way to the last one. */
__device__ __forceinline__ void publish_logits(logits_tile *tile, const float (&sums)[1][1][4],
                                               const logit_args &a)
{
    tile->put((int32_t)threadIdx.x / 32, sums);
    __syncthreads();
    tile->add(a, (int32_t)threadIdx.x, [&](int32_t token, int32_t expert, float logit) {
        publish(a.logits + (size_t)token * a.num_experts + expert, logit);
    });
}

/* Shared memory: scores of each warp's token, [E]; places, [E]. */
template <enum router_scores SCORES, int PER_LANE>
__global__ void __launch_bounds__(THREADS) route_few_kernel(few_args a)
{
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ __align__(8) logits_tile tile;
    float *scores = (float *)shared, sums[1][1][4] = {};
    int32_t *places = (int32_t *)scores + WARPS * a.choose.num_experts;
    const int32_t slice = (int32_t)threadIdx.x / 32, first_expert = (int32_t)blockIdx.y * LOGIT_EXPERTS;
    uint4 w[LOGIT_BATCH];
    dependents_launch();
    load_logit_weights(w, a.logits, slice, first_expert, 0);
    for (int e = threadIdx.x; e < a.choose.num_experts; e += THREADS) places[e] = 0;
    dependency_wait();
    sum_logit_slice(sums, a.logits, slice, 0, first_expert, w);
    publish_logits(&tile, sums, a.logits);
    if (blockIdx.y + 1 == gridDim.y) choose_all_few<false, SCORES, PER_LANE>(a, scores, places);
}

/* Of one token. BATCH: of the slices' blocks. Shared memory: the token, in whole batches; scores, [E]. */
template <int BATCH, enum router_scores SCORES, int PER_LANE>
__global__ void __launch_bounds__(THREADS) route_one_kernel(few_args a)
{
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ __align__(8) logits_tile tile;
    uint4 *x = (uint4 *)shared, w[BATCH];
    float sums[1][1][4] = {};
    const int32_t slice = (int32_t)threadIdx.x / 32, first_expert = (int32_t)blockIdx.y * LOGIT_EXPERTS;
    dependents_launch();
    load_logit_weights(w, a.logits, slice, first_expert, 0);
    dependency_wait();
    copy_token<BATCH>(x, a.logits, (int32_t)threadIdx.x);
    __syncthreads();
    sum_token_slice(sums, a.logits, x, slice, first_expert, w);
    publish_logits(&tile, sums, a.logits);
    if (blockIdx.y + 1 == gridDim.y)
        choose_all_few<true, SCORES, PER_LANE>(
            a, (float *)(x + logit_columns_padded<BATCH>(a.logits.hidden) / 8), NULL);
}

/* ---- host ---- */

logit_args logit_args_of(const struct cuda_device *d, const struct moe *m, const __nv_bfloat16 *x,
                         int32_t num_tokens)
{
    return {d->moe_scratch->logits, x, m->router_bf16, num_tokens, m->num_experts + m->has_shared_gate,
            m->router_hidden};
}

choose_args choose_args_of(const struct cuda_device *d, const struct moe *m, int32_t num_tokens)
{
    const struct moe_scratch *s = d->moe_scratch;
    choose_args a = {};
    a.logits = s->logits;
    a.router_bias = m->router_bias;
    a.choice_bias = m->choice_bias;
    a.score_factors = m->score_factors;
    a.choices = s->choices;
    a.weights = s->weights;
    a.shared_weight = m->has_shared_gate ? s->shared_weight : NULL;
    a.num_tokens = num_tokens;
    a.num_experts = m->num_experts;
    a.num_rows = m->num_experts + m->has_shared_gate;
    a.num_chosen = m->num_chosen;
    a.normalize = m->normalize;
    a.scale = m->scale;
    a.near = m->near;
    return a;
}

template <int ROWS, int COLS> dim3 logit_grid(const logit_args &a)
{
    constexpr int TOKENS = LOGIT_ROWS * ROWS, EXPERTS = LOGIT_EXPERTS * COLS;
    return dim3((unsigned)((a.num_tokens + TOKENS - 1) / TOKENS),
                (unsigned)((a.num_experts + EXPERTS - 1) / EXPERTS));
}

void compute_logits(struct cuda_device *d, const struct moe *m, const __nv_bfloat16 *x, int32_t num_tokens)
{
    int32_t num_rows = m->num_experts + m->has_shared_gate;
    if (m->router_bf16) {
        logit_args a = logit_args_of(d, m, x, num_tokens);
        if (num_tokens < WIDE_TOKENS)
            launch_dependent(d, logits_kernel, logit_grid<1, 1>(a), dim3(THREADS), 0, a);
        else
            launch_dependent(d, wide_logits_kernel<2, 8>, logit_grid<2, 8>(a), dim3(THREADS), 0, a);
        return;
    }
    dim3 grid((unsigned)((num_tokens + FMA_TOKENS - 1) / FMA_TOKENS),
              (unsigned)((num_rows + WARPS - 1) / WARPS));
    launch_dependent(d, fma_logits_kernel, grid, dim3(THREADS), 0, d->moe_scratch->logits, x, m->router,
                     num_rows, m->router_hidden, num_tokens);
}

/* call(SCORES, PER_LANE), both as types whose value is known when it is compiled. */
template <typename CALL> void with_choosing(const struct moe *m, CALL call)
{
    auto with_lanes = [&](auto scores) {
        if (m->num_experts <= 32 * PER_LANE_LEAST)
            call(scores, std::integral_constant<int, PER_LANE_LEAST>());
        else if (m->num_experts <= 32 * PER_LANE_FEW)
            call(scores, std::integral_constant<int, PER_LANE_FEW>());
        else
            call(scores, std::integral_constant<int, PER_LANE_MAX>());
    };
    if (m->scores == ROUTER_SOFTMAX)
        with_lanes(std::integral_constant<enum router_scores, ROUTER_SOFTMAX>());
    else if (m->scores == ROUTER_SIGMOID)
        with_lanes(std::integral_constant<enum router_scores, ROUTER_SIGMOID>());
    else
        with_lanes(std::integral_constant<enum router_scores, ROUTER_SPARSE>());
}

void choose(struct cuda_device *d, const struct moe *m, int32_t num_tokens)
{
    const choose_groups_args a = {choose_args_of(d, m, num_tokens), m->num_groups, m->num_chosen_groups,
                                  m->groups_by_two};
    const dim3 grid((unsigned)num_tokens), block(32);
    const size_t bytes = sizeof(float) * (size_t)m->num_experts;
    with_choosing(m, [&](auto scores, auto per_lane) {
        if constexpr (scores.value != ROUTER_SPARSE) /* those have no groups */
            if (m->num_groups > 1) {
                launch_dependent(d, choose_groups_kernel<scores.value, per_lane.value>, grid, block, bytes, a,
                                 d->moe_scratch->counts);
                return;
            }
        launch_dependent(d, choose_kernel<scores.value, per_lane.value>, grid, block, bytes, a.choose,
                         d->moe_scratch->counts);
    });
}

void group_rows(struct cuda_device *d, const struct moe *m, int32_t tile_rows)
{
    struct moe_scratch *s = d->moe_scratch;
    group_args a = {s->counts, s->next, s->num_tiles, s->tiles, m->num_experts, tile_rows};
    launch_dependent(d, group_kernel, dim3(1), dim3((unsigned)((m->num_experts + 31) / 32 * 32)), 0, a);
}

void gather(struct cuda_device *d, const struct moe *m, const __nv_bfloat16 *x,
            const struct fp8_rows *quantised, int32_t num_tokens)
{
    struct moe_scratch *s = d->moe_scratch;
    gather_args a = {};
    a.out = (uint4 *)s->gathered;
    a.x = (const uint4 *)x;
    a.choices = s->choices;
    a.next = s->next;
    a.rows = s->rows;
    a.num_chosen = m->num_chosen;
    a.num_vectors = m->hidden / 8;
    if (quantised) {
        a.out = (uint4 *)s->fp8.codes;
        a.x = (const uint4 *)quantised->codes;
        a.num_vectors = m->hidden / 16;
        a.scales = s->fp8.scales;
        a.x_scales = quantised->scales;
        a.num_scales = m->fp8_gate_up.form == E4M3_OF_BLOCKS ? m->hidden / FP8_BLOCK : 1;
        a.pitch = s->fp8.pitch;
        a.x_pitch = quantised->pitch;
    }
    launch_dependent(d, gather_kernel, dim3((unsigned)num_tokens), dim3(GATHER_THREADS), 0, a);
}

} // namespace

void cuda_moe_route(struct cuda_device *d, const struct moe *m, const __nv_bfloat16 *seen,
                    const __nv_bfloat16 *of_experts, const struct fp8_rows *quantised, int32_t num_tokens,
                    int32_t tile_rows)
{
    compute_logits(d, m, seen, num_tokens);
    choose(d, m, num_tokens);
    group_rows(d, m, tile_rows);
    gather(d, m, of_experts, quantised, num_tokens);
}

void cuda_moe_route_few(struct cuda_device *d, const struct moe *m, const __nv_bfloat16 *seen,
                        int32_t num_tokens)
{
    struct moe_scratch *s = d->moe_scratch;
    few_args a = {logit_args_of(d, m, seen, num_tokens), choose_args_of(d, m, num_tokens), s->rows,
                  s->num_tiles, s->tiles};
    a.logits.logits = s->few_logits;
    with_choosing(m, [&](auto scores, auto per_lane) {
        auto launch = [&](auto kernel, size_t shared_bytes) {
            launch_dependent(d, kernel, logit_grid<1, 1>(a.logits), dim3(THREADS), shared_bytes, a);
        };
        auto launch_one = [&](auto batch) {
            launch(route_one_kernel<batch.value, scores.value, per_lane.value>,
                   2 * (size_t)logit_columns_padded<batch.value>(m->router_hidden) +
                       sizeof(float) * (size_t)m->num_experts);
        };
        if (num_tokens > 1)
            launch(route_few_kernel<scores.value, per_lane.value>,
                   sizeof(float) * (WARPS + 1) * (size_t)m->num_experts);
        else if (m->router_hidden <= LOGIT_BATCH * LOGIT_STEP)
            launch_one(std::integral_constant<int, LOGIT_BATCH>());
        else
            launch_one(std::integral_constant<int, LOGIT_BATCH_LONG>());
    });
}
