/* sample.cu - from logits to tokens on the device, with the semantics of kernels/cpu/sampling.h.
 *
 * Three launches, whatever the rows ask for: adjust (bias, bans, penalties: only rows that have any are copied), scan
 * (maximum and sum of exponentials by chunks of a row), draw (one CTA a row).
 *
 * Sums of weights are integers: a weight in [0, 1] counts as w * 2^40. Integer addition is associative, so histograms
 * may be built with atomics and a draw still has the same bits every time. A token of less than 2^-41 of the best one's
 * weight cannot be drawn.
 *
 * top_k and top_p look for a threshold instead of sorting: a radix search over the bits of the logits, one histogram of
 * counts or of weights for each of four bytes. Ties at the threshold go to the lowest ids. */
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/hopper.cuh"

enum { DRAW_THREADS = 1024, SCAN_THREADS = 256, SCAN_CHUNK = 8192, HIST_BINS = 256 };

#define SAMPLING_GREEDY_BELOW 1e-5f
#define WEIGHT_ONE 1099511627776.0f /* 2^40 */
#define SEEN_IN_PROMPT 0x80000000u

typedef unsigned long long mass; /* a sum of weights in units of 2^-40 */

struct history_meta {
    int32_t num_prompt, num_tokens;
};

/* What scan learns about one chunk of a row. */
struct chunk_stats {
    float best, raw_best, raw_sum; /* raw_sum: of exp(x - raw_best) */
    int32_t best_id;
    int32_t is_bad;
};

struct sampler {
    float *adjusted;       /* [R][V] */
    uint32_t *counts;      /* [R][V], zero between launches */
    struct chunk_stats *stats; /* [R][chunks] */
    int32_t *history;      /* [slots][max_model_len] */
    struct history_meta *history_meta; /* [slots] */
    int32_t num_chunks;
};

struct draw_args {
    float *logits, *adjusted;
    uint32_t *counts;
    struct chunk_stats *stats;
    int32_t *history, *last_tokens;
    struct history_meta *history_meta;
    struct sample_result *results; /* pinned host memory: a few words a row, which cost less than a copy after the kernel */
    const struct device_sample_params *params;
    const int32_t *lists, *step_counts;
    int32_t vocab_size, num_chunks, max_model_len;
};

int cuda_sampler_prepare(struct cuda_device *d, struct error *err)
{
    struct sampler *s = new struct sampler();
    struct device *base = &d->base;
    size_t rows = (size_t)d->limits.num_logits, slots = (size_t)d->limits.num_seq_slots, v = (size_t)d->vocab_size;
    s->num_chunks = (d->vocab_size + SCAN_CHUNK - 1) / SCAN_CHUNK;
    s->adjusted = (float *)base->ops->alloc(base, rows * v * 4, "sampling");
    s->counts = (uint32_t *)base->ops->alloc(base, rows * v * 4, "sampling");
    s->stats = (struct chunk_stats *)base->ops->alloc(base, rows * s->num_chunks * sizeof *s->stats, "sampling");
    s->history = (int32_t *)base->ops->alloc(base, slots * d->limits.max_model_len * 4, "sampling");
    s->history_meta = (struct history_meta *)base->ops->alloc(base, slots * sizeof *s->history_meta, "sampling");
    d->sampler = s;
    if (!s->adjusted || !s->counts || !s->stats || !s->history || !s->history_meta)
        return error_set(err, STATUS_NO_MEMORY, "the GPU has no room for the sampler of %zu rows of %zu", rows, v);
    return STATUS_OK;
}

