/* exchange.h - one HTTP request and its response, as an endpoint sees it.
 *
 * The transport (listener, connection, gate) parses and checks a request, and only then calls the endpoint's
 * handler with an exchange. The endpoint answers once, either whole (exchange_reply, exchange_error) or as a
 * stream (exchange_start_stream, exchange_write ..., exchange_end), now or later. An exchange that was
 * answered and finished is gone: its owner must not touch it afterwards. Endpoints keep state in
 * exchange->arena and hang it on exchange->context.
 * None of the functions here calls an endpoint: what a client has sent behind its request begins at the loop's next turn.
 *
 * Life of an exchange:
 *
 *   handler called -> replied                            -> gone
 *                  -> stream started -> written* -> ended -> gone
 *                  -> client went away (on_closed)        -> gone after on_closed returns
 *
 * Thread: the loop's. */
#ifndef SERVER_EXCHANGE_H
#define SERVER_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

struct buffer;
struct ip_address;
struct server;     /* server.h: what all endpoints share */
struct connection; /* transport's own */

enum http_method {
    HTTP_METHOD_GET,
    HTTP_METHOD_HEAD,
    HTTP_METHOD_POST,
    HTTP_METHOD_OPTIONS,
    HTTP_METHOD_DELETE,
    HTTP_METHOD_PUT,
    HTTP_METHOD_PATCH,
    HTTP_METHOD_TRACE
};

struct exchange {
    struct server *server;
    struct connection *connection;
    struct arena arena; /* this request's memory; freed by the transport when the exchange is gone */

    /* the request: valid until the exchange is gone, or exchange_drop_request */
    uint64_t id;         /* unique in the process, from 1 */
    char request_id[64]; /* x-request-id: a valid one of the client's, else ours ("req-<hex>") */
    enum http_method method;
    int api_key_idx;       /* which --api-key it came with; -1 when the server has none */
    const char *path;      /* percent-decoded, without the query, NUL-terminated */
    const char *query;     /* raw, without '?', "" if none */
    const char *path_rest; /* what a route ending in a wildcard matched, "" otherwise */
    const char *body; /* body_bytes bytes and a NUL; checked: valid UTF-8 JSON where the route wants JSON */
    size_t body_bytes;
    uint64_t arrival_ns; /* monotonic: first byte of the request */

    /* the endpoint's */
    void *context;
    void (*on_writable)(
        struct exchange *x); /* output went below the soft limit after exchange_write said false */
    void (*on_closed)(struct exchange *x); /* the client went away, or a time or output limit cut it off */
};

/* The value of a request header (name in lower case), or NULL. */
const char *exchange_header(const struct exchange *x, const char *name);

/* Whose the request is: the connection's peer, or who a trusted proxy (proxies.h) says it has it from; all zero: a
 * Unix socket's. */
void exchange_get_client(const struct exchange *x, struct ip_address *client);

/* Adds a header to the response about to be sent. Before reply or start_stream. Copied. */
void exchange_add_header(struct exchange *x, const char *name, const char *value);

/* Sends a whole response; the exchange is gone. body is copied. */
void exchange_reply(struct exchange *x, int http_status, const char *content_type, const char *body,
                    size_t n);

/* Likewise with 200, of JSON that may be long: the client takes its memory over where it does not read all at once. */
void exchange_reply_json(struct exchange *x, struct buffer *body);

/* Sends a page that was put together in a buffer, with 200. One that did not fit into memory is not sent in part. */
void exchange_reply_page(struct exchange *x, const char *content_type, const struct buffer *page);

/* An error in the shape of the route's protocol; without one OpenAI's {"error":{message,type,param,code}}, where
 * param and code may be NULL (null on the wire).
 * 429 and 503 carry Retry-After (retry_after_seconds, 1..60; 0: not one of these). The exchange is gone. */
void exchange_error(struct exchange *x, int http_status, const char *type, const char *code,
                    const char *param, int retry_after_seconds, const char *format, ...)
    __attribute__((format(printf, 7, 8)));

/* For the metrics: of an error that is told otherwise, in a stream or in a whole answer's place. exchange_error counts its own. */
void exchange_count_error(const struct exchange *x, int http_status, const char *code);

/* What the client sent is not needed any more (its answer may take long): path, query, headers and body
 * become empty, and what is in the arena is gone. */
void exchange_drop_request(struct exchange *x);

/* Sends 200 and the headers of a stream at once. */
void exchange_start_stream(struct exchange *x, const char *content_type);
/* Queues n bytes (a whole event) as one chunk. Returns false when more than the soft limit is waiting for the
 * client: stop writing until on_writable. Past the hard limit, or when the client has not read for too long,
 * the transport closes and calls on_closed (never from inside exchange_write). */
bool exchange_write(struct exchange *x, const char *bytes, size_t n);
/* Ends the stream; the exchange is gone (what is queued is still sent). */
void exchange_end(struct exchange *x);

/* ---- a stream that goes on in another process (connection_move.h) ---- */

/* Nothing is read from the client or written to it until exchange_thaw. False: not now, something waits for it. */
bool exchange_freeze(struct exchange *x) must_check;
void exchange_thaw(struct exchange *x);
/* The connection is another process's: this one's descriptor is closed, and the exchange is gone, without on_closed. */
void exchange_let_go(struct exchange *x);

#endif
