/* browser_gate.h - whose pages may ask, and by which name: what a server without a key has against web pages.
 *
 * A browser sends what any page tells it to, also to a server on the user's own machine. It names the page's
 * origin with everything but plain reading; so a request with an Origin is served when it is this server's
 * own, when --allowed-origin names it, or when the server has keys, which pages do not know. A name of the
 * page's own that was made to resolve to this machine (DNS rebinding) hides that: so a server without a key
 * that listens on a loopback address answers to names of loopback and of --allowed-host only.
 *
 * Thread: read-only after browser_gate_init. */
#ifndef SERVER_BROWSER_GATE_H
#define SERVER_BROWSER_GATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "config/config.h"

struct sockaddr;

struct browser_gate {
    const struct text_list *origins, *hosts; /* the configuration's */
    bool any_origin, any_host;
    bool varies;     /* answers differ by Origin: caches must know */
    bool shows_page; /* page/page.h: to people who have a key, or who sit at this machine */
};

/* bound: where the server listens; NULL for a Unix socket. Refuses an --allowed-origin and an
 * --allowed-host that cannot be one. */
int browser_gate_init(struct browser_gate *g, const struct config *config, const struct sockaddr *bound,
                      struct error *err) must_check;

/* host: as gate_is_host takes it; n 0: the request names none. */
bool browser_gate_takes_host(const struct browser_gate *g, const char *host, size_t n);

/* Whether a request with this Origin may be served. host is the one that it asks. *allow becomes the value of
 * Access-Control-Allow-Origin (static or the configuration's), NULL for none. origin NULL: no page asks. */
bool browser_gate_takes_origin(const struct browser_gate *g, const char *origin, const char *host,
                               size_t host_bytes, const char **allow);

#endif