int cuda_history_set(struct device *device, int32_t seq_slot, const int32_t *token_ids, int32_t num_prompt,
                     int32_t num_tokens)
{
    struct cuda_device *d = cuda_of(device);
    struct history_meta meta = {num_prompt, num_tokens};
    int32_t *to = d->sampler->history + (size_t)seq_slot * d->limits.max_model_len;
    /* The source is pageable and the stream's order is wanted: both copies return when the source was read. */
    bool ok = CUDA_CHECK(d, cudaMemcpyAsync(to, token_ids, (size_t)num_tokens * 4, cudaMemcpyHostToDevice, d->stream)) &&
              CUDA_CHECK(d, cudaMemcpyAsync(d->sampler->history_meta + seq_slot, &meta, sizeof meta,
                                            cudaMemcpyHostToDevice, d->stream));
    return ok ? STATUS_OK : STATUS_DEVICE;
}

static __device__ bool has_penalties(const struct device_sample_params &p)
{
    return p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f;
}

static __device__ bool is_adjusted(const struct device_sample_params &p)
{
    return p.score_token_id < 0 && (p.num_bias > 0 || p.num_banned > 0 || has_penalties(p));
}

/* Copies the row and changes the copy: bias, bans, penalties. One CTA a row. */
static __global__ void __launch_bounds__(DRAW_THREADS) adjust_kernel(draw_args a)
{
    dependents_launch();
    dependency_wait();
    struct device_sample_params p = a.params[blockIdx.x];
    if (!is_adjusted(p)) return;
    const float *from = a.logits + (size_t)blockIdx.x * a.vocab_size;
    float *to = a.adjusted + (size_t)blockIdx.x * a.vocab_size;
    uint32_t *counts = a.counts + (size_t)blockIdx.x * a.vocab_size;
    const int32_t *lists = a.lists + a.step_counts[COUNT_LISTS];
    for (int i = threadIdx.x; i < a.vocab_size; i += DRAW_THREADS) to[i] = from[i];
    __syncthreads();
    for (int i = threadIdx.x; i < p.num_bias; i += DRAW_THREADS) {
        int32_t id = lists[p.bias_offset + 2 * i];
        to[id] += __int_as_float(lists[p.bias_offset + 2 * i + 1]);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < p.num_banned; i += DRAW_THREADS) to[lists[p.banned_offset + i]] = -INFINITY;
    if (!has_penalties(p)) return;
    __syncthreads();
    struct history_meta meta = a.history_meta[p.seq_slot];
    const int32_t *history = a.history + (size_t)p.seq_slot * a.max_model_len;
    for (int i = threadIdx.x; i < meta.num_tokens; i += DRAW_THREADS) {
        if (i < meta.num_prompt)
            atomicOr(&counts[history[i]], SEEN_IN_PROMPT);
        else
            atomicAdd(&counts[history[i]], 1u);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < meta.num_tokens; i += DRAW_THREADS) {
        int32_t id = history[i];
        uint32_t seen = atomicExch(&counts[id], 0u); /* the first to come applies the penalty, and cleans up */
        if (seen == 0) continue;
        float x = to[id];
        x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
        uint32_t times = seen & ~SEEN_IN_PROMPT;
        if (times > 0) x -= p.frequency_penalty * (float)times + p.presence_penalty;
        to[id] = x;
    }
}

static __device__ const float *row_of(const draw_args &a, const struct device_sample_params &p, int row)
{
    return (is_adjusted(p) ? a.adjusted : a.logits) + (size_t)row * a.vocab_size;
}

/* Highest value first, lowest id among equals. */
static __device__ void keep_better(float *x, int32_t *id, float other, int32_t other_id)
{
    if (other > *x || (other == *x && other_id < *id)) {
        *x = other;
        *id = other_id;
    }
}

