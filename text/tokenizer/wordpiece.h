/* wordpiece.h - WordPiece encoding of one piece of text: from its start on the longest token that is there, each but
 * the first by its name with the prefix of tokens that continue a word. A word in which there is none somewhere, or of
 * too many characters, is one unknown token; white space is no word. Time: characters of a word times those of the longest token. Read-only
 * once finished. Thread: any. */
#ifndef TEXT_TOKENIZER_WORDPIECE_H
#define TEXT_TOKENIZER_WORDPIECE_H

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/vocab.h"

enum { WORD_PREFIX_BYTES_MAX = 16, WORD_CHARACTERS_MAX = 1000 };

struct wordpiece {
    bool is_used; /* the tokenizer is one of word pieces, not of merges */
    char prefix[WORD_PREFIX_BYTES_MAX];
    size_t prefix_bytes;
    int32_t max_characters; /* of a word; at most WORD_CHARACTERS_MAX */
    int32_t unknown_id;
    size_t longest_bytes; /* of a token's name */
};

/* Once all tokens are there. */
void wordpiece_finish(struct wordpiece *w, const struct vocab *v);

/* As bpe_encode. */
int wordpiece_encode(const struct wordpiece *w, const struct vocab *v, const char *piece, size_t num_bytes,
                     bpe_take *take, void *context) must_check;

#endif
