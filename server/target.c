#include "server/target.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/utf8.h"
#include "server/gate.h"

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Decodes n bytes into out, which has room for n. Returns the decoded size, -1 on a malformed escape.
 * *plain_bytes: how many come before the first escaped slash. */
static long decode(const char *text, size_t n, char *out, size_t *plain_bytes)
{
    size_t written = 0;
    *plain_bytes = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '%') {
            out[written++] = text[i];
            continue;
        }
        int high = i + 2 < n ? hex_value(text[i + 1]) : -1;
        int low = high >= 0 ? hex_value(text[i + 2]) : -1;
        if (low < 0) return -1;
        if (high * 16 + low == '/') *plain_bytes = min_of(*plain_bytes, written);
        out[written++] = (char)(high * 16 + low);
        i += 2;
    }
    *plain_bytes = min_of(*plain_bytes, written);
    return (long)written;
}

/* The size of the UTF-8 sequence at the start of text, 0 if it is not one or is a control character. */
static size_t printable_size(const unsigned char *t, size_t n)
{
    if (t[0] < 0x80) return t[0] >= ' ' && t[0] != 0x7f;
    bool control = t[0] == 0xc2 && n > 1 && t[1] < 0xa0;
    return control ? 0 : (size_t)utf8_length(t, t + n);
}

static bool is_printable(const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t size = printable_size((const unsigned char *)text + i, n - i);
        if (size == 0) return false;
        i += size;
    }
    return true;
}

/* Every escape is whole. Brackets are for addresses only (RFC 3986), and browsers send them all the same where a name
 * stands for several values: include[]=a. */
static bool is_plain_query(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '%') continue;
        if (i + 2 >= n || hex_value(text[i + 1]) < 0 || hex_value(text[i + 2]) < 0) return false;
        i += 2;
    }
    return true;
}

/* Moves *text behind "scheme://authority". */
static int take_authority(const char **text, size_t *n, struct target *out, struct refusal *why)
{
    size_t scheme = 0;
    if (*n > 7 && !strncasecmp(*text, "http://", 7)) scheme = 7;
    if (*n > 8 && !strncasecmp(*text, "https://", 8)) scheme = 8;
    if (scheme == 0) return refuse(why, 400, "the request target does not begin with a slash");
    size_t end = scheme;
    for (; end < *n && (*text)[end] != '/' && (*text)[end] != '?'; end++)
        if ((*text)[end] == '@') return refuse(why, 400, "the request target holds user information");
    out->authority = *text + scheme;
    out->authority_bytes = end - scheme;
    if (!gate_is_host(out->authority, out->authority_bytes))
        return refuse(why, 400, "the request target names no host");
    *text += end;
    *n -= end;
    return 0;
}

static int take_path(const char *text, size_t n, struct arena *arena, struct target *out, struct refusal *why)
{
    if (n == 0) { /* http://host?query */
        out->path = "/";
        out->plain_bytes = 1;
        return 0;
    }
    char *decoded = arena_alloc(arena, n + 1); /* zeroed: NUL-terminated */
    if (!decoded) return refuse(why, 503, "no memory for the request");
    long decoded_bytes = decode(text, n, decoded, &out->plain_bytes);
    if (decoded_bytes < 0 || !is_printable(decoded, (size_t)decoded_bytes) || memchr(text, '[', n) ||
        memchr(text, ']', n))
        return refuse(why, 400, "the request target is not percent-encoded UTF-8 text");
    out->path = decoded;
    return 0;
}

int target_parse(const char *text, size_t n, enum http_method method, struct arena *arena, struct target *out,
                 struct refusal *why)
{
    *out = (struct target){0};
    bool asterisk = n == 1 && text[0] == '*' && method == HTTP_METHOD_OPTIONS;
    bool absolute = n > 0 && text[0] != '/' && !asterisk;
    if (absolute && take_authority(&text, &n, out, why)) return -1;
    if (n == 0 && method == HTTP_METHOD_OPTIONS) { /* a path that is missing is "/" but for these */
        text = "*";
        n = 1;
    }
    const char *mark = memchr(text, '?', n);
    size_t path_bytes = mark ? (size_t)(mark - text) : n;
    if (mark && !is_plain_query(mark + 1, n - path_bytes - 1))
        return refuse(why, 400, "the query of the request target is not percent-encoded");
    if (take_path(text, path_bytes, arena, out, why)) return -1;
    out->query = mark ? arena_copy(arena, mark + 1, n - path_bytes - 1) : "";
    return out->query ? 0 : refuse(why, 503, "no memory for the request");
}

void target_shorten(const char *path, char text[TARGET_SHORT_BYTES])
{
    int n = snprintf(text, TARGET_SHORT_BYTES, "%s", path);
    if (n < TARGET_SHORT_BYTES) return;
    n = TARGET_SHORT_BYTES - 1;
    while (n > 0 && ((unsigned char)path[n] & 0xc0) == 0x80) n--;
    text[n] = '\0';
}
