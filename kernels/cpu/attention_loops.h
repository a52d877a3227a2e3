/* attention_loops.h - attention_kernels.h written in the operations of a vector.h; included once for each
 * instruction set, after its vector.h.
 *
 * Both products are register tiles of VECTOR_TILE_ROWS rows x 4 vectors: each loaded vector of K or V serves
 * all rows of the tile, and each broadcast element of q (or of the weights) serves 4 vectors. */
#ifndef KERNELS_CPU_ATTENTION_LOOPS_H
#define KERNELS_CPU_ATTENTION_LOOPS_H

#include <math.h>
#include <string.h>

#include "kernels/cpu/attention_kernels.h"

enum { TILE_VECTORS = KV_TILE / VECTOR_LANES };

#define always_inline static inline __attribute__((always_inline))

static void widen_bf16(float *out, const uint16_t *in, int n)
{
    for (int i = 0; i < n; i += VECTOR_LANES) vector_store(out + i, vector_load_bf16(in + i));
}

static void load_block_bf16(const struct attention_rows *r, const uint16_t *chunk, int block)
{
    for (int d = 0; d < r->dim; d++)
        widen_bf16(r->k + d * KV_TILE + block * BLOCK_SIZE, chunk + d * BLOCK_SIZE, BLOCK_SIZE);
    int num_values = BLOCK_SIZE * r->dim;
    widen_bf16(r->v + block * num_values, chunk + num_values, num_values);
}

static void load_block_f32(const struct attention_rows *r, const float *chunk, int block)
{
    for (int d = 0; d < r->dim; d++)
        memcpy(r->k + d * KV_TILE + block * BLOCK_SIZE, chunk + d * BLOCK_SIZE, BLOCK_SIZE * sizeof(float));
    int num_values = BLOCK_SIZE * r->dim;
    memcpy(r->v + block * num_values, chunk + num_values, (size_t)num_values * sizeof(float));
}

static void load_tile(const struct attention_rows *r, const void *const chunks[KV_TILE_BLOCKS],
                      int first_block, int end_block, enum dtype dtype)
{
    for (int block = first_block; block < end_block; block++) {
        if (dtype == DTYPE_BF16)
            load_block_bf16(r, chunks[block], block);
        else
            load_block_f32(r, chunks[block], block);
    }
}

/* Scores of num_rows rows with the keys of 4 vectors. */
always_inline void score_tile(const struct attention_rows *r, int row, int key, const int num_rows)
{
    vector sums[VECTOR_TILE_ROWS][4];
    const float *q = r->q + (size_t)row * (size_t)r->dim;
    for (int i = 0; i < num_rows; i++)
        for (int j = 0; j < 4; j++) sums[i][j] = vector_set(0.0f);
    for (int d = 0; d < r->dim; d++) {
        vector k[4];
        for (int j = 0; j < 4; j++) k[j] = vector_load(r->k + d * KV_TILE + key + j * VECTOR_LANES);
        for (int i = 0; i < num_rows; i++) {
            vector q_element = vector_set(q[i * r->dim + d]);
            for (int j = 0; j < 4; j++) sums[i][j] = vector_fma(q_element, k[j], sums[i][j]);
        }
    }
    for (int i = 0; i < num_rows; i++)
        for (int j = 0; j < 4; j++)
            vector_store(r->scores + (row + i) * KV_TILE + key + j * VECTOR_LANES, sums[i][j]);
}

/* o = rescale * o + weights * V for num_rows rows and num_vectors vectors of columns. */
always_inline void output_tile(const struct attention_rows *r, int row, int column, int first_key,
                               int end_key, const int num_rows, const int num_vectors)
{
    vector sums[VECTOR_TILE_ROWS][4];
    float *o = r->sums.o + (size_t)row * (size_t)r->dim + column;
    const float *weights = r->scores + row * KV_TILE;
    for (int i = 0; i < num_rows; i++) {
        vector rescale = vector_set(r->rescale[row + i]);
        for (int j = 0; j < num_vectors; j++)
            sums[i][j] = vector_mul(vector_load(o + i * r->dim + j * VECTOR_LANES), rescale);
    }
    for (int key = first_key; key < end_key; key++) {
        vector v[4];
        for (int j = 0; j < num_vectors; j++)
            v[j] = vector_load(r->v + key * r->dim + column + j * VECTOR_LANES);
        for (int i = 0; i < num_rows; i++) {
            vector weight = vector_set(weights[i * KV_TILE + key]);
            for (int j = 0; j < num_vectors; j++) sums[i][j] = vector_fma(weight, v[j], sums[i][j]);
        }
    }
    for (int i = 0; i < num_rows; i++)
        for (int j = 0; j < num_vectors; j++) vector_store(o + i * r->dim + j * VECTOR_LANES, sums[i][j]);
}

/* The compiler unrolls the tiles for each constant number of rows. */
static void score_rows(const struct attention_rows *r, int row, int key, int num_rows)
{
    switch (num_rows) {
    case 1:
        score_tile(r, row, key, 1);
        break;
    case 2:
        score_tile(r, row, key, 2);
        break;
    case 3:
        score_tile(r, row, key, 3);
        break;
#if VECTOR_TILE_ROWS == 6
    case 4:
        score_tile(r, row, key, 4);
        break;
    case 5:
        score_tile(r, row, key, 5);
        break;
    case 6:
        score_tile(r, row, key, 6);
        break;
#endif
    }
}

