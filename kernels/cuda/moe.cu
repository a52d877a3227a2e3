/* moe.cu - a mixture of experts: who chooses whom is found on the device, so that a step can be recorded.
 *
 *   logits    x router^T in f32, a warp an expert
 *   choose    a warp a token: scores, the best num_chosen of them, in the order of experts
 *   group     pairs (token, choice) by expert, and tiles of at most TILE_ROWS pairs of one expert
 *   products  a CTA a tile and TILE_COLUMNS rows of the expert's weight: gate and up, then down; a row of results a pair
 *   combine   a token's pairs, times their scores, in the order of experts; the shared expert's, an ordinary MLP, last
 *
 * Where in a tile a pair stands changes nothing of its results, which are sums along K in order. So atomics may
 * place the pairs as they come: a token's bits do not depend on who else chose its experts. */
#include <math.h>

#include <vector>

#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/mma.cuh"

extern "C" {
#include "files/weight_codes.h"
}

namespace
{

enum {
    EXPERTS_MAX = 1024,
    CHOSEN_MAX = 32,
    WARPS = 4,
    THREADS = WARPS * 32,
    LOGIT_TOKENS = 8, /* that share what is read of the router */
    GROUP_THREADS = 1024,
    TILE_ROWS = 64,    /* pairs; 16 a warp */
    TILE_COLUMNS = 64, /* rows of the weight */
    TILE_K = 64,
    STAGES = 4,
    PITCH = TILE_K * 2 + 16, /* bytes of a row in shared memory: eight rows meet all banks */
    OPERAND_BYTES = TILE_ROWS * PITCH,
    STAGE_BYTES = 2 * OPERAND_BYTES,
    COMBINE_THREADS = 256,
};

static_assert(TILE_ROWS == TILE_COLUMNS, "both operands of a stage are loaded alike");

/* Pairs [first, first + count) of the grouped ones. */
struct moe_tile {
    int32_t expert, first, count;
};

} // namespace

struct moe {
    int32_t num_experts, num_chosen, hidden, inner; /* E, K, H, I */
    enum router_scores scores;
    enum gate_function gate;
    bool normalize;
    float scale;
    float *router;                 /* [E][H], then the shared expert's gate if it has one */
    float *choice_bias;            /* [E] or NULL */
    __nv_bfloat16 *gate_up, *down; /* [E][2 I][H], gate and up alternate as in struct linear; [E][H][I] */
    struct linear *shared_gate_up, *shared_down; /* NULL: no shared expert */
    bool has_shared_gate;
};

/* Device memory for the largest step; layers take turns. P: pairs, T K. */
struct moe_scratch {
    int32_t num_experts, num_chosen, inner, shared_inner; /* what there is room for */
    float *logits;                                        /* [T][E + 1] */
    int32_t *choices;                                     /* [P] experts, ascending for each token */
    float *weights;                                       /* [P] */
    float *shared_weight;                                 /* [T] */
    int32_t *grouped;                                     /* [P] pairs by expert */
    struct moe_tile *tiles;
    int32_t *num_tiles;
    __nv_bfloat16 *mid, *made;               /* [P][I] [P][H] */
    __nv_bfloat16 *shared_mid, *shared_made; /* [T][S] [T][H] */
};

