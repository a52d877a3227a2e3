#include "text/tools/literal_json.h"

#include <stdlib.h>
#include <string.h>

#include "text/tools/match.h"

struct reader {
    const char *at, *end, *quote;
    struct buffer *out;
    int depth;
};

static enum literal_type read_value(struct reader *r);

static void skip_spaces(struct reader *r)
{
    while (r->at < r->end && match_is_space(*r->at)) r->at++;
}

static bool take(struct reader *r, const char *text)
{
    size_t n = strlen(text);
    if (n == 0 || (size_t)(r->end - r->at) < n || memcmp(r->at, text, n) != 0) return false;
    r->at += n;
    return true;
}

void literal_append_escaped(struct buffer *out, const char *text, size_t num_bytes)
{
    for (size_t i = 0; i < num_bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            buffer_printf(out, "\\%c", c);
        else if (c == '\n')
            buffer_append_text(out, "\\n");
        else if (c == '\t')
            buffer_append_text(out, "\\t");
        else if (c == '\r')
            buffer_append_text(out, "\\r");
        else if (c < 0x20)
            buffer_printf(out, "\\u%04x", c);
        else
            buffer_append_char(out, (char)c);
    }
}

/* ---- strings ---- */

static enum literal_type read_family_string(struct reader *r)
{
    size_t n = strlen(r->quote);
    const char *end = memmem(r->at, (size_t)(r->end - r->at), r->quote, n);
    if (!end) return LITERAL_NONE;
    buffer_append_char(r->out, '"');
    literal_append_escaped(r->out, r->at, (size_t)(end - r->at));
    buffer_append_char(r->out, '"');
    r->at = end + n;
    return LITERAL_STRING;
}

static bool read_hex(struct reader *r, int num_digits)
{
    char digits[9] = "";
    if (r->end - r->at < num_digits) return false;
    memcpy(digits, r->at, (size_t)num_digits);
    if (strspn(digits, "0123456789abcdefABCDEF") != (size_t)num_digits) return false;
    r->at += num_digits;
    unsigned long point = strtoul(digits, NULL, 16);
    if (point > 0x10FFFF) return false;
    if (point >= 0x10000) {
        point -= 0x10000;
        buffer_printf(r->out, "\\u%04lx\\u%04lx", 0xD800 + (point >> 10), 0xDC00 + (point & 0x3FF));
    } else {
        buffer_printf(r->out, "\\u%04lx", point);
    }
    return true;
}

/* Behind a backslash: JSON's escapes stay, Python's others are written as JSON has them. */
static bool read_escape(struct reader *r)
{
    if (r->at == r->end || !*r->at) return false;
    char c = *r->at++;
    switch (c) {
    case 'x':
        return read_hex(r, 2);
    case 'u':
        return read_hex(r, 4);
    case 'U':
        return read_hex(r, 8);
    case '\'':
        buffer_append_char(r->out, '\'');
        return true;
    case 'a':
        buffer_append_text(r->out, "\\u0007");
        return true;
    case 'v':
        buffer_append_text(r->out, "\\u000b");
        return true;
    case '0':
        buffer_append_text(r->out, "\\u0000");
        return true;
    default:
        if (strchr("\"\\/bfnrt", c)) {
            buffer_append_char(r->out, '\\');
            buffer_append_char(r->out, c);
        } else { /* Python keeps the backslash of an escape that it does not know */
            buffer_append_text(r->out, "\\\\");
            r->at--;
        }
        return true;
    }
}

static enum literal_type read_string(struct reader *r, char quote)
{
    buffer_append_char(r->out, '"');
    while (r->at < r->end && *r->at != quote) {
        if (*r->at == '\\') {
            r->at++;
            if (!read_escape(r)) return LITERAL_NONE;
        } else {
            literal_append_escaped(r->out, r->at++, 1);
        }
    }
    if (r->at == r->end) return LITERAL_NONE;
    r->at++;
    buffer_append_char(r->out, '"');
    return LITERAL_STRING;
}

