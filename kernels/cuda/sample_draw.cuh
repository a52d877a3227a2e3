/* sample_draw.cuh - the last kernel of sampling: one CTA a row decides on the token and reports.
 *
 * A draw needs two things of a row: where it is cut (top_k, top_p), and the weights of what is left, by tiles. The cut is a
 * rank, and ranks are unique, so nothing has to be said about equal logits. It is looked for in a shortlist of at most
 * 1,024 tokens, sorted in shared memory, one a thread:
 *
 *   Of the k best tokens none is below the k-th highest of the tiles' peaks, since each of those k peaks is a token. So the
 *   tokens from there up are a shortlist that holds the k best, and it is short: of 128,256 logits in any order the 20 best
 *   peaks are those of the 20 best tokens or nearly, and all other tiles are never read.
 *
 * Where top_p keeps more than that, its cut is not looked for at all: of the tokens at the row's first random numbers
 * (sample_row.h, step 9) the weights above each are summed in one reading, and that tells which of them it keeps.
 *
 * Where it keeps none of them, as it may when it keeps little, or where top_k is beyond the list, or equal logits fill it, a
 * histogram over the row finds the bin in which the cut is, and the shortlist is that bin's tokens. Bins are of the distance to the best logit as a float, 512 for each power of two:
 * then a bin of a row of normally distributed logits holds less than 1 % of it, whatever their deviation is. A bin that
 * is still too long is cut into 4,096 parts of its ranks, again and again.
 *
 * Sums over threads are of integers and the lists are sorted, so the order in which threads come does not matter. */
#ifndef KERNELS_CUDA_SAMPLE_DRAW_CUH
#define KERNELS_CUDA_SAMPLE_DRAW_CUH

#include "kernels/cuda/sample.cuh"

namespace
{

enum {
    LIST_MAX = DRAW_THREADS,
    BINS_LOG2 = 12,
    BINS = 1 << BINS_LOG2,
    BINS_A_THREAD = BINS / DRAW_THREADS,
    TILES_AT_A_TIME = 4
};

enum measure { BY_NUMBER, BY_WEIGHT };

static const rank RANK_MAX = ~(rank)0;

/* A token at some u of the row's weights. */
struct pick {
    int32_t tile, id; /* -1: there is none */
    mass target;      /* of the row */
    mass left;        /* of it, in the tile */
};

struct draw_shared {
    union {
        struct {
            uint32_t low[BINS], high[BINS]; /* of 64-bit sums: shared memory adds 32 bits at a time */
        } bins;
        mass tile_masses[TILES_MAX];
    };
    rank list[LIST_MAX];
    mass warp_sums[DRAW_THREADS / 32];
    rank list_low, list_high, cut; /* of what gather has found */
    mass above;
    struct pick picks[DRAW_TRIES];
    int32_t list_length, found;
};

/* Of the one CTA that this is: functions that are not inlined then know that it is shared memory. */
__shared__ struct draw_shared shared;

/* Tokens of a row: those with ranks from low to high and, unless it is negative, distances in one bin. */
struct span {
    rank low, high;
    int32_t distance_bin;
};

/* 512 bins for each power of two from 2^-2 to 2^6, from the best logit down. */
__device__ __forceinline__ int32_t distance_bin_of(const struct row_view &v, float x)
{
    int32_t bin = (int32_t)(__float_as_uint(v.best - x) >> 14) - ((127 - 2) << 9);
    return min(max(bin, 0), BINS - 1);
}

/* A cut as the comparisons of one token want it: the same as rank >= cut, in few instructions. */
struct edge {
    float x;
    uint32_t last_id; /* of those that have x */

