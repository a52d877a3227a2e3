/* problem.h - one attention problem of the lab: its shapes, its tensors, which query sees which key.
 *
 *   q [H][Nq][d]; k, v [H][Nk][d]: every head has keys and values of its own. Nq is Nk (a prompt) or 1 (decoding).
 *
 * Tensors are f32 in host memory: what a CPU computes with, and what a GPU takes over in bf16 and gives back.
 * Thread: none of its own. */
#ifndef LAB_ATTENTION_PROBLEM_H
#define LAB_ATTENTION_PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { LAB_DIM_MAX = 128 };

enum mask {
    MASK_NONE,      /* every query sees every key */
    MASK_CAUSAL,    /* query i sees keys j <= i */
    MASK_DOCUMENTS, /* causal, and sequences packed one behind another do not see each other: intervals say so */
    MASK_INTERVALS, /* what the intervals say */
};

/* H, Nq, Nk, d. */
struct shape {
    int32_t num_heads, num_queries, num_keys, head_dim;
    enum mask mask;
    int32_t document; /* MASK_DOCUMENTS: tokens of each; the last may have fewer */
};

/* FlashMask's four numbers of a key: it is hidden from rows [lower_start, lower_end), below the diagonal, and from rows
 * [upper_start, upper_end), above it. Each [Nk]; the order is that of the paper's LTS, LTE, UTS, UTE. */
struct intervals {
    int32_t *lower_start, *lower_end, *upper_start, *upper_end;
};

struct problem {
    struct shape shape;
    float scale; /* 1 / sqrt(d) */
    float *q, *k, *v, *d_out;
    float *out, *lse;       /* [H][Nq][d], [H][Nq]: log-sum-exp of a row's scaled scores */
    float *d_q, *d_k, *d_v; /* gradients of sum(out * d_out) */
    struct intervals hidden;
    float unified_max;     /* FlashDecoding++: what is subtracted from every score */
    int64_t num_fallbacks; /* and how many rows had to be computed again */
    float *work;           /* what else an algorithm keeps in slow memory */
    float *memory;         /* of all tensors */
};

/* Fills tensors with random numbers close to normal, as bf16 has them, and intervals with those of the mask; all is
 * released by problem_free. */
int problem_init(struct problem *p, const struct shape *shape, uint64_t seed, struct error *err) must_check;
void problem_free(struct problem *p);

static inline bool problem_sees(const struct problem *p, int32_t query, int32_t key)
{
    const struct intervals *h = &p->hidden;
    if (p->shape.mask == MASK_NONE) return true;
    if (p->shape.mask == MASK_CAUSAL) return key <= query;
    return !(query >= h->lower_start[key] && query < h->lower_end[key]) &&
           !(query >= h->upper_start[key] && query < h->upper_end[key]);
}

/* Pairs of a query and a key that it sees, of all heads. */
double problem_pairs(const struct problem *p);

#endif
