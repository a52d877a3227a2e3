/* attention_portable.c - attention_kernels.h in plain C and f32: the reference to read first. */
#include <math.h>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/exp2_portable.h"
#include "kernels/cpu/kv_codes.h"
#include "kernels/cpu/softcap.h"

/* Element index of the chunk. */
static inline float chunk_value(const void *chunk, int index, enum dtype dtype)
{
    if (dtype_is_code(dtype)) return kv_code_number(((const uint8_t *)chunk)[index], dtype);
    return dtype == DTYPE_BF16 ? bf16_to_f32(((const uint16_t *)chunk)[index])
                               : ((const float *)chunk)[index];
}

static void score_row(const struct attention_rows *r, const struct attention_tile *tile, int row, int first,
                      int end)
{
    const float *q = r->q + (size_t)row * (size_t)r->dim;
    float *scores = r->scores + row * KV_TILE;
    for (int key = first; key < end; key++) scores[key] = 0.0f;
    for (int block = first / BLOCK_SIZE * BLOCK_SIZE; block < end; block += BLOCK_SIZE) {
        int from = first > block ? first - block : 0,
            to = end - block < BLOCK_SIZE ? end - block : BLOCK_SIZE;
        const void *chunk = tile->chunks[block / BLOCK_SIZE];
        for (int d = 0; d < r->dim; d++)
            for (int i = from; i < to; i++)
                scores[block + i] += q[d] * chunk_value(chunk, d * BLOCK_SIZE + i, tile->dtype);
    }
}

/* Multiplies the values of keys first to end by K's (from 0) or V's (from BLOCK_SIZE) scales. */
static void scale_keys(float *values, const struct attention_tile *tile, int first, int end, int from)
{
    for (int key = first; key < end && tile->scales[0]; key++)
        values[key] *= tile->scales[key / BLOCK_SIZE][from + key % BLOCK_SIZE];
}

/* One row's step of the online softmax over the keys it sees: scores become weights. */
static void soften_row(const struct attention_rows *r, int row, int first, int end)
{
    float *scores = r->scores + row * KV_TILE;
    float old = r->sums.m[row], m = old, sum = 0.0f;
    for (int key = first; key < end; key++) m = m > scores[key] ? m : scores[key];
    float base = m == -INFINITY ? 0.0f : m; /* nothing seen yet: -inf - -inf would be NaN */
    for (int key = first; key < end; key++) {
        scores[key] = exp2_portable(scores[key] - base);
        sum += scores[key];
    }
    r->rescale[row] = exp2_portable(old - base);
    r->sums.l[row] = r->sums.l[row] * r->rescale[row] + sum;
    r->sums.m[row] = m;
}

static void output_row(const struct attention_rows *r, const struct attention_tile *tile, int row, int first,
                       int end)
{
    float *o = r->sums.o + (size_t)row * (size_t)r->dim;
    const float *weights = r->scores + row * KV_TILE;
    for (int d = 0; d < r->dim; d++) o[d] *= r->rescale[row];
    for (int key = first; key < end; key++) {
        const void *chunk = tile->chunks[key / BLOCK_SIZE];
        int v = (BLOCK_SIZE + key % BLOCK_SIZE) * r->dim;
        for (int d = 0; d < r->dim; d++) o[d] += weights[key] * chunk_value(chunk, v + d, tile->dtype);
    }
}

static void hide(const struct attention_rows *r, uint64_t seen, int row, int first, int end)
{
    for (int key = first; key < end; key++)
        if (!(seen >> key & 1)) r->scores[row * KV_TILE + key] = -INFINITY;
}

/* Each row takes just the keys between those that it sees. */
static void run_tile(const struct attention_rows *r, const struct attention_tile *tile)
{
    for (int row = 0; row < r->num_rows; row++) {
        int first = r->first[row] - tile->position, end = r->end[row] - tile->position;
        if (first < tile->first_key) first = tile->first_key;
        if (end > tile->end_key) end = tile->end_key;
        if (first >= end) continue;
        score_row(r, tile, row, first, end);
        scale_keys(r->scores + row * KV_TILE, tile, first, end, 0);
        if (r->softcap > 0) softcap(end - first, r->scores + row * KV_TILE + first, r->softcap);
        if (r->has_slopes) lower_scores(r, tile->position, row, first, end);
        if (r->distance_reach > 0) raise_scores(r, tile->position, row, first, end);
        if (tile->seen) hide(r, tile->seen[row], row, first, end);
        soften_row(r, row, first, end);
        scale_keys(r->scores + row * KV_TILE, tile, first, end, BLOCK_SIZE);
        output_row(r, tile, row, first, end);
    }
}

static void widen_chunk(float *out, const void *chunk, const void *ahead, int num_values, enum dtype dtype)
{
    (void)ahead;
    for (int i = 0; i < num_values; i++) out[i] = chunk_value(chunk, i, dtype);
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

const struct attention_kernels attention_kernels_portable = {run_tile, widen_chunk, merge, finish};