    __device__ __forceinline__ explicit edge(rank cut)
    {
        x = value_of_key(max(key_of_rank(cut), key_of(-INFINITY)));
        last_id = ~(uint32_t)cut;
    }
    __device__ __forceinline__ bool keeps(float other, int32_t id) const
    {
        return other > x || (other == x && (uint32_t)id <= last_id);
    }
};

/* ---- over the CTA ---- */

__device__ mass sum_over_block(mass x)
{
    for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared.warp_sums[threadIdx.x / 32] = x;
    __syncthreads();
    mass sum = 0;
    for (int w = 0; w < DRAW_THREADS / 32; w++) sum += shared.warp_sums[w];
    return sum;
}

__device__ mass sum_before_in_warp(mass x)
{
    mass inclusive = x;
    for (int step = 1; step < 32; step *= 2) {
        mass other = __shfl_up_sync(0xffffffffu, inclusive, step);
        if (threadIdx.x % 32 >= step) inclusive += other;
    }
    return inclusive - x;
}

/* Sum over the threads before this one. */
__device__ mass sum_before(mass x)
{
    mass before = sum_before_in_warp(x);
    int warp = threadIdx.x / 32;
    __syncthreads();
    if (threadIdx.x % 32 == 31) shared.warp_sums[warp] = before + x;
    __syncthreads();
    for (int w = 0; w < warp; w++) before += shared.warp_sums[w];
    return before;
}

/* The largest number that at least k of the threads' keys reach, bit by bit; k is at most the number of threads. */
__device__ uint32_t kth_highest(uint32_t key, int32_t k)
{
    uint32_t found = 0;
    for (uint32_t bit = 1u << 31; bit > 0; bit >>= 1)
        if (__syncthreads_count(key >= (found | bit)) >= k) found |= bit;
    return found;
}

/* body(place, id, x) for the tokens of all tiles whose peak is least or more, then done(place, tile): a warp has
 * TILES_AT_A_TIME tiles under way and calls their places 0, 1, ... A tile behind the last one has ids behind the
 * vocabulary. */
template <typename Body, typename Done>
__device__ __forceinline__ void for_each_token(const struct row_view &v, uint32_t least, Body body, Done done)
{
    int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, lanes_tile = warp + lane * 32;
    uint32_t left = __ballot_sync(0xffffffffu, lanes_tile < v.num_tiles && v.peaks[lanes_tile] >= least);
    while (left != 0) {
        int32_t tile[TILES_AT_A_TIME];
#pragma unroll
        for (int k = 0; k < TILES_AT_A_TIME; k++) {
            tile[k] = left != 0 ? warp + (__ffs(left) - 1) * 32 : v.num_tiles;
            left &= left - 1;
        }
        for (int32_t at = lane * 4; at < 1 << v.tile_shift; at += VECTOR_IDS) {
            float4 x[TILES_AT_A_TIME];
#pragma unroll
            for (int k = 0; k < TILES_AT_A_TIME; k++)
                x[k] = load_four(v.x, (tile[k] << v.tile_shift) + at, v.vocab_size);
#pragma unroll
            for (int k = 0; k < TILES_AT_A_TIME; k++) {
                int32_t id = (tile[k] << v.tile_shift) + at;
                body(k, id, x[k].x);
                body(k, id + 1, x[k].y);
                body(k, id + 2, x[k].z);
                body(k, id + 3, x[k].w);
            }
        }
#pragma unroll
        for (int k = 0; k < TILES_AT_A_TIME; k++) done(k, tile[k]);
    }
}

/* ---- the shortlist ---- */

/* Puts the span's tokens into the list, in any order, as far as it reaches; list_length counts on, list_low and list_high
 * are the ranks of the last and the first. Returns whether the list holds them all. */
__device__ __noinline__ bool gather(const struct row_view v, const struct span s)
{
    rank low = RANK_MAX, high = 0;
    struct edge edge(s.low);
    __syncthreads();
    if (threadIdx.x == 0) {
        shared.list_length = 0;
        shared.list_low = RANK_MAX;
        shared.list_high = 0;
    }
    __syncthreads();
    auto take = [&](int, int32_t id, float x) {
        if (!edge.keeps(x, id) || id >= v.vocab_size) return;
        if (s.distance_bin >= 0 && distance_bin_of(v, x) != s.distance_bin) return;
        rank r = rank_of(key_of(x), id);
        if (r > s.high) return;
        int32_t at = atomicAdd(&shared.list_length, 1);
        if (at < LIST_MAX) shared.list[at] = r;
        low = min(low, r);
        high = max(high, r);
    };
    for_each_token(v, key_of_rank(s.low), take, [](int, int32_t) {});
    if (high > 0) {
        atomicMin(&shared.list_low, low);
        atomicMax(&shared.list_high, high);
    }
    __syncthreads();
    return shared.list_length <= LIST_MAX;
}

/* Best first. A bitonic sort of as many as the next power of two; what is missing is worse than any token. */
__device__ void sort_list(void)
{
    int32_t i = threadIdx.x, size = 32, length = shared.list_length;
    while (size < length) size *= 2;
    if (i >= length && i < size) shared.list[i] = 0;
    for (int run = 2; run <= size; run *= 2)
        for (int stride = run / 2; stride > 0; stride /= 2) {
            if (stride >= 32 || (stride == 16 && run > 32))
                __syncthreads();
            else
                __syncwarp(); /* pairs of one warp, as in the round before */
            int other = i ^ stride;
            if (i >= size || other < i) continue;
            rank a = shared.list[i], b = shared.list[other];
            if ((a < b) != ((i & run) == 0)) continue;
            shared.list[i] = b;
            shared.list[other] = a;
        }
    __syncthreads();
}

__device__ mass amount_of(const struct row_view &v, enum measure by, float x)
{
    return by == BY_NUMBER ? 1 : weight_of(v, x);
}

/* The rank in the list at which the running total from the best down, above of it before the list, reaches target; 0 where it
 * does not. */
__device__ __noinline__ rank cut_in_list(const struct row_view v, enum measure by, mass above, mass target)
{
    sort_list();
    if (threadIdx.x == 0) shared.cut = 0;
    rank mine = threadIdx.x < shared.list_length ? shared.list[threadIdx.x] : 0;
    mass amount = mine != 0 ? amount_of(v, by, value_of_key(key_of_rank(mine))) : 0;
    mass before = above + sum_before(amount);
    if (before < target && target <= before + amount) shared.cut = mine;
    __syncthreads();
    return shared.cut;
}

/* ---- histograms ---- */

/* Parts of this many bits less than a rank has: at most BINS from low to high. */
__device__ int32_t rank_shift(const struct span &s)
{
    return max(64 - BINS_LOG2 - __clzll((long long)(s.high - s.low)), 0);
}

__device__ void bin_add(int32_t bin, mass amount)
{
    if (amount == 0) return;
    uint32_t low = (uint32_t)amount, before = atomicAdd(&shared.bins.low[bin], low);
    uint32_t high = (uint32_t)(amount >> 32) + (before + low < before);
    if (high != 0) atomicAdd(&shared.bins.high[bin], high);
}

/* What the span's tokens amount to, by their distance to the best logit or by their rank, best first. */
template <enum measure BY, bool BY_DISTANCE>
__device__ __noinline__ void fill_bins(const struct row_view v, const struct span s)
{
    int32_t shift = rank_shift(s);
    struct edge edge(s.low);
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += DRAW_THREADS) shared.bins.low[i] = shared.bins.high[i] = 0;
    __syncthreads();
    auto take = [&](int, int32_t id, float x) {
        bool is_in = edge.keeps(x, id) && id < v.vocab_size;
        rank r = BY_DISTANCE ? 0 : rank_of(key_of(x), id);
        int32_t bin = BY_DISTANCE ? distance_bin_of(v, x) : (int32_t)((s.high - r) >> shift);
        mass amount = amount_of(v, BY, x);
        if (is_in && r <= s.high) bin_add(bin, amount);
    };
    for_each_token(v, key_of_rank(s.low), take, [](int, int32_t) {});
    __syncthreads();
}

