/* http_client.h - asks an HTTP server, one request a connection, and hands its answer over as it comes. For the
 * command line: it blocks. Plain HTTP/1.1, over TCP or a Unix socket; no TLS, no redirects. Thread: any one. */
#ifndef CLI_HTTP_CLIENT_H
#define CLI_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include <sys/socket.h>

#include "base/buffer.h"
#include "base/status.h"

struct http_client {
    char host[256], port[8]; /* host as in the URL, an IPv6 address without its brackets */
    char socket_path[108];   /* of unix:PATH; "": TCP */
    char prefix[256];        /* before every path, without a slash at its end */
    const char *key;         /* the caller's; NULL: none */
    char header[256];        /* one more line of each request's head, "name: value"; "": none */
    int silence_s;           /* of the server that ends an answer; 0: it may take any time */
};

/* url: http://host[:port][/path], with or without /v1 behind it, or unix:PATH. */
int http_client_init(struct http_client *c, const char *url, const char *key, struct error *err) must_check;

/* Appends the whole request; body NULL: GET. A failure stands in the buffer. */
void http_client_compose(const struct http_client *c, const char *path, const char *body, struct buffer *to);

/* Where a connection was just made, for others that are to follow. Not of a Unix socket. */
int http_client_find_address(const struct http_client *c, struct sockaddr_storage *address,
                             struct error *err) must_check;

/* False: no more is wanted, as when a signal comes while it waits. */
typedef bool http_body(void *context, const char *bytes, size_t n);

/* body NULL: GET, else POST of JSON. on_body gets the answer's body in pieces, whatever its status. A signal that
 * is caught without SA_RESTART ends the answer: STATUS_OK and *http_status 0. */
int http_client_ask(const struct http_client *c, const char *path, const char *body, http_body *on_body,
                    void *context, int *http_status, struct error *err) must_check;

#endif
