#include "server/router.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

static bool has_asterisk(const char *pattern)
{
    size_t n = strlen(pattern);
    return n >= 2 && !strcmp(pattern + n - 2, "/*");
}

static bool matches(const char *pattern, const char *path, size_t plain_bytes, const char **rest)
{
    size_t n = strlen(pattern);
    *rest = "";
    if (!has_asterisk(pattern)) return plain_bytes >= n && !strcmp(pattern, path);
    if (plain_bytes < n - 1 || strncmp(pattern, path, n - 1) != 0 || !path[n - 1]) return false;
    *rest = path + n - 1;
    return true;
}

static bool leads_to(const struct route *route, const char *path, size_t plain_bytes, const char **rest)
{
    static const char prefix[] = "/v1";
    return matches(route->pattern, path, plain_bytes, rest) ||
           ((route->flags & ROUTE_BARE) &&
            matches(route->pattern + sizeof prefix - 1, path, plain_bytes, rest));
}

static bool serves(const struct route *route, enum http_method method)
{
    return route->method == method || (route->method == HTTP_METHOD_GET && method == HTTP_METHOD_HEAD);
}

const struct route *router_find(const struct route *routes, enum http_method method, const char *path,
                                size_t plain_bytes, const char **rest, bool *path_exists)
{
    *path_exists = false;
    for (const struct route *r = routes; r->pattern; r++) {
        if (!leads_to(r, path, plain_bytes, rest)) continue;
        *path_exists = true;
        if (serves(r, method)) return r;
    }
    *rest = "";
    return NULL;
}

append_failure *router_error_shape(const struct route *routes, const char *path)
{
    append_failure *shape = NULL;
    size_t most = 0;
    for (const struct route *r = routes; r->pattern; r++) {
        const char *slash = strrchr(r->pattern, '/');
        size_t n = (size_t)(slash - r->pattern) + 1;
        if (!strcmp(r->pattern, path)) return r->append_error ? r->append_error : response_append_error;
        if (n <= most || strncmp(r->pattern, path, n) != 0) continue;
        most = n;
        shape = r->append_error;
    }
    return shape ? shape : response_append_error;
}

void router_list_methods(const struct route *routes, const char *path, char text[64])
{
    static const struct {
        enum http_method method;
        const char *name;
    } methods[] = {{HTTP_METHOD_GET, "GET, "},
                   {HTTP_METHOD_HEAD, "HEAD, "},
                   {HTTP_METHOD_POST, "POST, "},
                   {HTTP_METHOD_DELETE, "DELETE, "}};
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        const char *rest;
        for (const struct route *r = routes; r->pattern; r++) {
            bool same_path = !strcmp(path, "*") || leads_to(r, path, SIZE_MAX, &rest);
            if (!same_path || !serves(r, methods[i].method)) continue;
            text = stpcpy(text, methods[i].name);
            break;
        }
    }
    stpcpy(text, "OPTIONS");
}

static bool ends_with(const char *text, size_t n, const char *end, size_t end_bytes)
{
    return n >= end_bytes && !memcmp(text + n - end_bytes, end, end_bytes);
}

const char *router_suggest(const struct route *routes, const char *path)
{
    size_t n = strlen(path), least = SIZE_MAX;
    const char *best = NULL;
    while (n > 0 && path[n - 1] == '/') n--;
    for (const struct route *r = routes; r->pattern && n > 0; r++) {
        size_t pattern_bytes = strlen(r->pattern);
        size_t difference = pattern_bytes > n ? pattern_bytes - n : n - pattern_bytes;
        if (has_asterisk(r->pattern) || difference >= least) continue;
        if (!ends_with(r->pattern, pattern_bytes, path, n) && !ends_with(path, n, r->pattern, pattern_bytes))
            continue;
        best = r->pattern;
        least = difference;
    }
    return best;
}

bool router_list(const struct route *routes, char *text, size_t n)
{
    text[0] = '\0';
    for (const struct route *r = routes; r->pattern; r++) {
        const char *method = r->method == HTTP_METHOD_GET      ? "GET"
                             : r->method == HTTP_METHOD_DELETE ? "DELETE"
                                                               : "POST";
        int written = snprintf(text, n, "%s%s %s", r == routes ? "" : ", ", method, r->pattern);
        if ((size_t)written >= n) {
            text[0] = '\0'; /* whole ones only */
            return false;
        }
        text += written;
        n -= (size_t)written;
    }
    return true;
}