namespace
{

/* ---- routing ---- */

/* Expert blockIdx.x * WARPS + warp, for LOGIT_TOKENS tokens. The last row may be the shared expert's gate. */
__global__ void __launch_bounds__(THREADS)
    logits_kernel(float *logits, const __nv_bfloat16 *x, const float *router, int32_t num_rows,
                  int32_t hidden, int32_t num_tokens)
{
    int expert = blockIdx.y * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    int32_t first = blockIdx.x * LOGIT_TOKENS;
    if (expert >= num_rows) return;
    float sum[LOGIT_TOKENS] = {};
    for (int i = 4 * lane; i < hidden; i += 4 * 32) {
        float4 w = *(const float4 *)(router + (size_t)expert * hidden + i);
#pragma unroll
        for (int t = 0; t < LOGIT_TOKENS; t++) {
            if (first + t >= num_tokens) break;
            float4 v = load_bf16x4(x + (size_t)(first + t) * hidden + i);
            sum[t] = __fmaf_rn(v.x, w.x, sum[t]);
            sum[t] = __fmaf_rn(v.y, w.y, sum[t]);
            sum[t] = __fmaf_rn(v.z, w.z, sum[t]);
            sum[t] = __fmaf_rn(v.w, w.w, sum[t]);
        }
    }
#pragma unroll
    for (int t = 0; t < LOGIT_TOKENS; t++) {
        float total = sum[t];
        for (int mask = 16; mask > 0; mask /= 2) total += __shfl_xor_sync(0xffffffffu, total, mask);
        if (lane == 0 && first + t < num_tokens) logits[(size_t)(first + t) * num_rows + expert] = total;
    }
}

struct choose_args {
    const float *logits, *choice_bias;
    int32_t *choices;
    float *weights, *shared_weight;
    int32_t num_tokens, num_experts, num_rows, num_chosen; /* num_rows: of logits */
    enum router_scores scores;
    bool normalize;
    float scale;
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

/* A lane's experts are lane, lane + 32, ... */
__device__ void make_scores(float *scores, const float *logits, const choose_args &a, int lane)
{
    float largest = -INFINITY, sum = 0;
    for (int e = lane; e < a.num_experts; e += 32) largest = fmaxf(largest, logits[e]);
    largest = warp_max(largest);
    for (int e = lane; e < a.num_experts; e += 32) {
        scores[e] = a.scores == ROUTER_SIGMOID ? sigmoid(logits[e]) : expf(logits[e] - largest);
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

__global__ void __launch_bounds__(THREADS) choose_kernel(choose_args a)
{
    __shared__ float all_scores[WARPS][EXPERTS_MAX];
    __shared__ bool all_taken[WARPS][EXPERTS_MAX];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int32_t token = blockIdx.x * WARPS + warp;
    if (token >= a.num_tokens) return;
    float *scores = all_scores[warp], sum = 0;
    bool *taken = all_taken[warp];
    const float *logits = a.logits + (size_t)token * a.num_rows;
    for (int e = lane; e < a.num_experts; e += 32) taken[e] = false;
    make_scores(scores, logits, a, lane);
    __syncwarp();
    int mine = INT32_MAX; /* lane i has the i-th choice */
    for (int i = 0; i < a.num_chosen; i++) {
        int best = best_other(scores, taken, a, lane);
        if (lane == i) mine = best;
        sum += scores[best];
        __syncwarp();
        if (lane == 0) taken[best] = true;
        __syncwarp();
    }
    int place = 0; /* among the chosen, in the order of experts */
    for (int i = 0; i < a.num_chosen; i++) place += __shfl_sync(0xffffffffu, mine, i) < mine;
    if (lane < a.num_chosen) {
        size_t at = (size_t)token * a.num_chosen + place;
        a.choices[at] = mine;
        a.weights[at] = (a.normalize ? scores[mine] / sum : scores[mine]) * a.scale;
    }
    if (a.shared_weight && lane == 0) a.shared_weight[token] = sigmoid(logits[a.num_experts]);
}

struct group_args {
    const int32_t *choices;
    int32_t *grouped;
    struct moe_tile *tiles;
    int32_t *num_tiles;
    int32_t num_pairs, num_experts;
};

/* One CTA, thread e for expert e: counts, where each expert's pairs and tiles begin, then the pairs' places. */
__global__ void __launch_bounds__(GROUP_THREADS) group_kernel(group_args a)
{
    __shared__ int32_t counts[EXPERTS_MAX];
    __shared__ uint64_t ends[GROUP_THREADS]; /* of this expert and all before: pairs low, tiles high */
    int e = threadIdx.x;
    counts[e] = 0;
    __syncthreads();
    for (int32_t p = e; p < a.num_pairs; p += GROUP_THREADS) atomicAdd(&counts[a.choices[p]], 1);
    __syncthreads();
    int32_t count = counts[e], num_tiles = (count + TILE_ROWS - 1) / TILE_ROWS;
    ends[e] = (uint64_t)num_tiles << 32 | (uint32_t)count;
    for (int step = 1; step < GROUP_THREADS; step *= 2) {
        __syncthreads();
        uint64_t before = e >= step ? ends[e - step] : 0;
        __syncthreads();
        ends[e] += before;
    }
    int32_t first = (int32_t)(uint32_t)ends[e] - count, first_tile = (int32_t)(ends[e] >> 32) - num_tiles;
    for (int32_t i = 0; i < num_tiles; i++)
        a.tiles[first_tile + i] = {e, first + i * TILE_ROWS, min(count - i * TILE_ROWS, (int32_t)TILE_ROWS)};
    if (e == GROUP_THREADS - 1) *a.num_tiles = (int32_t)(ends[e] >> 32);
    counts[e] = first; /* the next free place */
    __syncthreads();
    for (int32_t p = e; p < a.num_pairs; p += GROUP_THREADS)
        a.grouped[atomicAdd(&counts[a.choices[p]], 1)] = p;
}

static_assert(EXPERTS_MAX == GROUP_THREADS, "a thread an expert");

/* ---- products ---- */

enum product { PRODUCT_SILU, PRODUCT_GELU, PRODUCT_PLAIN };

struct product_args {
    __nv_bfloat16 *out;              /* [P][N], or [P][N / 2] of gate and up */
    const __nv_bfloat16 *x, *weight; /* x: row pair / pairs_per_row; weight: [E][N][K] */
    const int32_t *grouped, *num_tiles;
    const struct moe_tile *tiles;
    int32_t n, k, pairs_per_row;
};

/* What a thread copies of a stage: one chunk of 16 bytes of every fourth row, of both operands. */
struct stage_rows {
    static constexpr int ROWS = TILE_ROWS / (THREADS / (TILE_K / 8));
    const __nv_bfloat16 *x[ROWS], *w[ROWS];
    bool has_x[ROWS], has_w[ROWS];
};

__device__ __forceinline__ void find_rows(struct stage_rows *r, const product_args &a,
                                          const struct moe_tile &tile, int32_t first_n)
{
    const __nv_bfloat16 *weight = a.weight + (size_t)tile.expert * a.n * a.k;
#pragma unroll
    for (int j = 0; j < stage_rows::ROWS; j++) {
        int32_t row = threadIdx.x / (TILE_K / 8) + j * (THREADS / (TILE_K / 8)), n = first_n + row;
        r->has_x[j] = row < tile.count;
        r->has_w[j] = n < a.n;
        int32_t pair = r->has_x[j] ? a.grouped[tile.first + row] : 0;
        r->x[j] = a.x + (size_t)(pair / a.pairs_per_row) * a.k;
        r->w[j] = weight + (size_t)(r->has_w[j] ? n : 0) * a.k;
    }
}

__device__ __forceinline__ void load_stage(const struct stage_rows &r, uint32_t stage, int32_t first_k,
                                           int32_t k)
{
    int chunk = threadIdx.x % (TILE_K / 8), column = first_k + chunk * 8;
    bool inside = column < k;
#pragma unroll
    for (int j = 0; j < stage_rows::ROWS; j++) {
        uint32_t to =
            stage + (threadIdx.x / (TILE_K / 8) + j * (THREADS / (TILE_K / 8))) * PITCH + chunk * 16;
        copy_async(to, r.x[j] + (inside ? column : 0), inside && r.has_x[j]);
        copy_async(to + OPERAND_BYTES, r.w[j] + (inside ? column : 0), inside && r.has_w[j]);
    }
}

__device__ __forceinline__ void multiply_stage(float (&sums)[TILE_COLUMNS / 8][4], uint32_t stage)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t x = stage + (warp * 16 + lane % 16) * PITCH + lane / 16 * 16,
             w = stage + OPERAND_BYTES + (lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2 * 16;
#pragma unroll
    for (int k = 0; k < TILE_K / 16; k++) {
        uint32_t rows[4];
        load_matrix(rows, x + k * 32);
#pragma unroll
        for (int n = 0; n < TILE_COLUMNS / 16; n++) {
            uint32_t columns[4];
            load_matrix(columns, w + n * 16 * PITCH + k * 32);
            mma_bf16(sums[2 * n], rows, columns[0], columns[1]);
            mma_bf16(sums[2 * n + 1], rows, columns[2], columns[3]);
        }
    }
}

template <enum product PRODUCT>
__device__ __forceinline__ void store_sums(const float (&sums)[TILE_COLUMNS / 8][4], const product_args &a,
                                           const struct moe_tile &tile, int32_t first_n)
{
    constexpr bool GATED = PRODUCT != PRODUCT_PLAIN;
    constexpr enum gate_function GATE = PRODUCT == PRODUCT_GELU ? GATE_GELU_TANH : GATE_SILU;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int32_t row = threadIdx.x / 32 * 16 + lane / 4 + 8 * half;
        if (row >= tile.count) continue;
        int32_t width = GATED ? a.n / 2 : a.n;
        __nv_bfloat16 *out = a.out + (size_t)a.grouped[tile.first + row] * width;
#pragma unroll
        for (int j = 0; j < TILE_COLUMNS / 8; j += GATED ? 2 : 1) {
            int32_t n = first_n + 8 * j;
            if (n >= a.n) break;
            uint32_t value = pack_bf16(sums[j][2 * half], sums[j][2 * half + 1]);
            if (GATED)
                value = gate_mul<GATE>(value, pack_bf16(sums[j + 1][2 * half], sums[j + 1][2 * half + 1]));
            *(uint32_t *)(out + (GATED ? n / 2 : n) + lane % 4 * 2) = value;
        }
    }
}

template <enum product PRODUCT> __global__ void __launch_bounds__(THREADS) product_kernel(product_args a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    if ((int32_t)blockIdx.x >= *a.num_tiles) return;
    struct moe_tile tile = a.tiles[blockIdx.x];
    int32_t first_n = blockIdx.y * TILE_COLUMNS, num_k = (a.k + TILE_K - 1) / TILE_K;
    uint32_t ring = shared_address(shared);
    bool has_rows = (int32_t)threadIdx.x / 32 * 16 < tile.count;
    float sums[TILE_COLUMNS / 8][4] = {};
    struct stage_rows rows;
    find_rows(&rows, a, tile, first_n);
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < num_k) load_stage(rows, ring + s * STAGE_BYTES, s * TILE_K, a.k);
        copy_commit();
    }
    for (int32_t i = 0; i < num_k; i++) {
        copy_wait<STAGES - 2>();
        __syncthreads(); /* stage i is there, and all have read stage i - 1, whose place is filled next */
        int32_t next = i + STAGES - 1;
        if (next < num_k) load_stage(rows, ring + next % STAGES * STAGE_BYTES, next * TILE_K, a.k);
        copy_commit();
        if (has_rows) multiply_stage(sums, ring + i % STAGES * STAGE_BYTES);
    }
    copy_wait<0>();
    store_sums<PRODUCT>(sums, a, tile, first_n);
}

/* ---- the sum ---- */

struct combine_args {
    __nv_bfloat16 *out;
    const __nv_bfloat16 *made, *shared_made; /* shared_made: NULL: no shared expert */
    const float *weights, *shared_weight;    /* shared_weight: NULL: 1 */
    int32_t num_chosen, hidden;
};

__device__ __forceinline__ void add(float4 *sum, float4 v, float weight)
{
    sum->x = __fmaf_rn(v.x, weight, sum->x);
    sum->y = __fmaf_rn(v.y, weight, sum->y);
    sum->z = __fmaf_rn(v.z, weight, sum->z);
    sum->w = __fmaf_rn(v.w, weight, sum->w);
}

__global__ void __launch_bounds__(COMBINE_THREADS) combine_kernel(combine_args a)
{
    size_t token = blockIdx.x;
    for (int i = 4 * threadIdx.x; i < a.hidden; i += 4 * COMBINE_THREADS) {
        float4 sum = {};
        for (int c = 0; c < a.num_chosen; c++) {
            size_t pair = token * a.num_chosen + c;
            add(&sum, load_bf16x4(a.made + pair * a.hidden + i), a.weights[pair]);
        }
        if (a.shared_made)
            add(&sum, load_bf16x4(a.shared_made + token * a.hidden + i),
                a.shared_weight ? a.shared_weight[token] : 1.0f);
        store_bf16x4(a.out + token * a.hidden + i, sum);
    }
}

/* ---- host: creation ---- */

int32_t rows_max(const struct cuda_device *d)
{
    return max(d->limits.num_tokens, d->limits.num_logits);
}

int32_t tiles_max(int32_t num_pairs, int32_t num_experts)
{
    return num_pairs / TILE_ROWS + min(num_pairs, num_experts);
}

/* A matrix as f32. */
bool upload_f32(struct cuda_device *d, float *out, const struct weight_view *v)
{
    std::vector<float> values((size_t)v->rows * (size_t)v->cols);
    size_t row_bytes = dtype_row_bytes(v->dtype, (uint64_t)v->cols);
    for (int64_t row = 0; row < v->rows; row++)
        dtype_row_to_f32(v->dtype, (const char *)v->data + (size_t)row * row_bytes, v->cols,
                         values.data() + row * v->cols);
    return cuda_upload(&d->base, out, values.data(), values.size() * 4) == STATUS_OK;
}

template <typename T> bool allocate(struct cuda_device *d, T **out, size_t count, const char *what)
{
    *out = (T *)cuda_alloc(&d->base, count * sizeof(T), what);
    return *out != NULL;
}

/* What is too small is left for the device to free. */
bool reserve_scratch(struct cuda_device *d, const struct moe *m, int32_t shared_inner)
{
    if (!d->moe_scratch) d->moe_scratch = new struct moe_scratch();
    struct moe_scratch *s = d->moe_scratch;
    if (m->num_experts <= s->num_experts && m->num_chosen <= s->num_chosen && m->inner <= s->inner &&
        shared_inner <= s->shared_inner)
        return true;
    s->num_experts = max(s->num_experts, m->num_experts);
    s->num_chosen = max(s->num_chosen, m->num_chosen);
    s->inner = max(s->inner, m->inner);
    s->shared_inner = max(s->shared_inner, shared_inner);
    size_t rows = (size_t)rows_max(d), pairs = rows * (size_t)s->num_chosen;
    const char *what = "experts";
    bool ok = allocate(d, &s->logits, rows * ((size_t)s->num_experts + 1), what) &&
              allocate(d, &s->choices, pairs, what) && allocate(d, &s->weights, pairs, what) &&
              allocate(d, &s->shared_weight, rows, what) && allocate(d, &s->grouped, pairs, what) &&
              allocate(d, &s->tiles, (size_t)tiles_max((int32_t)pairs, s->num_experts), what) &&
              allocate(d, &s->num_tiles, 1, what) && allocate(d, &s->mid, pairs * (size_t)s->inner, what) &&
              allocate(d, &s->made, pairs * (size_t)m->hidden, what);
    if (ok && s->shared_inner > 0)
        ok = allocate(d, &s->shared_mid, rows * (size_t)s->shared_inner, what) &&
             allocate(d, &s->shared_made, rows * (size_t)m->hidden, what);
    return ok;
}

bool upload_experts(struct cuda_device *d, struct moe *m, const struct expert_desc *experts)
{
    size_t one = (size_t)m->inner * (size_t)m->hidden;
    bool ok = allocate(d, &m->gate_up, 2 * one * (size_t)m->num_experts, "weights") &&
              allocate(d, &m->down, one * (size_t)m->num_experts, "weights");
    for (int32_t e = 0; e < m->num_experts && ok; e++)
        ok = cuda_upload_weight(d, m->gate_up + 2 * one * (size_t)e, &experts[e].gate, true, 0) &&
             cuda_upload_weight(d, m->gate_up + 2 * one * (size_t)e, &experts[e].up, true, 1) &&
             cuda_upload_weight(d, m->down + one * (size_t)e, &experts[e].down, false, 0);
    return ok;
}

bool upload_router(struct cuda_device *d, struct moe *m, const struct moe_desc *desc)
{
    size_t count = (size_t)m->num_experts * (size_t)m->hidden;
    bool ok = allocate(d, &m->router, count + (size_t)m->hidden, "weights") &&
              upload_f32(d, m->router, &desc->router);
    if (ok && m->has_shared_gate) ok = upload_f32(d, m->router + count, &desc->shared_gate);
    if (ok && desc->choice_bias.data)
        ok = allocate(d, &m->choice_bias, (size_t)m->num_experts, "weights") &&
             upload_f32(d, m->choice_bias, &desc->choice_bias);
    return ok;
}

int create_shared(struct device *device, struct moe *m, const struct moe_desc *desc, struct error *err)
{
    struct linear_desc gate_up = {}, down = {};
    gate_up.kind = LINEAR_GATE_UP;
    gate_up.gate = desc->gate;
    gate_up.num_parts = 2;
    gate_up.parts[0] = desc->shared.gate;
    gate_up.parts[1] = desc->shared.up;
    down.num_parts = 1;
    down.parts[0] = desc->shared.down;
    int status = cuda_linear_create(device, &gate_up, &m->shared_gate_up, err);
    return status ? status : cuda_linear_create(device, &down, &m->shared_down, err);
}

/* STATUS_UNSUPPORTED for what the kernels have no room for. */
int check_desc(const struct moe_desc *desc, struct error *err)
{
    const struct expert_desc *e = &desc->experts[0];
    if (desc->num_experts > EXPERTS_MAX || desc->num_chosen > CHOSEN_MAX)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "the CUDA device has mixtures of at most %d experts, %d of them chosen, not of %d and %d",
            (int)EXPERTS_MAX, (int)CHOSEN_MAX, desc->num_experts, desc->num_chosen);
    if (weight_view_num_rows(&e->gate) % 8 != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the CUDA device wants experts whose intermediate size is a multiple of 8");
    if (desc->gate == GATE_CLAMPED_SWISH || desc->router_bias.data || e->down_bias.data)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "the CUDA device has no experts with biases or clamped gates (gpt-oss); the CPU device has");
    int status = STATUS_OK;
    for (int32_t i = 0; i < desc->num_experts && !status; i++) {
        status = weight_check(&desc->experts[i].gate, err);
        if (!status) status = weight_check(&desc->experts[i].up, err);
        if (!status) status = weight_check(&desc->experts[i].down, err);
    }
    return status;
}

} // namespace

