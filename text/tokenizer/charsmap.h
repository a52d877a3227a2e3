/* charsmap.h - sentencepiece's precompiled rules of normalisation: a trie of what is replaced, in two arrays, and the texts that
 * replace it. They are the file's: whatever they hold, a walk stays inside them and what it gives is UTF-8.
 *
 * Owner: the tokenizer. Read-only once read. Thread: any. */
#ifndef TEXT_TOKENIZER_CHARSMAP_H
#define TEXT_TOKENIZER_CHARSMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

struct charsmap {
    unsigned char *bytes; /* owned; NULL: there are no rules */
    const unsigned char *units;
    uint32_t num_units; /* of 4 bytes, little-endian */
    const char *texts;  /* each up to a NUL, or the end */
    size_t num_text_bytes;
};

int charsmap_read(struct charsmap *c, const void *bytes, size_t num_bytes, struct error *err) must_check;
int charsmap_read_base64(struct charsmap *c, const char *text, struct error *err) must_check;
void charsmap_deinit(struct charsmap *c);

/* Appends the text with the rules applied, as the reference does it: a grapheme of at most 5 bytes is replaced whole by the rule of
 * its shortest beginning that has one; else each character by its own. */
void charsmap_append(const struct charsmap *c, const char *text, size_t num_bytes, struct buffer *out);

#endif
