/* attention.c - attention over the paged pool: FlashAttention-2 for prompts, Flash-Decoding for
 * decoding sequences, as one algorithm.
 *
 *   for each item (some tokens of a sequence, one K/V head with its group of query heads):
 *     for each split of KV_SPLIT positions, in order:
 *       m, l, o = -inf, 0, 0
 *       for each tile of KV_TILE positions in the split, in order:         (FlashAttention-2's inner loop)
 *         s = q K;  p = exp2(s - m');  l = l exp2(m - m') + sum p;  o = o exp2(m - m') + p V;  m = m'
 *       total = total merged with (m, l, o)                               (Flash-Decoding's merge)
 *     out = o / l
 *
 * total begins as (-inf, 0, 0) or, where the head has a sink, as what a key of that score without a value leaves:
 * (sink, 1, 0).
 *
 * Division comes once, at the end. m and l are the log-sum-exp of a split (attention_kernels.h). Tiles that
 * no row of the item sees, above the diagonal, behind the window or the chunk, or by the bounds of a sequence's mask
 * (mask.h), are skipped; those that all rows see in full run without masks; only the others are masked.
 *
 * Splits and tiles lie at fixed token positions, so a token's result is the same chain of operations whether
 * it comes in a prompt of any chunking, beside any neighbours, after a prefix hit, or alone in decoding. When
 * a decoding sequence's splits run on several threads, each leaves its sums aside, and the last thread to
 * finish merges them, in the same order as above.
 *
 * Sources: Dao, "FlashAttention-2", 2023; Dao et al., "Flash-Decoding for long-context inference", 2023. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "kernels/alibi.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/kv_pool.h"

enum { NARROW_ROWS_MAX = 6 }; /* rows that use narrow keys and values as they are */

_Static_assert((int)MASK_TILE == (int)KV_TILE, "a tile of keys has one class");

static const float log2_e = 1.44269504f;

struct attention_task {
    struct attention_workspace *w;
    const struct attention_kernels *kernels;
    const struct attention_plan *plan;
    const struct step *step;
    const int32_t *tables; /* the step's block tables of the layer's group */
    const struct kv_pool *pool;
    struct kv_layer kv;
    const struct attention_args *args;
    const float *qkv;
    float *out;
    _Atomic int32_t next_item;
};

static void clear_sums(struct softmax_sums *s, int num_rows, int dim)
{
    for (int i = 0; i < num_rows; i++) s->m[i] = -INFINITY;
    memset(s->l, 0, (size_t)num_rows * sizeof *s->l);
    memset(s->o, 0, (size_t)num_rows * (size_t)dim * sizeof *s->o);
}

static int group_size(const struct attention_task *t)
{
    return t->args->num_heads / t->args->num_kv_heads;
}

static void start_totals(const struct attention_task *t, int32_t kv_head, struct softmax_sums *total,
                         int num_rows)
{
    const int group = group_size(t);
    clear_sums(total, num_rows, t->kv.dim);
    for (int row = 0; row < num_rows && t->args->sinks; row++) {
        total->m[row] = t->args->sinks[kv_head * group + row % group] * log2_e;
        total->l[row] = 1;
    }
}

/* What the token's scores are multiplied by, in units of ln 2. */
static float score_scale(const struct attention_args *a, int32_t place)
{
    float scale = a->scale * log2_e;
    if (a->temperature_floor <= 0) return scale;
    int32_t steps = (place + a->temperature_offset) / a->temperature_floor;
    return scale * (1 + a->temperature_scale * log1pf((float)steps));
}

static int32_t value_dim(const struct attention_args *a)
{
    return a->v_dim > 0 ? a->v_dim : a->head_dim;
}

/* Of qkv. */
static int64_t row_width(const struct attention_args *a)
{
    const int64_t of_kv = (int64_t)a->num_kv_heads * (a->head_dim + value_dim(a));
    return (int64_t)a->num_heads * a->head_dim + (a->q_alone ? 0 : of_kv);
}

