/* sample_scan.cuh - the two kernels of sampling that read whole rows, a chunk a CTA: scan, which every row needs, and
 * weigh, for rows that are drawn from without top_k. */
#ifndef KERNELS_CUDA_SAMPLE_SCAN_CUH
#define KERNELS_CUDA_SAMPLE_SCAN_CUH

#include "kernels/cuda/sample.cuh"

#define SEEN_IN_PROMPT 0x80000000u

namespace
{

enum { SCAN_CTAS_PER_SM = 3, WEIGH_CTAS_PER_SM = 4 };

/* A thread's logits: ids first + 128 j to first + 128 j + 3. */
struct chunk_part {
    float4 x[SCAN_VECTORS];
    int32_t first;

    __device__ __forceinline__ explicit chunk_part(int32_t chunk)
    {
        first = chunk * SCAN_CHUNK + threadIdx.x / 32 * SCAN_VECTORS * VECTOR_IDS + threadIdx.x % 32 * 4;
    }

    __device__ __forceinline__ void load(const float *row, int32_t vocab_size)
    {
        if (vocab_size % 4 == 0 && first + SCAN_VECTORS * VECTOR_IDS <= vocab_size) {
#pragma unroll
            for (int j = 0; j < SCAN_VECTORS; j++) x[j] = *(const float4 *)(row + first + j * VECTOR_IDS);
            return;
        }
#pragma unroll
        for (int j = 0; j < SCAN_VECTORS; j++) x[j] = load_four(row, first + j * VECTOR_IDS, vocab_size);
    }

    __device__ __forceinline__ void store(float *row, int32_t vocab_size) const
    {
        if (vocab_size % 4 != 0) {
            for_each([=](int32_t id, float value) {
                if (id < vocab_size) row[id] = value;
            });
            return;
        }
#pragma unroll
        for (int j = 0; j < SCAN_VECTORS; j++)
            if (first + j * VECTOR_IDS < vocab_size) *(float4 *)(row + first + j * VECTOR_IDS) = x[j];
    }

    /* x = body(id, x). */
    template <typename Body> __device__ __forceinline__ void change(Body body)
    {
#pragma unroll
        for (int j = 0; j < SCAN_VECTORS; j++) {
            int32_t id = first + j * VECTOR_IDS;
            x[j] = make_float4(body(id, x[j].x), body(id + 1, x[j].y), body(id + 2, x[j].z),
                               body(id + 3, x[j].w));
        }
    }

    /* body(id, x) in order of id. */
    template <typename Body> __device__ __forceinline__ void for_each(Body body) const
    {
#pragma unroll
        for (int j = 0; j < SCAN_VECTORS; j++) {
            int32_t id = first + j * VECTOR_IDS;
            body(id, x[j].x);
            body(id + 1, x[j].y);
            body(id + 2, x[j].z);
            body(id + 3, x[j].w);
        }
    }
};

/* ---- adjust: bias, bans, penalties, masks of one chunk ---- */

/* A word for each id of a chunk. */
union chunk_words {
    uint4 fours[SCAN_CHUNK / 4];
    uint32_t counts[SCAN_CHUNK];
    float bias[SCAN_CHUNK];

