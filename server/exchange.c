/* exchange.c - responses: whole ones, errors, and streams.
 *
 * A stream is chunked for HTTP/1.1; for HTTP/1.0, which has no chunks, it ends with the connection. Each
 * event is one write of three parts (size, bytes, CR LF) and is copied only if the socket does not take it at
 * once. */
#include "server/exchange.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "config/api_keys.h"
#include "server/connection.h"
#include "server/http_log.h"
#include "server/http_metrics.h"
#include "server/response.h"
#include "server/server.h"

enum { HEAD_BYTES_MAX = 64 * 1024, MESSAGE_BYTES_MAX = 1024, ERROR_BYTES_MAX = 16 * 1024 };

const char *exchange_header(const struct exchange *x, const char *name)
{
    const struct http_request *r = http_request_of(x);
    for (int i = 0; i < r->num_headers; i++)
        if (!strcmp(r->headers[i].name, name)) return r->headers[i].value;
    return NULL;
}

void exchange_get_client(const struct exchange *x, struct ip_address *client)
{
    const struct http_request *r = http_request_of(x);
    const struct connection *c = x->connection;
    *client = proxies_find_client(&c->listener->proxies, &c->address, r->headers, r->num_headers);
}

/* A value that would end its line early is left out: it can only come from a client. */
static bool is_one_line(const char *value)
{
    for (; *value; value++)
        if ((unsigned char)*value < ' ' || *value == 0x7f) return false;
    return true;
}

static void add_lines(struct http_request *r, const char *lines, size_t n)
{
    size_t old = r->extra_headers ? strlen(r->extra_headers) : 0;
    char *all = arena_alloc(&r->x.arena, old + n + 1);
    if (!all) return;
    if (old > 0) memcpy(all, r->extra_headers, old);
    memcpy(all + old, lines, n);
    r->extra_headers = all;
}

void exchange_add_header(struct exchange *x, const char *name, const char *value)
{
    if (!is_one_line(value)) return;
    struct buffer line;
    buffer_init(&line, HEAD_BYTES_MAX / 4);
    buffer_printf(&line, "%s: %s\r\n", name, value);
    if (!buffer_failed(&line)) add_lines(http_request_of(x), line.data, line.num_bytes);
    buffer_deinit(&line);
}

/* Headers that were added wait for the response. */
void exchange_drop_request(struct exchange *x)
{
    struct http_request *r = http_request_of(x);
    x->path = x->query = x->path_rest = x->body = "";
    x->body_bytes = 0;
    r->headers = NULL;
    r->num_headers = 0;
    char *lines = r->extra_headers && !r->streaming ? strdup(r->extra_headers) : NULL;
    r->extra_headers = NULL;
    arena_deinit(&x->arena);
    if (lines) add_lines(r, lines, strlen(lines));
    free(lines);
    connection_release_body(x->connection);
}

/* Fills in what depends on the request, and renders. */
static void append_head(struct http_request *r, struct response_head *head, struct buffer *out)
{
    struct connection *c = r->x.connection;
    head->request_id = r->x.request_id;
    head->allow_origin = r->allow_origin;
    head->varies_by_origin = c->listener->browsers.varies;
    head->unix_seconds = (int64_t)(clock_wall_ns() / 1000000000);
    head->extra = r->extra_headers;
    head->close = connection_is_last_response(c) || head->until_close;
    c->closes = head->close; /* what was announced is done */
    head->keep_alive_1_0 = r->version_minor == 0;
    response_append_head(out, head);
}

/* The head's bytes that are not out yet. */
static uv_buf_t unsent_head(const struct connection *c, const struct buffer *head)
{
    size_t sent = c->probed ? CONNECTION_PROBE_BYTES : 0;
    return uv_buf_init(head->data + sent, (unsigned)(head->num_bytes - sent));
}

/* own: NULL, or the body, whose memory may be taken over. */
static void send_whole(struct http_request *r, int http_status, const char *content_type, const char *body,
                       size_t n, struct buffer *own)
{
    struct connection *c = r->x.connection;
    struct response_head head = {
        .http_status = http_status, .content_type = content_type, .content_bytes = n};
    struct buffer text;
    buffer_init(&text, HEAD_BYTES_MAX);
    append_head(r, &head, &text);
    if (buffer_failed(&text)) {
        connection_close(c);
    } else {
        uv_buf_t parts[] = {unsent_head(c, &text), uv_buf_init((char *)(uintptr_t)body, (unsigned)n)};
        bool without_body = n == 0 || r->x.method == HTTP_METHOD_HEAD;
        r->http_status = http_status;
        http_metrics_count_response(r->route, http_status);
        if (own && !without_body)
            connection_send_whole(c, parts[0], own);
        else
            connection_send(c, parts, without_body ? 1 : 2);
    }
    buffer_deinit(&text);
    connection_end_request(c);
}

static void reply(struct exchange *x, int http_status, const char *content_type, const char *body, size_t n,
                  struct buffer *own)
{
    struct http_request *r = http_request_of(x);
    struct connection *c = x->connection;
    assert_always(!r->streaming && n <= UINT32_MAX);
    if (n > c->listener->config->stream_buffer_soft && !connection_make_room(c, n)) {
        exchange_error(x, 503, "service_unavailable_error", NULL, NULL, 1,
                       "there is no room for an answer of %zu bytes (--max-buffered-bytes)", n);
        return;
    }
    send_whole(r, http_status, content_type, body, n, own);
}