template <enum measure BY>
__device__ void fill_bins(const struct row_view &v, const struct span &s, bool by_distance)
{
    if (by_distance)
        fill_bins<BY, true>(v, s);
    else
        fill_bins<BY, false>(v, s);
}

/* The bin in which the running total, *above before the first one, reaches target, with *above before it; -1 where none
 * does. */
__device__ int32_t bin_that_reaches(mass *above, mass target)
{
    mass amounts[BINS_A_THREAD], sum = 0;
    int32_t bin = threadIdx.x * BINS_A_THREAD;
    for (int i = 0; i < BINS_A_THREAD; i++) {
        amounts[i] = (mass)shared.bins.high[bin + i] << 32 | shared.bins.low[bin + i];
        sum += amounts[i];
    }
    if (threadIdx.x == 0) shared.found = -1;
    mass before = *above + sum_before(sum);
    if (before < target && target <= before + sum) {
        for (int i = 0; i < BINS_A_THREAD && before + amounts[i] < target; i++, bin++) before += amounts[i];
        shared.found = bin;
        shared.above = before;
    }
    __syncthreads();
    if (shared.found >= 0) *above = shared.above;
    return shared.found;
}

/* ---- the cut ---- */

__device__ void keep_cut(rank cut)
{
    __syncthreads();
    if (threadIdx.x == 0) shared.cut = cut;
    __syncthreads();
}