    __device__ __forceinline__ void clear(void)
    {
        __syncthreads();
        for (int i = threadIdx.x; i < SCAN_CHUNK / 4; i += SCAN_THREADS) fours[i] = uint4{};
        __syncthreads();
    }
};

/* What is added to a logit, -infinity where it is banned. */
__device__ __forceinline__ void fill_bias(const sample_args &a, const struct device_sample_params &p,
                                          int32_t begin, union chunk_words *words)
{
    const int32_t *lists = a.lists + a.step_counts[COUNT_LISTS];
    words->clear();
    for (int i = threadIdx.x; i < p.num_bias; i += SCAN_THREADS) {
        uint32_t at = (uint32_t)(lists[p.bias_offset + 2 * i] - begin);
        if (at < SCAN_CHUNK) words->bias[at] = __int_as_float(lists[p.bias_offset + 2 * i + 1]);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < p.num_banned; i += SCAN_THREADS) {
        uint32_t at = (uint32_t)(lists[p.banned_offset + i] - begin);
        if (at < SCAN_CHUNK) words->bias[at] = -INFINITY;
    }
    __syncthreads();
}

/* How often an id has been generated, and whether it is in the prompt. A draft counts as generated. */
__device__ __forceinline__ void count_history(const sample_args &a, const struct device_sample_params &p,
                                              int32_t row, int32_t begin, union chunk_words *words)
{
    const int32_t *history = a.history + (size_t)p.batch_slot * a.max_model_len;
    const int32_t *drafted = a.token_ids + a.logit_rows[row] + 1 - p.num_drafted;
    int32_t num_prompt = a.num_prompts[p.batch_slot], num_tokens = p.position - p.num_drafted;
    words->clear();
#pragma unroll 4
    for (int i = threadIdx.x; i < num_tokens; i += SCAN_THREADS) {
        uint32_t at = (uint32_t)(history[i] - begin);
        if (at >= SCAN_CHUNK) continue;
        if (i < num_prompt)
            atomicOr(&words->counts[at], SEEN_IN_PROMPT);
        else
            atomicAdd(&words->counts[at], 1u);
    }
    for (int i = threadIdx.x; i < p.num_drafted; i += SCAN_THREADS) {
        uint32_t at = (uint32_t)(drafted[i] - begin);
        if (at < SCAN_CHUNK) atomicAdd(&words->counts[at], 1u);
    }
    __syncthreads();
}

__device__ __forceinline__ float penalised(const struct device_sample_params &p, float x, uint32_t seen)
{
    if (seen == 0) return x;
    uint32_t times = seen & ~SEEN_IN_PROMPT;
    x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
    return times > 0 ? x - (p.frequency_penalty * (float)times + p.presence_penalty) : x;
}

/* Ids whose bit in mask is not as kept_bit get -infinity. A thread's four ids lie in one word. */
__device__ __forceinline__ void keep_masked(const uint32_t *mask, uint32_t kept_bit, int32_t vocab_size,
                                            struct chunk_part *part)
{
#pragma unroll
    for (int j = 0; j < SCAN_VECTORS; j++) {
        int32_t id = part->first + j * VECTOR_IDS;
        if (id >= vocab_size) continue;
        uint32_t bits = (kept_bit ? mask[id / 32] : ~mask[id / 32]) >> (id % 32);
        float4 x = part->x[j];
        part->x[j] = make_float4(bits & 1 ? x.x : -INFINITY, bits & 2 ? x.y : -INFINITY,
                                 bits & 4 ? x.z : -INFINITY, bits & 8 ? x.w : -INFINITY);
    }
}

/* Whether anything can have changed, the same for all threads. */
__device__ __forceinline__ bool adjust_chunk(const sample_args &a, const struct device_sample_params &p,
                                             int32_t row, int32_t chunk, struct chunk_part *part)
{
    __shared__ union chunk_words words;
    int32_t begin = chunk * SCAN_CHUNK, place = p.flags & SAMPLE_CONSTRAINED ? a.mask_places[row] : MASK_NONE;
    bool forbids = (p.flags & SAMPLE_FORBIDDEN) && a.chunk_forbids[chunk];
    if (p.flags & SAMPLE_BIAS) {
        fill_bias(a, p, begin, &words);
        part->change([&](int32_t id, float x) { return x + words.bias[id - begin]; });
    }
    if (p.flags & SAMPLE_PENALTIES) {
        count_history(a, p, row, begin, &words);
        part->change([&](int32_t id, float x) { return penalised(p, x, words.counts[id - begin]); });
    }
    if (forbids) keep_masked(a.forbidden, 0, a.vocab_size, part);
    if (place >= 0) keep_masked(a.masks + (size_t)place * a.mask_words, 1, a.vocab_size, part);
    return (p.flags & (SAMPLE_BIAS | SAMPLE_PENALTIES)) || forbids || place >= 0;
}

/* ---- scan ---- */

struct best_logit {
    float x;
    int32_t id;
};

/* The same in every thread of the CTA. */
__device__ struct best_logit best_of_chunk(const struct chunk_part &part)
{
    __shared__ struct best_logit warps[SCAN_THREADS / 32];
    struct best_logit best = {-INFINITY, INT32_MAX};
    part.for_each([&](int32_t id, float x) {
        if (x > best.x) best = {x, id};
    });
    for (int mask = 16; mask > 0; mask /= 2)
        keep_better(&best.x, &best.id, __shfl_xor_sync(0xffffffffu, best.x, mask),
                    __shfl_xor_sync(0xffffffffu, best.id, mask));
    __syncthreads(); /* all have read what a call before this one left */
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
    __syncthreads();
    for (int w = 0; w < SCAN_THREADS / 32; w++) keep_better(&best.x, &best.id, warps[w].x, warps[w].id);
    return best;
}

/* Sum of exp(x - best) in an order that the place in the chunk gives. */
__device__ float sum_of_chunk(const struct chunk_part &part, float best)
{
    __shared__ float warps[SCAN_THREADS / 32];
    float sum = 0;
    if (best > -INFINITY) part.for_each([&](int32_t, float x) { sum += __expf(x - best); });
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < SCAN_THREADS / 32; w++) sum += warps[w];
    return sum;
}

