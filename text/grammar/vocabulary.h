/* vocabulary.h - the tokens of a tokenizer as masks need them: built once, shared by all grammars and
 * threads.
 *
 * A trie of the tokens' bytes, and the one thing that most masks have in common: which tokens can stand
 * inside a JSON string, and which end it. Control tokens and ids without bytes are in no mask; the ids that
 * end an answer are in it where the grammar allows the end. Memory: some 40 bytes a token and SLICES masks.
 * Immutable. */
#ifndef TEXT_GRAMMAR_VOCABULARY_H
#define TEXT_GRAMMAR_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { TOKEN_BYTES_MAX = 250 }; /* longer tokens are in no mask */

struct vocabulary;

struct vocabulary_source {
    int32_t num_ids;
    const int32_t *end_ids;
    int num_end_ids;
    /* The raw bytes of a token; *num_bytes 0 for those that no text may hold. Valid as long as the source. */
    const char *(*token_bytes)(const void *context, int32_t id, size_t *num_bytes);
    const void *context;
};

int vocabulary_make(const struct vocabulary_source *source, struct vocabulary **out,
                    struct error *err) must_check;
void vocabulary_free(struct vocabulary *v);

/* Words of 64 bits of a mask; bit id % 64 of word id / 64. */
size_t vocabulary_num_words(const struct vocabulary *v);
size_t vocabulary_bytes(const struct vocabulary *v);

#endif
