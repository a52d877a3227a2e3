/* flash1.c - FlashAttention: no N x N matrix leaves the chip.
 *
 *   O, l, m = 0, 0, -inf in slow memory
 *   for each tile j of K and V:                       loaded once
 *     for each tile i of Q:                           with its O, l and m, loaded and stored each time
 *       S  = scale Q_i K_j^T
 *       m~ = rowmax S,  P~ = exp(S - m~),  l~ = rowsum P~
 *       m' = max(m_i, m~)
 *       l' = exp(m_i - m') l_i + exp(m~ - m') l~
 *       O_i = (l_i exp(m_i - m') O_i + exp(m~ - m') P~ V_j) / l'
 *       l_i, m_i = l', m'
 *
 * O is a finished output of the keys so far after every step: divided by l, and multiplied by it again the next time. For
 * each tile of K and V all of Q passes by, and all of O there and back: 3 N d elements N / B times, where a tile of B
 * keys fills a share of the chip's memory M: of the order N^2 d^2 / M against standard attention's N^2.
 *
 * Source: Dao, Fu, Ermon, Rudra, Re, "FlashAttention: fast and memory-efficient exact attention with IO-awareness", 2022,
 * algorithm 1. */
#include "lab/attention/chip.h"

/* o, m, l: of the rows so far, in the paper's form; s becomes P~. */
static inline void add_tile(struct scores *s, struct softmax_state *state, struct rows *o,
                            const struct rows *v, int rows, int keys, int dim)
{
    struct rows product;
    float top[TILE], sum[TILE];
    for (int i = 0; i < rows; i++) {
        top[i] = -INFINITY;
        sum[i] = 0;
        for (int j = 0; j < keys; j++) top[i] = fmaxf(top[i], s->x[i][j]);
        for (int j = 0; j < keys; j++) {
            s->x[i][j] = exp_difference(s->x[i][j], top[i]);
            sum[i] += s->x[i][j];
        }
    }
    clear_rows(&product);
    add_product(&product, s, v, rows, keys, dim);
    for (int i = 0; i < rows; i++) {
        float m = fmaxf(state->m[i], top[i]);
        float before = exp_difference(state->m[i], m) * state->l[i], now = exp_difference(top[i], m);
        float l = before + now * sum[i], inverse = inverse_of(l);
        for (int d = 0; d < dim; d++) o->x[i][d] = (before * o->x[i][d] + now * product.x[i][d]) * inverse;
        state->l[i] = l;
        state->m[i] = m;
    }
}

/* What the inner loop does to tile i of Q under tile j of K and V. l, m: [Nq]. */
static inline void visit(struct problem *p, int head, int32_t i, int32_t j, const struct rows *k,
                         const struct rows *v, float *l, float *m, struct traffic *t)
{
    int32_t queries = p->shape.num_queries, dim = p->shape.head_dim;
    int rows = tile_size(i, queries), keys = tile_size(j, p->shape.num_keys);
    int64_t at = ((int64_t)head * queries + i) * dim;
    struct rows q, o;
    struct softmax_state state;
    struct scores s;
    load_rows(t, &q, p->q + at, rows, dim);
    load_rows(t, &o, p->out + at, rows, dim);
    memcpy(state.l, load(t, l + i, rows), (size_t)rows * sizeof *l);
    memcpy(state.m, load(t, m + i, rows), (size_t)rows * sizeof *m);
    multiply_by_transposed(&s, &q, k, rows, keys, dim, p->scale);
    if (i < j + keys) hide(&s, p, i, rows, j, keys);
    add_tile(&s, &state, &o, v, rows, keys, dim);
    store_rows(t, p->out + at, &o, rows, dim);
    memcpy(store(t, l + i, rows), state.l, (size_t)rows * sizeof *l);
    memcpy(store(t, m + i, rows), state.m, (size_t)rows * sizeof *m);
}

static void flash1(struct problem *p, struct traffic *t)
{
    int32_t queries = p->shape.num_queries, num_keys = p->shape.num_keys, dim = p->shape.head_dim;
    float *l = p->work, *m = p->work + queries;
    struct rows k, v;
    for (int head = 0; head < p->shape.num_heads; head++) {
        int64_t at = (int64_t)head * num_keys * dim, out = (int64_t)head * queries * dim;
        memset(store(t, p->out + out, (int64_t)queries * dim), 0,
               (size_t)queries * (size_t)dim * sizeof(float));
        memset(store(t, l, queries), 0, (size_t)queries * sizeof *l);
        store(t, m, queries);
        for (int32_t i = 0; i < queries; i++) m[i] = -INFINITY;
        for (int32_t j = 0; j < num_keys; j += TILE) {
            load_rows(t, &k, p->k + at + (int64_t)j * dim, tile_size(j, num_keys), dim);
            load_rows(t, &v, p->v + at + (int64_t)j * dim, tile_size(j, num_keys), dim);
            for (int32_t i = p->shape.mask == MASK_CAUSAL ? j : 0; i < queries; i += TILE)
                visit(p, head, i, j, &k, &v, l, m, t);
        }
    }
}

LAB_KERNEL(flash1);
