/* ranking.h - the leading tokens of a row of values, without sorting the row.
 *
 * Tokens are ranked by value, highest first, equal values by lower id: a strict order, so "the k best" is one
 * set on every machine. Candidates are gathered above a threshold that is lowered until enough are there (a
 * language model puts nearly all mass on few tokens), then split around pivots, as quickselect does,
 * following only the side where the border lies: linear on average. Thread: any, on its own arrays. */
#ifndef KERNELS_CPU_RANKING_H
#define KERNELS_CPU_RANKING_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/row_kernels.h"

struct ranking {
    const struct row_kernels *kernels;
    const float *values;
    int32_t num_values;
    float max;    /* the largest value */
    float scale;  /* a token's weight is exp2((value - max) * scale) */
    float floor;  /* tokens below this value do not take part; -INFINITY: all do */
    int32_t *ids; /* [num_values] candidates; the leading ones come first after ranking_lead_* */
    int32_t num_candidates;
};

/* Makes the count (or all, if fewer) leading tokens ids[0 .. result), in no order. */
int32_t ranking_lead_count(struct ranking *r, int32_t count);

/* The fewest leading tokens whose weights add up to share of the weight of all that take part. */
int32_t ranking_lead_share(struct ranking *r, float share);

/* The same share of the first num_ids candidates' weight, among them only. */
int32_t ranking_lead_share_of(struct ranking *r, int32_t num_ids, float share);

/* Whether token a ranks before token b. */
static inline bool ranking_before(const struct ranking *r, int32_t a, int32_t b)
{
    return r->values[a] != r->values[b] ? r->values[a] > r->values[b] : a < b;
}

#endif