/* Row i * group + g is query head kv_head * group + g at the item's token i. */
static void load_rows(const struct attention_task *t, const struct attention_item *item, int32_t kv_head,
                      struct attention_rows *r)
{
    const struct attention_args *a = t->args;
    int group = group_size(t);
    int64_t stride = row_width(a);
    assert_debug(item->num_tokens <= t->w->tokens_per_item);
    r->num_rows = item->num_tokens * group;
    r->softcap = a->softcap * log2_e;
    r->has_slopes = a->alibi_most > 0;
    r->distance_reach = a->distance_reach;
    r->distance_scale = log2_e;
    for (int row = 0; row < r->num_rows; row++) {
        int32_t token = item->first_token + row / group,
                place = attention_place(t->step, item->seq_idx, token);
        const int head = kv_head * group + row % group;
        float scale = score_scale(a, place);
        const float *q = t->qkv + token * stride + (int64_t)head * a->head_dim;
        float *to = r->q + (size_t)row * (size_t)r->dim;
        for (int32_t d = 0; d < a->head_dim; d++) to[d] = q[d] * scale;
        for (int32_t d = a->head_dim; d < r->dim; d++) to[d] = 0;
        r->end[row] = min_of(attention_num_keys(t->step, item->seq_idx, token),
                             mask_end_key(a->sliding_window, a->window_of_both_sides, place));
        r->first[row] = mask_first_key(a->sliding_window, a->chunk, place);
        r->place[row] = place;
        if (r->has_slopes)
            r->slopes[row] = alibi_slope(a->alibi_most, a->num_heads, head) * a->alibi_scale * log2_e;
        if (r->distance_reach > 0)
            r->distance_bias[row] =
                a->distance_bias + head * (2 * (int64_t)a->distance_reach + 1) + a->distance_reach;
    }
}

/* With many rows, widening once costs less than each group of rows doing it for itself. */
static void widen_tile(const struct attention_task *t, struct attention_tile *tile, float *wide)
{
    int num_values = 2 * BLOCK_SIZE * t->kv.dim, first = tile->first_key / BLOCK_SIZE,
        end = div_up(tile->end_key, BLOCK_SIZE);
    for (int i = first; i < end; i++) {
        t->kernels->widen_chunk(wide + i * num_values, tile->chunks[i], tile->ahead[i], num_values,
                                tile->dtype);
        tile->chunks[i] = wide + i * num_values;
    }
    for (int i = 0; i < KV_TILE_BLOCKS; i++) /* the loops read these as f32, too */
        if (i < first || i >= end) tile->chunks[i] = tile->chunks[first];
    memcpy(tile->ahead, tile->chunks, sizeof tile->ahead); /* what is ahead has been asked for */
    tile->dtype = DTYPE_F32;
}

/* Which of num_keys keys the row at a place sees, a bit each. */
static uint64_t keys_of_row(const struct mask_rows *keys, int num_keys, int32_t place)
{
    uint64_t seen = 0;
    for (int i = 0; i < num_keys; i++) seen |= (uint64_t)(place >= keys[i].begin && place < keys[i].end) << i;
    return seen;
}

static uint64_t bits_from(int first)
{
    return first < 64 ? ~(uint64_t)0 << max_of(first, 0) : 0;
}

/* Fills r->seen in for the tile at position. Returns the keys that any row sees. */
static uint64_t find_seen(const struct attention_task *t, const struct attention_item *item,
                          const struct attention_rows *r, int32_t position)
{
    const struct sequence_mask *mask = attention_mask(t->step, item->seq_idx);
    int32_t first_place = attention_place(t->step, item->seq_idx, item->first_token);
    int group = group_size(t), num_keys = min_of(r->end[r->num_rows - 1] - position, KV_TILE);
    uint64_t any = 0;
    for (int32_t i = 0; i < item->num_tokens; i++) {
        uint64_t seen = keys_of_row(mask->keys + position, num_keys, first_place + i);
        seen &= bits_from(r->first[i * group] - position) & ~bits_from(r->end[i * group] - position);
        for (int g = 0; g < group; g++) r->seen[i * group + g] = seen;
        any |= seen;
    }
    return any;
}

static enum mask_class class_of_tile(const struct attention_task *t, const struct attention_item *item,
                                     int32_t position)
{
    const struct sequence_mask *mask = attention_mask(t->step, item->seq_idx);
    int32_t place = attention_place(t->step, item->seq_idx, item->first_token);
    return mask ? mask_class_of(&mask->tiles[position / MASK_TILE], place, place + item->num_tokens)
                : MASK_WHOLE;
}

