/* flash_decoding_plus.c - FlashDecoding++: splits that need not know of each other's maximum.
 *
 *   for each split of the keys:
 *     O, l = sum exp(s - phi) V, sum exp(s - phi)     phi is the same number for all scores, chosen beforehand
 *   O = sum O_split / sum l_split                     nothing is rescaled: the sums have one base
 *   where some s - phi was not within (LEAST, MOST):  the row again, with true maxima, as Flash-Decoding does it
 *
 * Any phi gives the same quotient; the maximum is subtracted only to keep exp within range. Scores of a model lie in a
 * range that can be measured, so that one phi does for nearly all rows, and the others are exact because they fall back.
 * The softmax is no chain any more: no tile waits for the maximum of the one before.
 *
 * The paper's other half, products of few rows and the choice between three ways to compute them, is flat_products.c.
 *
 * Source: Hong, Dai et al., "FlashDecoding++: faster large language model inference on GPUs", 2023. */
#include "lab/attention/decoding.h"

/* exp(MOST) times as many keys as a sequence can have stays within f32, and exp(LEAST) above its smallest numbers. */
static const float LEAST = -60, MOST = 60;

/* False: some score is out of range, and the split was left. */
static inline bool run_split(const struct problem *p, int head, int32_t split, struct traffic *t)
{
    int32_t dim = p->shape.head_dim, first = split * SPLIT_KEYS;
    int32_t keys = min_of(p->shape.num_keys - first, SPLIT_KEYS);
    int64_t at = ((int64_t)head * p->shape.num_keys + first) * dim;
    const float *q = load(t, p->q + (int64_t)head * dim, dim);
    const float *k = load(t, p->k + at, (int64_t)keys * dim), *v = load(t, p->v + at, (int64_t)keys * dim);
    float l = 0, o[LAB_DIM_MAX] = {0};
    for (int64_t j = 0; j < keys; j++) {
        float s = score_of(q, k + j * dim, dim, p->scale) - p->unified_max;
        if (!(s > LEAST && s < MOST)) return false;
        float weight = expf(s);
        l += weight;
        for (int d = 0; d < dim; d++) o[d] += weight * v[j * dim + d];
    }
    float *to = store(t, partial_of(p, head, split), dim + 1);
    memcpy(to, o, (size_t)dim * sizeof *o);
    to[dim] = l;
    return true;
}

static inline void add_splits(struct problem *p, int head, struct traffic *t)
{
    int32_t dim = p->shape.head_dim, splits = num_splits(p);
    const float *parts = load(t, partial_of(p, head, 0), (int64_t)splits * (dim + 1));
    float sums[LAB_DIM_MAX + 1] = {0};
    for (int32_t i = 0; i < splits; i++)
        for (int d = 0; d <= dim; d++) sums[d] += parts[i * (dim + 1) + d];
    float *out = store(t, p->out + (int64_t)head * dim, dim), inverse = inverse_of(sums[dim]);
    for (int d = 0; d < dim; d++) out[d] = sums[d] * inverse;
}

/* With true maxima: one split of all keys. */
static inline void fall_back(struct problem *p, int head, struct traffic *t)
{
    int32_t dim = p->shape.head_dim;
    struct partial sums;
    attend_split(p, head, load(t, p->q + (int64_t)head * dim, dim), 0, p->shape.num_keys, &sums, t);
    float *out = store(t, p->out + (int64_t)head * dim, dim), inverse = inverse_of(sums.l);
    for (int d = 0; d < dim; d++) out[d] = sums.o[d] * inverse;
    p->num_fallbacks++;
}

static void flash_decoding_plus(struct problem *p, struct traffic *t)
{
    p->num_fallbacks = 0;
    for (int head = 0; head < p->shape.num_heads; head++) {
        bool within = true;
        for (int32_t split = 0; split < num_splits(p) && within; split++)
            within = run_split(p, head, split, t);
        if (within)
            add_splits(p, head, t);
        else
            fall_back(p, head, t);
    }
}

LAB_KERNEL(flash_decoding_plus);