always_inline void output_columns(const struct attention_rows *r, int row, int first_key, int end_key,
                                  const int num_rows)
{
    int column = 0;
    for (; column + 4 * VECTOR_LANES <= r->dim; column += 4 * VECTOR_LANES)
        output_tile(r, row, column, first_key, end_key, num_rows, 4);
    for (; column < r->dim; column += VECTOR_LANES)
        output_tile(r, row, column, first_key, end_key, num_rows, 1);
}

static void output_rows(const struct attention_rows *r, int row, int first_key, int end_key, int num_rows)
{
    switch (num_rows) {
    case 1:
        output_columns(r, row, first_key, end_key, 1);
        break;
    case 2:
        output_columns(r, row, first_key, end_key, 2);
        break;
    case 3:
        output_columns(r, row, first_key, end_key, 3);
        break;
#if VECTOR_TILE_ROWS == 6
    case 4:
        output_columns(r, row, first_key, end_key, 4);
        break;
    case 5:
        output_columns(r, row, first_key, end_key, 5);
        break;
    case 6:
        output_columns(r, row, first_key, end_key, 6);
        break;
#endif
    }
}

static void load_scores(const struct attention_rows *r, int row, int32_t tile_position, bool masked,
                        vector x[TILE_VECTORS])
{
    int first = r->first[row] - tile_position, end = r->end[row] - tile_position;
    for (int i = 0; i < TILE_VECTORS; i++) {
        x[i] = vector_load(r->scores + row * KV_TILE + i * VECTOR_LANES);
        if (masked) x[i] = vector_keep(x[i], first - i * VECTOR_LANES, end - i * VECTOR_LANES, -INFINITY);
    }
}

static float exp2_one(float x)
{
    float lanes[VECTOR_LANES];
    vector_store(lanes, vector_exp2(vector_set(x)));
    return lanes[0];
}

/* One row's step of the online softmax: scores become weights. */
static void soften_row(const struct attention_rows *r, int row, int32_t tile_position, bool masked)
{
    vector x[TILE_VECTORS];
    load_scores(r, row, tile_position, masked, x);
    vector largest = x[0];
    for (int i = 1; i < TILE_VECTORS; i++) largest = vector_max(largest, x[i]);
    float old = r->sums.m[row], tile_largest = vector_largest(largest);
    float m = old > tile_largest ? old : tile_largest;
    float base = m == -INFINITY ? 0.0f : m; /* nothing seen yet: -inf - -inf would be NaN */
    vector sum = vector_set(0.0f);
    for (int i = 0; i < TILE_VECTORS; i++) {
        vector weight = vector_exp2(vector_sub(x[i], vector_set(base)));
        vector_store(r->scores + row * KV_TILE + i * VECTOR_LANES, weight);
        sum = vector_add(sum, weight);
    }
    r->rescale[row] = m == old ? 1.0f : exp2_one(old - base); /* exp2_one(0) is 1 as well */
    r->sums.l[row] = r->sums.l[row] * r->rescale[row] + vector_sum(sum);
    r->sums.m[row] = m;
}

static void run_tile(const struct attention_rows *r, int32_t tile_position, int first_key, int end_key,
                     bool masked)
{
    const int step = 4 * VECTOR_LANES;
    for (int row = 0; row < r->num_rows; row += VECTOR_TILE_ROWS) {
        int num_rows = r->num_rows - row < VECTOR_TILE_ROWS ? r->num_rows - row : VECTOR_TILE_ROWS;
        for (int key = first_key / step * step; key < end_key; key += step) score_rows(r, row, key, num_rows);
        for (int i = 0; i < num_rows; i++) soften_row(r, row + i, tile_position, masked);
        output_rows(r, row, first_key, end_key, num_rows);
    }
}

static void merge(struct softmax_sums *total, const struct softmax_sums *part, int num_rows, int dim)
{
    for (int row = 0; row < num_rows; row++) {
        float m = total->m[row] > part->m[row] ? total->m[row] : part->m[row];
        float base = m == -INFINITY ? 0.0f : m;
        float old = exp2_one(total->m[row] - base), new = exp2_one(part->m[row] - base);
        total->l[row] = total->l[row] * old + part->l[row] * new;
        total->m[row] = m;
        float *o = total->o + (size_t)row * (size_t)dim;
        const float *o_part = part->o + (size_t)row * (size_t)dim;
        for (int d = 0; d < dim; d += VECTOR_LANES) {
            vector scaled = vector_mul(vector_load(o + d), vector_set(old));
            vector_store(o + d, vector_fma(vector_load(o_part + d), vector_set(new), scaled));
        }
    }
}

static void finish(float *out, const struct softmax_sums *sums, int row, int dim, int head_dim)
{
    const float *o = sums->o + (size_t)row * (size_t)dim;
    vector l = vector_set(sums->l[row]), zero = vector_set(0.0f);
    for (int d = 0; d < head_dim; d += VECTOR_LANES) {
        vector y = vector_add(vector_div(vector_load(o + d), l), zero);
        if (d + VECTOR_LANES <= head_dim)
            vector_store(out + d, y);
        else
            vector_store_part(out + d, head_dim - d, y);
    }
}

#undef always_inline

#endif
