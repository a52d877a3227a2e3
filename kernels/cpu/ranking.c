#include "kernels/cpu/ranking.h"

#include <math.h>

#include "base/check.h"
#include "kernels/cpu/exp2_portable.h"

/* Candidates are looked for down to these powers of two of the best one's weight. */
static const float depths[] = {10.0f, 24.0f, INFINITY};
enum { NUM_DEPTHS = sizeof depths / sizeof depths[0] };

static float depth_threshold(const struct ranking *r, int depth_idx)
{
    assert_debug(r->scale > 0.0f);
    float threshold = r->max - depths[depth_idx] / r->scale;
    return threshold > r->floor ? threshold : r->floor;
}

static void gather(struct ranking *r, float threshold)
{
    r->num_candidates = r->kernels->gather(r->values, r->num_values, threshold, r->ids, r->num_values);
}

static double weight_of(const struct ranking *r, int32_t id)
{
    return (double)exp2_portable((r->values[id] - r->max) * r->scale);
}

static void swap(int32_t *ids, int32_t a, int32_t b)
{
    int32_t t = ids[a];
    ids[a] = ids[b];
    ids[b] = t;
}

/* The median of first, middle and last goes to the end of the range as the pivot. */
static void place_pivot(const struct ranking *r, int32_t first, int32_t last)
{
    int32_t *ids = r->ids, middle = first + (last - first) / 2;
    if (ranking_before(r, ids[middle], ids[first])) swap(ids, middle, first);
    if (ranking_before(r, ids[last], ids[first])) swap(ids, last, first);
    if (ranking_before(r, ids[middle], ids[last])) swap(ids, middle, last);
}

/* How much of what is wanted the leading tokens make up: a number of tokens, or their weight. */
struct amount {
    int32_t count;
    double weight;
};

/* Moves the tokens of ids[first .. last] that rank before the pivot to the front and the pivot behind them;
 * returns its place and what stands before it. */
static int32_t split(const struct ranking *r, int32_t first, int32_t last, bool weigh, struct amount *before)
{
    place_pivot(r, first, last);
    int32_t *ids = r->ids, pivot = ids[last], place = first;
    *before = (struct amount){0, 0.0};
    for (int32_t i = first; i < last; i++) {
        if (!ranking_before(r, ids[i], pivot)) continue;
        if (weigh) before->weight += weight_of(r, ids[i]);
        swap(ids, i, place++);
    }
    swap(ids, place, last);
    before->count = place - first;
    return place;
}

/* The fewest leading tokens of ids[0 .. num_ids) that reach wanted.count or (if weigh) wanted.weight. */
static int32_t lead(const struct ranking *r, int32_t num_ids, struct amount wanted, bool weigh)
{
    int32_t first = 0, last = num_ids - 1;
    double weight = 0.0; /* of ids[0 .. first) */
    while (first <= last) {
        struct amount before;
        int32_t place = split(r, first, last, weigh, &before);
        if (weigh ? weight + before.weight >= wanted.weight : place >= wanted.count) {
            last = place - 1;
            continue;
        }
        if (weigh) weight += before.weight + weight_of(r, r->ids[place]);
        first = place + 1;
        if (weigh ? weight >= wanted.weight : first >= wanted.count) break;
    }
    return first;
}

int32_t ranking_lead_count(struct ranking *r, int32_t count)
{
    for (int i = 0; i < NUM_DEPTHS; i++) {
        gather(r, depth_threshold(r, i));
        if (r->num_candidates >= count) return lead(r, r->num_candidates, (struct amount){count, 0.0}, false);
    }
    return r->num_candidates;
}

int32_t ranking_lead_share(struct ranking *r, float share)
{
    const struct row_kernels *k = r->kernels;
    double wanted = (double)share * k->sum_exp(r->values, r->num_values, r->max, r->scale, r->floor);
    for (int i = 0; i < NUM_DEPTHS; i++) {
        float threshold = depth_threshold(r, i);
        if (i + 1 < NUM_DEPTHS && k->sum_exp(r->values, r->num_values, r->max, r->scale, threshold) < wanted)
            continue;
        gather(r, threshold);
        break;
    }
    int32_t num = lead(r, r->num_candidates, (struct amount){0, wanted}, true);
    return num > 0 ? num : 1;
}

int32_t ranking_lead_share_of(struct ranking *r, int32_t num_ids, float share)
{
    double sum = 0.0;
    for (int32_t i = 0; i < num_ids; i++) sum += weight_of(r, r->ids[i]);
    int32_t num = lead(r, num_ids, (struct amount){0, (double)share * sum}, true);
    return num > 0 ? num : 1;
}
