/* http_log.h - one line for each request that the server refuses and each client that it cuts off, but at
 * most one a second of each kind (a status and a code), which says how many were left out: anybody can make
 * any number of these. Never a byte of a body. The metrics count all of them. Thread: the loop's. */
#ifndef SERVER_HTTP_LOG_H
#define SERVER_HTTP_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "server/exchange.h"

enum { HTTP_LOG_KINDS_MAX = 32 };

struct http_log_kind {
    int http_status; /* 0: a client that was cut off */
    const char *code;
    uint64_t written_ms; /* its last line */
    int64_t num_left_out;
};

struct http_log {
    uv_timer_t timer; /* runs while something was left out */
    bool open;
    struct http_log_kind kinds[HTTP_LOG_KINDS_MAX];
    int num_kinds;
};

void http_log_init(struct http_log *log, uv_loop_t *loop);
void http_log_close(struct http_log *log); /* says what was left out; safe to call twice, or without init */

struct http_log_refusal {
    const char *request_id;
    const char *client;       /* its address */
    const struct exchange *x; /* NULL: the head could not be read */
    int http_status;
    const char *code, *param; /* NULL: none; code is static */
    const char *reason;       /* a sentence without the client's bytes, or NULL */
};

void http_log_refusal(struct http_log *log, const struct http_log_refusal *r);
void http_log_cut_off(struct http_log *log, const char *request_id, const char *client, const char *reason,
                      size_t unsent_bytes);

#endif
