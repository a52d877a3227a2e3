/* attention_kernels.h - the inner loops of attention: a few query rows against one tile of keys and values.
 *
 * A row is one query head at one token. The rows of a call share one K/V head (grouped heads are just more
 * rows).
 *
 *   dim     head_dim rounded up to a multiple of 16; the padding is zero everywhere
 *   tile    KV_TILE consecutive token positions, the first a multiple of KV_TILE
 *   chunk   one block and one K/V head, as the pool stores it: K as [dim][BLOCK_SIZE], V as [BLOCK_SIZE][dim]
 *
 * K lies transposed so that one vector holds the same element of consecutive keys: a score is then a chain of
 * multiply-adds down one lane, in order of the element, and needs no sum across lanes.
 *
 * The same bits: each score, each element of an output and each row's softmax is computed by a chain of
 * operations whose order depends on token positions only. How many rows come together, and which, changes
 * which registers are used and nothing else. A key that a row may not see gets weight 0, and adding 0 * v
 * changes nothing (up to the sign of a zero, which the last operation, finish, removes). So a tile may be run
 * over more keys than a row sees, and a token computed in a prompt gets the bits that it gets in decoding.
 *
 * Codes of 8 bits (kv_codes.h) are widened to their numbers, exactly, with few rows in the loops and with many before
 * them; a key's scale multiplies its score, when that is whole, and its weight, when that is in the row's sum. */
#ifndef KERNELS_CPU_ATTENTION_KERNELS_H
#define KERNELS_CPU_ATTENTION_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "files/dtype.h"
#include "kernels/step.h"

enum { KV_TILE = 64, KV_TILE_BLOCKS = KV_TILE / BLOCK_SIZE };

/* The state of an online softmax, for each row: m the largest score so far (-INFINITY: none), l the sum of
 * exp2(score - m), o the sum of exp2(score - m) v. Scores are in units of ln 2, so the log-sum-exp is
 * ln 2 (m + log2 l): m and l are that number kept in two parts, which is what merging wants. */
struct softmax_sums {
    float *m, *l; /* [rows] */
    float *o;     /* [rows][dim] */
};

/* One thread's rows and scratch; all arrays aligned to 64 bytes. */
struct attention_rows {
    int num_rows, dim;
    float *q;      /* [rows][dim], multiplied by scale / ln 2 */
    float softcap; /* of scores in these units; 0: none */
    bool has_slopes;
    float *slopes; /* [rows] what a score, in these units, loses for each place from its key to the query */
    const float **
        distance_bias; /* [rows] what a score gains by how far its key is behind the query, where that is 0 */
    int32_t distance_reach; /* either way; what is farther away gains as much. 0: no score gains anything */
    float distance_scale;   /* makes these units of it */
    int32_t *place;         /* [rows] of the query */
    int32_t *first;         /* [rows] the row sees token positions first <= p < end */
    int32_t *end;
    uint64_t *seen; /* [rows] room for a tile's */
    float *wide;    /* KV_TILE_BLOCKS chunks, for a tile in f32 */
    float *scores;  /* [rows][KV_TILE]; then the weights exp2(score - m) */
    float *rescale; /* [rows] what the tile multiplied the old sums by */
    struct softmax_sums sums;
};

struct attention_tile {
    const void *chunks[KV_TILE_BLOCKS]; /* all readable, if need be the same one twice */
    const void
        *ahead[KV_TILE_BLOCKS]; /* of the next tile: what is read here is prefetched there; never read */
    enum dtype dtype;           /* of their elements: BF16, F32, F8_E4M3 or I8 */
    const float
        *scales[KV_TILE_BLOCKS]; /* for each chunk K's [BLOCK_SIZE], then V's; NULL: elements need none */
    int32_t position;            /* of key 0 */
    int first_key, end_key;      /* keys that some row sees; others are in no way used */
    bool masked;                 /* some row does not see all KV_TILE keys */
    const uint64_t
        *seen; /* [rows] a bit for each key of the tile that the row sees, by all rules; NULL: first and end
                             say it */
};

/* Of keys [first, end) of the tile at position, by how far they are from the row's place; the same bits in each instruction set. */
static inline void lower_scores(const struct attention_rows *r, int32_t position, int row, int first, int end)
{
    float *scores = r->scores + row * KV_TILE;
    const float slope = r->slopes[row];
    const int32_t distance = r->place[row] - position;
    for (int32_t key = first; key < end; key++)
        scores[key] -= slope * (float)(distance > key ? distance - key : key - distance);
}

/* The same, of what is gained. */
static inline void raise_scores(const struct attention_rows *r, int32_t position, int row, int first, int end)
{
    float *scores = r->scores + row * KV_TILE;
    const float *bias = r->distance_bias[row], scale = r->distance_scale;
    const int32_t reach = r->distance_reach, at = position - r->place[row];
    for (int32_t key = first; key < end; key++) {
        const int32_t distance = at + key;
        scores[key] += bias[distance < -reach ? -reach : distance > reach ? reach : distance] * scale;
    }
}

struct attention_kernels {
    /* Adds the tile to the rows' sums. */
    void (*run_tile)(const struct attention_rows *r, const struct attention_tile *tile);
    /* A chunk's elements in f32, for tiles that many rows use; prefetches the same of the chunk ahead. */
    void (*widen_chunk)(float *out, const void *chunk, const void *ahead, int num_values, enum dtype dtype);
    /* total = total and part together. */
    void (*merge)(struct softmax_sums *total, const struct softmax_sums *part, int num_rows, int dim);
    /* out[head_dim] = o / l of one row, no zero of it negative. */
    void (*finish)(float *out, const struct softmax_sums *sums, int row, int dim, int head_dim);
};

extern const struct attention_kernels attention_kernels_portable, attention_kernels_avx2,
    attention_kernels_avx512;

#endif
