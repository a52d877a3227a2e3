#include "server/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/http_metrics.h"
#include "server/loop_watch.h"
#include "server/watch_room.h"

enum {
    LINGER_MS = 2000,
    BODY_RATE_GRACE_MS = 5000,
};

static const uint64_t no_deadline = UINT64_MAX;

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

void connection_arm(struct connection *c)
{
    if (c->state == CONNECTION_CLOSED || c->turn_pending) return;
    uint64_t deadline = deadline_ms(c), now = uv_now(c->listener->loop);
    if (deadline == no_deadline)
        uv_timer_stop(&c->timer);
    else
        uv_timer_start(&c->timer, connection_on_timer, deadline > now ? deadline - now : 0, 0);
}

/* ---- lists ---- */

static struct connection_list *list_of(struct connection *c)
{
    bool waits = c->state == CONNECTION_READING || c->state == CONNECTION_LINGERING;
    return waits ? &c->listener->waiting : &c->listener->others;
}

static void append(struct connection *c)
{
    struct connection_list *list = list_of(c);
    c->next = NULL;
    c->previous = list->last;
    *(list->last ? &list->last->next : &list->first) = c;
    list->last = c;
}

static void take_out(struct connection *c)
{
    struct connection_list *list = list_of(c);
    *(c->previous ? &c->previous->next : &list->first) = c->next;
    *(c->next ? &c->next->previous : &list->last) = c->previous;
}

/* ---- state ---- */

void connection_set_state(struct connection *c, enum connection_state state)
{
    struct listener *l = c->listener;
    int change = is_busy(state) - is_busy(c->state);
    take_out(c);
    c->state = state;
    append(c);
    c->since_ms = uv_now(l->loop);
    l->num_busy += change;
    connection_arm(c);
    if (change < 0 && l->num_busy == 0 && l->on_quiet) l->on_quiet(l->quiet_context);
}

void connection_touch(struct connection *c)
{
    connection_set_state(c, c->state);
}

/* ---- what is held for clients ---- */

void connection_note_buffers(struct connection *c)
{
    bool ends = c->state == CONNECTION_CLOSED && c->num_references <= CONNECTION_HANDLES;
    size_t now = ends ? 0 : c->input.capacity_bytes + c->body.capacity_bytes + output_held_bytes(&c->output);
    int64_t change = (int64_t)now - (int64_t)c->num_buffered_bytes;
    c->num_buffered_bytes = now;
    c->listener->num_buffered_bytes += (uint64_t)change;
    if (c->peer) c->peer->num_buffered_bytes += (uint64_t)change;
    if (c->api_key_idx >= 0) c->listener->key_buffered_bytes[c->api_key_idx] += (uint64_t)change;
    if (change) http_metrics_add_buffered_bytes(change);
}

void connection_note_key(struct connection *c)
{
    uint64_t *of_keys = c->listener->key_buffered_bytes;
    if (c->api_key_idx >= 0) of_keys[c->api_key_idx] -= c->num_buffered_bytes;
    c->api_key_idx = c->request ? c->request->x.api_key_idx : -1;
    if (c->api_key_idx >= 0) of_keys[c->api_key_idx] += c->num_buffered_bytes;
}

/* ---- the end ---- */

void connection_release_body(struct connection *c)
{
    buffer_deinit(&c->body);
    connection_note_buffers(c);
}

static void destroy_request(struct connection *c)
{
    const struct http_request *r = c->request;
    if (r->http_status > 0)
        http_metrics_observe_request(r->route, r->http_status, clock_monotonic_ns() - r->x.arrival_ns);
    http_request_destroy(c->request);
    c->request = NULL;
    connection_note_key(c);
    connection_release_body(c);
}

static void unlink_connection(struct connection *c)
{
    take_out(c);
    c->listener->num_connections--;
}

void connection_drop_reference(struct connection *c)
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
    connection_note_buffers(c);
    unlink_connection(c);
    free(c);
}

static void on_handle_closed(uv_handle_t *handle)
{
    loop_watch_enter("the end of a connection");
    connection_drop_reference(handle->data);
}

static void on_hangup(void *context)
{
    connection_close(context);
}

static void on_end_unread(void *context)
{
    connection_probe(context);
}

/* The client's end-of-file comes to the reader, if there is one. */
void connection_watch_hangup(struct connection *c)
{
    if (!c->hangup)
        c->hangup = hangup_watch(&c->socket.stream, on_hangup, c->half_closed ? NULL : on_end_unread, c);
}

void connection_stop_hangup(struct connection *c)
{
    hangup_stop(c->hangup);
    c->hangup = NULL;
}

static void drop_peer(struct connection *c)
{
    if (!c->peer) return;
    c->peer->num_buffered_bytes -= c->num_buffered_bytes;
    peers_drop(&c->listener->peers, c->peer);
    c->peer = NULL;
}

