#include "server/api/nul_text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define STAND_IN "\xF4\x8F\xBF\xBF"
static const char nul_escape[] = "\\u0000", stand_in_escape[] = "\\udbff\\udfff";

enum { STAND_IN_BYTES = sizeof STAND_IN - 1, NUL_ESCAPE_BYTES = sizeof nul_escape - 1 };

/* The next escape at or after at; n: none. A backslash is in strings only, and two make one character. */
static size_t next_escape(const char *json, size_t n, size_t at)
{
    const char *found = at < n ? memchr(json + at, '\\', n - at) : NULL;
    return found ? (size_t)(found - json) : n;
}

static bool stands_at(const char *json, size_t n, size_t at, const char *escape)
{
    size_t length = strlen(escape);
    return n - at >= length && !strncasecmp(json + at, escape, length);
}

static bool has_escape(const char *json, size_t n, const char *escape)
{
    for (size_t at = 0; (at = next_escape(json, n, at)) < n; at += 2)
        if (stands_at(json, n, at, escape)) return true;
    return false;
}

bool nul_text_is_in(const char *json, size_t n)
{
    return has_escape(json, n, nul_escape);
}

/* The stand-in is shorter than what it stands for. */
static size_t copy_with_stand_ins(char *to, const char *json, size_t n)
{
    char *begin = to;
    for (size_t at = 0; at < n;) {
        size_t escape = next_escape(json, n, at);
        memcpy(to, json + at, escape - at);
        to += escape - at;
        at = escape;
        if (at == n) break;
        bool is_nul = stands_at(json, n, at, nul_escape);
        memcpy(to, is_nul ? STAND_IN : json + at, is_nul ? STAND_IN_BYTES : 2);
        to += is_nul ? STAND_IN_BYTES : 2;
        at += is_nul ? NUL_ESCAPE_BYTES : 2;
    }
    *to = '\0';
    return (size_t)(to - begin);
}

cJSON *nul_text_parse(const char *json, size_t n, bool *conflict)
{
    *conflict = false;
    if (!nul_text_is_in(json, n)) return cJSON_ParseWithLength(json, n);
    *conflict = memmem(json, n, STAND_IN, STAND_IN_BYTES) || has_escape(json, n, stand_in_escape);
    char *copy = *conflict ? NULL : malloc(n + 1);
    if (!copy) return NULL;
    size_t copy_bytes = copy_with_stand_ins(copy, json, n);
    cJSON *tree = cJSON_ParseWithLength(copy, copy_bytes);
    free(copy);
    return tree;
}

static size_t *edge_of(struct text_range *ranges, int i)
{
    return i % 2 == 0 ? &ranges[i / 2].begin : &ranges[i / 2].end;
}

void nul_text_restore_ranges(struct buffer *text, struct text_range *ranges, int num_ranges)
{
    if (text->num_bytes == 0) return;
    char *data = text->data, *end = data + text->num_bytes, *to = data;
    int num_edges = 2 * num_ranges, i = 0; /* begin and end by turns */
    for (char *from = data; from <= end;) {
        for (; i < num_edges && data + *edge_of(ranges, i) <= from; i++)
            *edge_of(ranges, i) = (size_t)(to - data);
        if (from == end) break;
        bool stands_in = end - from >= STAND_IN_BYTES && !memcmp(from, STAND_IN, STAND_IN_BYTES);
        *to++ = stands_in ? '\0' : *from;
        from += stands_in ? STAND_IN_BYTES : 1;
    }
    text->num_bytes = (size_t)(to - data);
    *to = '\0';
}

size_t nul_text_restore(char *text, size_t n)
{
    struct buffer whole = {.data = text, .num_bytes = n};
    nul_text_restore_ranges(&whole, NULL, 0);
    return whole.num_bytes;
}
