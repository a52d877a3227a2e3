/* unigram.h - Unigram encoding of one piece of text: of all ways to cut it into tokens the one with the highest sum of scores, of
 * equals the one that was found first from the left. A character that no token is becomes unknown, at a price; a run of such is one
 * unknown token, or its bytes' tokens.
 *
 * Control tokens are none that text may turn into. Time: characters times those of the longest token. Read-only once finished.
 * Thread: any; each brings its own unigram_work. */
#ifndef TEXT_TOKENIZER_UNIGRAM_H
#define TEXT_TOKENIZER_UNIGRAM_H

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/vocab.h"

/* Of the trie of all tokens: from a node by a byte to another. */
struct unigram_edge {
    uint32_t from; /* node and byte; all ones: none */
    uint32_t to;
};

struct unigram {
    bool is_used;       /* the tokenizer has scores, and no merges */
    bool byte_fallback; /* an unknown run becomes its bytes' tokens where all of them are there */
    double *scores;     /* [num_scores], by id; owned */
    int32_t num_scores;
    int32_t unknown_id;
    double unknown_score;
    struct unigram_edge *edges; /* edge_mask + 1, at most half of them used */
    uint32_t edge_mask;
    int32_t *node_ids; /* [num_nodes]: the token that ends there, or -1 */
    uint32_t num_nodes;
    int32_t byte_ids[256]; /* of <0xNN>, or -1 */
};

/* Memory that is used again from piece to piece. */
struct unigram_work {
    struct unigram_place *places;
    size_t capacity;
};
void unigram_work_deinit(struct unigram_work *w);

void unigram_deinit(struct unigram *u);

/* Once all tokens and their scores are there. */
int unigram_finish(struct unigram *u, const struct vocab *v, struct error *err) must_check;

/* As bpe_encode. */
int unigram_encode(const struct unigram *u, const struct vocab *v, const char *piece, size_t num_bytes,
                   struct unigram_work *work, bpe_take *take, void *context) must_check;

#endif
