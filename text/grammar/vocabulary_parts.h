/* vocabulary_parts.h - the inside of a vocabulary, for who computes masks. */
#ifndef TEXT_GRAMMAR_VOCABULARY_PARTS_H
#define TEXT_GRAMMAR_VOCABULARY_PARTS_H

#include "text/grammar/trie.h"
#include "text/grammar/vocabulary.h"

enum {
    SLICES = 34,
    SLICE_CHARS_MAX = SLICES - 2
}; /* by the most characters of a token: 0 to 32; any number */

/* A token that ends a JSON string: chars characters, the quote, and then the text that it has in the trie. */
struct tail {
    uint32_t id, chars;
};

/* Tokens that may hold whole elements of an array: with so many quotes or more; an integer between such as end one, a digit and
 * then what ends a number, and what begins null, true or false behind a comma (and that behind a quote). */
enum repeated_tokens {
    REPEATED_TWO_QUOTES,
    REPEATED_THREE_QUOTES,
    REPEATED_FOUR_QUOTES,
    REPEATED_INTEGERS,
    REPEATED_NUMBERS,
    REPEATED_LITERALS,
    REPEATED_LITERALS_BEHIND_QUOTE,
    NUM_REPEATED,
};

struct vocabulary {
    int32_t num_ids;
    size_t num_words;
    int32_t *end_ids;
    int num_end_ids;
    struct trie trie;
    uint64_t *slices; /* SLICES x num_words: tokens inside a string, of CLASS_ANY */
    uint64_t *plain;  /* tokens that are plain text (byte_group.h) */
    struct trie rest; /* the others */
    uint64_t *repeated[NUM_REPEATED];
    struct tail *long_values; /* tokens inside a string of more than SLICE_CHARS_MAX characters */
    uint32_t num_long;
    struct trie tails;
    struct tail *tail_values;
    uint32_t num_tails, max_chars, max_tail_chars;
    size_t num_bytes;
};

/* The bytes of the longest token. */
static inline uint32_t vocabulary_token_bytes(const struct vocabulary *v)
{
    return v->trie.nodes[TRIE_ROOT].height;
}

/* The tokens inside a string of at most max_chars characters, but for long_values where they may be some of
 * them. */
static inline const uint64_t *vocabulary_slice(const struct vocabulary *v, uint32_t max_chars)
{
    uint32_t slice = max_chars >= v->max_chars     ? SLICES - 1
                     : max_chars < SLICE_CHARS_MAX ? max_chars
                                                   : SLICE_CHARS_MAX;
    return v->slices + (size_t)slice * v->num_words;
}

#endif