/* The cut: the least rank that stays when tokens from the best one down to floor stay until they amount to target; floor where
 * they never do. Returns whether a shortlist tells: it is shared.cut then. own: at most what the thread's tile amounts to; num_left: at most so many
 * tokens there are. */
__device__ __noinline__ bool find_cut_in_list(const struct row_view v, enum measure by, mass target,
                                              rank floor, mass own, int32_t num_left)
{
    struct span s = {floor, RANK_MAX, -1};
    if (num_left <= LIST_MAX) {
        gather(v, s);
        keep_cut(max(floor, cut_in_list(v, by, 0, target)));
        return true;
    }
    uint32_t peak = threadIdx.x < v.num_tiles ? v.peaks[threadIdx.x] : 0;
    int32_t num_peaks = by == BY_NUMBER ? (int32_t)target : v.num_tiles / 8;
    for (; num_peaks <= v.num_tiles / 8 * 5; num_peaks *= 4) {
        s.low = max(floor, (rank)kth_highest(peak, num_peaks) << 32);
        mass at_most = sum_over_block(peak >= key_of_rank(s.low) ? own : 0);
        if (at_most < target && s.low > floor) continue;
        if (!gather(v, s)) return false;
        rank cut = cut_in_list(v, by, 0, target);
        keep_cut(max(cut, floor));
        if (cut != 0 || s.low == floor) return true;
    }
    return false;
}

/* The cut, however many tokens stay. */
__device__ __noinline__ rank find_cut_in_bins(const struct row_view v, enum measure by, mass target,
                                              rank floor)
{
    struct span s = {floor, RANK_MAX, -1};
    mass above = 0;
    for (bool by_distance = true;; by_distance = false) {
        if (by == BY_NUMBER)
            fill_bins<BY_NUMBER>(v, s, by_distance);
        else
            fill_bins<BY_WEIGHT>(v, s, by_distance);
        int32_t bin = bin_that_reaches(&above, target), shift = rank_shift(s);
        if (bin < 0) return floor;
        if (by_distance)
            s.distance_bin = bin;
        else
            s = {max(s.low, s.high - ((rank)(bin + 1) << shift) + 1), s.high - ((rank)bin << shift), -1};
        if (gather(v, s)) return cut_in_list(v, by, above, target);
        s = {shared.list_low, shared.list_high, -1};
    }
}

/* The cut of the k best from floor up. */
__device__ rank find_cut_of_best(const struct row_view &v, int32_t k, rank floor)
{
    if (find_cut_in_list(v, BY_NUMBER, (mass)k, floor, 1 << v.tile_shift, v.vocab_size)) return shared.cut;
    return find_cut_in_bins(v, BY_NUMBER, (mass)k, floor);
}

