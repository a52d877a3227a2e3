/* gate.h - the strict reading of a request head, done before llhttp sees a byte.
 *
 * llhttp is a tokenizer without limits, and its accepted language is wider than is safe behind other HTTP
 * software (bare CR, obs-fold, several versions, no Host ...). The gate accepts one way to write each thing:
 *
 *   METHOD SP target SP HTTP/1.DIGIT CRLF  *( name ":" OWS value OWS CRLF )  CRLF
 *
 * gate_scan looks at bytes as they arrive, so that an endless or binary head is refused early and each byte
 * is read once; gate_check reads the complete head. Both are pure: no allocation, no socket. Thread: any. */
#ifndef SERVER_GATE_H
#define SERVER_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "server/exchange.h"
#include "server/refusal.h"

struct gate_limits {
    size_t max_header_bytes, max_url_bytes;
    int max_headers;
    uint64_t max_body_bytes;
};

/* How far a head has been scanned. All zero at the start of each request. Offsets are from the first byte. */
struct gate_scan {
    size_t num_scanned;
    size_t line_start;
    size_t head_start; /* 2 after the one empty line that may precede a request */
    int num_lines;     /* complete ones, request line included */
};

/* bytes: everything that has arrived of this request, n of them; only those not scanned yet are looked at.
 * Returns the size of the complete head, 0 when more is needed, -1 when refused. */
int64_t gate_scan(struct gate_scan *scan, const char *bytes, size_t n, const struct gate_limits *limits,
                  struct refusal *why) must_check;

struct gate_header {
    const char *name, *value; /* into the head; value without the blanks around it */
    uint32_t name_bytes, value_bytes;
};

struct gate_head {
    enum http_method method;
    const char *target; /* into the head */
    size_t target_bytes;
    const char *version_digit; /* the minor one, in the head */
    int version_minor;         /* 0, or 1 for whatever is higher */
    bool keep_alive;
    bool expect_continue; /* wants to hear 100 before it sends the body */
    bool chunked;
    uint64_t content_length;           /* 0 when absent or chunked */
    const struct gate_header *framing; /* Content-Length, or Transfer-Encoding with the coding alone as its
                                          value; NULL: none */
    struct gate_header *headers;       /* the caller's array of max_headers entries */
    int num_headers;
};

/* head: a complete head as gate_scan delimited it, from scan->head_start on. out->headers is set by the
 * caller. Returns 0 or -1. */
int gate_check(const char *head, size_t n, const struct gate_limits *limits, struct gate_head *out,
               struct refusal *why) must_check;

/* A host name or address with an optional port: the Host header, the authority of an absolute target. */
bool gate_is_host(const char *text, size_t n);

/* How many bytes of it are the name or address, brackets included. text is one that gate_is_host takes. */
size_t gate_host_bytes(const char *text, size_t n);

/* True for the characters of a token (RFC 9110, 5.6.2): header names, methods. */
bool gate_is_token_char(unsigned char c);

#endif
