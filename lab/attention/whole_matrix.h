/* whole_matrix.h - attention as three kernels that hand whole N x N matrices to each other through slow memory.
 *
 * What was done before FlashAttention: a product, a softmax, a product. The softmax differs (standard.c,
 * online_softmax.c), the products are here. All pairs are computed, and those of a mask thrown away afterwards. */
#ifndef LAB_ATTENTION_WHOLE_MATRIX_H
#define LAB_ATTENTION_WHOLE_MATRIX_H

#include "lab/attention/chip.h"

/* s[Nq][Nk] = scale q k^T of a head. K is read once for each tile of queries. */
static inline void write_scores(const struct problem *p, int head, float *s, struct traffic *t)
{
    int32_t queries = p->shape.num_queries, keys = p->shape.num_keys, dim = p->shape.head_dim;
    const float *q = p->q + (int64_t)head * queries * dim, *k = p->k + (int64_t)head * keys * dim;
    struct rows q_tile, k_tile;
    struct scores tile;
    for (int32_t i = 0; i < queries; i += TILE) {
        int m = tile_size(i, queries);
        load_rows(t, &q_tile, q + (int64_t)i * dim, m, dim);
        for (int32_t j = 0; j < keys; j += TILE) {
            int n = tile_size(j, keys);
            load_rows(t, &k_tile, k + (int64_t)j * dim, n, dim);
            multiply_by_transposed(&tile, &q_tile, &k_tile, m, n, dim, p->scale);
            hide(&tile, p, i, m, j, n);
            for (int r = 0; r < m; r++)
                memcpy(store(t, s + (int64_t)(i + r) * keys + j, n), tile.x[r], (size_t)n * sizeof *s);
        }
    }
}

/* out[Nq][d] = w v, w[Nq][Nk] the weights. V is read once for each tile of queries. */
static inline void write_outputs(struct problem *p, int head, const float *w, struct traffic *t)
{
    int32_t queries = p->shape.num_queries, keys = p->shape.num_keys, dim = p->shape.head_dim;
    const float *v = p->v + (int64_t)head * keys * dim;
    float *out = p->out + (int64_t)head * queries * dim;
    struct rows v_tile, o;
    struct scores tile;
    for (int32_t i = 0; i < queries; i += TILE) {
        int m = tile_size(i, queries);
        clear_rows(&o);
        for (int32_t j = 0; j < keys; j += TILE) {
            int n = tile_size(j, keys);
            load_rows(t, &v_tile, v + (int64_t)j * dim, n, dim);
            for (int r = 0; r < m; r++)
                memcpy(tile.x[r], load(t, w + (int64_t)(i + r) * keys + j, n), (size_t)n * sizeof *w);
            add_product(&o, &tile, &v_tile, m, n, dim);
        }
        store_rows(t, out + (int64_t)i * dim, &o, m, dim);
    }
}

/* soften_row: scores of a row in slow memory to weights there. */
static inline void run_whole_matrix(struct problem *p, struct traffic *t,
                                    void (*soften_row)(const float *s, float *w, int32_t keys,
                                                       struct traffic *t))
{
    int64_t queries = p->shape.num_queries, keys = p->shape.num_keys;
    float *s = p->work, *w = p->work + queries * keys;
    for (int head = 0; head < p->shape.num_heads; head++) {
        write_scores(p, head, s, t);
        for (int64_t i = 0; i < queries; i++) soften_row(s + i * keys, w + i * keys, (int32_t)keys, t);
        write_outputs(p, head, w, t);
    }
}

#endif
