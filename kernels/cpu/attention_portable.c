/* attention_portable.c - attention_kernels.h in plain C and f32: the reference to read first. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/exp2_portable.h"

static void load_block(const struct attention_rows *r, const void *chunk, int block, enum dtype dtype)
{
    int num_values = BLOCK_SIZE * r->dim;
    for (int i = 0; i < num_values; i++) {
        int d = i / BLOCK_SIZE, key = block * BLOCK_SIZE + i % BLOCK_SIZE;
        if (dtype == DTYPE_BF16) {
            r->k[d * KV_TILE + key] = bf16_to_f32(((const uint16_t *)chunk)[i]);
            r->v[block * num_values + i] = bf16_to_f32(((const uint16_t *)chunk)[num_values + i]);
        } else {
            r->k[d * KV_TILE + key] = ((const float *)chunk)[i];
            r->v[block * num_values + i] = ((const float *)chunk)[num_values + i];
        }
    }
}

static void load_tile(const struct attention_rows *r, const void *const chunks[KV_TILE_BLOCKS],
                      int first_block, int end_block, enum dtype dtype)
{
    for (int block = first_block; block < end_block; block++) load_block(r, chunks[block], block, dtype);
}

static void score_row(const struct attention_rows *r, int row, int first_key, int end_key)
{
    const float *q = r->q + (size_t)row * (size_t)r->dim;
    float *scores = r->scores + row * KV_TILE;
    for (int key = first_key; key < end_key; key++) scores[key] = 0.0f;
    for (int d = 0; d < r->dim; d++)
        for (int key = first_key; key < end_key; key++) scores[key] += q[d] * r->k[d * KV_TILE + key];
}

/* One row's step of the online softmax over the keys it sees: scores become weights. */
static void soften_row(const struct attention_rows *r, int row, int first_key, int end_key)
{
    float *scores = r->scores + row * KV_TILE;
    float old = r->sums.m[row], m = old, sum = 0.0f;
    for (int key = first_key; key < end_key; key++) m = m > scores[key] ? m : scores[key];
    float base = m == -INFINITY ? 0.0f : m; /* nothing seen yet: -inf - -inf would be NaN */
    for (int key = first_key; key < end_key; key++) {
        scores[key] = exp2_portable(scores[key] - base);
        sum += scores[key];
    }
    r->rescale[row] = exp2_portable(old - base);
    r->sums.l[row] = r->sums.l[row] * r->rescale[row] + sum;
    r->sums.m[row] = m;
}

static void output_row(const struct attention_rows *r, int row, int first_key, int end_key)
{
    float *o = r->sums.o + (size_t)row * (size_t)r->dim;
    const float *weights = r->scores + row * KV_TILE;
    for (int d = 0; d < r->dim; d++) o[d] *= r->rescale[row];
    for (int key = first_key; key < end_key; key++)
        for (int d = 0; d < r->dim; d++) o[d] += weights[key] * r->v[key * r->dim + d];
}

/* Each row takes just the keys that it sees, so there is nothing to mask. */
static void run_tile(const struct attention_rows *r, int32_t tile_position, int first_key, int end_key,
                     bool masked)
{
    (void)masked;
    for (int row = 0; row < r->num_rows; row++) {
        int first = r->first[row] - tile_position, end = r->end[row] - tile_position;
        if (first < first_key) first = first_key;
        if (end > end_key) end = end_key;
        if (first >= end) continue;
        score_row(r, row, first, end);
        soften_row(r, row, first, end);
        output_row(r, row, first, end);
    }
}

static void merge(struct softmax_sums *total, const struct softmax_sums *part, int num_rows, int dim)
{
    for (int row = 0; row < num_rows; row++) {
        float m = total->m[row] > part->m[row] ? total->m[row] : part->m[row];
        float base = m == -INFINITY ? 0.0f : m;
        float old = exp2_portable(total->m[row] - base), new = exp2_portable(part->m[row] - base);
        total->l[row] = total->l[row] * old + part->l[row] * new;
        total->m[row] = m;
        for (int i = row * dim; i < (row + 1) * dim; i++) total->o[i] = total->o[i] * old + part->o[i] * new;
    }
}

static void finish(float *out, const struct softmax_sums *sums, int row, int dim, int head_dim)
{
    for (int d = 0; d < head_dim; d++) out[d] = sums->o[row * dim + d] / sums->l[row] + 0.0f;
}

const struct attention_kernels attention_kernels_portable = {load_tile, run_tile, merge, finish};
