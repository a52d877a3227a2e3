/* literal_json.h - a value in JSON's, Python's or a family's own notation, as JSON.
 *
 * Strings in quotes of either kind, or within the family's quote (raw, without escapes); numbers; true, True,
 * null, None and so on; lists, tuples; objects whose names are quoted or bare. Thread: pure functions. */
#ifndef TEXT_TOOLS_LITERAL_JSON_H
#define TEXT_TOOLS_LITERAL_JSON_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

enum { LITERAL_DEPTH_MAX = 64 };

enum literal_type {
    LITERAL_NONE, /* the text is no literal */
    LITERAL_STRING = 1,
    LITERAL_NUMBER = 2,
    LITERAL_INTEGER = 4,
    LITERAL_BOOLEAN = 8,
    LITERAL_NULL = 16,
    LITERAL_ARRAY = 32,
    LITERAL_OBJECT = 64,
};

/* Appends the value's JSON to out; the whole text must be one value (white space around it aside). quote: the
 * family's, or "". A text that is JSON already is copied as it is. */
enum literal_type literal_to_json(const char *text, size_t num_bytes, const char *quote, struct buffer *out);

/* The inside of a JSON string, streamed: appends num_bytes of text escaped. The text may end within a
 * character; what is no UTF-8 is left as it is. */
void literal_append_escaped(struct buffer *out, const char *text, size_t num_bytes);

/* Follows a literal byte by byte to where it ends: at the first byte outside of strings and brackets that
 * can belong to none. */
struct literal_scan {
    const char *quote; /* the family's, or "" */
    char open;         /* the quote that a string began with; 'q': the family's */
    bool is_escaped;
    int depth;
};
/* How many bytes of the text belong to the literal; *ended whether it ends behind them. Call again with what
 * follows the bytes that were taken. */
size_t literal_scan(struct literal_scan *s, const char *text, size_t num_bytes, bool *ended);

#endif
