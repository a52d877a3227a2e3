#include "server/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/dispatch.h"
#include "server/http_log.h"
#include "server/http_metrics.h"
#include "server/response.h"

enum {
    WAITING_BYTES_MAX = 16 * 1024,    /* of pipelined requests; then the client is not read */
    REQUESTS_PER_TURN = 64,           /* pipelined ones answered before others get the loop */
    CHECK_ON_LOOP_BYTES = 256 * 1024, /* larger bodies are checked by a worker */
    LINGER_MS = 2000,
    LINGER_BYTES_MAX = 64 * 1024 * 1024,
    BODY_RATE_GRACE_MS = 5000,
    BODIES_AT_ONCE = 64, /* full-sized ones held by all connections; then 503 */
    ARENA_EXTRA_BYTES = 1 << 20,
    EXTRA_CONNECTIONS = 32, /* beyond the limit, to be told so */
};

static const uint64_t no_deadline = UINT64_MAX;

static void consume_input(struct connection *c);

/* ---- state and deadlines ---- */

static bool is_busy(enum connection_state state)
{
    return state != CONNECTION_READING && state != CONNECTION_CLOSED;
}

static uint64_t body_deadline_ms(const struct connection *c)
{
    const struct config *config = c->listener->config;
    uint64_t whole = c->since_ms + (uint64_t)config->body_timeout * 1000;
    if (config->body_min_rate == 0) return whole;
    uint64_t by_rate = c->since_ms + BODY_RATE_GRACE_MS + c->body.num_bytes * 1000 / config->body_min_rate;
    return min_of(whole, by_rate);
}

static uint64_t deadline_ms(const struct connection *c)
{
    const struct config *config = c->listener->config;
    switch (c->state) {
    case CONNECTION_READING: {
        bool idle = !c->head_begun && c->num_requests > 0;
        return c->since_ms + (uint64_t)(idle ? config->idle_timeout : config->header_timeout) * 1000;
    }
    case CONNECTION_BODY:
        return body_deadline_ms(c);
    case CONNECTION_CHECKING:
    case CONNECTION_RESPONDING:
    case CONNECTION_FLUSHING:
        if (output_unsent_bytes(&c->output) == 0) return no_deadline;
        return c->progress_ms + (uint64_t)config->write_timeout * 1000;
    case CONNECTION_LINGERING:
        return c->since_ms + LINGER_MS;
    case CONNECTION_CLOSED:
        break;
    }
    return no_deadline;
}

static void on_timer(uv_timer_t *timer);

static void arm(struct connection *c)
{
    if (c->state == CONNECTION_CLOSED || c->turn_pending) return;
    uint64_t deadline = deadline_ms(c), now = uv_now(c->listener->loop);
    if (deadline == no_deadline)
        uv_timer_stop(&c->timer);
    else
        uv_timer_start(&c->timer, on_timer, deadline > now ? deadline - now : 0, 0);
}

static void set_state(struct connection *c, enum connection_state state)
{
    struct listener *l = c->listener;
    int change = is_busy(state) - is_busy(c->state);
    c->state = state;
    c->since_ms = uv_now(l->loop);
    l->num_busy += change;
    arm(c);
    if (change < 0 && l->num_busy == 0 && l->on_quiet) l->on_quiet(l->quiet_context);
}

/* ---- the end ---- */

static void release_body(struct connection *c)
{
    c->listener->num_body_bytes -= c->body.num_bytes;
    buffer_deinit(&c->body);
}

static void destroy_request(struct connection *c)
{
    http_request_destroy(c->request);
    c->request = NULL;
    release_body(c);
}

static void unlink_connection(struct connection *c)
{
    if (c->previous)
        c->previous->next = c->next;
    else
        c->listener->first = c->next;
    if (c->next) c->next->previous = c->previous;
    c->listener->num_connections--;
    http_metrics_add_connections(-1);
}

static void drop_reference(struct connection *c)
{
    if (--c->num_references > 0) return;
    struct http_request *r = c->request;
    if (r && r->handled) {
        http_metrics_count_disconnect();
        if (r->x.on_closed) r->x.on_closed(&r->x);
    }
    if (r) destroy_request(c);
    buffer_deinit(&c->input);
    buffer_deinit(&c->body);
    output_deinit(&c->output);
    unlink_connection(c);
    free(c);
}

