/* sample.cuh - what the kernels of sampling share: a row's view, ranks and weights, sums over a CTA. See sample.cu.
 *
 * A row is cut twice, both times by the vocabulary alone:
 *
 *   chunk: 8,192 ids, of one CTA of scan and weigh; each of its warps has 1,024 of them
 *   tile:  128 ids (256, 512 or 1,024 where there would be more than 1,024 tiles), so that a thread of draw has one */
#ifndef KERNELS_CUDA_SAMPLE_CUH
#define KERNELS_CUDA_SAMPLE_CUH

#include "kernels/cuda/history.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear.cuh"

enum {
    VECTOR_IDS = 128, /* that a warp reads at a time, 4 a lane */
    SCAN_THREADS = 256,
    SCAN_VECTORS = 8, /* of a warp */
    SCAN_CHUNK = SCAN_THREADS / 32 * SCAN_VECTORS * VECTOR_IDS,
    DRAW_THREADS = 1024,
    TILES_MAX = DRAW_THREADS,
    SAMPLE_ADJUSTED = SAMPLE_BIAS | SAMPLE_PENALTIES | SAMPLE_FORBIDDEN | SAMPLE_CONSTRAINED,
    TILE_IDS_MAX = SCAN_VECTORS * VECTOR_IDS /* a tile lies in one warp's share of a chunk */
};

#define WEIGHT_ONE 1099511627776.0f /* 2^40 */

