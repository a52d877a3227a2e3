/* http_request.h - a checked request as the transport keeps it: the exchange that its endpoint sees, and what
 * only the transport needs. Owned by its connection. Thread: the loop's. */
#ifndef SERVER_HTTP_REQUEST_H
#define SERVER_HTTP_REQUEST_H

#include "server/exchange.h"
#include "server/gate.h"
#include "server/router.h"

struct http_request_header {
    const char *name, *value; /* in the arena, NUL-terminated; the name in lower case */
};

struct http_request {
    struct exchange x; /* first: an exchange is its request */
    const struct route *route;
    size_t plain_path_bytes;  /* target.h */
    const char *authority;    /* of an absolute target, in the arena; NULL: none */
    const char *allow_origin; /* browser_gate.h; not the arena's */
    struct http_request_header *headers;
    int num_headers;
    int version_minor;
    const char *extra_headers; /* lines for the response head, in the arena; NULL: none */
    int http_status;           /* of the response, once it has begun; 0: not yet */
    bool handled;              /* the endpoint has it: on_closed is due when the client goes away */
    bool streaming;            /* its response head is out */
    bool paused;               /* exchange_write said false */
};

/* Copies what head points to. Returns 0, or -1 with why. request_seed makes the ids that clients did not
 * send. */
int http_request_create(const struct gate_head *head, struct server *server, struct connection *connection,
                        uint64_t id, uint64_t request_seed, size_t arena_bytes, struct http_request **out,
                        struct refusal *why) must_check;
/* One of another process whose answer has begun, a stream; its headers are not known any more. NULL: no memory. */
struct http_request *http_request_restore(struct server *server, struct connection *connection, uint64_t id,
                                          const char *request_id, const struct route *route,
                                          int version_minor) must_check;
void http_request_destroy(struct http_request *r);

/* The protocol's of the route; where there is none, that of its neighbours. What has none of its own answers Anthropic's
 * clients in their shape. */
append_failure *http_request_error_shape(const struct http_request *r);

/* "req-" and 16 hexadecimal digits. */
void http_request_make_id(uint64_t request_seed, uint64_t id, char text[64]);

static inline struct http_request *http_request_of(const struct exchange *x)
{
    return (struct http_request *)(uintptr_t)x;
}

#endif