static __global__ void __launch_bounds__(SCAN_THREADS) scan_kernel(draw_args a)
{
    dependents_launch();
    dependency_wait();
    int row = blockIdx.y, first = blockIdx.x * SCAN_CHUNK, end = min(first + SCAN_CHUNK, a.vocab_size);
    struct device_sample_params p = a.params[row];
    const float *raw = a.logits + (size_t)row * a.vocab_size, *x = row_of(a, p, row);
    bool wants_sum = p.num_top_logprobs >= 0;
    float best = -INFINITY, raw_best = -INFINITY;
    int32_t best_id = INT32_MAX, is_bad = 0;
    auto take = [&](int32_t id, float r, float value) {
        is_bad |= !(r < INFINITY); /* NaN or +infinity */
        raw_best = fmaxf(raw_best, r);
        keep_better(&best, &best_id, value, id);
    };
    if (a.vocab_size % 4 == 0) {
#pragma unroll 8
        for (int i = first + 4 * threadIdx.x; i < end; i += 4 * SCAN_THREADS) {
            float4 r = *(const float4 *)(raw + i), value = x == raw ? r : *(const float4 *)(x + i);
            take(i, r.x, value.x);
            take(i + 1, r.y, value.y);
            take(i + 2, r.z, value.z);
            take(i + 3, r.w, value.w);
        }
    } else {
        for (int i = first + threadIdx.x; i < end; i += SCAN_THREADS) take(i, raw[i], x[i]);
    }
    __shared__ float shared_x[SCAN_THREADS / 32], shared_raw[SCAN_THREADS / 32], shared_sum[SCAN_THREADS / 32];
    __shared__ int32_t shared_id[SCAN_THREADS / 32], shared_bad[SCAN_THREADS / 32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int mask = 16; mask > 0; mask /= 2) {
        keep_better(&best, &best_id, __shfl_xor_sync(0xffffffffu, best, mask), __shfl_xor_sync(0xffffffffu, best_id, mask));
        raw_best = fmaxf(raw_best, __shfl_xor_sync(0xffffffffu, raw_best, mask));
        is_bad |= __shfl_xor_sync(0xffffffffu, is_bad, mask);
    }
    if (lane == 0) {
        shared_x[warp] = best;
        shared_id[warp] = best_id;
        shared_raw[warp] = raw_best;
        shared_bad[warp] = is_bad;
    }
    __syncthreads();
    raw_best = -INFINITY;
    for (int w = 0; w < SCAN_THREADS / 32; w++) raw_best = fmaxf(raw_best, shared_raw[w]);
    float sum = 0;
    if (wants_sum && raw_best > -INFINITY)
        for (int i = first + threadIdx.x; i < end; i += SCAN_THREADS) sum += __expf(raw[i] - raw_best);
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    if (lane == 0) shared_sum[warp] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    struct chunk_stats s = {-INFINITY, raw_best, 0, INT32_MAX, 0};
    for (int w = 0; w < SCAN_THREADS / 32; w++) {
        keep_better(&s.best, &s.best_id, shared_x[w], shared_id[w]);
        s.raw_sum += shared_sum[w];
        s.is_bad |= shared_bad[w];
    }
    a.stats[(size_t)row * a.num_chunks + blockIdx.x] = s;
}

/* ---- draw: one CTA a row. Thread t owns the ids [t * per, (t + 1) * per), so that scans run in order of id. ---- */

struct row_view {
    const float *x;
    int32_t begin, end; /* of this thread */
    float best, inverse_temperature;
};

