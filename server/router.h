/* router.h - which endpoint answers a method and a path.
 *
 * A pattern is a path, or a path that ends in a slash and an asterisk and matches everything below it (at
 * least one byte). GET routes answer HEAD, too. A slash that was sent as %2F is no slash of a pattern. */
#ifndef SERVER_ROUTER_H
#define SERVER_ROUTER_H

#include <stdbool.h>

#include "server/exchange.h"
#include "server/response.h"

enum route_flags {
    ROUTE_OPEN = 1,    /* needs no API key; every other route does */
    ROUTE_ALWAYS = 2,  /* answered while loading and draining, too */
    ROUTE_JSON = 4,    /* wants a JSON body */
    ROUTE_ADMIN = 8,   /* for a key with `admin` behind it; without keys on a loopback address only */
    ROUTE_BARE = 16,   /* its pattern begins with /v1, which may be left out of a path */
    ROUTE_STORED = 32, /* about what has been asked for before: answered while draining, too */
};

struct route {
    enum http_method method;
    const char *pattern;
    unsigned flags; /* enum route_flags */
    void (*handler)(struct exchange *x);
    append_failure *append_error; /* the protocol's shape of errors; NULL: OpenAI's */
};

/* The server's own (routes.c); ends with a route whose pattern is NULL. */
extern const struct route server_routes[];

/* The route for method and path; NULL if there is none. plain_bytes: of path, before the first slash that was
 * escaped (target.h). *rest becomes what an asterisk matched, else "". *path_exists says whether another
 * method would have been answered. */
const struct route *router_find(const struct route *routes, enum http_method method, const char *path,
                                size_t plain_bytes, const char **rest, bool *path_exists);

/* The shape of errors about a path that is not served by this method, or not at all: that of a route with this pattern, else of
 * one that shares most of the path up to a slash. */
append_failure *router_error_shape(const struct route *routes, const char *path);

/* Writes the methods that path has as an Allow header's value, e.g. "GET, HEAD, OPTIONS". Path "*" means any.
 */
void router_list_methods(const struct route *routes, const char *path, char text[64]);

/* The pattern that somebody who asked for path, which is not served, most likely meant: what
 * ends with path or that path ends with, and is closest to it in length, slashes at the end aside. NULL: none. */
const char *router_suggest(const struct route *routes, const char *path);

/* "GET /health, POST /v1/completions": in at most n bytes with the NUL. False: there was no room for all. */
bool router_list(const struct route *routes, char *text, size_t n);

#endif