static void on_handle_closed(uv_handle_t *handle)
{
    drop_reference(handle->data);
}

static void stop_hangup(struct connection *c)
{
    hangup_stop(c->hangup);
    c->hangup = NULL;
}

void connection_close(struct connection *c)
{
    if (c->state == CONNECTION_CLOSED) return;
    stop_hangup(c);
    set_state(c, CONNECTION_CLOSED);
    uv_close(&c->socket.handle, on_handle_closed);
    uv_close((uv_handle_t *)&c->timer, on_handle_closed);
}

void connection_cut_off(struct connection *c, const char *reason)
{
    char client[64];
    connection_get_client(c, client);
    struct log_field fields[] = {
        {"request_id", LOG_FIELD_TEXT, .text = c->request ? c->request->x.request_id : NULL},
        {"client", LOG_FIELD_TEXT, .text = client},
        {"reason", LOG_FIELD_TEXT, .text = reason},
        {"unsent_bytes", LOG_FIELD_INT, .integer = (int64_t)output_unsent_bytes(&c->output)},
    };
    log_fields(LOG_INFO, "slow client cut off", fields, array_length(fields));
    http_metrics_count_cut_off();
    connection_close(c);
}

void connection_drain(struct connection *c)
{
    if (!is_busy(c->state)) connection_close(c);
}

/* ---- output ---- */

static void on_hangup(void *context)
{
    connection_close(context);
}

static void start_reading(struct connection *c);

static void on_shutdown(uv_shutdown_t *shutdown, int uv_status)
{
    struct connection *c = shutdown->data;
    if (uv_status || c->half_closed) connection_close(c);
}

/* Ends our side and waits a moment for the client's end, throwing away what it still sends: closing with
 * unread input would reset the connection, and the reset can overtake the answer. */
static void linger(struct connection *c)
{
    set_state(c, CONNECTION_LINGERING);
    if (!c->consuming) buffer_deinit(&c->input);
    c->shutdown.data = c;
    if (uv_shutdown(&c->shutdown, &c->socket.stream, on_shutdown))
        connection_close(c);
    else if (!c->half_closed)
        start_reading(c);
}

/* The response is written: on to the next request, or the end. */
static void begin_next(struct connection *c)
{
    if (c->closes || (c->listener->draining && c->input.num_bytes == 0)) {
        linger(c);
        return;
    }
    c->scan = (struct gate_scan){0};
    c->head_begun = false;
    set_state(c, CONNECTION_READING);
    if (!c->consuming) consume_input(c);
}

void connection_end_request(struct connection *c)
{
    destroy_request(c);
    if (c->state == CONNECTION_CLOSED) return;
    stop_hangup(c);
    if (output_unsent_bytes(&c->output) > 0)
        set_state(c, CONNECTION_FLUSHING);
    else
        begin_next(c);
}

static void resume_endpoint(struct connection *c)
{
    struct http_request *r = c->request;
    if (!r->paused || output_unsent_bytes(&c->output) > c->listener->config->stream_buffer_soft) return;
    r->paused = false;
    if (r->x.on_writable) r->x.on_writable(&r->x);
}

static void on_written(struct output *output, int uv_status)
{
    struct connection *c = output->stream->data;
    if (c->state == CONNECTION_CLOSED) return;
    if (uv_status) {
        connection_close(c);
        return;
    }
    c->progress_ms = uv_now(c->listener->loop);
    c->unsent_seen = output_unsent_bytes(&c->output);
    arm(c);
    if (c->state == CONNECTION_RESPONDING)
        resume_endpoint(c);
    else if (c->state == CONNECTION_FLUSHING && c->unsent_seen == 0)
        begin_next(c);
}

void connection_send(struct connection *c, const uv_buf_t *parts, int num_parts)
{
    if (c->state == CONNECTION_CLOSED) return;
    bool was_empty = output_unsent_bytes(&c->output) == 0;
    if (output_send(&c->output, parts, num_parts)) {
        connection_close(c);
        return;
    }
    size_t unsent = output_unsent_bytes(&c->output);
    if (!was_empty || unsent == 0) return;
    c->progress_ms = uv_now(c->listener->loop);
    c->unsent_seen = unsent;
    arm(c);
}

bool connection_is_last_response(const struct connection *c)
{
    return c->closes || c->listener->draining || (c->half_closed && c->input.num_bytes == 0);
}

