/* attention_loops.h - attention_kernels.h written in the operations of a vector.h; included once for each
 * instruction set, after its vector.h.
 *
 * Both products are register tiles of TILE_ROWS rows x TILE_WIDTH vectors: each loaded vector of K or V
 * serves all rows of the tile, and each broadcast element of q (or of the weights) serves all its vectors.
 * The sums, the vectors of K or V and one broadcast element fill the registers: 24 + 4 + 1 of 32, or 12 + 2 +
 * 1 of 16. */
#ifndef KERNELS_CPU_ATTENTION_LOOPS_H
#define KERNELS_CPU_ATTENTION_LOOPS_H

#include <math.h>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/softcap.h"

enum { TILE_ROWS = 6, TILE_WIDTH = VECTOR_REGISTERS / 8, LINE_BYTES = 64 };

#define always_inline static inline __attribute__((always_inline))

always_inline vector load_element(const void *chunk, int index, const enum dtype dtype)
{
    if (dtype == DTYPE_BF16) return vector_load_bf16((const uint16_t *)chunk + index);
    if (dtype == DTYPE_I8) return vector_load_i8((const uint8_t *)chunk + index);
    if (dtype == DTYPE_F8_E4M3) return vector_load_e4m3((const uint8_t *)chunk + index);
    return vector_load((const float *)chunk + index);
}

/* The cache lines of num elements from index on. */
always_inline void prefetch_elements(const void *chunk, int index, const int num, const enum dtype dtype)
{
    const int size = dtype == DTYPE_F32 ? 4 : dtype == DTYPE_BF16 ? 2 : 1;
    for (int byte = 0; byte < num * size; byte += LINE_BYTES)
        __builtin_prefetch((const char *)chunk + (ptrdiff_t)index * size + byte);
}

/* num_vectors vectors of consecutive elements. */
always_inline void load_elements(vector *v, const void *chunk, int index, const int num_vectors,
                                 const enum dtype dtype)
{
    int j = 0;
    for (; dtype == DTYPE_F8_E4M3 && j + 2 <= num_vectors; j += 2)
        vector_load_e4m3_pair(v + j, (const uint8_t *)chunk + index + j * VECTOR_LANES);
    for (; j < num_vectors; j++) v[j] = load_element(chunk, index + j * VECTOR_LANES, dtype);
}

/* Element d of the keys of TILE_WIDTH vectors, from the block of the first of them on. */
always_inline void load_keys(vector k[TILE_WIDTH], const struct attention_tile *tile, int block, int d,
                             const enum dtype dtype)
{
    enum { IN_BLOCK = BLOCK_SIZE / VECTOR_LANES };
    for (int j = 0; j < TILE_WIDTH; j += IN_BLOCK) {
        const int i = block + j / IN_BLOCK;
        load_elements(k + j, tile->chunks[i], d * BLOCK_SIZE, IN_BLOCK, dtype);
        prefetch_elements(tile->ahead[i], d * BLOCK_SIZE, BLOCK_SIZE, dtype);
    }
}

/* Scores of num_rows rows with the keys of TILE_WIDTH vectors. */
always_inline void score_tile(const struct attention_rows *r, const struct attention_tile *tile, int row,
                              int key, const int num_rows, const enum dtype dtype)
{
    vector sums[TILE_ROWS][TILE_WIDTH];
    const float *q = r->q + (size_t)row * (size_t)r->dim;
    for (int i = 0; i < num_rows; i++)
        for (int j = 0; j < TILE_WIDTH; j++) sums[i][j] = vector_set(0.0f);
    for (int d = 0; d < r->dim; d++) {
        vector k[TILE_WIDTH];
        load_keys(k, tile, key / BLOCK_SIZE, d, dtype);
        for (int i = 0; i < num_rows; i++) {
            vector q_element = vector_set(q[i * r->dim + d]);
            for (int j = 0; j < TILE_WIDTH; j++) sums[i][j] = vector_fma(q_element, k[j], sums[i][j]);
        }
    }
    for (int i = 0; i < num_rows; i++)
        for (int j = 0; j < TILE_WIDTH; j++)
            vector_store(r->scores + (row + i) * KV_TILE + key + j * VECTOR_LANES, sums[i][j]);
}