/* What of keys [begin, end) lies in the tile and is seen; false when nothing is. */
static bool bound_tile(const struct attention_task *t, const struct attention_item *item,
                       const struct attention_rows *r, int32_t begin, int32_t end,
                       struct attention_tile *tile)
{
    enum mask_class class = class_of_tile(t, item, tile->position);
    if (class == MASK_HIDDEN) return false;
    tile->first_key = max_of(begin - tile->position, 0);
    tile->end_key = min_of(end - tile->position, KV_TILE);
    tile->masked = r->first[r->num_rows - 1] > tile->position || r->end[0] < tile->position + KV_TILE;
    if (class == MASK_WHOLE) return true;
    uint64_t any = find_seen(t, item, r, tile->position);
    if (!any) return false;
    tile->first_key = __builtin_ctzll(any);
    tile->end_key = 64 - __builtin_clzll(any);
    tile->masked = false;
    tile->seen = r->seen;
    return true;
}

/* Of the tile behind this one, as far as a row sees keys there. */
static void find_ahead(const struct attention_task *t, const int32_t *blocks, int32_t kv_head,
                       const struct attention_rows *r, struct attention_tile *tile)
{
    const int32_t first = tile->position / BLOCK_SIZE + KV_TILE_BLOCKS,
                  num = div_up(r->end[r->num_rows - 1], BLOCK_SIZE) - first;
    memcpy(tile->ahead, tile->chunks, sizeof tile->ahead);
    for (int i = 0; i < min_of(num, KV_TILE_BLOCKS); i++) {
        tile->ahead[i] = kv_pool_chunk(t->pool, &t->kv, blocks[first + i], kv_head);
        __builtin_prefetch(kv_pool_scales(t->pool, &t->kv, tile->ahead[i]));
    }
}

static void run_tile(const struct attention_task *t, const struct attention_item *item, int32_t kv_head,
                     const struct attention_rows *r, struct attention_tile *tile)
{
    const int32_t *blocks = t->tables + (int64_t)item->seq_idx * t->step->block_table_stride;
    int32_t first_block = (tile->position + tile->first_key) / BLOCK_SIZE,
            last_block = (tile->position + tile->end_key - 1) / BLOCK_SIZE;
    for (int i = 0; i < KV_TILE_BLOCKS; i++) {
        int32_t block = tile->position / BLOCK_SIZE + i;
        block = min_of(max_of(block, first_block), last_block); /* beyond these the table may hold nothing */
        tile->chunks[i] = kv_pool_chunk(t->pool, &t->kv, blocks[block], kv_head);
        tile->scales[i] = kv_pool_scales(t->pool, &t->kv, tile->chunks[i]);
    }
    find_ahead(t, blocks, kv_head, r, tile);
    if (tile->dtype != DTYPE_F32 && r->num_rows > NARROW_ROWS_MAX) widen_tile(t, tile, r->wide);
    t->kernels->run_tile(r, tile);
}

/* r->sums = the sums over one split; false, and they are as they were, when no row sees any of it. */
static bool run_split(const struct attention_task *t, const struct attention_item *item, int32_t kv_head,
                      struct attention_rows *r, int32_t split)
{
    int32_t begin = max_of(split * KV_SPLIT, r->first[0]);
    int32_t end = min_of((split + 1) * KV_SPLIT, r->end[r->num_rows - 1]);
    bool any = false;
    for (int32_t position = begin / KV_TILE * KV_TILE; position < end; position += KV_TILE) {
        struct attention_tile tile = {.dtype = t->pool->shape.dtype, .position = position};
        if (!bound_tile(t, item, r, begin, end, &tile)) continue;
        if (!any) clear_sums(&r->sums, r->num_rows, r->dim);
        any = true;
        run_tile(t, item, kv_head, r, &tile);
    }
    return any;
}

static void store_rows(const struct attention_task *t, const struct attention_item *item, int32_t kv_head,
                       const struct softmax_sums *sums, int dim)
{
    const struct attention_args *a = t->args;
    int group = group_size(t);
    for (int row = 0; row < item->num_tokens * group; row++) {
        int64_t head =
            (int64_t)(item->first_token + row / group) * a->num_heads + kv_head * group + row % group;
        t->kernels->finish(t->out + head * value_dim(a), sums, row, dim, value_dim(a));
    }
}

