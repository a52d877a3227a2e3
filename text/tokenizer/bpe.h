/* bpe.h - byte pair encoding of one piece of text: the merges, and the tokens that are left.
 *
 * Units of the text (bytes, or code points with byte fallback) become tokens; then, over and over, the
 * adjacent pair with the lowest rank becomes one, of equal ranks the leftmost. Filled by bpe_reserve and
 * bpe_add_merge, then bpe_finish, then read-only but for the memo. Thread: any once finished; each brings its
 * own bpe_work. */
#ifndef TEXT_TOKENIZER_BPE_H
#define TEXT_TOKENIZER_BPE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "text/tokenizer/vocab.h"

struct merge_slot {
    uint64_t pair; /* left id, right id; all ones: empty */
    uint32_t rank;
    int32_t product;
};

struct bpe {
    bool byte_level;      /* units are bytes, else code points */
    bool byte_fallback;   /* a code point without a token becomes its bytes' tokens */
    bool fuse_unknown;    /* a run of units without tokens is one unknown token */
    bool ignore_merges;   /* a piece that is a token is that token */
    int32_t unknown_id;   /* -1: units without tokens are dropped */
    int32_t window_units; /* of longer pieces that many units are merged at a time; at least 32 */

    struct merge_slot *slots; /* slot_mask + 1 entries, at most half of them used */
    uint64_t slot_mask;
    int32_t byte_ids[256];  /* byte level: the token of a byte; else of <0xNN>; -1: none */
    int32_t ascii_ids[128]; /* code points: the token of an ASCII character; -1: none */
    /* What is known of the tokens whose text is a piece: do the merges make that token of it? The answers are
     * always the same, so threads may write them at once. */
    _Atomic unsigned char *memo;
};

/* Memory that is used again from piece to piece; it does not grow with a piece beyond two windows, but for
 * vocabularies whose merges reach back farther than a window's end. */
struct bpe_work {
    int32_t *units;        /* [capacity] before any merge */
    int32_t *ids, *begins; /* [capacity, one more]: tokens, and the units that they begin at */
    struct bpe_symbol *symbols;
    uint64_t *heap;
    size_t capacity; /* units */
};
void bpe_work_deinit(struct bpe_work *w);

void bpe_init(struct bpe *b);
void bpe_deinit(struct bpe *b);

int bpe_reserve(struct bpe *b, uint64_t num_merges, struct error *err) must_check;
/* At most as many as reserved. Of merges of the same pair the last one counts. */
void bpe_add_merge(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t product);
int bpe_finish(struct bpe *b, const struct vocab *v, struct error *err) must_check;

enum { BPE_PIECE_BYTES_MAX = 1 << 28 };

/* Takes tokens as they become known; another status than 0 ends the encoding and is its status. */
typedef int bpe_take(void *context, const int32_t *ids, int32_t num_ids);

/* Gives the tokens of piece (1 to BPE_PIECE_BYTES_MAX bytes) to take, in order. Never a control token but the
 * unknown one. STATUS_NO_MEMORY, STATUS_LIMIT, or what take returned. */
int bpe_encode(const struct bpe *b, const struct vocab *v, const char *piece, size_t num_bytes,
               struct bpe_work *w, bpe_take *take, void *context) must_check;

#endif
