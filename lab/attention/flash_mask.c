/* flash_mask.c - FlashMask: masks as four numbers a key, and FlashAttention-2 that skips what they hide.
 *
 *   key j is hidden from rows [LTS_j, LTE_j) and from rows [UTS_j, UTE_j)
 *
 *   for each tile j of keys: min and max of LTS, LTE, UTS, UTE      8 numbers, once a mask
 *   for each tile i of Q, for each tile j of keys:
 *     hidden    rows of i within [max LTS, min LTE) or [max UTS, min UTE): skipped, its K and V never read
 *     whole     rows of i outside [min LTS, max LTE) and [min UTS, max UTE): no mask is applied
 *     partial   each pair asks its key's four numbers
 *
 * Causal, windows, prefixes that see each other, documents packed in one row: all are such intervals, in 4 N numbers where
 * a dense mask has N^2, which is read whole and skips nothing.
 *
 * Source: Wang et al., "FlashMask: efficient and rich mask extension of FlashAttention", 2024. */
#include "lab/attention/chip.h"

/* Of the intervals of a tile's keys. */
struct bounds {
    int32_t least[4], most[4]; /* LTS, LTE, UTS, UTE */
};

enum tile_class { TILE_HIDDEN, TILE_WHOLE, TILE_PARTIAL };

enum { NUM_BOUNDS = sizeof(struct bounds) / sizeof(float) };

static inline void find_bounds(const struct problem *p, int32_t first, int keys, struct bounds *b)
{
    const int32_t *of_keys[4] = {p->hidden.lower_start, p->hidden.lower_end, p->hidden.upper_start,
                                 p->hidden.upper_end};
    for (int i = 0; i < 4; i++) {
        b->least[i] = b->most[i] = of_keys[i][first];
        for (int j = first; j < first + keys; j++) {
            b->least[i] = min_of(b->least[i], of_keys[i][j]);
            b->most[i] = max_of(b->most[i], of_keys[i][j]);
        }
    }
}

/* Rows [first, end). */
static inline enum tile_class class_of(const struct bounds *b, int32_t first, int32_t end)
{
    enum tile_class class = TILE_WHOLE;
    for (int i = 0; i < 4; i += 2) {
        if (first >= b->most[i] && end <= b->least[i + 1]) return TILE_HIDDEN;
        bool empty = b->least[i] >= b->most[i + 1];
        if (!empty && first < b->most[i + 1] && end > b->least[i]) class = TILE_PARTIAL;
    }
    return class;
}

static inline void run_query_tile(struct problem *p, int head, int32_t i, const struct bounds *bounds,
                                  struct traffic *t)
{
    int32_t queries = p->shape.num_queries, num_keys = p->shape.num_keys, dim = p->shape.head_dim;
    int rows = tile_size(i, queries);
    const float *k_head = p->k + (int64_t)head * num_keys * dim,
                *v_head = p->v + (int64_t)head * num_keys * dim;
    float *out = p->out + ((int64_t)head * queries + i) * dim;
    struct rows q, k, v, o;
    struct softmax_state state;
    struct scores s;
    load_rows(t, &q, p->q + ((int64_t)head * queries + i) * dim, rows, dim);
    clear_rows(&o);
    clear_state(&state);
    for (int32_t j = 0; j < num_keys; j += TILE) {
        int keys = tile_size(j, num_keys);
        load(t, (const float *)&bounds[j / TILE], NUM_BOUNDS);
        enum tile_class class = class_of(&bounds[j / TILE], i, i + rows);
        if (class == TILE_HIDDEN) continue;
        load_rows(t, &k, k_head + (int64_t)j * dim, keys, dim);
        load_rows(t, &v, v_head + (int64_t)j * dim, keys, dim);
        multiply_by_transposed(&s, &q, &k, rows, keys, dim, p->scale);
        if (class == TILE_PARTIAL) {
            load(t, (const float *)p->hidden.lower_start + j, 4 * keys);
            hide(&s, p, i, rows, j, keys);
        }
        soften(&s, &state, &o, rows, keys, dim);
        add_product(&o, &s, &v, rows, keys, dim);
    }
    for (int r = 0; r < rows; r++)
        for (int d = 0; d < dim; d++) o.x[r][d] *= inverse_of(state.l[r]);
    store_rows(t, out, &o, rows, dim);
}

static void flash_mask(struct problem *p, struct traffic *t)
{
    int32_t num_keys = p->shape.num_keys;
    struct bounds *bounds = (struct bounds *)(void *)p->work;
    load(t, (const float *)p->hidden.lower_start, 4 * (int64_t)num_keys);
    store(t, p->work, div_up(num_keys, TILE) * NUM_BOUNDS);
    for (int32_t j = 0; j < num_keys; j += TILE) find_bounds(p, j, tile_size(j, num_keys), &bounds[j / TILE]);
    for (int head = 0; head < p->shape.num_heads; head++)
        for (int32_t i = 0; i < p->shape.num_queries; i += TILE) run_query_tile(p, head, i, bounds, t);
}

LAB_KERNEL(flash_mask);
