/* attention_plan.c - cuts a step's attention into items and owns the memory that they need.
 *
 * A prompt chunk becomes items of a few tokens each, the last (longest) ones first, so that a thread is not
 * left alone with a long one at the end. A decoding sequence is one item, unless it is so long that it would
 * keep one thread busy while the others wait: then each of its splits is an item. Whichever way, the
 * arithmetic is the same (attention.c), so the plan may follow the load freely. */
#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/kv_pool.h"

enum {
    ROWS_PER_ITEM = 96, /* enough to make widening K and V small against using them (1 / 48 of the work) */
    TOKENS_PER_ITEM_MAX = 32, /* more would waste work on the diagonal and leave fewer items to share out */
    PARTIALS_PER_THREAD = 32,
};

static int32_t num_splits(int32_t num_keys)
{
    return (int32_t)div_up(num_keys, KV_SPLIT);
}

static bool alloc_floats(struct device_memory *memory, float **out, int64_t count)
{
    *out = device_memory_alloc_array(memory, (uint64_t)count, sizeof **out);
    return *out;
}

static bool alloc_sums(struct device_memory *memory, struct softmax_sums *s, int64_t num_rows, int32_t dim)
{
    return alloc_floats(memory, &s->m, num_rows) && alloc_floats(memory, &s->l, num_rows) &&
           alloc_floats(memory, &s->o, num_rows * dim);
}

static bool alloc_rows(struct device_memory *memory, struct attention_rows *r, int32_t num_rows, int32_t dim)
{
    r->dim = dim;
    r->q = device_memory_alloc_array(memory, (uint64_t)num_rows * (uint64_t)dim, sizeof *r->q);
    r->first = device_memory_alloc_array(memory, (uint64_t)num_rows, sizeof *r->first);
    r->end = device_memory_alloc_array(memory, (uint64_t)num_rows, sizeof *r->end);
    r->seen = device_memory_alloc_array(memory, (uint64_t)num_rows, sizeof *r->seen);
    r->place = device_memory_alloc_array(memory, (uint64_t)num_rows, sizeof *r->place);
    r->distance_bias = device_memory_alloc_array(memory, (uint64_t)num_rows, sizeof *r->distance_bias);
    return r->q && r->first && r->end && r->seen && r->place && r->distance_bias &&
           alloc_floats(memory, &r->slopes, num_rows) &&
           alloc_floats(memory, &r->wide, (int64_t)2 * KV_TILE * dim) &&
           alloc_floats(memory, &r->scores, (int64_t)num_rows * KV_TILE) &&
           alloc_floats(memory, &r->rescale, num_rows) && alloc_sums(memory, &r->sums, num_rows, dim);
}

static bool alloc_threads(struct attention_workspace *w, struct device_memory *memory)
{
    int32_t num_rows = w->tokens_per_item * w->group;
    w->rows = device_memory_alloc_array(memory, (uint64_t)w->num_threads, sizeof *w->rows);
    w->totals = device_memory_alloc_array(memory, (uint64_t)w->num_threads, sizeof *w->totals);
    if (!w->rows || !w->totals) return false;
    for (int i = 0; i < w->num_threads; i++) {
        if (!alloc_rows(memory, &w->rows[i], num_rows, w->dim)) return false;
        if (!alloc_sums(memory, &w->totals[i], num_rows, w->dim)) return false;
    }
    return true;
}

static void take_layer(struct attention_workspace *w, const struct attention_args *a)
{
    int32_t group = a->num_heads / a->num_kv_heads;
    assert_always(a->num_heads == group * a->num_kv_heads);
    w->num_heads = max_of(w->num_heads, a->num_heads);
    w->num_kv_heads = max_of(w->num_kv_heads, a->num_kv_heads);
    w->dim = max_of(w->dim, kv_pool_dim(a->head_dim));
    w->group = max_of(w->group, group);
}

