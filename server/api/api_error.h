/* api_error.h - one refusal or failure of a request, as it will be told to the client.
 *
 * The table of cases is OpenAI's: 400 invalid_request_error with the dotted path of the field in param, 404
 * model_not_found, 429 rate_limit_error with Retry-After, 500 server_error, 503 service_unavailable_error.
 * A sentence says what, expected, got, and which option changes it; it never holds an address or a path.
 * Thread: its owner's. */
#ifndef SERVER_API_API_ERROR_H
#define SERVER_API_API_ERROR_H

#include "base/buffer.h"
#include "server/exchange.h"
#include "server/response.h"

struct api_error {
    int http_status;         /* 0: none */
    const char *type;        /* static text */
    const char *code;        /* static text or NULL */
    char param[112];         /* "": none */
    int retry_after_seconds; /* 1..60 with 429 and 503, else 0 */
    bool may_pass;           /* a 500 that another try need not meet */
    char text[512];
};

/* Fills in e and returns STATUS_INVALID. param may be NULL. What the format cuts
 * of a client's text is cut between characters. */
int api_error_set(struct api_error *e, int http_status, const char *type, const char *code, const char *param,
                  const char *format, ...) __attribute__((format(printf, 6, 7)));

/* 400 invalid_request_error. */
#define api_error_invalid(e, code, param, ...)                                                               \
    api_error_set(e, 400, "invalid_request_error", code, param, __VA_ARGS__)
#define api_error_no_memory(e) api_error_set(e, 500, "server_error", NULL, NULL, "out of memory")

/* Inline, so that what only fills errors in does not need the transport. The exchange is gone. */
static inline void api_error_send(struct exchange *x, const struct api_error *e)
{
    exchange_error(x, e->http_status, e->type, e->code, e->param[0] ? e->param : NULL, e->retry_after_seconds,
                   "%s", e->text);
}

/* For its body; points into e. */
struct failure api_error_failure(const struct api_error *e, const char *request_id);

#endif