/* Larger floats have larger keys. */
static __device__ uint32_t key_of(float x)
{
    uint32_t bits = __float_as_uint(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static __device__ mass weight_of(const struct row_view &v, float x)
{
    return (mass)(__expf((x - v.best) * v.inverse_temperature) * WEIGHT_ONE + 0.5f);
}

/* What a token must be to stay: key above threshold, or equal to it and among the first num_ties of those in id order. */
struct cut {
    uint32_t threshold;
    int32_t num_ties;
};

static __device__ mass sum_over_block(mass x, mass *shared)
{
    for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
    __syncthreads();
    mass sum = 0;
    for (int w = 0; w < DRAW_THREADS / 32; w++) sum += shared[w];
    return sum;
}

/* Sum over the threads before this one. */
static __device__ mass sum_before(mass x, mass *shared)
{
    mass inclusive = x;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int step = 1; step < 32; step *= 2) {
        mass other = __shfl_up_sync(0xffffffffu, inclusive, step);
        if (lane >= step) inclusive += other;
    }
    __syncthreads();
    if (lane == 31) shared[warp] = inclusive;
    __syncthreads();
    mass before = inclusive - x;
    for (int w = 0; w < warp; w++) before += shared[w];
    return before;
}

/* The key at which the running total, from the highest key down, first reaches target; *above is the total of all keys
 * beyond it. By count (weights false) or by weight. Only keys >= floor take part. */
static __device__ uint32_t find_threshold(const struct row_view &v, bool weights, mass target, uint32_t floor,
                                          mass *hist, mass *above)
{
    __shared__ uint32_t shared_prefix;
    __shared__ mass shared_above;
    uint32_t prefix = 0, mask = 0;
    mass beyond = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < HIST_BINS; i += DRAW_THREADS) hist[i] = 0;
        __syncthreads();
        for (int32_t i = v.begin; i < v.end; i++) {
            uint32_t key = key_of(v.x[i]);
            if (key < floor || (key & mask) != prefix) continue;
            atomicAdd(&hist[(key >> shift) & 255], weights ? weight_of(v, v.x[i]) : (mass)1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int bin = HIST_BINS - 1;
            while (bin > 0 && beyond + hist[bin] < target) beyond += hist[bin--];
            shared_prefix = prefix | (uint32_t)bin << shift;
            shared_above = beyond;
        }
        __syncthreads();
        prefix = shared_prefix;
        beyond = shared_above;
        mask |= 255u << shift;
        __syncthreads();
    }
    *above = beyond;
    return prefix;
}

/* Number of this thread's tokens that equal the threshold. */
static __device__ int32_t count_ties(const struct row_view &v, uint32_t threshold)
{
    int32_t n = 0;
    for (int32_t i = v.begin; i < v.end; i++) n += key_of(v.x[i]) == threshold;
    return n;
}

/* Sum of the weights of what the cut leaves, of this thread; ties_before: equal keys of earlier threads. */
static __device__ mass weight_left(const struct row_view &v, const struct cut &c, int32_t ties_before)
{
    mass sum = 0;
    for (int32_t i = v.begin; i < v.end; i++) {
        uint32_t key = key_of(v.x[i]);
        if (key > c.threshold || (key == c.threshold && ties_before++ < c.num_ties)) sum += weight_of(v, v.x[i]);
    }
    return sum;
}

static __device__ int32_t draw_left(const struct row_view &v, const struct cut &c, int32_t ties_before, mass before,
                                    mass target)
{
    for (int32_t i = v.begin; i < v.end; i++) {
        uint32_t key = key_of(v.x[i]);
        if (key < c.threshold || (key == c.threshold && ties_before++ >= c.num_ties)) continue;
        before += weight_of(v, v.x[i]);
        if (before > target) return i;
    }
    return -1;
}

/* min_p: the lowest key whose weight is not below it. Weights grow with keys, so this is a search over floats. */
static __device__ uint32_t min_p_floor(const struct row_view &v, float min_p)
{
    if (min_p <= 0) return key_of(-INFINITY) + 1;
    float x = v.best + __logf(min_p) / v.inverse_temperature;
    return key_of(fminf(x, v.best));
}

static __device__ uint32_t philox_word(uint64_t seed, uint64_t counter)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32), c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = 0, c3 = 0;
    for (int round = 0; round < 10; round++) {
        uint32_t h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0, h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c0;
}

