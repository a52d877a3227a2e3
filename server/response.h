/* response.h - the bytes of a response head and of the OpenAI error object. Pure text. */
#ifndef SERVER_RESPONSE_H
#define SERVER_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

struct response_head {
    int http_status;
    const char *content_type; /* NULL: none */
    const char *request_id;
    const char *allow_origin; /* NULL: none */
    bool varies_by_origin;
    int64_t unix_seconds; /* now */
    const char *extra;    /* whole header lines, each with its CR LF; NULL: none */
    bool chunked;         /* else content_bytes is sent, unless until_close */
    bool until_close;     /* HTTP/1.0 stream: the body ends with the connection */
    size_t content_bytes;
    bool close;          /* the connection ends with this response */
    bool keep_alive_1_0; /* an HTTP/1.0 client asked to keep the connection, and we do */
};

void response_append_head(struct buffer *out, const struct response_head *head);

/* What an error's body tells, in whatever shape the protocol gives it. */
struct failure {
    int http_status;
    const char *type, *code, *param; /* OpenAI's words; code and param may be NULL */
    const char *message;
    const char *request_id;
};

/* Appends a body of JSON. */
typedef void append_failure(struct buffer *out, const struct failure *f);

/* {"error":{"message":...,"type":...,"param":...,"code":...}} */
void response_append_error(struct buffer *out, const struct failure *f);

/* Header lines that belong to an error status: Retry-After (429, 503; clamped to 1..60 seconds),
 * WWW-Authenticate (401), x-should-retry: false where asking again gives the same answer. */
void response_append_error_headers(struct buffer *out, int http_status, int retry_after_seconds);

/* The official clients ask again on 408, 409, 429 and 5xx unless they are told that the answer would be the same. */
bool response_error_repeats(int http_status);

const char *response_reason(int http_status);

#endif
