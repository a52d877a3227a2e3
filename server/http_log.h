/* http_log.h - one line for each request that the server refuses. Never a byte of a body. */
#ifndef SERVER_HTTP_LOG_H
#define SERVER_HTTP_LOG_H

#include "server/exchange.h"

struct http_log_refusal {
    const char *request_id;
    const char *client;       /* its address */
    const struct exchange *x; /* NULL: the head could not be read */
    int http_status;
    const char *code, *param; /* NULL: none */
    const char *reason;       /* a sentence without the client's bytes, or NULL */
};

void http_log_refusal(const struct http_log_refusal *r);

#endif