static void send_text(struct connection *c, const char *text)
{
    uv_buf_t part = uv_buf_init((char *)(uintptr_t)text, (unsigned)strlen(text));
    connection_send(c, &part, 1);
}

/* ---- refusing ---- */

/* Answers a request that never became one. */
static void refuse_unread(struct connection *c, const struct refusal *why)
{
    struct listener *l = c->listener;
    char request_id[64], client[64];
    http_request_make_id(l->request_seed, ++l->num_requests, request_id);
    connection_get_client(c, client);
    if (l->config->log_requests)
        http_log_refusal(&(struct http_log_refusal){.request_id = request_id,
                                                    .client = client,
                                                    .http_status = why->http_status,
                                                    .reason = why->message});
    struct buffer extra, body, text;
    buffer_init(&extra, 1024);
    buffer_init(&body, 4096);
    buffer_init(&text, 8192);
    if (why->http_status == 405) buffer_append_text(&extra, "Allow: GET, HEAD, POST, OPTIONS\r\n");
    response_append_error_headers(&extra, why->http_status, 1);
    bool busy = why->http_status == 503;
    response_append_error(&body, busy ? "service_unavailable_error" : "invalid_request_error", NULL, NULL,
                          why->message);
    response_append_head(&text, &(struct response_head){.http_status = why->http_status,
                                                        .content_type = "application/json",
                                                        .request_id = request_id,
                                                        .extra = extra.data,
                                                        .content_bytes = body.num_bytes,
                                                        .close = true});
    buffer_append(&text, body.data, body.num_bytes);
    http_metrics_count_response(why->http_status);
    c->closes = true;
    set_state(c, CONNECTION_FLUSHING);
    if (buffer_failed(&text) || buffer_failed(&body))
        connection_close(c);
    else
        send_text(c, text.data);
    buffer_deinit(&extra);
    buffer_deinit(&body);
    buffer_deinit(&text);
    if (c->state == CONNECTION_FLUSHING && output_unsent_bytes(&c->output) == 0) begin_next(c);
}

/* Answers and closes; nothing more of this connection is parsed. */
static void refuse_request(struct connection *c, const struct refusal *why)
{
    c->closes = true;
    if (!c->request) {
        refuse_unread(c, why);
        return;
    }
    bool busy = why->http_status == 503;
    exchange_error(&c->request->x, why->http_status,
                   busy ? "service_unavailable_error" : "invalid_request_error", NULL, NULL, busy, "%s",
                   why->message);
}

/* ---- requests ---- */

static void run_request(struct connection *c)
{
    set_state(c, CONNECTION_RESPONDING);
    dispatch_run(c->request);
}

static void refuse_body(struct connection *c, const struct refusal *why)
{
    exchange_error(&c->request->x, why->http_status, "invalid_request_error", NULL, NULL, 1, "%s",
                   why->message);
}

static void on_work(uv_work_t *work)
{
    struct connection *c = work->data;
    if (dispatch_check_body(c->listener, c->request, &c->body_refusal) == 0) c->body_refusal.http_status = 0;
}

static void on_work_done(uv_work_t *work, int uv_status)
{
    (void)uv_status;
    struct connection *c = work->data;
    if (c->state == CONNECTION_CHECKING && c->body_refusal.http_status)
        refuse_body(c, &c->body_refusal);
    else if (c->state == CONNECTION_CHECKING)
        run_request(c);
    drop_reference(c);
}

static bool check_on_worker(struct connection *c)
{
    c->work.data = c;
    if (uv_queue_work(c->listener->loop, &c->work, on_work, on_work_done)) return false;
    c->num_references++;
    set_state(c, CONNECTION_CHECKING);
    return true;
}

/* The whole body is here. */
static void end_body(struct connection *c)
{
    struct exchange *x = &c->request->x;
    if (c->body.data) x->body = c->body.data;
    x->body_bytes = c->body.num_bytes;
    if (x->body_bytes > CHECK_ON_LOOP_BYTES && check_on_worker(c)) return;
    set_state(c, CONNECTION_RESPONDING);
    struct refusal why;
    if (dispatch_check_body(c->listener, c->request, &why))
        refuse_body(c, &why);
    else
        run_request(c);
}

void exchange_drop_body(struct exchange *x)
{
    x->body = "";
    x->body_bytes = 0;
    release_body(x->connection);
}

