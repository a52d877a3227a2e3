#include "text/tools/argument_text.h"

#include <string.h>

#include "text/tools/literal_json.h"
#include "text/tools/match.h"

enum { WORD_BYTES_MAX = 5 }; /* False */

static size_t scan_string_byte(struct argument_scan *s, const char *text, struct buffer *out)
{
    char c = *text;
    if (s->is_escaped) {
        s->is_escaped = false;
    } else {
        s->is_escaped = c == '\\';
        s->in_string = c != '"';
    }
    if ((unsigned char)c < 0x20)
        literal_append_escaped(out, text, 1);
    else
        buffer_append_char(out, c);
    return 1;
}

/* 0: it cannot be told yet. */
static size_t scan_comma(const char *text, size_t num_bytes, struct buffer *out)
{
    size_t n = 1;
    while (n < num_bytes && n <= MATCH_SPACES_MAX && match_is_space(text[n])) n++;
    if (n == num_bytes && n <= MATCH_SPACES_MAX) return 0;
    bool is_last = n < num_bytes && (text[n] == '}' || text[n] == ']');
    buffer_append(out, text + is_last, 1 - is_last);
    return 1;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* 0: it cannot be told yet. */
static size_t scan_word(const char *text, size_t num_bytes, struct buffer *out)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    size_t n = 0;
    while (n < num_bytes && n <= WORD_BYTES_MAX && is_letter(text[n])) n++;
    if (n == num_bytes && n <= WORD_BYTES_MAX) return 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i][0]) != n || memcmp(words[i][0], text, n) != 0) continue;
        buffer_append_text(out, words[i][1]);
        return n;
    }
    buffer_append(out, text, n);
    return n;
}

static bool scan_bracket(struct argument_scan *s, char c, struct buffer *out)
{
    if (c == '{' || c == '[') {
        if (s->depth == ARGUMENT_DEPTH_MAX) return false;
        s->closing[s->depth++] = c == '{' ? '}' : ']';
    } else if (s->depth == 0 || s->closing[--s->depth] != c) {
        return false;
    }
    buffer_append_char(out, c);
    return true;
}

size_t argument_scan(struct argument_scan *s, const char *text, size_t num_bytes, enum argument_state *state,
                     struct buffer *out)
{
    size_t n = 0;
    *state = ARGUMENT_MORE;
    while (n < num_bytes && *state == ARGUMENT_MORE) {
        const char *at = text + n;
        size_t taken = 1;
        if (s->in_string) {
            taken = scan_string_byte(s, at, out);
        } else if (*at && strchr("{}[]", *at)) {
            taken = scan_bracket(s, *at, out);
            *state = !taken ? ARGUMENT_BROKEN : s->depth == 0 ? ARGUMENT_WHOLE : ARGUMENT_MORE;
        } else if (*at == ',') {
            taken = scan_comma(at, num_bytes - n, out);
        } else if (is_letter(*at)) {
            taken = scan_word(at, num_bytes - n, out);
        } else {
            s->in_string = *at == '"';
            buffer_append_char(out, *at);
        }
        if (taken == 0) break;
        n += taken;
    }
    return n;
}

static size_t unescape(const char *text, struct buffer *out)
{
    static const char names[] = "nrtbf/\"\\", values[] = "\n\r\t\b\f/\"\\";
    const char *known = text[1] ? strchr(names, text[1]) : NULL;
    if (known)
        buffer_append_char(out, values[known - names]);
    else
        buffer_append(out, text, 2);
    return 2;
}

size_t argument_unescape(const char *text, size_t num_bytes, bool *ended, struct buffer *out)
{
    size_t n = 0;
    while (n < num_bytes && text[n] != '"') {
        if (text[n] != '\\')
            buffer_append_char(out, text[n++]);
        else if (n + 1 < num_bytes)
            n += unescape(text + n, out);
        else
            break;
    }
    *ended = n < num_bytes && text[n] == '"';
    return n + *ended;
}
