/* vocabulary_parts.h - the inside of a vocabulary, for who computes masks. */
#ifndef TEXT_GRAMMAR_VOCABULARY_PARTS_H
#define TEXT_GRAMMAR_VOCABULARY_PARTS_H

#include "text/grammar/trie.h"
#include "text/grammar/vocabulary.h"

enum { SLICES = 34 }; /* by the most characters a token may have: 0 to 32; the last one: any number */

/* A token that ends a JSON string: chars characters, the quote, and then the text that it has in the trie. */
struct tail {
    uint32_t id, chars;
};

struct vocabulary {
    int32_t num_ids;
    size_t num_words;
    int32_t *end_ids;
    int num_end_ids;
    struct trie trie;
    uint64_t *slices; /* SLICES x num_words: tokens inside a string, of CLASS_ANY */
    struct trie tails;
    struct tail *tail_values;
    uint32_t num_tails, max_chars, max_tail_chars;
    size_t num_bytes;
};

static inline const uint64_t *vocabulary_slice(const struct vocabulary *v, uint32_t max_chars)
{
    uint32_t slice = max_chars >= v->max_chars ? SLICES - 1 : max_chars < SLICES - 2 ? max_chars : SLICES - 2;
    return v->slices + (size_t)slice * v->num_words;
}

#endif