static void begin_request(struct connection *c, const struct gate_head *head)
{
    struct listener *l = c->listener;
    size_t arena_bytes = ARENA_EXTRA_BYTES + 8 * l->config->max_body_bytes;
    struct refusal why;
    c->num_requests++;
    set_state(c, CONNECTION_RESPONDING);
    if (http_request_create(head, l->server, c, ++l->num_requests, l->request_seed, arena_bytes, &c->request,
                            &why)) {
        refuse_request(c, &why);
        return;
    }
    c->request->x.arrival_ns = c->first_byte_ns;
    bool has_body = !http_reader_done(&c->reader);
    bool last =
        !head->keep_alive || head->upgrade || c->num_requests >= l->config->max_requests_per_connection;
    c->closes = last || has_body; /* a body that nobody reads ends the connection */
    if (!dispatch_head(l, c->request)) return;
    c->closes = last;
    buffer_init(&c->body, l->config->max_body_bytes);
    if (!has_body) {
        end_body(c);
        return;
    }
    set_state(c, CONNECTION_BODY);
    if (head->expect_continue) send_text(c, "HTTP/1.1 100 Continue\r\n\r\n");
}

/* ---- input ---- */

/* Both return how many bytes they used. */
static size_t read_head(struct connection *c, const char *bytes, size_t n)
{
    struct listener *l = c->listener;
    struct refusal why;
    int64_t size = gate_scan(&c->scan, bytes, n, &l->limits, &why);
    if (!c->head_begun && n > c->scan.head_start) {
        c->head_begun = true;
        c->first_byte_ns = clock_monotonic_ns();
        c->since_ms = uv_now(l->loop);
        arm(c);
    }
    if (size == 0) return 0;
    struct gate_head head = {.headers = l->headers};
    const char *start = bytes + c->scan.head_start;
    size_t head_bytes = size > 0 ? (size_t)size - c->scan.head_start : 0;
    if (size < 0 || gate_check(start, head_bytes, &l->limits, &head, &why) ||
        http_reader_begin(&c->reader, start, head_bytes, &head, &why)) {
        refuse_request(c, &why);
        return n;
    }
    begin_request(c, &head);
    return (size_t)size;
}

static size_t read_body(struct connection *c, const char *bytes, size_t n)
{
    struct listener *l = c->listener;
    struct refusal why;
    size_t before = c->body.num_bytes;
    int64_t used = http_reader_feed(&c->reader, bytes, n, l->limits.max_body_bytes, &c->body, &why);
    l->num_body_bytes += c->body.num_bytes - before;
    if (used >= 0 && l->num_body_bytes > BODIES_AT_ONCE * l->limits.max_body_bytes)
        used = refuse(&why, 503, "too many large bodies at once");
    if (used < 0) {
        refuse_request(c, &why);
        return n;
    }
    if (http_reader_done(&c->reader)) end_body(c);
    return (size_t)used;
}

/* Reads requests from bytes until they run out, or one has to be answered first. Returns how many were used.
 */
static size_t consume(struct connection *c, const char *bytes, size_t n)
{
    size_t used = 0;
    int num_left = REQUESTS_PER_TURN;
    c->consuming = true;
    while (used < n) {
        enum connection_state state = c->state;
        if (state == CONNECTION_READING && num_left-- == 0) {
            c->turn_pending = true;
            uv_timer_start(&c->timer, on_timer, 0, 0);
            break;
        }
        size_t step = 0;
        if (state == CONNECTION_READING)
            step = read_head(c, bytes + used, n - used);
        else if (state == CONNECTION_BODY)
            step = read_body(c, bytes + used, n - used);
        used += step;
        if (step == 0) break;
    }
    c->consuming = false;
    return used;
}

static bool discards_input(const struct connection *c)
{
    return c->state == CONNECTION_LINGERING || c->state == CONNECTION_CLOSED || c->closes;
}

/* Not read beyond a bound while a response is pending; the hang-up watch takes over meanwhile. */
static void adjust_reading(struct connection *c)
{
    bool waits = c->state != CONNECTION_READING && c->state != CONNECTION_BODY;
    bool too_much = c->input.num_bytes >= WAITING_BYTES_MAX && (waits || c->turn_pending);
    if (too_much && !c->reading_stopped) {
        uv_read_stop(&c->socket.stream);
        c->reading_stopped = true;
        if (!c->hangup) c->hangup = hangup_watch(&c->socket.stream, on_hangup, c);
    } else if (!too_much && c->reading_stopped) {
        start_reading(c);
    }
}

