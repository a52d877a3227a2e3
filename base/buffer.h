/* buffer.h - a growable byte buffer that is created with its maximum.
 *
 * Appending past max_bytes or out of memory sets failed and drops the bytes; the buffer stays
 * usable, and the caller asks buffer_failed() once at the end instead of after each append.
 * data is always NUL-terminated once anything was appended. Owner frees with buffer_deinit.
 * Thread: none of its own. */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct buffer {
    char *data;
    size_t num_bytes, capacity_bytes, max_bytes;
    bool failed;
};

void buffer_init(struct buffer *b, size_t max_bytes);
void buffer_deinit(struct buffer *b);
void buffer_clear(struct buffer *b); /* keeps the memory, forgets the bytes and the failure */

/* Makes room for n more bytes (and the NUL) and returns where they go, NULL on failure.
 * The caller writes there and then adds to num_bytes with buffer_commit. */
char *buffer_reserve(struct buffer *b, size_t n);
void buffer_commit(struct buffer *b, size_t n);

void buffer_append(struct buffer *b, const void *bytes, size_t n);
void buffer_append_text(struct buffer *b, const char *text); /* up to the NUL */
void buffer_append_char(struct buffer *b, char c);
void buffer_printf(struct buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buffer_vprintf(struct buffer *b, const char *format, va_list args);

/* Appends text as a JSON string with its quotes. Input must be valid UTF-8; control characters,
 * quote and backslash are escaped, everything else is copied. text may be NULL when n is 0, as the data of an
 * empty buffer is. */
void buffer_append_json(struct buffer *b, const char *text, size_t n);
void buffer_append_json_text(struct buffer *b, const char *text); /* up to its NUL */

/* Gives back the memory that the bytes do not need. */
void buffer_fit(struct buffer *b);

/* Removes the first n bytes. */
void buffer_consume(struct buffer *b, size_t n);

static inline bool buffer_failed(const struct buffer *b)
{
    return b->failed;
}

#endif
