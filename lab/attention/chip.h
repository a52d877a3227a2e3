/* chip.h - what the lab's algorithms keep on chip, and what they do with it.
 *
 * A tile is TILE queries or keys of one head; on a CPU all that an algorithm has on chip at a time fits into its L2.
 * rows and keys say how much of a tile is in use where a sequence ends within it. Thread: none of its own. */
#ifndef LAB_ATTENTION_CHIP_H
#define LAB_ATTENTION_CHIP_H

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "lab/attention/problem.h"
#include "lab/attention/traffic.h"

enum { TILE = 64, SPLIT_KEYS = 512 }; /* of Flash-Decoding: keys of a split */

/* A tile of Q, K, V, O or of a gradient; a tile of scores or weights. */
struct rows {
    float x[TILE][LAB_DIM_MAX];
};
struct scores {
    float x[TILE][TILE];
};

/* Running numbers of an online softmax, for each row of a tile: the largest score so far, the sum of exp(score - m). */
struct softmax_state {
    float m[TILE], l[TILE];
};

static inline int32_t tile_size(int32_t first, int32_t count)
{
    return min_of(count - first, (int32_t)TILE);
}

static inline void load_rows(struct traffic *t, struct rows *tile, const float *from, int rows, int dim)
{
    load(t, from, (int64_t)rows * dim);
    for (int i = 0; i < rows; i++) memcpy(tile->x[i], from + i * dim, (size_t)dim * sizeof *from);
}

static inline void store_rows(struct traffic *t, float *to, const struct rows *tile, int rows, int dim)
{
    store(t, to, (int64_t)rows * dim);
    for (int i = 0; i < rows; i++) memcpy(to + i * dim, tile->x[i], (size_t)dim * sizeof *to);
}

static inline void clear_rows(struct rows *tile)
{
    memset(tile, 0, sizeof *tile);
}

/* s = scale a b^T. b is turned first, so that a row of s grows by whole vectors. */
static inline void multiply_by_transposed(struct scores *s, const struct rows *a, const struct rows *b,
                                          int rows, int keys, int dim, float scale)
{
    float turned[LAB_DIM_MAX][TILE];
    for (int d = 0; d < dim; d++)
        for (int j = 0; j < TILE; j++) turned[d][j] = j < keys ? b->x[j][d] : 0.0f;
    for (int i = 0; i < rows; i++) {
        float sums[TILE] = {0};
        for (int d = 0; d < dim; d++)
            for (int j = 0; j < TILE; j++) sums[j] += a->x[i][d] * turned[d][j];
        for (int j = 0; j < TILE; j++) s->x[i][j] = sums[j] * scale;
    }
}

/* o += p b. */
static inline void add_product(struct rows *o, const struct scores *p, const struct rows *b, int rows,
                               int keys, int dim)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < keys; j++)
            for (int d = 0; d < dim; d++) o->x[i][d] += p->x[i][j] * b->x[j][d];
}

/* o += p^T b. */
static inline void add_transposed_product(struct rows *o, const struct scores *p, const struct rows *b,
                                          int rows, int keys, int dim)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < keys; j++)
            for (int d = 0; d < dim; d++) o->x[j][d] += p->x[i][j] * b->x[i][d];
}

/* Scores of pairs that do not see each other become -infinity, and their weights 0. */
static inline void hide(struct scores *s, const struct problem *p, int32_t first_row, int rows,
                        int32_t first_key, int keys)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < keys; j++)
            if (!problem_sees(p, first_row + i, first_key + j)) s->x[i][j] = -INFINITY;
}

/* exp(a - b), and 0 where both are -infinity: nothing was seen. */
static inline float exp_difference(float a, float b)
{
    return a == -INFINITY ? 0.0f : expf(a - b);
}

static inline void clear_state(struct softmax_state *state)
{
    for (int i = 0; i < TILE; i++) {
        state->m[i] = -INFINITY;
        state->l[i] = 0;
    }
}

/* The online softmax's step over one tile: scores become weights exp(s - m), with m the largest score so far; sums and
 * outputs of the tiles before shrink by exp(m before - m). */
static inline void soften(struct scores *s, struct softmax_state *state, struct rows *o, int rows, int keys,
                          int dim)
{
    for (int i = 0; i < rows; i++) {
        float m = state->m[i], sum = 0;
        for (int j = 0; j < keys; j++) m = fmaxf(m, s->x[i][j]);
        for (int j = 0; j < keys; j++) {
            s->x[i][j] = exp_difference(s->x[i][j], m);
            sum += s->x[i][j];
        }
        float shrink = exp_difference(state->m[i], m);
        for (int d = 0; d < dim; d++) o->x[i][d] *= shrink;
        state->l[i] = state->l[i] * shrink + sum;
        state->m[i] = m;
    }
}

/* A row that sees no key gives zeros. */
static inline float inverse_of(float sum)
{
    return sum > 0 ? 1 / sum : 0;
}

#endif