/* A warp's tiles; they divide its share of the chunk. */
__device__ void leave_peaks(uint32_t *peaks, const struct chunk_part &part, const sample_args &a)
{
    uint32_t peak = 0;
#pragma unroll
    for (int j = 0; j < SCAN_VECTORS; j++) {
        float best = fmaxf(fmaxf(part.x[j].x, part.x[j].y), fmaxf(part.x[j].z, part.x[j].w));
        peak = max(peak, __reduce_max_sync(0xffffffffu, key_of(best)));
        int32_t tile = (part.first + j * VECTOR_IDS) >> a.tile_shift;
        if (((j + 1) * VECTOR_IDS & ((1 << a.tile_shift) - 1)) != 0) continue;
        if (threadIdx.x % 32 == 0 && tile < a.num_tiles) peaks[tile] = peak;
        peak = 0;
    }
}

__global__ void __launch_bounds__(SCAN_THREADS, SCAN_CTAS_PER_SM)
    scan_kernel(const __grid_constant__ sample_args a)
{
    dependents_launch();
    int32_t row = blockIdx.x / a.num_chunks, chunk = blockIdx.x % a.num_chunks;
    const struct device_sample_params &p = a.params[row]; /* there before the step's first kernel */
    uint32_t flags = p.flags;
    struct chunk_part part(chunk);
    size_t tiles = (size_t)row * a.num_tiles;
    dependency_wait();
    part.load(a.logits + (size_t)row * a.vocab_size, a.vocab_size);
    bool has_bad = false;
    part.for_each([&](int32_t, float x) { has_bad = has_bad || !(x < INFINITY); });
    int32_t is_bad = __syncthreads_or(has_bad);
    struct best_logit raw = best_of_chunk(part), best = raw;
    float raw_sum = flags & SAMPLE_LOGPROB ? sum_of_chunk(part, raw.x) : 0;
    if (flags & SAMPLE_ALTERNATIVES) leave_peaks(a.raw_peaks + tiles, part, a);
    if (flags & SAMPLE_ADJUSTED) {
        if (adjust_chunk(a, p, row, chunk, &part)) best = best_of_chunk(part);
        if (flags & SAMPLE_DRAW) part.store(a.adjusted + (size_t)row * a.vocab_size, a.vocab_size);
    }
    if (flags & (SAMPLE_TOP_K | SAMPLE_TOP_P)) leave_peaks(a.peaks + tiles, part, a);
    if (threadIdx.x == 0)
        a.stats[(size_t)row * a.num_chunks + chunk] = {best.x, raw.x, raw_sum, best.id, is_bad};
}

/* ---- weigh ---- */

__device__ void weigh_chunk(const sample_args &a, const struct device_sample_params &p, int32_t row,
                            int32_t chunk)
{
    struct row_view v = view_of(a, p, row, row_stats(a, row).best);
    struct chunk_part part(chunk);
    part.load(v.x, a.vocab_size);
    uint32_t floor = min_p_floor(v, p.min_p);
    mass *masses = a.masses + (size_t)row * a.num_tiles, sum = 0;
    auto weigh = [&](float x) { return key_of(x) >= floor ? weight_of(v, x) : 0; };
#pragma unroll
    for (int j = 0; j < SCAN_VECTORS; j++) {
        sum += weigh(part.x[j].x) + weigh(part.x[j].y) + weigh(part.x[j].z) + weigh(part.x[j].w);
        int32_t tile = (part.first + j * VECTOR_IDS) >> a.tile_shift;
        if (((j + 1) * VECTOR_IDS & ((1 << a.tile_shift) - 1)) != 0) continue;
        sum = sum_over_warp(sum);
        if (threadIdx.x % 32 == 0 && tile < a.num_tiles) masses[tile] = sum;
        sum = 0;
    }
}

__device__ bool is_weighed(const struct device_sample_params &p)
{
    return (p.flags & (SAMPLE_DRAW | SAMPLE_TOP_K)) == SAMPLE_DRAW;
}

/* Few CTAs that stay, and that end at once where no row is weighed. A row that fails has masses that nobody reads. */
__global__ void __launch_bounds__(SCAN_THREADS, WEIGH_CTAS_PER_SM)
    weigh_kernel(const __grid_constant__ sample_args a)
{
    dependents_launch();
    bool any = false;
    for (int32_t row = threadIdx.x; row < a.num_rows; row += SCAN_THREADS) any |= is_weighed(a.params[row]);
    dependency_wait();
    if (!__syncthreads_or(any)) return;
    for (int32_t i = blockIdx.x; i < a.num_rows * a.num_chunks; i += gridDim.x) {
        const struct device_sample_params &p = a.params[i / a.num_chunks];
        if (is_weighed(p)) weigh_chunk(a, p, i / a.num_chunks, i % a.num_chunks);
    }
}

} // namespace

#endif