int attention_workspace_create(struct attention_workspace *w, struct device_memory *memory, int num_threads,
                               const struct step_limits *limits, const struct attention_args *layers,
                               int32_t num_layers, struct error *err)
{
    *w = (struct attention_workspace){.num_threads = num_threads};
    for (int32_t i = 0; i < num_layers; i++) take_layer(w, &layers[i]);
    w->tokens_per_item = max_of(1, min_of(TOKENS_PER_ITEM_MAX, ROWS_PER_ITEM / w->group));
    w->num_partials =
        num_threads > 1 ? num_splits(limits->max_model_len) + PARTIALS_PER_THREAD * num_threads : 0;
    w->num_items_max = limits->num_tokens / w->tokens_per_item + limits->num_seqs + w->num_partials;
    w->items = device_memory_alloc_array(memory, (uint64_t)w->num_items_max, sizeof *w->items);
    w->num_pending = device_memory_alloc_array(memory, (uint64_t)w->num_partials * (uint64_t)w->num_kv_heads,
                                               sizeof *w->num_pending);
    if (!w->items || !w->num_pending || !alloc_threads(w, memory) ||
        !alloc_sums(memory, &w->partials, (int64_t)w->num_partials * w->num_heads, w->dim))
        return error_set(err, STATUS_NO_MEMORY, "no memory for attention scratch for %d tokens a step",
                         limits->num_tokens);
    return STATUS_OK;
}

/* ---- the plan of a step ---- */

struct planner {
    struct attention_workspace *w;
    const struct step *step;
    struct attention_plan *plan;
    int32_t num_partials;
};

static void add_item(struct planner *p, struct attention_item item)
{
    assert_always(p->plan->num_items < p->w->num_items_max);
    p->plan->items[p->plan->num_items++] = item;
}

static void plan_prefill(struct planner *p, int32_t seq_idx)
{
    int32_t begin = p->step->cu_seqlens_q[seq_idx], end = p->step->cu_seqlens_q[seq_idx + 1];
    int32_t per_item = p->w->tokens_per_item;
    for (int32_t i = (int32_t)div_up(end - begin, per_item) - 1; i >= 0; i--) {
        int32_t first = begin + i * per_item, num = min_of(per_item, end - first);
        int32_t num_keys = attention_num_keys(p->step, seq_idx, first + num - 1);
        struct attention_item item = {
            .seq_idx = seq_idx, .first_token = first, .num_tokens = num, .partial_idx = -1};
        item.end_split = num_splits(num_keys);
        add_item(p, item);
        p->plan->work += (int64_t)num * num_keys;
    }
}

static void plan_splits(struct planner *p, struct attention_item whole)
{
    whole.num_partials = whole.end_split;
    for (int32_t split = 0; split < whole.num_partials; split++) {
        struct attention_item item = whole;
        item.first_split = split;
        item.end_split = split + 1;
        item.partial_idx = p->num_partials + split;
        add_item(p, item);
    }
    for (int32_t head = 0; head < p->w->num_kv_heads; head++)
        atomic_store_explicit(&p->w->num_pending[(int64_t)p->num_partials * p->w->num_kv_heads + head],
                              whole.num_partials, memory_order_relaxed);
    p->num_partials += whole.num_partials;
    assert_always(p->num_partials <= p->w->num_partials);
}

static void plan_decode(struct planner *p, int32_t seq_idx, int64_t long_keys)
{
    int32_t num_keys = p->step->seqlens_k[seq_idx];
    struct attention_item item = {.seq_idx = seq_idx, .num_tokens = 1, .partial_idx = -1};
    item.first_token = p->step->cu_seqlens_q[seq_idx];
    item.end_split = num_splits(num_keys);
    bool has_room = p->num_partials + item.end_split <= p->w->num_partials;
    if (num_keys >= long_keys && item.end_split > 1 && has_room)
        plan_splits(p, item);
    else
        add_item(p, item);
}

void attention_plan(struct attention_workspace *w, const struct step *step, struct attention_plan *plan)
{
    *plan = (struct attention_plan){.items = w->items};
    struct planner p = {.w = w, .step = step, .plan = plan};
    for (int32_t s = 0; s < step->num_prefill_seqs; s++) plan_prefill(&p, s);
    for (int32_t s = step->num_prefill_seqs; s < step->num_seqs; s++) plan->work += step->seqlens_k[s];
    /* One head of a long sequence is at least half of what one thread gets of the step. */
    int64_t long_keys = plan->work * w->num_kv_heads / (2 * w->num_threads);
    for (int32_t s = step->num_prefill_seqs; s < step->num_seqs; s++) plan_decode(&p, s, long_keys);
}
