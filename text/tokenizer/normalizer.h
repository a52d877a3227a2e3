/* normalizer.h - rewrites a text before it is cut into pieces: NFC, a prefix, one text for another.
 *
 * Steps run in order. They are few and small; a text that no step changes is not copied. Thread: any. */
#ifndef TEXT_TOKENIZER_NORMALIZER_H
#define TEXT_TOKENIZER_NORMALIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "text/tokenizer/charsmap.h"

enum normalizer_kind {
    NORMALIZE_NFC,
    NORMALIZE_PREPEND,               /* to, before a text that is not empty */
    NORMALIZE_PREPEND_MISSING,       /* to, unless the text begins with it */
    NORMALIZE_PREPEND_MISSING_FIRST, /* the same, only for the piece that begins the whole text */
    NORMALIZE_REPLACE,               /* each from by to */
    NORMALIZE_BERT,                  /* bert_text.h */
    NORMALIZE_CHARSMAP,              /* charsmap.h */
    NORMALIZE_RUNS,                  /* each run of two or more spaces by to */
    NORMALIZE_STRIP_LEFT,            /* white space at the start goes */
    NORMALIZE_STRIP_RIGHT,           /* and at the end */
    NORMALIZE_WORDS,                 /* white space goes, and each word begins with to, unless it does */
};

enum { NORMALIZER_STEPS_MAX = 8, NORMALIZER_TEXT_BYTES = 16 };

struct normalizer_step {
    enum normalizer_kind kind;
    char from[NORMALIZER_TEXT_BYTES], to[NORMALIZER_TEXT_BYTES];
    size_t from_bytes, to_bytes;
    unsigned bert_steps;
    const struct charsmap *charsmap; /* outlives the normalizer */
};

struct normalizer {
    int num_steps;
    struct normalizer_step steps[NORMALIZER_STEPS_MAX];
};

/* A step's from and to must not be longer than NORMALIZER_TEXT_BYTES. False when there is no room. */
bool normalizer_add(struct normalizer *n, enum normalizer_kind kind, const char *from, const char *to);
bool normalizer_add_bert(struct normalizer *n, unsigned bert_steps);
bool normalizer_add_charsmap(struct normalizer *n, const struct charsmap *charsmap);

/* The rewritten text: text itself, or bytes in one of the two buffers. NULL when out of memory. */
const char *normalizer_run(const struct normalizer *n, const char *text, size_t num_bytes, bool is_first,
                           struct buffer buffers[2], size_t *out_bytes);

#endif