void connection_close(struct connection *c)
{
    if (c->state == CONNECTION_CLOSED) return;
    connection_stop_hangup(c);
    connection_set_state(c, CONNECTION_CLOSED);
    connection_note_buffers(c);
    drop_peer(c);
    c->listener->num_open--;
    http_metrics_add_connections(-1);
    uv_close(&c->socket.handle, on_handle_closed);
    uv_close((uv_handle_t *)&c->timer, on_handle_closed);
}

void connection_cut_off(struct connection *c, const char *reason)
{
    char client[IP_ADDRESS_CHARS];
    ip_address_write(&c->address, client);
    http_log_cut_off(&c->listener->log, c->request ? c->request->x.request_id : NULL, client, reason,
                     output_unsent_bytes(&c->output));
    http_metrics_count_cut_off();
    connection_close(c);
}

/* One that has sent part of a request, or nothing yet, is about to: it gets its answer. */
void connection_drain(struct connection *c)
{
    bool is_idle = !c->head_begun && c->input.num_bytes == 0;
    if (c->state == CONNECTION_READING && is_idle && c->num_requests > 0) connection_close(c);
}

/* ---- output ---- */

static void on_shutdown(uv_shutdown_t *shutdown, int uv_status)
{
    struct connection *c = shutdown->data;
    if (uv_status || c->half_closed) connection_close(c);
}

/* Ends our side and waits a moment for the client's end, throwing away what it still sends: closing with
 * unread input would reset the connection, and the reset can overtake the answer. */
static void linger(struct connection *c)
{
    connection_set_state(c, CONNECTION_LINGERING);
    if (!c->consuming) buffer_deinit(&c->input);
    connection_note_buffers(c);
    c->shutdown.data = c;
    if (uv_shutdown(&c->shutdown, &c->socket.stream, on_shutdown))
        connection_close(c);
    else if (!c->half_closed)
        connection_start_reading(c);
}

void connection_begin_next(struct connection *c)
{
    if (c->closes || (c->listener->retired && c->input.num_bytes == 0)) {
        linger(c);
        return;
    }
    c->scan = (struct gate_scan){0};
    c->head_begun = c->wants_head = c->probed = false;
    connection_set_state(c, CONNECTION_READING);
    if (c->consuming) return;
    if (c->input.num_bytes > 0)
        connection_resume_later(c);
    else
        connection_resume_input(c);
}

void connection_end_request(struct connection *c)
{
    destroy_request(c);
    if (c->state == CONNECTION_CLOSED) return;
    connection_stop_hangup(c);
    if (output_unsent_bytes(&c->output) > 0)
        connection_set_state(c, CONNECTION_FLUSHING);
    else
        connection_begin_next(c);
}

bool connection_is_ahead(const struct connection *c)
{
    size_t soft = connection_has_room(c, 0) ? c->listener->config->stream_buffer_soft : 0;
    return output_unsent_bytes(&c->output) > soft;
}

/* The write timeout begins anew. */
static void note_progress(struct connection *c)
{
    c->progress_ms = uv_now(c->listener->loop);
    c->taken_seen = output_taken_bytes(&c->output);
    connection_arm(c);
}

static void resume_endpoint(struct connection *c)
{
    struct http_request *r = c->request;
    if (!r->paused || connection_is_ahead(c)) return;
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
    connection_note_buffers(c);
    note_progress(c);
    if (c->state == CONNECTION_RESPONDING)
        resume_endpoint(c);
    else if (c->state == CONNECTION_FLUSHING && output_unsent_bytes(&c->output) == 0)
        connection_begin_next(c);
}

static void after_send(struct connection *c, int uv_status, bool was_empty)
{
    connection_note_buffers(c);
    if (uv_status) {
        connection_close(c);
        return;
    }
    if (!was_empty || output_unsent_bytes(&c->output) == 0) return;
    c->unsent_since_ms = uv_now(c->listener->loop);
    note_progress(c);
}

void connection_send(struct connection *c, const uv_buf_t *parts, int num_parts)
{
    if (c->state == CONNECTION_CLOSED) return;
    bool was_empty = output_unsent_bytes(&c->output) == 0;
    after_send(c, output_send(&c->output, parts, num_parts), was_empty);
}

void connection_send_whole(struct connection *c, uv_buf_t head, struct buffer *body)
{
    if (c->state == CONNECTION_CLOSED) return;
    bool was_empty = output_unsent_bytes(&c->output) == 0;
    after_send(c, output_send_whole(&c->output, head, body), was_empty);
}

bool connection_is_last_response(const struct connection *c)
{
    return c->closes || c->listener->retired || (c->half_closed && c->input.num_bytes == 0);
}

void connection_send_text(struct connection *c, const char *text)
{
    uv_buf_t part = uv_buf_init((char *)(uintptr_t)text, (unsigned)strlen(text));
    connection_send(c, &part, 1);
}

