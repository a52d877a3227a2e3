#include "server/target.h"

#include <string.h>
#include <strings.h>

#include "server/gate.h"

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Decodes n bytes into out, which has room for n. Returns the decoded size, -1 on a malformed escape. */
static long decode(const char *text, size_t n, char *out)
{
    size_t written = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '%') {
            out[written++] = text[i];
            continue;
        }
        int high = i + 2 < n ? hex_value(text[i + 1]) : -1;
        int low = high >= 0 ? hex_value(text[i + 2]) : -1;
        if (low < 0) return -1;
        out[written++] = (char)(high * 16 + low);
        i += 2;
    }
    return (long)written;
}

/* The size of the UTF-8 sequence at the start of text, 0 if it is not one or is a control character. */
static size_t printable_size(const unsigned char *t, size_t n)
{
    if (t[0] < 0x80) return t[0] >= ' ' && t[0] != 0x7f;
    size_t size = t[0] >= 0xf0 ? 4 : t[0] >= 0xe0 ? 3 : 2;
    if (t[0] < 0xc2 || t[0] > 0xf4 || size > n) return 0;
    for (size_t i = 1; i < size; i++)
        if ((t[i] & 0xc0) != 0x80) return 0;
    bool overlong = (t[0] == 0xe0 && t[1] < 0xa0) || (t[0] == 0xf0 && t[1] < 0x90);
    bool surrogate = t[0] == 0xed && t[1] >= 0xa0;
    bool too_high = t[0] == 0xf4 && t[1] >= 0x90;
    bool control = t[0] == 0xc2 && t[1] < 0xa0;
    return overlong || surrogate || too_high || control ? 0 : size;
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

/* Moves *text behind "scheme://authority". */
static int skip_authority(const char **text, size_t *n, struct refusal *why)
{
    size_t scheme = 0;
    if (*n > 7 && !strncasecmp(*text, "http://", 7)) scheme = 7;
    if (*n > 8 && !strncasecmp(*text, "https://", 8)) scheme = 8;
    if (scheme == 0) return refuse(why, 400, "the request target does not begin with a slash");
    size_t end = scheme;
    for (; end < *n && (*text)[end] != '/' && (*text)[end] != '?'; end++)
        if ((*text)[end] == '@') return refuse(why, 400, "the request target holds user information");
    if (!gate_is_host(*text + scheme, end - scheme))
        return refuse(why, 400, "the request target names no host");
    *text += end;
    *n -= end;
    return 0;
}

int target_parse(const char *target, size_t n, enum http_method method, struct arena *arena,
                 const char **path, const char **query, struct refusal *why)
{
    bool asterisk = n == 1 && target[0] == '*' && method == HTTP_METHOD_OPTIONS;
    bool absolute = n > 0 && target[0] != '/' && !asterisk;
    if (absolute && skip_authority(&target, &n, why)) return -1;
    const char *mark = memchr(target, '?', n);
    size_t path_bytes = mark ? (size_t)(mark - target) : n;
    if (path_bytes == 0) { /* http://host or http://host?query */
        *path = "/";
    } else {
        char *decoded = arena_alloc(arena, path_bytes + 1);
        if (!decoded) return refuse(why, 503, "no memory for the request");
        long decoded_bytes = decode(target, path_bytes, decoded);
        if (decoded_bytes < 0 || !is_printable(decoded, (size_t)decoded_bytes))
            return refuse(why, 400, "the request target is not percent-encoded UTF-8 text");
        *path = decoded; /* arena memory is zeroed: NUL-terminated */
    }
    *query = mark ? arena_copy(arena, mark + 1, n - path_bytes - 1) : "";
    return *query ? 0 : refuse(why, 503, "no memory for the request");
}
