/* decoding.h - one query over one split of its keys, which both ways to decode begin with. */
#ifndef LAB_ATTENTION_DECODING_H
#define LAB_ATTENTION_DECODING_H

#include "lab/attention/chip.h"

/* What a split leaves: sums that another one's can be added to. */
struct partial {
    float m, l; /* the largest score, the sum of exp(score - m) */
    float o[LAB_DIM_MAX];
};

static inline int32_t num_splits(const struct problem *p)
{
    return (int32_t)div_up(p->shape.num_keys, SPLIT_KEYS);
}

/* Where in slow memory a split of a head leaves d + 1 floats. */
static inline float *partial_of(const struct problem *p, int head, int32_t split)
{
    return p->work + ((int64_t)head * num_splits(p) + split) * (p->shape.head_dim + 1);
}

static inline float score_of(const float *q, const float *k, int dim, float scale)
{
    float score = 0;
    for (int d = 0; d < dim; d++) score += q[d] * k[d];
    return score * scale;
}

/* Keys [first, end) of a head in tiles, as FlashAttention-2 walks them. */
static inline void attend_split(const struct problem *p, int head, const float *q, int32_t first, int32_t end,
                                struct partial *sums, struct traffic *t)
{
    int32_t dim = p->shape.head_dim;
    int64_t at = ((int64_t)head * p->shape.num_keys + first) * dim;
    const float *k = load(t, p->k + at, (int64_t)(end - first) * dim);
    const float *v = load(t, p->v + at, (int64_t)(end - first) * dim);
    *sums = (struct partial){.m = -INFINITY};
    for (int32_t j = 0; j < end - first; j += TILE) {
        int keys = tile_size(j, end - first);
        float s[TILE], m = sums->m;
        for (int i = 0; i < keys; i++) {
            s[i] = score_of(q, k + (int64_t)(j + i) * dim, dim, p->scale);
            m = fmaxf(m, s[i]);
        }
        float shrink = exp_difference(sums->m, m);
        sums->l *= shrink;
        for (int d = 0; d < dim; d++) sums->o[d] *= shrink;
        for (int i = 0; i < keys; i++) {
            float weight = expf(s[i] - m);
            sums->l += weight;
            for (int d = 0; d < dim; d++) sums->o[d] += weight * v[(int64_t)(j + i) * dim + d];
        }
        sums->m = m;
    }
}

#endif