/* A half-close (legal while the client waits for its answer) and a close look alike until something is sent:
 * a comment in a stream, else the first bytes of the answer, whatever it will be. */
void connection_probe(struct connection *c)
{
    static const char first[CONNECTION_PROBE_BYTES + 1] = "HTTP/1.1 ";
    const struct http_request *r = c->request;
    bool pending = c->state == CONNECTION_CHECKING || c->state == CONNECTION_RESPONDING;
    if (!pending) return;
    connection_watch_hangup(c);
    if (output_unsent_bytes(&c->output) > 0) return;
    if (r->streaming) {
        connection_send_text(c, r->version_minor > 0 ? "3\r\n:\n\n\r\n" : ":\n\n");
    } else if (!c->probed) {
        c->probed = true;
        connection_send_text(c, first);
    }
}

/* ---- time ---- */

static void on_write_deadline(struct connection *c)
{
    if (output_taken_bytes(&c->output) == c->taken_seen)
        connection_cut_off(c, "the client read nothing for --write-timeout");
    else
        note_progress(c);
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
        connection_refuse(c, &why);
        break;
    case CONNECTION_BODY:
        (void)!refuse(&why, 408,
                      "the request body took longer than %lld s (--body-timeout) or came slower than %llu "
                      "bytes/s (--body-min-rate)",
                      (long long)config->body_timeout, (unsigned long long)config->body_min_rate);
        connection_refuse(c, &why);
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

void connection_on_timer(uv_timer_t *timer)
{
    loop_watch_enter("a timer of a connection");
    struct connection *c = timer->data;
    if (c->turn_pending) {
        c->turn_pending = false;
        connection_arm(c);
        connection_resume_input(c);
    } else if (deadline_ms(c) > uv_now(c->listener->loop)) {
        connection_arm(c); /* the deadline has moved meanwhile */
    } else {
        on_deadline(c);
    }
}

/* ---- the beginning ---- */

/* False: the kernel watches no more; what the loop were to read then would end the process. */
static bool can_be_watched(const struct connection *c)
{
    uv_os_fd_t fd;
    if (uv_fileno(&c->socket.handle, &fd) || watch_room_take(c->listener->loop, fd)) return true;
    log_warning("the kernel watches no more descriptors: a connection is closed");
    return false;
}

/* Events are small and must not wait for each other. A client's machine that acknowledges nothing for twice
 * as long as it may stop reading is gone (once is for connection_cut_off, which says so). */
static void set_socket_options(struct connection *c)
{
    uv_os_fd_t fd;
    if (c->socket.handle.type != UV_TCP || uv_fileno(&c->socket.handle, &fd)) return;
    unsigned timeout_ms = (unsigned)c->listener->config->write_timeout * 2000;
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
    append(c);
    c->listener->num_connections++;
    c->listener->num_open++;
    http_metrics_add_connections(1);
}

static struct connection *create(struct listener *l)
{
    struct connection *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->listener = l;
    c->num_references = CONNECTION_HANDLES;
    c->state = CONNECTION_READING;
    c->since_ms = uv_now(l->loop);
    c->api_key_idx = -1;
    buffer_init(&c->input, l->limits.max_header_bytes + CONNECTION_WAITING_BYTES + READ_BUFFER_BYTES);
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

static void note_peer(struct connection *c)
{
    struct sockaddr_storage address;
    int n = sizeof address;
    if (c->socket.handle.type != UV_TCP) return;
    if (uv_tcp_getpeername(&c->socket.tcp, (struct sockaddr *)&address, &n)) return;
    if (!ip_address_of((struct sockaddr *)&address, &c->address)) return;
    if (proxies_trust(&c->listener->proxies, &c->address)) return;
    c->peer = peers_add(&c->listener->peers, &c->address);
}

void connection_accept(struct listener *l)
{
    struct connection *c = create(l);
    if (!c) {
        listener_turn_away(l);
        return;
    }
    if (uv_accept(&l->socket.stream, &c->socket.stream) || !can_be_watched(c)) {
        connection_close(c);
        return;
    }
    set_socket_options(c);
    note_peer(c);
    if (!connection_take_place(c)) return;
    connection_arm(c);
    connection_start_reading(c);
}

static int open_socket(struct connection *c, int fd)
{
    bool is_tcp = c->listener->socket.handle.type == UV_TCP;
    return is_tcp ? uv_tcp_open(&c->socket.tcp, fd) : uv_pipe_open(&c->socket.pipe, fd);
}

struct connection *connection_create_over(struct listener *l, int fd)
{
    struct connection *c = create(l);
    if (!c) return NULL;
    if (open_socket(c, fd) || !can_be_watched(c)) {
        connection_close(c);
        return NULL;
    }
    set_socket_options(c);
    note_peer(c);
    return c;
}
