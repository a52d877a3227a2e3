/* connection_input.c - bytes from the client, cut into requests, one at a time.
 *
 * A read that holds whole requests is parsed where it lies; only what must wait is copied: part of a head, or
 * requests behind one that is not answered yet. */
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "server/connection.h"
#include "server/loop_watch.h"

enum {
    REQUESTS_PER_TURN = 64, /* pipelined ones answered before others get the loop */
    LINGER_BYTES_MAX = 64 * 1024 * 1024,
};

static int refuse_for_room(const struct connection *c, struct refusal *why)
{
    const struct listener *l = c->listener;
    return refuse(why, 503,
                  "%llu bytes of requests and answers are held for all clients, %llu of them for this one's "
                  "address, %llu for its key (--max-buffered-bytes)",
                  (unsigned long long)l->num_buffered_bytes,
                  (unsigned long long)(c->peer ? c->peer->num_buffered_bytes : 0),
                  (unsigned long long)(c->api_key_idx >= 0 ? l->key_buffered_bytes[c->api_key_idx] : 0));
}

/* Both return how many bytes they used. */
static size_t read_head(struct connection *c, const char *bytes, size_t n)
{
    struct listener *l = c->listener;
    struct refusal why;
    int64_t size = gate_scan(&c->scan, bytes, n, &l->limits, &why);
    if (!c->head_begun && n > c->scan.head_start) {
        c->head_begun = true;
        c->first_byte_ns = clock_monotonic_ns();
        connection_touch(c);
    }
    const char *start = bytes + c->scan.head_start;
    c->wants_head = n - c->scan.head_start >= 5 && !memcmp(start, "HEAD ", 5);
    if (size == 0) return 0;
    struct gate_head head = {.headers = l->headers};
    size_t head_bytes = size > 0 ? (size_t)size - c->scan.head_start : 0;
    if (size < 0 || gate_check(start, head_bytes, &l->limits, &head, &why) ||
        http_reader_begin(&c->reader, start, head_bytes, &head, &why)) {
        connection_refuse_head(c, &head, &why);
        return n;
    }
    connection_begin_request(c, &head);
    return (size_t)size;
}

static size_t read_body(struct connection *c, const char *bytes, size_t n)
{
    struct listener *l = c->listener;
    struct refusal why;
    int64_t used = http_reader_feed(&c->reader, bytes, n, l->limits.max_body_bytes, &c->body, &why);
    connection_note_buffers(c);
    if (used >= 0 && !connection_make_room(c, 0)) used = refuse_for_room(c, &why);
    if (used < 0) {
        connection_refuse(c, &why);
        return n;
    }
    if (http_reader_done(&c->reader)) connection_end_body(c);
    return (size_t)used;
}

void connection_resume_later(struct connection *c)
{
    c->turn_pending = true;
    uv_timer_start(&c->timer, connection_on_timer, 0, 0);
}

/* Reads requests from bytes until they run out, or one has to be answered first. Returns how many were
 * used. */
static size_t consume(struct connection *c, const char *bytes, size_t n)
{
    size_t used = 0;
    int num_left = REQUESTS_PER_TURN;
    c->consuming = true;
    while (used < n) {
        enum connection_state state = c->state;
        if (state == CONNECTION_READING && num_left-- == 0) {
            connection_resume_later(c);
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
    bool too_much = c->input.num_bytes >= CONNECTION_WAITING_BYTES && (waits || c->turn_pending);
    if (too_much && !c->reading_stopped) {
        uv_read_stop(&c->socket.stream);
        c->reading_stopped = true;
    } else if (!too_much && c->reading_stopped) {
        connection_start_reading(c);
    }
    if (c->reading_stopped) connection_watch_hangup(c);
}

static void after_input(struct connection *c)
{
    if (discards_input(c)) buffer_deinit(&c->input);
    connection_note_buffers(c);
    struct refusal why;
    bool part_of_head = c->state == CONNECTION_READING && c->input.num_bytes > 0 && !c->turn_pending;
    if (part_of_head && !connection_make_room(c, 0) && refuse_for_room(c, &why)) connection_refuse(c, &why);
    if (c->state == CONNECTION_CLOSED || c->half_closed) {
        bool stuck = c->half_closed && c->state == CONNECTION_READING && !c->turn_pending;
        if (stuck) connection_close(c); /* what is left of the input is not a whole request */
        return;
    }
    adjust_reading(c);
}

void connection_resume_input(struct connection *c)
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
        connection_resume_input(c);
    else
        after_input(c);
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
        connection_refuse(c, &why);
        break;
    case CONNECTION_BODY:
        (void)!refuse(&why, 400, "the request ended before its body was complete");
        connection_refuse(c, &why);
        break;
    case CONNECTION_CHECKING:
    case CONNECTION_RESPONDING:
        connection_probe(c);
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
    loop_watch_enter("bytes of a client");
    struct connection *c = stream->data;
    if (c->state == CONNECTION_CLOSED || n == 0) return;
    if (n == UV_EOF) {
        on_end_of_input(c);
    } else if (n < 0) {
        connection_close(c);
    } else if (c->state == CONNECTION_LINGERING) {
        c->discarded_bytes += (uint32_t)n;
        if (c->discarded_bytes > LINGER_BYTES_MAX) connection_close(c);
    } else {
        receive(c, buf->base, (size_t)n);
    }
}

void connection_start_reading(struct connection *c)
{
    if (c->reading_stopped) connection_stop_hangup(c);
    c->reading_stopped = false;
    int status = uv_read_start(&c->socket.stream, on_alloc, on_read);
    if (status && status != UV_EALREADY) connection_close(c);
}