/* o = rescale * o + weights * V for num_rows rows and num_vectors vectors of columns. */
always_inline void output_tile(const struct attention_rows *r, const struct attention_tile *tile, int row,
                               int column, const int num_rows, const int num_vectors, const enum dtype dtype)
{
    vector sums[TILE_ROWS][TILE_WIDTH];
    float *o = r->sums.o + (size_t)row * (size_t)r->dim + column;
    const float *weights = r->scores + row * KV_TILE;
    for (int i = 0; i < num_rows; i++) {
        vector rescale = vector_set(r->rescale[row + i]);
        for (int j = 0; j < num_vectors; j++)
            sums[i][j] = vector_mul(vector_load(o + i * r->dim + j * VECTOR_LANES), rescale);
    }
    for (int key = tile->first_key, end; key < tile->end_key; key = end) {
        const void *chunk = tile->chunks[key / BLOCK_SIZE], *ahead = tile->ahead[key / BLOCK_SIZE];
        int element = (BLOCK_SIZE + key % BLOCK_SIZE) * r->dim + column;
        end = (key / BLOCK_SIZE + 1) * BLOCK_SIZE;
        if (end > tile->end_key) end = tile->end_key;
        for (int k = key; k < end; k++, element += r->dim) {
            vector v[TILE_WIDTH];
            load_elements(v, chunk, element, num_vectors, dtype);
            prefetch_elements(ahead, element, num_vectors * VECTOR_LANES, dtype);
            for (int i = 0; i < num_rows; i++) {
                vector weight = vector_set(weights[i * KV_TILE + k]);
                for (int j = 0; j < num_vectors; j++) sums[i][j] = vector_fma(weight, v[j], sums[i][j]);
            }
        }
    }
    for (int i = 0; i < num_rows; i++)
        for (int j = 0; j < num_vectors; j++) vector_store(o + i * r->dim + j * VECTOR_LANES, sums[i][j]);
}

always_inline void score_columns(const struct attention_rows *r, const struct attention_tile *tile, int row,
                                 const int num_rows)
{
    const int step = TILE_WIDTH * VECTOR_LANES;
    for (int key = tile->first_key / step * step; key < tile->end_key; key += step) {
        switch (tile->dtype) {
        case DTYPE_BF16:
            score_tile(r, tile, row, key, num_rows, DTYPE_BF16);
            break;
        case DTYPE_I8:
            score_tile(r, tile, row, key, num_rows, DTYPE_I8);
            break;
        case DTYPE_F8_E4M3:
            score_tile(r, tile, row, key, num_rows, DTYPE_F8_E4M3);
            break;
        default:
            score_tile(r, tile, row, key, num_rows, DTYPE_F32);
        }
    }
}

always_inline void output_columns(const struct attention_rows *r, const struct attention_tile *tile, int row,
                                  const int num_rows, const enum dtype dtype)
{
    int column = 0;
    for (; column + TILE_WIDTH * VECTOR_LANES <= r->dim; column += TILE_WIDTH * VECTOR_LANES)
        output_tile(r, tile, row, column, num_rows, TILE_WIDTH, dtype);
    for (; column < r->dim; column += VECTOR_LANES) output_tile(r, tile, row, column, num_rows, 1, dtype);
}

always_inline void output_either(const struct attention_rows *r, const struct attention_tile *tile, int row,
                                 const int num_rows)
{
    switch (tile->dtype) {
    case DTYPE_BF16:
        output_columns(r, tile, row, num_rows, DTYPE_BF16);
        break;
    case DTYPE_I8:
        output_columns(r, tile, row, num_rows, DTYPE_I8);
        break;
    case DTYPE_F8_E4M3:
        output_columns(r, tile, row, num_rows, DTYPE_F8_E4M3);
        break;
    default:
        output_columns(r, tile, row, num_rows, DTYPE_F32);
    }
}

/* The compiler unrolls the tiles for each constant number of rows. */
static void score_rows(const struct attention_rows *r, const struct attention_tile *tile, int row,
                       int num_rows)
{
    switch (num_rows) {
    case 1:
        score_columns(r, tile, row, 1);
        break;
    case 2:
        score_columns(r, tile, row, 2);
        break;
    case 3:
        score_columns(r, tile, row, 3);
        break;
    case 4:
        score_columns(r, tile, row, 4);
        break;
    case 5:
        score_columns(r, tile, row, 5);
        break;
    case 6:
        score_columns(r, tile, row, 6);
        break;
    }
}

static void output_rows(const struct attention_rows *r, const struct attention_tile *tile, int row,
                        int num_rows)
{
    switch (num_rows) {
    case 1:
        output_either(r, tile, row, 1);
        break;
    case 2:
        output_either(r, tile, row, 2);
        break;
    case 3:
        output_either(r, tile, row, 3);
        break;
    case 4:
        output_either(r, tile, row, 4);
        break;
    case 5:
        output_either(r, tile, row, 5);
        break;
    case 6:
        output_either(r, tile, row, 6);
        break;
    }
}

/* Scores of keys that a row does not see become -inf. */
static void hide_scores(const struct attention_rows *r, const struct attention_tile *tile, int row)
{
    float *scores = r->scores + row * KV_TILE;
    for (int key = 0; key < KV_TILE; key += VECTOR_LANES) {
        int position = tile->position + key;
        vector x = vector_load(scores + key);
        if (tile->masked) x = vector_keep(x, r->first[row] - position, r->end[row] - position, -INFINITY);
        if (tile->seen) x = vector_keep_bits(x, (uint32_t)(tile->seen[row] >> key), -INFINITY);
        vector_store(scores + key, x);
    }
}