/* Weights of the tokens from cut up, of the thread's tile. */
__device__ __noinline__ mass weigh_tiles(const struct row_view v, rank cut)
{
    mass sums[TILES_AT_A_TIME] = {};
    struct edge edge(cut);
    __syncthreads();
    shared.tile_masses[threadIdx.x] = 0;
    __syncthreads();
    auto take = [&](int k, int32_t id, float x) {
        mass weight = weight_of(v, x);
        sums[k] += edge.keeps(x, id) ? weight : 0;
    };
    auto close = [&](int k, int32_t tile) {
        mass sum = sum_over_warp(sums[k]);
        if (threadIdx.x % 32 == 0 && tile < v.num_tiles) shared.tile_masses[tile] = sum;
        sums[k] = 0;
    };
    for_each_token(v, key_of_rank(cut), take, close);
    __syncthreads();
    return shared.tile_masses[threadIdx.x];
}

/* ---- the draw ---- */

__device__ uint32_t philox_word(uint64_t seed, uint64_t counter, uint32_t stream)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32), c0 = (uint32_t)counter,
             c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = stream, c3 = 0;
    for (int round = 0; round < 10; round++) {
        uint32_t h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0, h1 = __umulhi(0xCD9E8D57u, c2),
                 l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c0;
}

/* u * total for the row's u of this number, in [0, 1), rounded down. */
__device__ mass draw_target(uint64_t seed, int32_t position, mass total, uint32_t number)
{
    mass u24 = philox_word(seed, (uint64_t)(int64_t)position, number) >> 8;
    return (total >> 24) * u24 + (((total & 0xffffffu) * u24) >> 24);
}

/* The first id of a tile at which the running total of weights exceeds target. By one warp. */
__device__ void draw_in_tile(const struct row_view &v, rank cut, int32_t tile, mass target, int32_t *drawn)
{
    int32_t first = tile << v.tile_shift;
    for (int32_t at = threadIdx.x % 32 * 4; at < 1 << v.tile_shift; at += VECTOR_IDS) {
        float4 four = load_four(v.x, first + at, v.vocab_size);
        const float x[] = {four.x, four.y, four.z, four.w};
        mass weights[4], sum = 0;
        for (int i = 0; i < 4; i++) {
            weights[i] = rank_of(key_of(x[i]), first + at + i) >= cut ? weight_of(v, x[i]) : 0;
            sum += weights[i];
        }
        mass before = sum_before_in_warp(sum), all = __shfl_sync(0xffffffffu, before + sum, 31);
        if (before <= target && target < before + sum) {
            int i = 0;
            for (before += weights[0]; before <= target; before += weights[++i]) continue;
            *drawn = first + at + i;
        }
        if (target < all) return;
        target -= all;
    }
}

/* The tokens at the row's u of numbers first, first + 1, ... of the tokens from cut up: picks[0 .. num), at most DRAW_TRIES;
 * own: what they weigh in the thread's tile, total: altogether. */
__device__ __noinline__ void pick_tokens(const struct row_view v, uint64_t seed, int32_t position, rank cut,
                                         mass own, mass total, uint32_t first, int32_t num)
{
    mass before = sum_before(own);
    if (threadIdx.x < (unsigned)num)
        shared.picks[threadIdx.x] = {-1, -1, draw_target(seed, position, total, first + threadIdx.x), 0};
    __syncthreads();
    for (int32_t i = 0; i < num; i++) {
        mass target = shared.picks[i].target;
        if (before > target || target >= before + own) continue;
        shared.picks[i].tile = (int32_t)threadIdx.x;
        shared.picks[i].left = target - before; /* a place of its own: others still read the target */
    }
    __syncthreads();
    int32_t warp = (int32_t)threadIdx.x / 32;
    if (warp < num && shared.picks[warp].tile >= 0)
        draw_in_tile(v, cut, shared.picks[warp].tile, shared.picks[warp].left, &shared.picks[warp].id);
    __syncthreads();
}

