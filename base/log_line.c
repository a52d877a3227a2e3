#include "base/log_line.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/utf8.h"

enum {
    ENDING_BYTES = 8, /* always free: the dots of a cut text, its quote, brace and newline */
    ESCAPE_BYTES_MAX = 13,
    KEY_BYTES_MAX = 64,
};

static const char *const level_names[] = {"debug", "info", "warning", "error"};
static _Atomic bool json_lines;

void log_line_choose_format(bool json)
{
    atomic_store(&json_lines, json);
}

static bool put(struct log_line *line, const char *bytes, size_t n)
{
    size_t room = sizeof line->bytes - ENDING_BYTES;
    if (line->num_bytes > room || n > room - line->num_bytes) return false;
    memcpy(line->bytes + line->num_bytes, bytes, n);
    line->num_bytes += n;
    return true;
}

/* From the bytes that put() leaves free. */
static void put_ending(struct log_line *line, const char *text)
{
    size_t n = strlen(text);
    memcpy(line->bytes + line->num_bytes, text, n);
    line->num_bytes += n;
}

static bool is_hidden(uint32_t code_point)
{
    switch (utf8proc_category((utf8proc_int32_t)code_point)) {
    case UTF8PROC_CATEGORY_CC: /* controls */
    case UTF8PROC_CATEGORY_CF: /* what is not seen but changes how others look, such as the order of writing
                                */
    case UTF8PROC_CATEGORY_ZL: /* separators of lines and paragraphs */
    case UTF8PROC_CATEGORY_ZP:
        return true;
    default:
        return false;
    }
}

static int write_escape(char out[ESCAPE_BYTES_MAX], uint32_t c)
{
    if (c < 0x10000) return snprintf(out, ESCAPE_BYTES_MAX, "\\u%04x", c);
    return snprintf(out, ESCAPE_BYTES_MAX, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10),
                    0xDC00 + (c & 0x3FF));
}

/* The code point of num_bytes at p as the line shows it; returns how many bytes of out it takes, 0: as it is.
 */
static int escape(char out[ESCAPE_BYTES_MAX], const unsigned char *p, uint32_t c, int num_bytes, bool quoted,
                  bool json)
{
    if (c == 0xFFFD && num_bytes == 1)
        return snprintf(out, ESCAPE_BYTES_MAX, json ? "\\\\x%02x" : "\\x%02x", *p);
    if (quoted && (c == '"' || c == '\\')) return snprintf(out, ESCAPE_BYTES_MAX, "\\%c", (int)c);
    return is_hidden(c) ? write_escape(out, c) : 0;
}

static void put_text(struct log_line *line, const char *text, size_t n, bool quoted)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + n;
    while (p < end) {
        char out[ESCAPE_BYTES_MAX];
        int num_bytes;
        uint32_t c = utf8_decode(p, end, &num_bytes);
        int escaped = escape(out, p, c, num_bytes, quoted, line->json);
        if (!put(line, escaped ? out : (const char *)p, (size_t)(escaped ? escaped : num_bytes))) {
            put_ending(line, "...");
            return;
        }
        p += num_bytes;
    }
}

static bool needs_quotes(const char *text)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + strlen(text);
    if (p == end || strpbrk(text, " \"\\=")) return true;
    for (int num_bytes; p < end; p += num_bytes) {
        uint32_t c = utf8_decode(p, end, &num_bytes);
        if ((c == 0xFFFD && num_bytes == 1) || is_hidden(c)) return true;
    }
    return false;
}

void log_line_begin(struct log_line *line, enum log_level level, const char *message, size_t n)
{
    char when[32], head[96];
    clock_format_wall(clock_wall_ns(), when);
    line->json = atomic_load(&json_lines);
    line->num_bytes = 0;
    int head_bytes =
        snprintf(head, sizeof head, line->json ? "{\"ts\":\"%s\",\"level\":\"%s\",\"msg\":\"" : "%s %s ",
                 when, level_names[level]);
    put(line, head, (size_t)head_bytes);
    put_text(line, message, n, line->json);
    if (line->json) put_ending(line, "\"");
}

static void add_text(struct log_line *line, const char *key, const char *text)
{
    char head[KEY_BYTES_MAX];
    bool quoted = line->json || needs_quotes(text);
    int n = snprintf(head, sizeof head, line->json ? ",\"%s\":\"" : quoted ? " %s=\"" : " %s=", key);
    if (!put(line, head, (size_t)n)) return;
    put_text(line, text, strlen(text), quoted);
    if (quoted) put_ending(line, "\"");
}

static void add_number(struct log_line *line, const char *key, const char *number)
{
    char field[KEY_BYTES_MAX + 320];
    int n = snprintf(field, sizeof field, line->json ? ",\"%s\":%s" : " %s=%s", key, number);
    put(line, field, (size_t)n);
}

void log_line_add(struct log_line *line, const struct log_field *field)
{
    char number[320]; /* the largest double has 309 digits */
    if (field->type == LOG_FIELD_TEXT) {
        if (field->text) add_text(line, field->key, field->text);
        return;
    }
    if (field->type == LOG_FIELD_REAL && !isfinite(field->real)) return;
    if (field->type == LOG_FIELD_REAL)
        snprintf(number, sizeof number, "%.3f", field->real);
    else
        snprintf(number, sizeof number, "%lld", (long long)field->integer);
    add_number(line, field->key, number);
}

void log_line_end(struct log_line *line)
{
    put_ending(line, line->json ? "}\n" : "\n");
}