static __device__ int32_t draw_token(const struct row_view &v, const struct device_sample_params &p, mass *hist)
{
    __shared__ mass warps[DRAW_THREADS / 32];
    __shared__ int32_t drawn;
    uint32_t floor = min_p_floor(v, p.min_p);
    struct cut c = {floor, INT32_MAX};
    mass above;
    if (p.top_k > 0) {
        uint32_t threshold = find_threshold(v, false, (mass)p.top_k, floor, hist, &above);
        if (threshold > c.threshold) c = cut{threshold, p.top_k - (int32_t)above};
        else if (threshold == c.threshold) c.num_ties = p.top_k - (int32_t)above;
    }
    int32_t ties_before = (int32_t)sum_before((mass)count_ties(v, c.threshold), warps);
    mass left = weight_left(v, c, ties_before), total = sum_over_block(left, warps);
    if (p.top_p < 1.0f) {
        mass target = (mass)((double)p.top_p * (double)total);
        if (target < 1) target = 1;
        uint32_t threshold = find_threshold(v, true, target, c.threshold, hist, &above);
        float x = threshold & 0x80000000u ? __uint_as_float(threshold & 0x7fffffffu) : __uint_as_float(~threshold);
        mass one = weight_of(v, x), missing = target > above ? target - above : 0;
        int32_t ties = one > 0 ? (int32_t)((missing + one - 1) / one) : INT32_MAX;
        if (threshold > c.threshold)
            c = cut{threshold, ties};
        else
            c.num_ties = min(c.num_ties, ties);
        ties_before = (int32_t)sum_before((mass)count_ties(v, c.threshold), warps);
        left = weight_left(v, c, ties_before);
        total = sum_over_block(left, warps);
    }
    uint64_t seed = (uint64_t)p.seed_high << 32 | p.seed_low;
    mass u24 = philox_word(seed, (uint64_t)(int64_t)p.position) >> 8;
    mass target = (total >> 24) * u24 + (((total & 0xffffffu) * u24) >> 24); /* floor(u * total) */
    mass before = sum_before(left, warps);
    if (threadIdx.x == 0) drawn = -1;
    __syncthreads();
    if (before <= target && target < before + left) drawn = draw_left(v, c, ties_before, before, target);
    __syncthreads();
    return drawn;
}

/* The num_top highest raw logits, highest first, ties by lower id, with their log probabilities. */
static __device__ void find_top(struct row_view v, int32_t num_top, float log_sum, mass *hist, struct sample_result *out)
{
    __shared__ mass warps[DRAW_THREADS / 32];
    __shared__ int32_t ids[TOP_LOGPROBS_MAX], num_found;
    __shared__ float values[TOP_LOGPROBS_MAX];
    mass above;
    uint32_t threshold = find_threshold(v, false, (mass)num_top, 0, hist, &above);
    int32_t num_ties = num_top - (int32_t)above;
    int32_t ties_before = (int32_t)sum_before((mass)count_ties(v, threshold), warps);
    if (threadIdx.x == 0) num_found = 0;
    __syncthreads();
    for (int32_t i = v.begin; i < v.end; i++) {
        uint32_t key = key_of(v.x[i]);
        if (key < threshold || (key == threshold && ties_before++ >= num_ties)) continue;
        int32_t at = atomicAdd(&num_found, 1);
        if (at < TOP_LOGPROBS_MAX) {
            ids[at] = i;
            values[at] = v.x[i];
        }
    }
    __syncthreads();
    if (threadIdx.x < num_found) { /* place by counting who is better: the order of arrival does not matter */
        float x = values[threadIdx.x];
        int32_t id = ids[threadIdx.x], place = 0;
        for (int i = 0; i < num_found; i++) place += values[i] > x || (values[i] == x && ids[i] < id);
        out->logprobs.top_ids[place] = id;
        out->logprobs.top_logprobs[place] = x - log_sum;
    }
    if (threadIdx.x == 0) out->logprobs.num_top = num_found;
}

