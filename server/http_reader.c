#include "server/http_reader.h"

#include <string.h>

#include "base/check.h"

static struct http_reader *reader_of(llhttp_t *parser)
{
    return parser->data;
}

/* llhttp may report one span in pieces; they are contiguous, because it is fed a whole head at once. */
static int on_span(llhttp_t *parser, const char *at, size_t n)
{
    struct http_reader *r = reader_of(parser);
    if (!r->head) return 0; /* a trailer */
    if (!r->span) r->span = at;
    if (r->span + r->span_bytes != at) r->differs = true;
    r->span_bytes += n;
    return 0;
}

static bool take_span(struct http_reader *r, const char *expected, size_t expected_bytes)
{
    const char *span = r->span;
    size_t n = r->span_bytes;
    r->span = NULL;
    r->span_bytes = 0;
    while (n > 0 && (span[n - 1] == ' ' || span[n - 1] == '\t')) n--;
    return n == expected_bytes && (n == 0 || span == expected);
}

static int on_url_complete(llhttp_t *parser)
{
    struct http_reader *r = reader_of(parser);
    if (!take_span(r, r->head->target, r->head->target_bytes)) r->differs = true;
    return 0;
}

static int on_field_complete(llhttp_t *parser)
{
    struct http_reader *r = reader_of(parser);
    if (!r->head) return 0;
    const struct gate_header *h = &r->head->headers[r->header_idx];
    if (r->header_idx >= r->head->num_headers || !take_span(r, h->name, h->name_bytes)) r->differs = true;
    return 0;
}

static int on_value_complete(llhttp_t *parser)
{
    struct http_reader *r = reader_of(parser);
    if (!r->head) return 0;
    const struct gate_header *h = &r->head->headers[r->header_idx];
    if (r->header_idx >= r->head->num_headers || !take_span(r, h->value, h->value_bytes)) r->differs = true;
    r->header_idx++;
    return 0;
}

static int llhttp_method_of(enum http_method method)
{
    static const int methods[] = {[HTTP_METHOD_GET] = HTTP_GET,
                                  [HTTP_METHOD_HEAD] = HTTP_HEAD,
                                  [HTTP_METHOD_POST] = HTTP_POST,
                                  [HTTP_METHOD_OPTIONS] = HTTP_OPTIONS,
                                  [HTTP_METHOD_DELETE] = HTTP_DELETE};
    return methods[method];
}

static int on_headers_complete(llhttp_t *parser)
{
    struct http_reader *r = reader_of(parser);
    const struct gate_head *h = r->head;
    bool chunked = parser->flags & F_CHUNKED;
    if (parser->method != llhttp_method_of(h->method) || parser->http_major != 1 ||
        parser->http_minor != h->version_minor || r->header_idx != h->num_headers || chunked != h->chunked ||
        parser->content_length != h->content_length ||
        (llhttp_should_keep_alive(parser) != 0) != h->keep_alive)
        r->differs = true;
    parser->upgrade = 0; /* ignored: the answer is an ordinary one */
    return 0;
}

static int on_body(llhttp_t *parser, const char *at, size_t n)
{
    struct http_reader *r = reader_of(parser);
    buffer_append(r->body, at, n);
    return 0;
}

static int on_message_complete(llhttp_t *parser)
{
    reader_of(parser)->complete = true;
    return 0;
}

static const llhttp_settings_t settings = {
    .on_url = on_span,
    .on_url_complete = on_url_complete,
    .on_header_field = on_span,
    .on_header_field_complete = on_field_complete,
    .on_header_value = on_span,
    .on_header_value_complete = on_value_complete,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

int http_reader_begin(struct http_reader *r, const char *head, size_t n, const struct gate_head *checked,
                      struct refusal *why)
{
    *r = (struct http_reader){
        .head = checked, .chunked = checked->chunked, .remaining_bytes = checked->content_length};
    llhttp_init(&r->parser, HTTP_REQUEST, &settings);
    r->parser.data = r;
    llhttp_errno_t error = llhttp_execute(&r->parser, head, n);
    r->head = NULL;
    bool has_body = r->chunked || r->remaining_bytes > 0;
    if (error != HPE_OK || r->differs || r->complete == has_body)
        return refuse(why, 400, "the request head can be read in more than one way");
    return 0;
}

int64_t http_reader_feed(struct http_reader *r, const char *bytes, size_t n, uint64_t max_body_bytes,
                         struct buffer *body, struct refusal *why)
{
    int64_t take = (int64_t)min_of(r->remaining_bytes, (uint64_t)n);
    if (r->chunked) take = chunk_gate_feed(&r->chunks, bytes, n, max_body_bytes, why);
    if (take < 0) return -1;
    if (!r->chunked) r->remaining_bytes -= (uint64_t)take;
    r->body = body;
    bool done = r->chunked ? r->chunks.done : r->remaining_bytes == 0;
    if (llhttp_execute(&r->parser, bytes, (size_t)take) != HPE_OK || r->complete != done)
        return refuse(why, 400, "the request body can be read in more than one way");
    if (buffer_failed(body)) return refuse(why, 503, "no memory for the request body");
    return take;
}
