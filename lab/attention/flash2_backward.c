/* flash2_backward.c - FlashAttention-2, backward: gradients of Q, K and V, with the weights computed again.
 *
 *   D = rowsum(dO * O)                                [Nq] to slow memory; equal to rowsum(dP * P)
 *   dQ = 0 in slow memory
 *   for each tile j of K and V:                       loaded once; its dK and dV stay on chip
 *     for each tile i of Q that sees it:              with dO, L, D; dQ loaded and stored each time
 *       P  = exp(scale Q_i K_j^T - L_i)               the forward pass's weights, from its log-sum-exp alone
 *       dV_j += P^T dO_i
 *       dP = dO_i V_j^T
 *       dS = P * (dP - D_i)
 *       dQ_i += scale dS K_j
 *       dK_j += scale dS^T Q_i
 *
 * Five products where the forward pass has two, none of them over a matrix from slow memory: that is cheaper than keeping
 * P would be. Tiles of K and V are independent but for dQ, which a GPU adds to by atomics.
 *
 * Source: Dao, "FlashAttention-2", 2023, algorithm 2. */
#include "lab/attention/chip.h"

struct key_tile {
    int32_t first, keys;
    struct rows k, v, d_k, d_v;
};

/* D of all rows of a head. */
static inline void write_row_dots(const struct problem *p, int64_t first_row, float *dots, struct traffic *t)
{
    int32_t queries = p->shape.num_queries, dim = p->shape.head_dim;
    const float *d_out = load(t, p->d_out + first_row * dim, (int64_t)queries * dim);
    const float *out = load(t, p->out + first_row * dim, (int64_t)queries * dim);
    store(t, dots, queries);
    for (int64_t i = 0; i < queries; i++) {
        dots[i] = 0;
        for (int d = 0; d < dim; d++) dots[i] += d_out[i * dim + d] * out[i * dim + d];
    }
}

/* s: scores, and then P. */
static inline void weigh_again(struct scores *s, const float *lse, int rows, int keys)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < keys; j++) s->x[i][j] = expf(s->x[i][j] - lse[i]);
}

/* d_p becomes scale dS. */
static inline void back_through_softmax(struct scores *d_p, const struct scores *weights, const float *dots,
                                        float scale, int rows, int keys)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < keys; j++) d_p->x[i][j] = scale * weights->x[i][j] * (d_p->x[i][j] - dots[i]);
}

/* What tile i of Q and tile j of K and V do to each other's gradients. */
static inline void visit(struct problem *p, int64_t first_row, int32_t i, struct key_tile *j,
                         const float *dots, struct traffic *t)
{
    int32_t dim = p->shape.head_dim;
    int rows = tile_size(i, p->shape.num_queries), keys = j->keys;
    int64_t at = (first_row + i) * dim;
    const float *lse = load(t, p->lse + first_row + i, rows), *dots_tile = load(t, dots + i, rows);
    struct rows q, d_out, d_q;
    struct scores weights, d_s;
    load_rows(t, &q, p->q + at, rows, dim);
    load_rows(t, &d_out, p->d_out + at, rows, dim);
    load_rows(t, &d_q, p->d_q + at, rows, dim);
    multiply_by_transposed(&weights, &q, &j->k, rows, keys, dim, p->scale);
    if (p->shape.mask == MASK_CAUSAL && i < j->first + keys) hide(&weights, p, i, rows, j->first, keys);
    weigh_again(&weights, lse, rows, keys);
    add_transposed_product(&j->d_v, &weights, &d_out, rows, keys, dim);
    multiply_by_transposed(&d_s, &d_out, &j->v, rows, keys, dim, 1);
    back_through_softmax(&d_s, &weights, dots_tile, p->scale, rows, keys);
    add_product(&d_q, &d_s, &j->k, rows, keys, dim);
    add_transposed_product(&j->d_k, &d_s, &q, rows, keys, dim);
    store_rows(t, p->d_q + at, &d_q, rows, dim);
}

static inline void run_key_tile(struct problem *p, int head, int32_t first, const float *dots,
                                struct traffic *t)
{
    int32_t queries = p->shape.num_queries, dim = p->shape.head_dim;
    int64_t at = ((int64_t)head * p->shape.num_keys + first) * dim;
    struct key_tile j = {.first = first, .keys = tile_size(first, p->shape.num_keys)};
    load_rows(t, &j.k, p->k + at, j.keys, dim);
    load_rows(t, &j.v, p->v + at, j.keys, dim);
    clear_rows(&j.d_k);
    clear_rows(&j.d_v);
    for (int32_t i = p->shape.mask == MASK_CAUSAL ? first : 0; i < queries; i += TILE)
        visit(p, (int64_t)head * queries, i, &j, dots, t);
    store_rows(t, p->d_k + at, &j.d_k, j.keys, dim);
    store_rows(t, p->d_v + at, &j.d_v, j.keys, dim);
}

static void flash2_backward(struct problem *p, struct traffic *t)
{
    int64_t queries = p->shape.num_queries, dim = p->shape.head_dim;
    float *dots = p->work;
    for (int head = 0; head < p->shape.num_heads; head++) {
        write_row_dots(p, head * queries, dots, t);
        memset(store(t, p->d_q + head * queries * dim, queries * dim), 0,
               (size_t)(queries * dim) * sizeof(float));
        for (int32_t j = 0; j < p->shape.num_keys; j += TILE) run_key_tile(p, head, j, dots, t);
    }
}

LAB_KERNEL(flash2_backward);