int cuda_moe_create(struct device *device, const struct moe_desc *desc, struct moe **out, struct error *err)
{
    struct cuda_device *d = cuda_enter(device);
    int status = check_desc(desc, err);
    if (status) return status;
    struct moe *m = new struct moe();
    m->num_experts = desc->num_experts;
    m->num_chosen = desc->num_chosen;
    m->hidden = (int32_t)desc->router.cols;
    m->inner = (int32_t)weight_view_num_rows(&desc->experts[0].gate);
    m->scores = desc->scores;
    m->gate = desc->gate;
    m->normalize = desc->normalize;
    m->scale = desc->scale;
    m->has_shared_gate = desc->shared_gate.data != NULL;
    if (!reserve_scratch(d, m, (int32_t)weight_view_num_rows(&desc->shared.gate)) ||
        !upload_router(d, m, desc) || !upload_experts(d, m, desc->experts))
        status = error_set(err, STATUS_NO_MEMORY, "the GPU has no room for the experts (%s)",
                           cudaGetErrorString(d->first_error));
    if (!status && desc->shared.gate.data) status = create_shared(device, m, desc, err);
    if (status)
        delete m;
    else
        *out = m;
    return status;
}

void cuda_moe_forget(struct cuda_device *d)
{
    delete d->moe_scratch;
    d->moe_scratch = NULL;
}