static void after_input(struct connection *c)
{
    if (discards_input(c)) buffer_deinit(&c->input);
    if (c->state == CONNECTION_CLOSED || c->half_closed) {
        bool stuck = c->half_closed && c->state == CONNECTION_READING && !c->turn_pending;
        if (stuck) connection_close(c); /* what is left of the input is not a whole request */
        return;
    }
    adjust_reading(c);
}

static void consume_input(struct connection *c)
{
    size_t used = consume(c, c->input.data, c->input.num_bytes);
    buffer_consume(&c->input, used);
    if (c->input.num_bytes == 0) buffer_deinit(&c->input);
    after_input(c);
}

static void receive(struct connection *c, const char *bytes, size_t n)
{
    bool direct = c->input.num_bytes == 0 && !c->turn_pending;
    size_t used = direct ? consume(c, bytes, n) : 0;
    if (used < n && !discards_input(c)) buffer_append(&c->input, bytes + used, n - used);
    if (buffer_failed(&c->input))
        connection_close(c);
    else if (!direct && !c->turn_pending)
        consume_input(c);
    else
        after_input(c);
}

/* The client has sent all it will. That may be a half-close (legal while it waits for its answer) or a close,
 * which look alike until something is sent: an interim response or an SSE comment, both of which readers
 * skip. A client that is gone answers it with a reset, and the hang-up watch sees that. */
static void probe(struct connection *c)
{
    const struct http_request *r = c->request;
    if (!c->hangup) c->hangup = hangup_watch(&c->socket.stream, on_hangup, c);
    if (output_unsent_bytes(&c->output) > 0) return;
    if (r->streaming)
        send_text(c, r->version_minor > 0 ? "3\r\n:\n\n\r\n" : ":\n\n");
    else if (r->version_minor > 0)
        send_text(c, "HTTP/1.1 100 Continue\r\n\r\n");
}