/* All chunks of a row as one, the same bits in every lane: a lane takes chunks lane, lane + 32, ..., then lanes in pairs. */
static __device__ struct chunk_stats row_stats(const draw_args &a, int row)
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
    for (int i = lane; i < a.num_chunks; i += 32) all.raw_sum += stats[i].raw_sum * __expf(stats[i].raw_best - all.raw_best);
    for (int mask = 16; mask > 0; mask /= 2) all.raw_sum += __shfl_xor_sync(0xffffffffu, all.raw_sum, mask);
    return all;
}

static __global__ void __launch_bounds__(DRAW_THREADS) draw_kernel(draw_args a)
{
    dependents_launch();
    dependency_wait();
    __shared__ mass hist[HIST_BINS];
    int row = blockIdx.x;
    struct device_sample_params p = a.params[row];
    struct sample_result *out = &a.results[row];
    struct chunk_stats all = row_stats(a, row);
    bool scores = p.score_token_id >= 0;
    bool failed = all.is_bad || all.raw_best == -INFINITY || (!scores && all.best == -INFINITY);
    int32_t per = ((a.vocab_size + DRAW_THREADS - 1) / DRAW_THREADS + 3) / 4 * 4;
    struct row_view v;
    v.begin = min((int32_t)threadIdx.x * per, a.vocab_size);
    v.end = min(v.begin + per, a.vocab_size);
    v.best = all.best;
    v.inverse_temperature = 1.0f / p.temperature;
    v.x = row_of(a, p, row);
    int32_t token = scores ? p.score_token_id : all.best_id;
    if (!failed && !scores && p.temperature >= SAMPLING_GREEDY_BELOW) {
        token = draw_token(v, p, hist);
        failed = token < 0;
    }
    const float *raw = a.logits + (size_t)row * a.vocab_size;
    float log_sum = all.raw_best + __logf(all.raw_sum);
    if (threadIdx.x == 0) out->logprobs.num_top = 0;
    __syncthreads();
    if (!failed && p.num_top_logprobs > 0) {
        v.x = raw;
        find_top(v, min(p.num_top_logprobs, (int32_t)TOP_LOGPROBS_MAX), log_sum, hist, out);
    }
    if (threadIdx.x != 0) return;
    out->token_id = failed ? 0 : token;
    out->failed = failed;
    out->logprobs.logprob = !failed && p.num_top_logprobs >= 0 ? raw[token] - log_sum : 0;
    if (scores || failed || p.seq_slot < 0) return;
    a.last_tokens[p.seq_slot] = token;
    struct history_meta *meta = &a.history_meta[p.seq_slot];
    if (meta->num_tokens < a.max_model_len)
        a.history[(size_t)p.seq_slot * a.max_model_len + meta->num_tokens++] = token;
}

void cuda_logits_sample(struct device *device, const struct batch *b, const void *x, const struct linear *lm_head)
{
    if (b->num_logits == 0) return;
    struct cuda_device *d = cuda_of(device);
    struct sampler *s = d->sampler;
    unsigned rows = (unsigned)b->num_logits;
    cuda_linear_rows(d, cuda_linear_padded(lm_head, b->num_logits, d->limits.num_logits), d->logits, x, lm_head);
    draw_args a = {};
    a.logits = d->logits;
    a.adjusted = s->adjusted;
    a.counts = s->counts;
    a.stats = s->stats;
    a.history = s->history;
    a.last_tokens = d->last_tokens;
    a.history_meta = s->history_meta;
    a.results = b->results;
    a.params = b->sample;
    a.lists = b->lists;
    a.step_counts = b->counts;
    a.vocab_size = d->vocab_size;
    a.num_chunks = s->num_chunks;
    a.max_model_len = d->limits.max_model_len;
    launch_dependent(d, adjust_kernel, dim3(rows), dim3(DRAW_THREADS), 0, a);
    launch_dependent(d, scan_kernel, dim3((unsigned)s->num_chunks, rows), dim3(SCAN_THREADS), 0, a);
    launch_dependent(d, draw_kernel, dim3(rows), dim3(DRAW_THREADS), 0, a);
}