/* The first of all picks from the cut up; -1: none. */
__device__ int32_t first_pick_from(const struct row_view &v, rank cut)
{
    for (int32_t i = 0; i < DRAW_TRIES; i++) {
        int32_t id = shared.picks[i].id;
        if (id >= 0 && rank_of(key_of(v.x[id]), id) >= cut) return id;
    }
    return -1;
}

/* The first of all picks of which those before it in rank weigh less than share; -1: none. A thread sums in f32, in the order
 * of its tokens. */
__device__ __noinline__ int32_t first_pick_within(const struct row_view v, mass share)
{
    float x[DRAW_TRIES], above[DRAW_TRIES] = {};
    int32_t ids[DRAW_TRIES];
    uint32_t least = ~0u;
#pragma unroll
    for (int i = 0; i < DRAW_TRIES; i++) {
        ids[i] = shared.picks[i].id;
        if (ids[i] < 0) return -1; /* then none has one */
        x[i] = v.x[ids[i]];
        least = min(least, key_of(x[i]));
    }
    auto take = [&](int, int32_t id, float other) {
        float weight = __expf((other - v.best) * v.inverse_temperature);
#pragma unroll
        for (int i = 0; i < DRAW_TRIES; i++)
            above[i] += other > x[i] || (other == x[i] && id < ids[i]) ? weight : 0;
    };
    for_each_token(v, least, take, [](int, int32_t) {});
#pragma unroll
    for (int i = 0; i < DRAW_TRIES; i++)
        if (sum_over_block((mass)(above[i] * WEIGHT_ONE)) < share) return ids[i];
    return -1;
}

/* -1 where nothing can be drawn. Apart from the kernel, so that rows that need no draw do not store the registers that it
 * takes. */
__device__ __noinline__ int32_t draw_token(const struct sample_args &a, int32_t row, float best)
{
    const struct device_sample_params &p = a.params[row];
    const mass *masses = a.masses + (size_t)row * a.num_tiles;
    struct row_view v = view_of(a, p, row, best);
    uint64_t seed = (uint64_t)p.seed_high << 32 | p.seed_low;
    rank floor = (rank)min_p_floor(v, p.min_p) << 32;
    int32_t num_left = v.vocab_size;
    mass own = 0; /* of the thread's tile */
    if (p.flags & SAMPLE_TOP_K) {
        floor = find_cut_of_best(v, p.top_k, floor);
        num_left = min(num_left, p.top_k);
        own = weigh_tiles(v, floor);
    } else if (threadIdx.x < v.num_tiles) {
        own = masses[threadIdx.x];
    }
    mass total = sum_over_block(own);
    if (!(p.flags & SAMPLE_TOP_P)) {
        pick_tokens(v, seed, p.position, floor, own, total, 0, 1);
        return shared.picks[0].id;
    }
    mass share = max((mass)((double)p.top_p * (double)total), (mass)1);
    pick_tokens(v, seed, p.position, floor, own, total, 0, DRAW_TRIES);
    bool has_cut = find_cut_in_list(v, BY_WEIGHT, share, floor, own, num_left);
    int32_t id = has_cut ? first_pick_from(v, shared.cut) : first_pick_within(v, share);
    if (id >= 0 || total == 0) return id;
    rank cut = has_cut ? shared.cut : find_cut_in_bins(v, BY_WEIGHT, share, floor);
    own = weigh_tiles(v, cut);
    pick_tokens(v, seed, p.position, cut, own, sum_over_block(own), DRAW_TRIES, 1);
    return shared.picks[0].id;
}

/* The num_top highest raw logits, highest first, ties by lower id, with their log probabilities. */
__device__ void report_top(const struct row_view &raw, int32_t num_top, float log_sum,
                           struct sample_result *out)
{
    gather(raw, {find_cut_of_best(raw, num_top, 0), RANK_MAX, -1});
    sort_list();
    if (threadIdx.x == 0) out->logprobs.num_top = shared.list_length;
    if (threadIdx.x >= shared.list_length) return;
    rank r = shared.list[threadIdx.x];
    out->logprobs.top_ids[threadIdx.x] = id_of_rank(r);
    out->logprobs.top_logprobs[threadIdx.x] = value_of_key(key_of_rank(r)) - log_sum;
}