/* ---- numbers and words ---- */

static size_t count_digits(const char *at, const char *end)
{
    size_t n = 0;
    while (at + n < end && at[n] >= '0' && at[n] <= '9') n++;
    return n;
}

static enum literal_type read_number(struct reader *r)
{
    const char *at = r->at;
    enum literal_type type = LITERAL_INTEGER;
    if (at < r->end && *at == '-') at++;
    size_t n = count_digits(at, r->end);
    if (n == 0 || (n > 1 && *at == '0')) return LITERAL_NONE;
    at += n;
    if (at < r->end && *at == '.') {
        n = count_digits(at + 1, r->end);
        if (n == 0) return LITERAL_NONE;
        at += n + 1;
        type = LITERAL_NUMBER;
    }
    if (at < r->end && (*at == 'e' || *at == 'E')) {
        const char *digits = at + 1;
        if (digits < r->end && (*digits == '+' || *digits == '-')) digits++;
        n = count_digits(digits, r->end);
        if (n == 0) return LITERAL_NONE;
        at = digits + n;
        type = LITERAL_NUMBER;
    }
    buffer_append(r->out, r->at, (size_t)(at - r->at));
    r->at = at;
    return type;
}

static size_t word_length(const struct reader *r)
{
    size_t n = 0;
    while (r->at + n < r->end && r->at[n] &&
           (strchr("_-.$", r->at[n]) || (r->at[n] >= '0' && r->at[n] <= '9') ||
            ((r->at[n] | 32) >= 'a' && (r->at[n] | 32) <= 'z') || (r->at[n] & 0x80)))
        n++;
    return n;
}

static enum literal_type read_word(struct reader *r)
{
    static const struct {
        const char *text, *json;
        enum literal_type type;
    } words[] = {
        {"true", "true", LITERAL_BOOLEAN},   {"false", "false", LITERAL_BOOLEAN},
        {"null", "null", LITERAL_NULL},      {"True", "true", LITERAL_BOOLEAN},
        {"False", "false", LITERAL_BOOLEAN}, {"None", "null", LITERAL_NULL},
    };
    size_t n = word_length(r);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i].text) != n || memcmp(words[i].text, r->at, n) != 0) continue;
        r->at += n;
        buffer_append_text(r->out, words[i].json);
        return words[i].type;
    }
    return LITERAL_NONE;
}

/* ---- lists and objects ---- */

static enum literal_type read_list(struct reader *r, char close)
{
    buffer_append_char(r->out, '[');
    for (bool first = true;; first = false) {
        skip_spaces(r);
        if (r->at < r->end && *r->at == close) break;
        if (!first) {
            if (!take(r, ",")) return LITERAL_NONE;
            skip_spaces(r);
            if (r->at < r->end && *r->at == close) break; /* as Python has it */
            buffer_append_text(r->out, ", ");
        }
        if (!read_value(r)) return LITERAL_NONE;
    }
    r->at++;
    buffer_append_char(r->out, ']');
    return LITERAL_ARRAY;
}

/* A bare name. A family with quotes of its own writes all names so: what they have of blanks, slashes and the like is theirs. */
static size_t name_length(const struct reader *r)
{
    size_t n = 0;
    if (!*r->quote) return word_length(r);
    while (r->at + n < r->end && r->at[n] && !strchr(":,[]{}\n", r->at[n])) n++;
    while (n > 0 && match_is_space(r->at[n - 1])) n--;
    return n;
}

static bool read_name(struct reader *r)
{
    skip_spaces(r);
    if (r->at < r->end &&
        (*r->at == '"' || *r->at == '\'' || (*r->quote && strncmp(r->at, r->quote, 1) == 0)))
        return read_value(r) == LITERAL_STRING;
    size_t n = name_length(r);
    if (n == 0) return false;
    buffer_append_json(r->out, r->at, n);
    r->at += n;
    return true;
}

