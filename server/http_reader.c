#include "server/http_reader.h"

#include <string.h>

#include "base/check.h"

static struct http_reader *reader_of(llhttp_t *parser)
{
    return parser->data;
}

/* llhttp may report one span in pieces; they are contiguous, because a name or a value is fed at once. */
static int on_span(llhttp_t *parser, const char *at, size_t n)
{
    struct http_reader *r = reader_of(parser);
    if (n == 0) return 0;
    if (!r->head) return -1; /* a trailer, and none is fed */
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
    const struct gate_header *h = &r->head->headers[r->header_idx];
    if (r->header_idx >= r->head->num_headers || !take_span(r, h->name, h->name_bytes)) r->differs = true;
    return 0;
}

static int on_value_complete(llhttp_t *parser)
{
    struct http_reader *r = reader_of(parser);
    const struct gate_header *h = &r->head->headers[r->header_idx];
    if (r->header_idx >= r->head->num_headers || !take_span(r, h->value, h->value_bytes)) r->differs = true;
    r->header_idx++;
    return 0;
}

static int llhttp_method_of(enum http_method method)
{
    static const int methods[] = {[HTTP_METHOD_GET] = HTTP_GET,       [HTTP_METHOD_HEAD] = HTTP_HEAD,
                                  [HTTP_METHOD_POST] = HTTP_POST,     [HTTP_METHOD_OPTIONS] = HTTP_OPTIONS,
                                  [HTTP_METHOD_DELETE] = HTTP_DELETE, [HTTP_METHOD_PUT] = HTTP_PUT,
                                  [HTTP_METHOD_PATCH] = HTTP_PATCH,   [HTTP_METHOD_TRACE] = HTTP_TRACE};
    return methods[method];
}

static int on_headers_complete(llhttp_t *parser)
{
    struct http_reader *r = reader_of(parser);
    const struct gate_head *h = r->head;
    bool chunked = parser->flags & F_CHUNKED;
    if (parser->method != llhttp_method_of(h->method) || parser->http_major != 1 ||
        parser->http_minor != h->version_minor || r->header_idx != h->num_headers || chunked != h->chunked ||
        parser->content_length != h->content_length)
        r->differs = true; /* whether the connection persists is the gate's to say */
    parser->upgrade = 0;   /* ignored: the answer is an ordinary one */
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

/* llhttp reads on to end. */
static void read_to(struct http_reader *r, const char **at, const char *end)
{
    if (llhttp_execute(&r->parser, *at, (size_t)(end - *at)) != HPE_OK) r->differs = true;
    *at = end;
}

/* HTTP/1.2 and later minor versions mean HTTP/1.1, ", chunked," means chunked, and blanks behind a length
 * mean nothing. llhttp knows none of this: it gets the meaning. */
static void read_head(struct http_reader *r, const char *head, size_t n)
{
    const struct gate_head *checked = r->head;
    const struct gate_header *framing = checked->framing;
    const char *at = head, *digit = checked->version_minor ? "1" : "0";
    read_to(r, &at, checked->version_digit);
    read_to(r, &digit, digit + 1);
    at++;
    if (framing) {
        read_to(r, &at, framing->name + framing->name_bytes + 1);
        at = framing->value;
        read_to(r, &at, framing->value + framing->value_bytes);
        at = memchr(at, '\r', (size_t)(head + n - at));
    }
    read_to(r, &at, head + n);
}

int http_reader_begin(struct http_reader *r, const char *head, size_t n, const struct gate_head *checked,
                      struct refusal *why)
{
    *r = (struct http_reader){
        .head = checked, .chunked = checked->chunked, .remaining_bytes = checked->content_length};
    llhttp_init(&r->parser, HTTP_REQUEST, &settings);
    r->parser.data = r;
    read_head(r, head, n);
    r->head = NULL;
    bool has_body = r->chunked || r->remaining_bytes > 0;
    if (r->differs || r->complete == has_body)
        return refuse(why, 400, "the request head can be read in more than one way");
    return 0;
}

static int execute(struct http_reader *r, const char *bytes, size_t n, bool done, struct refusal *why)
{
    if (llhttp_execute(&r->parser, bytes, n) != HPE_OK || r->complete != done)
        return refuse(why, 400, "the request body can be read in more than one way");
    return 0;
}

/* llhttp does not get what means nothing: in extensions it knows no quoted pairs and no blanks, and trailers
 * it takes for headers. */
static int64_t feed_chunks(struct http_reader *r, const char *bytes, size_t n, uint64_t max_body_bytes,
                           struct refusal *why)
{
    size_t used = 0;
    while (used < n && !r->chunks.done) {
        int64_t step = chunk_gate_feed(&r->chunks, bytes + used, n - used, max_body_bytes, why);
        if (step < 0) return -1;
        if (!r->chunks.dropped && execute(r, bytes + used, (size_t)step, r->chunks.done, why)) return -1;
        used += (size_t)step;
    }
    return (int64_t)used;
}

static int64_t feed_counted(struct http_reader *r, const char *bytes, size_t n, struct refusal *why)
{
    size_t take = (size_t)min_of(r->remaining_bytes, (uint64_t)n);
    r->remaining_bytes -= take;
    return execute(r, bytes, take, r->remaining_bytes == 0, why) ? -1 : (int64_t)take;
}

int64_t http_reader_feed(struct http_reader *r, const char *bytes, size_t n, uint64_t max_body_bytes,
                         struct buffer *body, struct refusal *why)
{
    r->body = body;
    int64_t used =
        r->chunked ? feed_chunks(r, bytes, n, max_body_bytes, why) : feed_counted(r, bytes, n, why);
    if (used >= 0 && buffer_failed(body)) return refuse(why, 503, "no memory for the request body");
    return used;
}
