/* http_reader.h - one request read by llhttp behind the gate.
 *
 * The gate has read the same bytes first. A request is served only when both readers agree on every span of
 * the head, on the framing, and on where the body ends; any difference between them is a request that two
 * servers in a row could read differently, and is refused with 400. No lenient flag of llhttp is ever set.
 * Where llhttp is narrower than the RFCs (minor versions, blanks, lists, extensions), it is fed what the
 * bytes mean.
 *
 * Thread: any; no shared state. */
#ifndef SERVER_HTTP_READER_H
#define SERVER_HTTP_READER_H

#include <llhttp.h>

#include "base/buffer.h"
#include "server/chunk_gate.h"
#include "server/gate.h"

struct http_reader {
    llhttp_t parser;
    struct chunk_gate chunks;
    bool chunked, complete; /* complete: llhttp has seen the whole message */
    bool differs;           /* found while the head is compared, as the next four are for */
    int header_idx;
    const struct gate_head *head;
    const char *span;
    size_t span_bytes;
    uint64_t remaining_bytes; /* of a body with Content-Length */
    /* while the body is read */
    struct buffer *body;
};

/* head points to the bytes that gate_check accepted as checked. */
int http_reader_begin(struct http_reader *r, const char *head, size_t n, const struct gate_head *checked,
                      struct refusal *why) must_check;

/* Appends what bytes hold of the body to body. Returns how many bytes belong to this request, or -1.
 * http_reader_done afterwards tells whether it is complete. */
int64_t http_reader_feed(struct http_reader *r, const char *bytes, size_t n, uint64_t max_body_bytes,
                         struct buffer *body, struct refusal *why) must_check;

static inline bool http_reader_done(const struct http_reader *r)
{
    return r->complete;
}

#endif