/* Those that were asked for, instead. */
__device__ void report_ids(const sample_args &a, const struct device_sample_params &p, const float *raw,
                           float log_sum, struct sample_result *out)
{
    const int32_t *ids = a.lists + a.step_counts[COUNT_LISTS] + p.logprob_ids_offset;
    if (threadIdx.x == 0) out->logprobs.num_top = p.num_logprob_ids;
    if (threadIdx.x >= (unsigned)p.num_logprob_ids) return;
    out->logprobs.top_ids[threadIdx.x] = ids[threadIdx.x];
    out->logprobs.top_logprobs[threadIdx.x] = raw[ids[threadIdx.x]] - log_sum;
}

/* What follows a draft is known before the next step begins: it asks for no last token then. */
__device__ void remember_token(const sample_args &a, const struct device_sample_params &p, int32_t token)
{
    if (p.num_drafted == 0) a.last_tokens[p.batch_slot] = token;
    if (p.position < a.max_model_len) a.history[(size_t)p.batch_slot * a.max_model_len + p.position] = token;
}

/* The i-th of the logits that the row leaves for its batch_slot. */
__device__ void keep_logit(const sample_args &a, const struct device_sample_params &p, const float *raw,
                           int32_t i)
{
    const int32_t *ids = a.lists + a.step_counts[COUNT_LISTS] + p.row_logits_offset;
    a.floats[(size_t)p.batch_slot * a.row_floats + i] = raw[ids[i]];
}

__global__ void __launch_bounds__(DRAW_THREADS, 1) draw_kernel(const __grid_constant__ sample_args a)
{
    dependents_launch();
    int32_t row = blockIdx.x;
    struct device_sample_params p = a.params[row]; /* there before the step's first kernel */
    struct sample_result *out = &a.results[row];
    const float *raw = a.logits + (size_t)row * a.vocab_size;
    bool withheld = (p.flags & SAMPLE_CONSTRAINED) && a.mask_places[row] == MASK_WITHHELD;
    dependency_wait();
    if (p.pool_end > 0) return; /* pool.cu has its result */
    if (withheld) {
        if (threadIdx.x == 0) out->withheld = true, out->failed = false;
        return;
    }
    struct chunk_stats all = row_stats(a, row);
    bool scores = p.score_token_id >= 0;
    bool failed = all.is_bad || all.raw_best == -INFINITY || (!scores && all.best == -INFINITY);
    int32_t token = scores ? p.score_token_id : all.best_id;
    struct row_view v = view_of(a, p, row, all.best);
    if (!failed && (p.flags & SAMPLE_DRAW)) {
        token = draw_token(a, row, all.best);
        failed = token < 0;
    }
    float log_sum = all.raw_best + __logf(all.raw_sum);
    if (threadIdx.x == 0) out->logprobs.num_top = 0;
    if (!failed && (p.flags & SAMPLE_ALTERNATIVES)) {
        v.x = raw;
        v.peaks = a.raw_peaks + (size_t)row * a.num_tiles;
        v.best = all.raw_best;
        report_top(v, min(p.num_top_logprobs, (int32_t)TOP_LOGPROBS_MAX), log_sum, out);
    }
    if (!failed && p.num_logprob_ids > 0) report_ids(a, p, raw, log_sum, out);
    if (threadIdx.x < (unsigned)p.num_row_logits) keep_logit(a, p, raw, (int32_t)threadIdx.x);
    if (threadIdx.x != 0) return;
    out->token_id = failed ? 0 : token;
    out->failed = failed;
    out->withheld = false;
    out->logprobs.logprob = !failed && (p.flags & SAMPLE_LOGPROB) ? raw[token] - log_sum : 0;
    if (!scores && !failed) remember_token(a, p, token);
}

} // namespace

#endif
