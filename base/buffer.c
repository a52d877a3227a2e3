#include "base/buffer.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { FIRST_CAPACITY_BYTES = 256 };

void buffer_init(struct buffer *b, size_t max_bytes)
{
    *b = (struct buffer){.max_bytes = max_bytes};
}

void buffer_deinit(struct buffer *b)
{
    free(b->data);
    *b = (struct buffer){.max_bytes = b->max_bytes};
}

void buffer_clear(struct buffer *b)
{
    b->num_bytes = 0;
    b->failed = false;
    if (b->data) b->data[0] = '\0';
}

char *buffer_reserve(struct buffer *b, size_t n)
{
    if (b->failed || n > b->max_bytes || b->num_bytes > b->max_bytes - n) {
        b->failed = true;
        return NULL;
    }
    size_t want = b->num_bytes + n + 1;
    if (want > b->capacity_bytes) {
        size_t capacity = max_of(b->capacity_bytes * 2, (size_t)FIRST_CAPACITY_BYTES);
        capacity = max_of(min_of(capacity, b->max_bytes + 1), want);
        char *data = realloc(b->data, capacity);
        if (!data) {
            b->failed = true;
            return NULL;
        }
        b->data = data;
        b->capacity_bytes = capacity;
    }
    return b->data + b->num_bytes;
}

void buffer_commit(struct buffer *b, size_t n)
{
    assert_debug(b->num_bytes + n < b->capacity_bytes);
    b->num_bytes += n;
    b->data[b->num_bytes] = '\0';
}

void buffer_append(struct buffer *b, const void *bytes, size_t n)
{
    char *to = buffer_reserve(b, n);
    if (!to) return;
    if (n > 0) memcpy(to, bytes, n);
    buffer_commit(b, n);
}

void buffer_append_text(struct buffer *b, const char *text)
{
    buffer_append(b, text, strlen(text));
}

void buffer_append_char(struct buffer *b, char c)
{
    buffer_append(b, &c, 1);
}

void buffer_vprintf(struct buffer *b, const char *format, va_list args)
{
    char small[256];
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(small, sizeof small, format, args);
    if (n >= 0 && n < (int)sizeof small) {
        buffer_append(b, small, (size_t)n);
    } else if (n >= 0) {
        char *to = buffer_reserve(b, (size_t)n);
        if (to) {
            vsnprintf(to, (size_t)n + 1, format, again);
            buffer_commit(b, (size_t)n);
        }
    } else {
        b->failed = true;
    }
    va_end(again);
}

void buffer_printf(struct buffer *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    buffer_vprintf(b, format, args);
    va_end(args);
}

static void append_json_escape(struct buffer *b, unsigned char c)
{
    switch (c) {
    case '"':
        buffer_append(b, "\\\"", 2);
        break;
    case '\\':
        buffer_append(b, "\\\\", 2);
        break;
    case '\n':
        buffer_append(b, "\\n", 2);
        break;
    case '\r':
        buffer_append(b, "\\r", 2);
        break;
    case '\t':
        buffer_append(b, "\\t", 2);
        break;
    default:
        buffer_printf(b, "\\u%04x", c);
        break;
    }
}

void buffer_append_json(struct buffer *b, const char *text, size_t n)
{
    buffer_append_char(b, '"');
    if (n == 0) text = "";
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7F) continue;
        buffer_append(b, text + from, i - from);
        append_json_escape(b, c);
        from = i + 1;
    }
    buffer_append(b, text + from, n - from);
    buffer_append_char(b, '"');
}

void buffer_append_json_text(struct buffer *b, const char *text)
{
    buffer_append_json(b, text, strlen(text));
}

void buffer_fit(struct buffer *b)
{
    char *data = b->data ? realloc(b->data, b->num_bytes + 1) : NULL;
    if (!data) return;
    b->data = data;
    b->capacity_bytes = b->num_bytes + 1;
}

void buffer_consume(struct buffer *b, size_t n)
{
    assert_always(n <= b->num_bytes);
    if (n == 0) return;
    memmove(b->data, b->data + n, b->num_bytes - n);
    b->num_bytes -= n;
    b->data[b->num_bytes] = '\0';
}
