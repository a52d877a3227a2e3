/* text.h - immutable strings that know which of their bytes came from the request.
 *
 * A text is a view of bytes in a heap, with the ranges of them that are untrusted (not the template's own).
 * Slicing shares the bytes; everything else goes through a builder, which carries the marks along:
 *
 *     bytes      <|im_start|>user\nHello <|im_end|> there<|im_end|>\n
 *     untrusted              ~~~~  ~~~~~~~~~~~~~~~~~~~~~
 *
 * A text made by a builder remembers it, and appending to that text continues the builder in place as long as
 * nobody else has: `ns.out = ns.out + x` in a loop is linear. The last range of such a text may have grown
 * since, past the text's end: text_range_of clips.
 *
 * Indices that a template sees count code points; begin and end here are bytes. Input may be any bytes
 * (a stray byte counts as a code point of its own). */
#ifndef TEXT_JINJA_TEXT_H
#define TEXT_JINJA_TEXT_H

#include <stdint.h>

#include "text/jinja/heap.h"
#include "text/tokenizer.h"

struct text_builder;

struct text {
    const char *bytes; /* not NUL-terminated */
    size_t num_bytes;
    const struct text_range *untrusted;
    int num_untrusted;
    bool markup; /* went through `safe`: what it is added to gets HTML-escaped, as markupsafe does */
    struct text_builder *builder;
};

struct text_builder {
    struct heap *heap;
    char *bytes;
    size_t num_bytes, capacity_bytes;
    struct text_range *untrusted;
    int num_untrusted, capacity_untrusted;
};

extern const struct text text_empty;

/* The bytes are not copied. Never NULL; text_empty when the heap failed. */
const struct text *text_wrap(struct heap *h, const char *bytes, size_t n, bool untrusted);
const struct text *text_slice(struct heap *h, const struct text *t, size_t begin, size_t end);
const struct text *text_concat(struct heap *h, const struct text *a, const struct text *b);
const struct text *text_as_markup(struct heap *h, const struct text *t, bool markup);

/* The part of untrusted range i that lies in the text. */
static inline struct text_range text_range_of(const struct text *t, int i)
{
    struct text_range range = t->untrusted[i];
    range.end = min_of(range.end, t->num_bytes);
    return range;
}
bool text_is_untrusted_at(const struct text *t, size_t at);

static inline bool text_equal(const struct text *a, const struct text *b)
{
    return a->num_bytes == b->num_bytes && memcmp(a->bytes, b->bytes, a->num_bytes) == 0;
}

/* The first byte decides nearly always: looking a name up in a table is a walk of such comparisons. */
static inline bool text_is(const struct text *t, const char *literal)
{
    size_t n = t->num_bytes;
    if (n == 0 || t->bytes[0] != literal[0]) return n == 0 && literal[0] == '\0';
    return strlen(literal) == n && memcmp(literal, t->bytes, n) == 0;
}

int text_compare(const struct text *a, const struct text *b); /* by code point */
/* The first (or last) place of needle in [begin, end) of t, SIZE_MAX if none. */
size_t text_find(const struct text *t, const struct text *needle, size_t begin, size_t end);
size_t text_find_last(const struct text *t, const struct text *needle, size_t begin, size_t end);
bool text_starts_with(const struct text *t, const struct text *prefix);
bool text_ends_with(const struct text *t, const struct text *suffix);

/* ---- code points ---- */

size_t text_num_chars(const struct text *t);
/* The byte where code point idx starts; num_bytes when idx is past the end. */
size_t text_byte_of_char(const struct text *t, size_t idx);
size_t text_char_of_byte(const struct text *t, size_t byte);
/* The code point at byte at < num_bytes, and its length in *size (>= 1). A stray byte b gives 0xDC00 + b. */
int32_t text_char_at(const struct text *t, size_t at, size_t *size);
size_t text_char_before(const struct text *t, size_t at); /* where the code point before at > 0 starts */
bool char_is_space(int32_t c);                            /* as Python's str.isspace */
void text_strip_bounds(const struct text *t, const struct text *chars, bool left, bool right, size_t *begin,
                       size_t *end); /* chars NULL: white space */

/* ---- building ---- */

void text_builder_init(struct text_builder *b, struct heap *h);
void text_builder_append(struct text_builder *b, const char *bytes, size_t n, bool untrusted);
void text_builder_append_literal(struct text_builder *b, const char *literal);
void text_builder_append_text(struct text_builder *b, const struct text *t);
void text_builder_append_slice(struct text_builder *b, const struct text *t, size_t begin, size_t end);
void text_builder_append_char(struct text_builder *b, int32_t c, bool untrusted);
/* What was built so far; the builder may go on. */
const struct text *text_builder_take(struct text_builder *b);

#endif
