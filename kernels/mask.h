/* mask.h - which tokens of a sequence see which.
 *
 * Places count a sequence's tokens in its context: key j is what lies at place j of its block table. A token sees those
 * up to itself, and of these what its layer leaves it: a sliding window or a chunk (mask_first_key, mask_end_key). A sequence may say
 * otherwise for its own tokens: then each key is seen by one interval of rows, FlashMask's idea, in as many numbers as
 * the uses of it need:
 *
 *   causal                                      key j   [j, MASK_END)
 *   a part whose tokens see each other                  [where the part begins, MASK_END)
 *   documents that do not see each other                [j, where its document ends)
 *   a tree of drafts, each before its descendants       [j, behind the last of j's descendants)
 *
 * and layers hide more of it. Tiles of keys have the minima and maxima of their intervals, by which whole tiles are
 * skipped or run without asking each key. Plain data; pure functions.
 *
 * Source: Wang et al., "FlashMask: efficient and rich mask extension of FlashAttention", 2024. */
#ifndef KERNELS_MASK_H
#define KERNELS_MASK_H

#include <stdbool.h>
#include <stdint.h>

enum { MASK_TILE = 64, MASK_END = INT32_MAX };

/* The first key that a layer leaves the token at a place. sliding_window: tokens that it sees, itself included; chunk:
 * it sees none of the chunks before its own. 0: there is none. */
static inline int32_t mask_first_key(int32_t sliding_window, int32_t chunk, int32_t place)
{
    int32_t of_window = sliding_window > 0 && place >= sliding_window ? place - sliding_window + 1 : 0;
    int32_t of_chunk = chunk > 0 ? place / chunk * chunk : 0;
    return of_window > of_chunk ? of_window : of_chunk;
}

/* Behind the last key that a layer leaves it, where the sequence lets it see what comes later: a window of both_sides reaches
 * as far ahead as behind. MASK_END: all are left. */
static inline int32_t mask_end_key(int32_t sliding_window, bool both_sides, int32_t place)
{
    bool is_bounded = both_sides && sliding_window > 0 && sliding_window < MASK_END - place;
    return is_bounded ? place + sliding_window : MASK_END;
}

/* Rows [begin, end) see the key. */
struct mask_rows {
    int32_t begin, end;
};

/* Of the MASK_TILE keys from a multiple of it on, or of as many as there are. */
struct mask_tile {
    struct mask_rows least, most; /* each number's */
};

/* Of one sequence; every row sees itself. Host memory. */
struct sequence_mask {
    const struct mask_rows *keys;  /* one for each key of the context; NULL: causal */
    const struct mask_tile *tiles; /* mask_num_tiles */
};

static inline int32_t mask_num_tiles(int32_t num_keys)
{
    return num_keys / MASK_TILE + (num_keys % MASK_TILE != 0);
}

/* How rows see keys, one call after another: first all as causal, then what differs, keys and rows by their places. */
void mask_causal(struct mask_rows *keys, int32_t num_keys);
/* Those of [begin, end) see each other, and so have to be computed in one step: a row sees no key that comes later. */
void mask_join(struct mask_rows *keys, int32_t begin, int32_t end);
/* Nobody from end on sees those of [begin, end): a document, or a token with its descendants. */
void mask_close(struct mask_rows *keys, int32_t begin, int32_t end);
/* Once they are as they should be. */
void mask_fill_tiles(const struct mask_rows *keys, int32_t num_keys, struct mask_tile *tiles);

enum mask_class { MASK_HIDDEN, MASK_PARTIAL, MASK_WHOLE };

/* What rows [begin, end) see of a tile: nothing, some of it, or each of them all of it. */
static inline enum mask_class mask_class_of(const struct mask_tile *t, int32_t begin, int32_t end)
{
    if (end <= t->least.begin || begin >= t->most.end) return MASK_HIDDEN;
    return begin >= t->most.begin && end <= t->least.end ? MASK_WHOLE : MASK_PARTIAL;
}

#endif