static enum literal_type read_object(struct reader *r)
{
    buffer_append_char(r->out, '{');
    for (bool first = true;; first = false) {
        skip_spaces(r);
        if (r->at < r->end && *r->at == '}') break;
        if (!first) {
            if (!take(r, ",")) return LITERAL_NONE;
            skip_spaces(r);
            if (r->at < r->end && *r->at == '}') break;
            buffer_append_text(r->out, ", ");
        }
        if (!read_name(r)) return LITERAL_NONE;
        skip_spaces(r);
        if (!take(r, ":")) return LITERAL_NONE;
        buffer_append_text(r->out, ": ");
        if (!read_value(r)) return LITERAL_NONE;
    }
    r->at++;
    buffer_append_char(r->out, '}');
    return LITERAL_OBJECT;
}

static enum literal_type read_value(struct reader *r)
{
    skip_spaces(r);
    if (r->at == r->end || r->depth == LITERAL_DEPTH_MAX) return LITERAL_NONE;
    r->depth++;
    enum literal_type type;
    if (take(r, r->quote))
        type = read_family_string(r);
    else if (take(r, "\""))
        type = read_string(r, '"');
    else if (take(r, "'"))
        type = read_string(r, '\'');
    else if (take(r, "["))
        type = read_list(r, ']');
    else if (take(r, "("))
        type = read_list(r, ')');
    else if (take(r, "{"))
        type = read_object(r);
    else if (*r->at == '-' || (*r->at >= '0' && *r->at <= '9'))
        type = read_number(r);
    else
        type = read_word(r);
    r->depth--;
    return type;
}

enum literal_type literal_to_json(const char *text, size_t num_bytes, const char *quote, struct buffer *out)
{
    struct reader r = {text, text + num_bytes, quote, out, 0};
    size_t before = out->num_bytes;
    enum literal_type type = read_value(&r);
    skip_spaces(&r);
    if (type != LITERAL_NONE && r.at == r.end) return type;
    out->num_bytes = before;
    return LITERAL_NONE;
}

/* ---- where a literal ends ---- */

static size_t scan_family_quote(struct literal_scan *s, const char *text, size_t num_bytes)
{
    size_t n = strlen(s->quote);
    if (n == 0 || num_bytes < n || memcmp(text, s->quote, n) != 0) return 0;
    s->open = s->open ? '\0' : 'q';
    return n;
}

static size_t scan_string(struct literal_scan *s, const char *text, size_t num_bytes)
{
    if (s->open == 'q') {
        size_t n = scan_family_quote(s, text, num_bytes);
        return n > 0 ? n : 1;
    }
    if (s->is_escaped)
        s->is_escaped = false;
    else if (*text == '\\')
        s->is_escaped = true;
    else if (*text == s->open)
        s->open = '\0';
    return 1;
}

size_t literal_scan(struct literal_scan *s, const char *text, size_t num_bytes, bool *ended)
{
    size_t i = 0, quote = strlen(s->quote);
    *ended = false;
    while (i < num_bytes) {
        const char *at = text + i;
        size_t left = num_bytes - i;
        /* A quote of several bytes is looked at whole. */
        if (quote > 1 && left < quote && memcmp(at, s->quote, left) == 0) return i;
        if (s->open) {
            i += scan_string(s, at, left);
            continue;
        }
        size_t n = scan_family_quote(s, at, left);
        if (n > 0) {
            i += n;
            continue;
        }
        if (strchr("([{", *at) && *at) {
            s->depth++;
        } else if (strchr(")]}", *at) && *at) {
            if (s->depth == 0) break;
            s->depth--;
        } else if (*at == '"' || (*at == '\'' && quote <= 1)) {
            s->open = *at;
        } else if (s->depth == 0 && (*at == ',' || *at == '<')) {
            break;
        }
        i++;
    }
    *ended = i < num_bytes;
    return i;
}