/* Times the scales of K (from 0) or V (from BLOCK_SIZE). */
static void scale_scores(const struct attention_rows *r, const struct attention_tile *tile, int row,
                         int num_rows, int from)
{
    for (int key = 0; key < KV_TILE; key += VECTOR_LANES) {
        vector scales = vector_load(tile->scales[key / BLOCK_SIZE] + from + key % BLOCK_SIZE);
        float *scores = r->scores + row * KV_TILE + key;
        for (int i = 0; i < num_rows; i++, scores += KV_TILE)
            vector_store(scores, vector_mul(vector_load(scores), scales));
    }
}

static float exp2_one(float x)
{
    float lanes[VECTOR_LANES];
    vector_store(lanes, vector_exp2(vector_set(x)));
    return lanes[0];
}

/* What scores are counted from: m, or 0 while nothing was seen, as -inf - -inf would be NaN. */
static float base_of(float m)
{
    return m == -INFINITY ? 0.0f : m;
}

/* Rows' m with the tile's scores, and what their old sums are worth by it: of all rows of a group at once. */
static void find_largest(const struct attention_rows *r, int row, int num_rows)
{
    float changes[VECTOR_LANES] = {0};
    for (int i = 0; i < num_rows; i++) {
        const float *scores = r->scores + (row + i) * KV_TILE;
        vector largest = vector_load(scores);
        for (int key = VECTOR_LANES; key < KV_TILE; key += VECTOR_LANES)
            largest = vector_max(largest, vector_load(scores + key));
        float old = r->sums.m[row + i], tile_largest = vector_largest(largest);
        float m = old > tile_largest ? old : tile_largest;
        r->sums.m[row + i] = m;
        changes[i] = old - base_of(m);
    }
    vector_store(changes, vector_exp2(vector_load(changes)));
    for (int i = 0; i < num_rows; i++) r->rescale[row + i] = changes[i];
}

/* One row's step of the online softmax: scores become weights. */
static void soften_row(const struct attention_rows *r, int row)
{
    float *scores = r->scores + row * KV_TILE;
    vector sum = vector_set(0.0f), base = vector_set(base_of(r->sums.m[row]));
    for (int key = 0; key < KV_TILE; key += VECTOR_LANES) {
        vector weight = vector_exp2(vector_sub(vector_load(scores + key), base));
        sum = vector_add(sum, weight);
        vector_store(scores + key, weight);
    }
    r->sums.l[row] = r->sums.l[row] * r->rescale[row] + vector_sum(sum);
}

/* What of the tile a group of rows sees; false: nothing. */
static bool narrow_to_rows(const struct attention_rows *r, struct attention_tile *tile, int row, int num_rows)
{
    if (!tile->masked) return true;
    int first = r->first[row] - tile->position, end = r->end[row + num_rows - 1] - tile->position;
    if (tile->first_key < first) tile->first_key = first;
    if (tile->end_key > end) tile->end_key = end;
    return tile->first_key < tile->end_key;
}

static void run_tile(const struct attention_rows *r, const struct attention_tile *tile)
{
    for (int row = 0; row < r->num_rows; row += TILE_ROWS) {
        int num_rows = r->num_rows - row < TILE_ROWS ? r->num_rows - row : TILE_ROWS;
        struct attention_tile part = *tile;
        if (!narrow_to_rows(r, &part, row, num_rows)) continue;
        score_rows(r, &part, row, num_rows);
        if (tile->scales[0]) scale_scores(r, &part, row, num_rows, 0);
        if (r->softcap > 0) softcap(num_rows * KV_TILE, r->scores + row * KV_TILE, r->softcap);
        for (int i = 0; i < num_rows && r->has_slopes; i++)
            lower_scores(r, tile->position, row + i, 0, KV_TILE);
        for (int i = 0; i < num_rows && r->distance_reach > 0; i++)
            raise_scores(r, tile->position, row + i, 0, KV_TILE);
        for (int i = 0; i < num_rows && (part.masked || part.seen); i++) hide_scores(r, &part, row + i);
        find_largest(r, row, num_rows);
        for (int i = 0; i < num_rows; i++) soften_row(r, row + i);
        if (tile->scales[0]) scale_scores(r, &part, row, num_rows, BLOCK_SIZE);
        output_rows(r, &part, row, num_rows);
    }
}

static void widen_chunk(float *out, const void *chunk, const void *ahead, int num_values, enum dtype dtype)
{
    for (int i = 0; i < num_values; i += VECTOR_LANES) {
        vector_store(out + i, load_element(chunk, i, dtype));
        prefetch_elements(ahead, i, VECTOR_LANES, dtype);
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