static void run_whole(const struct attention_task *t, const struct attention_item *item, int32_t kv_head,
                      struct attention_rows *r, struct softmax_sums *total)
{
    load_rows(t, item, kv_head, r);
    start_totals(t, kv_head, total, r->num_rows);
    for (int32_t split = item->first_split; split < item->end_split; split++)
        if (run_split(t, item, kv_head, r, split)) t->kernels->merge(total, &r->sums, r->num_rows, r->dim);
    store_rows(t, item, kv_head, total, r->dim);
}

/* Where one split's sums of the heads of kv_head stand among the partials; the widest layer's rows would follow each other. */
static struct softmax_sums partial_sums(const struct attention_task *t, int32_t partial_idx, int32_t kv_head)
{
    const struct softmax_sums *p = &t->w->partials;
    int64_t row = (int64_t)partial_idx * t->args->num_heads + kv_head * group_size(t);
    return (struct softmax_sums){p->m + row, p->l + row, p->o + row * t->w->dim};
}

static void merge_partials(const struct attention_task *t, const struct attention_item *item, int32_t kv_head,
                           int32_t first_partial, struct softmax_sums *total)
{
    int group = group_size(t);
    start_totals(t, kv_head, total, group);
    for (int32_t i = 0; i < item->num_partials; i++) {
        struct softmax_sums part = partial_sums(t, first_partial + i, kv_head);
        if (part.m[0] != -INFINITY || part.l[0] != 0.0f) t->kernels->merge(total, &part, group, t->kv.dim);
    }
    store_rows(t, item, kv_head, total, t->kv.dim);
}

static void run_partial(const struct attention_task *t, const struct attention_item *item, int32_t kv_head,
                        struct attention_rows *r, struct softmax_sums *total)
{
    struct attention_rows mine = *r;
    mine.sums = partial_sums(t, item->partial_idx, kv_head);
    load_rows(t, item, kv_head, &mine);
    if (!run_split(t, item, kv_head, &mine, item->first_split))
        clear_sums(&mine.sums, mine.num_rows, mine.dim);
    int32_t first_partial = item->partial_idx - item->first_split;
    _Atomic int32_t *pending = &t->w->num_pending[(int64_t)first_partial * t->w->num_kv_heads + kv_head];
    int32_t num_pending = atomic_fetch_sub(pending, 1);
    assert_debug(num_pending > 0 && num_pending <= item->num_partials);
    if (num_pending != 1) return;
    atomic_store(pending, item->num_partials); /* for the next layer */
    merge_partials(t, item, kv_head, first_partial, total);
}

static void run_items(void *context, int thread_idx, int num_threads)
{
    (void)num_threads;
    struct attention_task *t = context;
    struct attention_rows rows = t->w->rows[thread_idx];
    int32_t num_kv_heads = t->args->num_kv_heads, idx;
    rows.dim = t->kv.dim;
    while ((idx = atomic_fetch_add(&t->next_item, 1)) < t->plan->num_items * num_kv_heads) {
        const struct attention_item *item = &t->plan->items[idx / num_kv_heads];
        if (item->partial_idx < 0) {
            run_whole(t, item, idx % num_kv_heads, &rows, &t->w->totals[thread_idx]);
        } else {
            run_partial(t, item, idx % num_kv_heads, &rows, &t->w->totals[thread_idx]);
        }
    }
}

void cpu_attention(struct device *d, const struct batch *b, void *out, const void *qkv,
                   const struct kv_pool *pool, int32_t layer, const struct attention_args *args)
{
    struct cpu_device *c = cpu_device_of(d);
    assert_always(args->num_heads <= c->attention.num_heads &&
                  args->num_kv_heads <= c->attention.num_kv_heads &&
                  args->num_heads <= args->num_kv_heads * c->attention.group &&
                  kv_pool_dim(args->head_dim) <= c->attention.dim);
    struct attention_task t = {
        .w = &c->attention,
        .kernels = c->isa->attention,
        .plan = &b->attention,
        .step = b->step,
        .tables = step_block_tables(b->step, args->kv_group),
        .pool = pool,
        .kv = kv_pool_layer(pool, layer, args->num_kv_heads, args->head_dim),
        .args = args,
        .qkv = qkv,
        .out = out,
    };
    cpu_device_run(c, b->attention.work * args->num_heads * args->head_dim, run_items, &t);
}
