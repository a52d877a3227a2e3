/* flash_decoding.c - Flash-Decoding: one query, and its keys cut into splits.
 *
 *   for each split of the keys:                       each can be another core's
 *     O, l, m = attention over the split, as FlashAttention-2 does it
 *     keep O / l and L = m + log l                    d + 1 numbers
 *   M = max L                                         the merge
 *   O = sum exp(L - M) O_split / sum exp(L - M)
 *
 * FlashAttention has a core for each tile of queries; a decoding sequence has one query, so that most cores would have
 * nothing to read. K and V are read once, whatever the splits; what splits cost is d + 1 numbers each, there and back.
 *
 * Source: Dao, Haziza, Massa, Sizov, "Flash-Decoding for long-context inference", 2023. */
#include "lab/attention/decoding.h"

static inline void run_split(const struct problem *p, int head, int32_t split, struct traffic *t)
{
    int32_t dim = p->shape.head_dim, first = split * SPLIT_KEYS;
    const float *q = load(t, p->q + (int64_t)head * dim, dim);
    struct partial sums;
    attend_split(p, head, q, first, min_of(first + SPLIT_KEYS, p->shape.num_keys), &sums, t);
    float *to = store(t, partial_of(p, head, split), dim + 1), inverse = inverse_of(sums.l);
    for (int d = 0; d < dim; d++) to[d] = sums.o[d] * inverse;
    to[dim] = sums.m + logf(sums.l);
}

static inline void merge(struct problem *p, int head, struct traffic *t)
{
    int32_t dim = p->shape.head_dim, splits = num_splits(p);
    const float *parts = load(t, partial_of(p, head, 0), (int64_t)splits * (dim + 1));
    float top = -INFINITY, sum = 0, o[LAB_DIM_MAX] = {0};
    for (int32_t i = 0; i < splits; i++) top = fmaxf(top, parts[i * (dim + 1) + dim]);
    for (int32_t i = 0; i < splits; i++) {
        const float *part = parts + i * (dim + 1);
        float weight = exp_difference(part[dim], top);
        sum += weight;
        for (int d = 0; d < dim; d++) o[d] += weight * part[d];
    }
    float *out = store(t, p->out + (int64_t)head * dim, dim);
    for (int d = 0; d < dim; d++) out[d] = o[d] * inverse_of(sum);
}

static void flash_decoding(struct problem *p, struct traffic *t)
{
    for (int head = 0; head < p->shape.num_heads; head++) {
        for (int32_t split = 0; split < num_splits(p); split++) run_split(p, head, split, t);
        merge(p, head, t);
    }
}

LAB_KERNEL(flash_decoding);