static void on_end_of_input(struct connection *c)
{
    struct refusal why;
    c->half_closed = true;
    switch (c->state) {
    case CONNECTION_READING:
        if (c->turn_pending) break;
        if (!c->head_begun) {
            connection_close(c);
            break;
        }
        (void)!refuse(&why, 400, "the request ended before its head was complete");
        refuse_request(c, &why);
        break;
    case CONNECTION_BODY:
        (void)!refuse(&why, 400, "the request ended before its body was complete");
        refuse_request(c, &why);
        break;
    case CONNECTION_CHECKING:
    case CONNECTION_RESPONDING:
        probe(c);
        break;
    case CONNECTION_FLUSHING:
        break;
    case CONNECTION_LINGERING:
        connection_close(c);
        break;
    case CONNECTION_CLOSED:
        break;
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    (void)suggested;
    struct connection *c = handle->data;
    *out = uv_buf_init(c->listener->read_buffer, READ_BUFFER_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct connection *c = stream->data;
    if (c->state == CONNECTION_CLOSED || n == 0) return;
    if (n == UV_EOF) {
        on_end_of_input(c);
    } else if (n < 0) {
        connection_close(c);
    } else if (c->state == CONNECTION_LINGERING) {
        c->discarded_bytes += (size_t)n;
        if (c->discarded_bytes > LINGER_BYTES_MAX) connection_close(c);
    } else {
        receive(c, buf->base, (size_t)n);
    }
}

static void start_reading(struct connection *c)
{
    if (c->reading_stopped) stop_hangup(c);
    c->reading_stopped = false;
    int status = uv_read_start(&c->socket.stream, on_alloc, on_read);
    if (status && status != UV_EALREADY) connection_close(c);
}

/* ---- time ---- */

static void on_write_deadline(struct connection *c)
{
    size_t unsent = output_unsent_bytes(&c->output);
    if (unsent >= c->unsent_seen) {
        connection_cut_off(c, "the client read nothing for --write-timeout");
        return;
    }
    c->unsent_seen = unsent;
    c->progress_ms = uv_now(c->listener->loop);
    arm(c);
}

static void on_deadline(struct connection *c)
{
    const struct config *config = c->listener->config;
    struct refusal why;
    switch (c->state) {
    case CONNECTION_READING:
        if (!c->head_begun) {
            connection_close(c);
            break;
        }
        (void)!refuse(&why, 408, "the request head took longer than %lld s (--header-timeout)",
                      (long long)config->header_timeout);
        refuse_request(c, &why);
        break;
    case CONNECTION_BODY:
        (void)!refuse(&why, 408,
                      "the request body took longer than %lld s (--body-timeout) or came slower than %llu "
                      "bytes/s (--body-min-rate)",
                      (long long)config->body_timeout, (unsigned long long)config->body_min_rate);
        refuse_request(c, &why);
        break;
    case CONNECTION_CHECKING:
    case CONNECTION_RESPONDING:
    case CONNECTION_FLUSHING:
        on_write_deadline(c);
        break;
    case CONNECTION_LINGERING:
        connection_close(c);
        break;
    case CONNECTION_CLOSED:
        break;
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct connection *c = timer->data;
    if (c->turn_pending) {
        c->turn_pending = false;
        arm(c);
        consume_input(c);
    } else if (deadline_ms(c) > uv_now(c->listener->loop)) {
        arm(c); /* the deadline has moved meanwhile */
    } else {
        on_deadline(c);
    }
}

/* ---- the beginning ---- */

void connection_get_client(const struct connection *c, char text[64])
{
    struct sockaddr_storage address;
    int n = sizeof address;
    char host[48] = "";
    int port = 0;
    snprintf(text, 64, "unix");
    if (c->socket.handle.type != UV_TCP) return;
    if (uv_tcp_getpeername(&c->socket.tcp, (struct sockaddr *)&address, &n)) {
        snprintf(text, 64, "gone");
    } else if (address.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&address;
        uv_ip6_name(in6, host, sizeof host);
        port = ntohs(in6->sin6_port);
        snprintf(text, 64, "[%s]:%d", host, port);
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&address;
        uv_ip4_name(in, host, sizeof host);
        port = ntohs(in->sin_port);
        snprintf(text, 64, "%s:%d", host, port);
    }
}

/* Events are small and must not wait for each other; bytes that the client's machine does not acknowledge for
 * as long as it may stop reading mean that it is gone. */
static void set_socket_options(struct connection *c)
{
    uv_os_fd_t fd;
    if (c->socket.handle.type != UV_TCP || uv_fileno(&c->socket.handle, &fd)) return;
    unsigned timeout_ms = (unsigned)c->listener->config->write_timeout * 1000;
    uv_tcp_nodelay(&c->socket.tcp, 1);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

static int init_socket(struct connection *c)
{
    struct listener *l = c->listener;
    if (l->socket.handle.type == UV_TCP) return uv_tcp_init(l->loop, &c->socket.tcp);
    return uv_pipe_init(l->loop, &c->socket.pipe, 0);
}

static void link_connection(struct connection *c)
{
    struct listener *l = c->listener;
    c->next = l->first;
    if (l->first) l->first->previous = c;
    l->first = c;
    l->num_connections++;
    http_metrics_add_connections(1);
}

static struct connection *create(struct listener *l)
{
    struct connection *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->listener = l;
    c->num_references = 2;
    c->state = CONNECTION_READING;
    c->since_ms = uv_now(l->loop);
    buffer_init(&c->input, l->limits.max_header_bytes + WAITING_BYTES_MAX + READ_BUFFER_BYTES);
    buffer_init(&c->body, 0);
    if (init_socket(c)) {
        free(c);
        return NULL;
    }
    uv_timer_init(l->loop, &c->timer);
    c->socket.handle.data = c->timer.data = c;
    output_init(&c->output, &c->socket.stream, on_written);
    link_connection(c);
    return c;
}

void connection_accept(struct listener *l)
{
    struct connection *c = create(l);
    if (!c) return;
    if (uv_accept(&l->socket.stream, &c->socket.stream) ||
        l->num_connections > l->max_connections + EXTRA_CONNECTIONS) {
        connection_close(c);
        return;
    }
    set_socket_options(c);
    if (l->num_connections > l->max_connections) {
        struct refusal why;
        http_metrics_count_overflow();
        (void)!refuse(&why, 503, "all %d connections are in use (--max-connections)", l->max_connections);
        refuse_request(c, &why);
        return;
    }
    arm(c);
    start_reading(c);
}