namespace
{

typedef unsigned long long mass; /* a sum of weights in units of 2^-40 */
typedef unsigned long long rank; /* higher logit first, then lower id: no two tokens of a row have the same */

/* What scan learns about one chunk of a row. */
struct chunk_stats {
    float best, raw_best, raw_sum; /* raw_sum: of exp(x - raw_best) */
    int32_t best_id;
    int32_t is_bad; /* a NaN or +infinity among the raw logits */
};

struct sample_args {
    const float *logits; /* [R][V] */
    float *adjusted;     /* [R][V], of the rows that are adjusted */
    struct chunk_stats *stats;
    uint32_t *peaks, *raw_peaks; /* [R][tiles] key of a tile's highest logit, where draw asks for them */
    mass *masses;                /* [R][tiles], where a row is drawn from without top_k */
    int32_t *history, *last_tokens;
    const int32_t *num_prompts;            /* [num_batch_slots] of the history */
    const int32_t *token_ids, *logit_rows; /* the step's */
    struct sample_result
        *results; /* pinned host memory: a few words a row cost less than a copy after the kernel */
    const struct device_sample_params *params;
    const int32_t *lists, *step_counts;
    const uint32_t *forbidden;    /* [mask_words] */
    const int32_t *chunk_forbids; /* [chunks] whether a chunk has ids of them */
    const int32_t *mask_places;   /* [R] of constrained rows */
    const uint32_t *masks;        /* [constrained rows][mask_words] */
    float *floats;                /* pinned: what rows leave for their batch_slots */
    int32_t row_floats;
    int32_t mask_words;
    int32_t num_rows, vocab_size, num_chunks, max_model_len;
    int32_t tile_shift, num_tiles; /* a tile has 2^tile_shift ids */
};

/* ---- tokens ---- */

/* Larger floats have larger keys; both zeros have the same. */
__device__ uint32_t key_of(float x)
{
    uint32_t bits = __float_as_uint(x + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ float value_of_key(uint32_t key)
{
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* The best of all tokens that have this key. */
__device__ rank rank_of(uint32_t key, int32_t id)
{
    return (rank)key << 32 | ~(uint32_t)id;
}

__device__ uint32_t key_of_rank(rank r)
{
    return (uint32_t)(r >> 32);
}

__device__ int32_t id_of_rank(rank r)
{
    return (int32_t) ~(uint32_t)r;
}

/* A row of logits, raw or adjusted. */
struct row_view {
    const float *x;
    const uint32_t *peaks; /* of its tiles */
    int32_t vocab_size, tile_shift, num_tiles;
    float best, inverse_temperature;
};

__device__ mass weight_of(const struct row_view &v, float x)
{
    return (mass)(__expf((x - v.best) * v.inverse_temperature) * WEIGHT_ONE + 0.5f);
}

/* min_p: the lowest key whose weight is not below it. Weights grow with keys, so this is a search over floats. */
__device__ uint32_t min_p_floor(const struct row_view &v, float min_p)
{
    if (min_p <= 0) return key_of(-INFINITY) + 1;
    float x = v.best + __logf(min_p) / v.inverse_temperature;
    return key_of(fminf(x, v.best));
}

/* The logits of ids i to i + 3, -infinity beyond the vocabulary. */
__device__ __forceinline__ float4 load_four(const float *x, int32_t i, int32_t vocab_size)
{
    if (vocab_size % 4 == 0 && i < vocab_size) return *(const float4 *)(x + i);
    auto at = [=](int32_t id) { return id < vocab_size ? x[id] : -INFINITY; };
    return make_float4(at(i), at(i + 1), at(i + 2), at(i + 3));
}

/* ---- a row as a whole ---- */

/* Highest value first, lowest id among equals. */
__device__ void keep_better(float *x, int32_t *id, float other, int32_t other_id)
{
    if (other > *x || (other == *x && other_id < *id)) {
        *x = other;
        *id = other_id;
    }
}

/* All chunks of a row as one, the same bits in every lane: a lane takes chunks lane, lane + 32, ..., then lanes in pairs. */
__device__ struct chunk_stats row_stats(const sample_args &a, int32_t row)
{
    const struct chunk_stats *stats = a.stats + (size_t)row * a.num_chunks;
    struct chunk_stats all = {-INFINITY, -INFINITY, 0, INT32_MAX, 0};
    int lane = threadIdx.x % 32;
    for (int i = lane; i < a.num_chunks; i += 32) {
        keep_better(&all.best, &all.best_id, stats[i].best, stats[i].best_id);
        all.raw_best = fmaxf(all.raw_best, stats[i].raw_best);
        all.is_bad |= stats[i].is_bad;
    }
    for (int mask = 16; mask > 0; mask /= 2) {
        keep_better(&all.best, &all.best_id, __shfl_xor_sync(0xffffffffu, all.best, mask),
                    __shfl_xor_sync(0xffffffffu, all.best_id, mask));
        all.raw_best = fmaxf(all.raw_best, __shfl_xor_sync(0xffffffffu, all.raw_best, mask));
        all.is_bad |= __shfl_xor_sync(0xffffffffu, all.is_bad, mask);
    }
    for (int i = lane; i < a.num_chunks; i += 32)
        all.raw_sum += stats[i].raw_sum * __expf(stats[i].raw_best - all.raw_best);
    for (int mask = 16; mask > 0; mask /= 2) all.raw_sum += __shfl_xor_sync(0xffffffffu, all.raw_sum, mask);
    return all;
}

/* The row's logits as they are drawn from. */
__device__ struct row_view view_of(const sample_args &a, const struct device_sample_params &p, int32_t row,
                                   float best)
{
    struct row_view v;
    v.x = (p.flags & SAMPLE_ADJUSTED ? a.adjusted : a.logits) + (size_t)row * a.vocab_size;
    v.peaks = a.peaks + (size_t)row * a.num_tiles;
    v.vocab_size = a.vocab_size;
    v.tile_shift = a.tile_shift;
    v.num_tiles = a.num_tiles;
    v.best = best;
    v.inverse_temperature = 1.0f / p.temperature;
    return v;
}

/* Of lanes whose sums are below 2^52. */
__device__ mass sum_over_warp(mass x)
{
    uint32_t low = __reduce_add_sync(0xffffffffu, (uint32_t)x & 0x3ffffffu);
    uint32_t high = __reduce_add_sync(0xffffffffu, (uint32_t)(x >> 26));
    return ((mass)high << 26) + low;
}

} // namespace

#endif