/* ---- host: a step ---- */

namespace
{

/* A step's padding tokens choose as the others do. */
void route(struct cuda_device *d, const struct moe *m, const __nv_bfloat16 *x, int32_t num_tokens)
{
    struct moe_scratch *s = d->moe_scratch;
    int32_t num_rows = m->num_experts + m->has_shared_gate;
    dim3 grid((unsigned)((num_tokens + LOGIT_TOKENS - 1) / LOGIT_TOKENS),
              (unsigned)((num_rows + WARPS - 1) / WARPS));
    logits_kernel<<<checked_grid(grid), THREADS, 0, d->stream>>>(s->logits, x, m->router, num_rows, m->hidden,
                                                                 num_tokens);
    choose_args choose = {};
    choose.logits = s->logits;
    choose.choice_bias = m->choice_bias;
    choose.choices = s->choices;
    choose.weights = s->weights;
    choose.shared_weight = m->has_shared_gate ? s->shared_weight : NULL;
    choose.num_tokens = num_tokens;
    choose.num_experts = m->num_experts;
    choose.num_rows = num_rows;
    choose.num_chosen = m->num_chosen;
    choose.scores = m->scores;
    choose.normalize = m->normalize;
    choose.scale = m->scale;
    choose_kernel<<<(unsigned)((num_tokens + WARPS - 1) / WARPS), THREADS, 0, d->stream>>>(choose);
    group_args group = {s->choices,    s->grouped, s->tiles, s->num_tiles, num_tokens * m->num_chosen,
                        m->num_experts};
    group_kernel<<<1, GROUP_THREADS, 0, d->stream>>>(group);
}

template <enum product PRODUCT>
void launch_product(struct cuda_device *d, const product_args &a, int32_t num_tiles)
{
    auto kernel = product_kernel<PRODUCT>;
    if (!cuda_allow_shared(d, (const void *)kernel, STAGES * STAGE_BYTES)) return;
    dim3 grid((unsigned)num_tiles, (unsigned)((a.n + TILE_COLUMNS - 1) / TILE_COLUMNS));
    kernel<<<checked_grid(grid), THREADS, STAGES * STAGE_BYTES, d->stream>>>(a);
}

void multiply(struct cuda_device *d, const struct moe *m, const __nv_bfloat16 *x, int32_t num_tokens)
{
    struct moe_scratch *s = d->moe_scratch;
    int32_t num_tiles = tiles_max(num_tokens * m->num_chosen, m->num_experts);
    product_args a = {};
    a.grouped = s->grouped;
    a.num_tiles = s->num_tiles;
    a.tiles = s->tiles;
    a.out = s->mid;
    a.x = x;
    a.weight = m->gate_up;
    a.n = 2 * m->inner;
    a.k = m->hidden;
    a.pairs_per_row = m->num_chosen;
    if (m->gate == GATE_SILU)
        launch_product<PRODUCT_SILU>(d, a, num_tiles);
    else
        launch_product<PRODUCT_GELU>(d, a, num_tiles);
    a.out = s->made;
    a.x = s->mid;
    a.weight = m->down;
    a.n = m->hidden;
    a.k = m->inner;
    a.pairs_per_row = 1;
    launch_product<PRODUCT_PLAIN>(d, a, num_tiles);
}

} // namespace

void cuda_moe(struct device *device, const struct batch *b, enum row_set rows, void *out, const void *x,
              const struct moe *m)
{
    struct cuda_device *d = cuda_of(device);
    struct moe_scratch *s = d->moe_scratch;
    int32_t num_tokens = batch_num_rows(b, rows);
    route(d, m, (const __nv_bfloat16 *)x, num_tokens);
    multiply(d, m, (const __nv_bfloat16 *)x, num_tokens);
    if (m->shared_down) {
        cuda_linear(device, b, rows, s->shared_mid, x, m->shared_gate_up);
        cuda_linear(device, b, rows, s->shared_made, s->shared_mid, m->shared_down);
    }
    combine_args a = {};
    a.out = (__nv_bfloat16 *)out;
    a.made = s->made;
    a.shared_made = m->shared_down ? s->shared_made : NULL;
    a.weights = s->weights;
    a.shared_weight = m->has_shared_gate ? s->shared_weight : NULL;
    a.num_chosen = m->num_chosen;
    a.hidden = m->hidden;
    combine_kernel<<<(unsigned)num_tokens, COMBINE_THREADS, 0, d->stream>>>(a);
    cuda_check(d, cudaPeekAtLastError(), "experts");
}
