/* flash2.c - FlashAttention-2, forward: the loops of FlashAttention turned inside out.
 *
 *   for each tile i of Q:                             loaded once; its O, l and m never leave the chip
 *     O, l, m = 0, 0, -inf
 *     for each tile j of K and V that some row sees:
 *       S  = scale Q_i K_j^T
 *       m' = max(m, rowmax S),  P = exp(S - m')
 *       l  = exp(m - m') l + rowsum P
 *       O  = exp(m - m') O + P V_j                    not divided by l
 *       m  = m'
 *     O_i = O / l                                     once
 *     L_i = m + log l                                 all that the backward pass needs of m and l
 *
 * Tiles of Q are independent of each other, so that each can be another core's, also where there are few heads. Under a
 * causal mask tiles of keys are of three classes: beyond the diagonal, skipped; before it, seen whole and computed without
 * a mask; across it, masked. Bytes: Q and O once, K and V once for each tile of Q.
 *
 * Source: Dao, "FlashAttention-2: faster attention with better parallelism and work partitioning", 2023, algorithm 1. */
#include "lab/attention/chip.h"

static inline void finish(struct problem *p, int head, int32_t i, struct rows *o,
                          const struct softmax_state *state, struct traffic *t)
{
    int32_t queries = p->shape.num_queries, dim = p->shape.head_dim;
    int rows = tile_size(i, queries);
    int64_t row = (int64_t)head * queries + i;
    float *lse = store(t, p->lse + row, rows);
    for (int r = 0; r < rows; r++) {
        float inverse = inverse_of(state->l[r]);
        for (int d = 0; d < dim; d++) o->x[r][d] *= inverse;
        lse[r] = state->m[r] + logf(state->l[r]);
    }
    store_rows(t, p->out + row * dim, o, rows, dim);
}

static inline void run_query_tile(struct problem *p, int head, int32_t i, struct traffic *t)
{
    int32_t queries = p->shape.num_queries, num_keys = p->shape.num_keys, dim = p->shape.head_dim;
    int rows = tile_size(i, queries);
    bool causal = p->shape.mask == MASK_CAUSAL;
    const float *k_head = p->k + (int64_t)head * num_keys * dim,
                *v_head = p->v + (int64_t)head * num_keys * dim;
    struct rows q, k, v, o;
    struct softmax_state state;
    struct scores s;
    load_rows(t, &q, p->q + ((int64_t)head * queries + i) * dim, rows, dim);
    clear_rows(&o);
    clear_state(&state);
    int32_t end = causal ? min_of(i + rows, num_keys) : num_keys; /* tiles from here on are skipped */
    for (int32_t j = 0; j < end; j += TILE) {
        int keys = tile_size(j, num_keys);
        load_rows(t, &k, k_head + (int64_t)j * dim, keys, dim);
        load_rows(t, &v, v_head + (int64_t)j * dim, keys, dim);
        multiply_by_transposed(&s, &q, &k, rows, keys, dim, p->scale);
        if (causal && j + keys - 1 > i) hide(&s, p, i, rows, j, keys); /* the others are seen whole */
        soften(&s, &state, &o, rows, keys, dim);
        add_product(&o, &s, &v, rows, keys, dim);
    }
    finish(p, head, i, &o, &state, t);
}

static void flash2(struct problem *p, struct traffic *t)
{
    for (int head = 0; head < p->shape.num_heads; head++)
        for (int32_t i = 0; i < p->shape.num_queries; i += TILE) run_query_tile(p, head, i, t);
}

LAB_KERNEL(flash2);
