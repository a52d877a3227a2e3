#include "text/tools/slice.h"

#include <string.h>

#include "text/tools/match.h"

struct slice slice_text(const char *text)
{
    return (struct slice){text, strlen(text)};
}

struct slice slice_strip(struct slice s)
{
    while (s.n > 0 && match_is_space(s.bytes[0])) s = slice_from(s, 1);
    while (s.n > 0 && match_is_space(s.bytes[s.n - 1])) s.n--;
    return s;
}

bool slice_begins(struct slice s, struct slice begin)
{
    return s.n >= begin.n && !memcmp(s.bytes, begin.bytes, begin.n);
}

bool slice_ends(struct slice s, struct slice end)
{
    return s.n >= end.n && !memcmp(s.bytes + s.n - end.n, end.bytes, end.n);
}

bool slice_equal(struct slice a, struct slice b)
{
    return a.n == b.n && slice_begins(a, b);
}

bool slice_holds(struct slice s, const char *text)
{
    return memmem(s.bytes, s.n, text, strlen(text));
}

static bool opens(char c)
{
    return c == '<' || c == '[';
}

static bool closes(char c)
{
    return c == '>' || c == ']';
}

/* From n back to where the mark begins that it is in. */
static size_t mark_begin(struct slice s, size_t n)
{
    for (size_t i = n; i-- > 0 && !closes(s.bytes[i]);)
        if (opens(s.bytes[i])) return i;
    return n;
}

size_t slice_common_begin(struct slice a, struct slice b)
{
    size_t n = 0;
    while (n < a.n && n < b.n && a.bytes[n] == b.bytes[n]) n++;
    return n == a.n || n == b.n ? n : mark_begin(a, n);
}

size_t slice_common_begin_loosely(struct slice a, struct slice b, size_t *of_b)
{
    size_t n = 0, m = 0;
    while (n < a.n && m < b.n) {
        bool a_is_space = match_is_space(a.bytes[n]), b_is_space = match_is_space(b.bytes[m]);
        if (!a_is_space && !b_is_space && a.bytes[n] != b.bytes[m]) break;
        n += a_is_space || !b_is_space;
        m += b_is_space || !a_is_space;
    }
    *of_b = m < b.n ? mark_begin(b, m) : m;
    return n < a.n && m < b.n ? mark_begin(a, n) : n;
}

size_t slice_common_end(struct slice a, struct slice b)
{
    size_t n = 0;
    while (n < a.n && n < b.n && a.bytes[a.n - 1 - n] == b.bytes[b.n - 1 - n]) n++;
    if (n == a.n || n == b.n) return n;
    const char *begin = a.bytes + a.n - n;
    for (size_t i = 0; i < n && !opens(begin[i]); i++)
        if (closes(begin[i])) return n - i - 1;
    /* A piece of a character. */
    while (n > 0 && (*begin & 0xC0) == 0x80) begin++, n--;
    return n;
}