void exchange_reply(struct exchange *x, int http_status, const char *content_type, const char *body, size_t n)
{
    reply(x, http_status, content_type, body, n, NULL);
}

void exchange_reply_json(struct exchange *x, struct buffer *body)
{
    reply(x, 200, "application/json", body->data, body->num_bytes, body);
}

static void log_error(const struct exchange *x, int http_status, const char *code, const char *param)
{
    if (!x->server->config->log_requests) return;
    char client[IP_ADDRESS_CHARS];
    struct ip_address address;
    exchange_get_client(x, &address);
    ip_address_write(&address, client);
    http_log_refusal(&x->connection->listener->log, &(struct http_log_refusal){.request_id = x->request_id,
                                                                               .client = client,
                                                                               .x = x,
                                                                               .http_status = http_status,
                                                                               .code = code,
                                                                               .param = param});
}

/* The sentence, cut at a character's edge when it is too long. */
static void format_message(char message[MESSAGE_BYTES_MAX], const char *format, va_list args)
{
    int n = vsnprintf(message, MESSAGE_BYTES_MAX, format, args);
    if (n < MESSAGE_BYTES_MAX) return;
    n = MESSAGE_BYTES_MAX - 1;
    while (n > 0 && ((unsigned char)message[n - 1] & 0xc0) == 0x80) n--;
    if (n > 0 && (unsigned char)message[n - 1] >= 0xc0) n--;
    message[n] = '\0';
}

void exchange_count_error(const struct exchange *x, int http_status, const char *code)
{
    const struct http_request *r = http_request_of(x);
    http_metrics_count_error(r->route, http_status, code, api_keys_name(x->server->config, x->api_key_idx));
}

void exchange_error(struct exchange *x, int http_status, const char *type, const char *code,
                    const char *param, int retry_after_seconds, const char *format, ...)
{
    struct http_request *r = http_request_of(x);
    assert_always(!r->streaming);
    char message[MESSAGE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    format_message(message, format, args);
    va_end(args);
    log_error(x, http_status, code, param);
    exchange_count_error(x, http_status, code);
    struct buffer text;
    buffer_init(&text, ERROR_BYTES_MAX);
    response_append_error_headers(&text, http_status, retry_after_seconds);
    if (text.num_bytes > 0) add_lines(r, text.data, text.num_bytes);
    buffer_clear(&text);
    http_request_error_shape(r)(&text, &(struct failure){.http_status = http_status,
                                                         .type = type,
                                                         .code = code,
                                                         .param = param,
                                                         .message = message,
                                                         .request_id = x->request_id});
    bool complete = !buffer_failed(&text);
    send_whole(r, http_status, "application/json", complete ? text.data : "", complete ? text.num_bytes : 0,
               NULL);
    buffer_deinit(&text);
}

void exchange_start_stream(struct exchange *x, const char *content_type)
{
    struct http_request *r = http_request_of(x);
    assert_always(!r->streaming);
    bool chunked = r->version_minor > 0;
    struct response_head head = {
        .http_status = 200, .content_type = content_type, .chunked = chunked, .until_close = !chunked};
    exchange_add_header(x, "Cache-Control", "no-cache");
    exchange_add_header(x, "X-Accel-Buffering", "no");
    struct buffer text;
    buffer_init(&text, HEAD_BYTES_MAX);
    append_head(r, &head, &text);
    r->streaming = true;
    if (buffer_failed(&text)) {
        connection_close(x->connection);
    } else {
        uv_buf_t part = unsent_head(x->connection, &text);
        r->http_status = 200;
        http_metrics_count_response(r->route, 200);
        connection_send(x->connection, &part, 1);
    }
    buffer_deinit(&text);
}

static void send_event(struct http_request *r, const char *bytes, size_t n)
{
    char size[24];
    int size_bytes = snprintf(size, sizeof size, "%zx\r\n", n);
    uv_buf_t parts[] = {uv_buf_init(size, (unsigned)size_bytes),
                        uv_buf_init((char *)(uintptr_t)bytes, (unsigned)n), uv_buf_init("\r\n", 2)};
    if (r->version_minor > 0)
        connection_send(r->x.connection, parts, 3);
    else
        connection_send(r->x.connection, parts + 1, 1);
}

bool exchange_write(struct exchange *x, const char *bytes, size_t n)
{
    struct http_request *r = http_request_of(x);
    struct connection *c = x->connection;
    assert_always(r->streaming && n <= UINT32_MAX);
    if (!connection_is_open(c)) return false;
    if (n > 0) send_event(r, bytes, n); /* an empty chunk would end the body */
    size_t unsent = output_unsent_bytes(&c->output);
    if (unsent > c->listener->config->stream_buffer_hard)
        connection_cut_off(c, "more than --stream-buffer-hard bytes wait for the client");
    r->paused = connection_is_ahead(c);
    return !r->paused;
}

void exchange_end(struct exchange *x)
{
    struct http_request *r = http_request_of(x);
    assert_always(r->streaming);
    uv_buf_t last = uv_buf_init("0\r\n\r\n", 5);
    if (r->version_minor > 0) connection_send(x->connection, &last, 1);
    connection_end_request(x->connection);
}
