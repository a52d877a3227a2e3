/* http_rig.h - the transport with a few tiny endpoints on a loop of its own thread, and a blocking client. */
#ifndef TESTS_UNIT_SERVER_HTTP_RIG_H
#define TESTS_UNIT_SERVER_HTTP_RIG_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/log.h"
#include "server/connection.h"
#include "server/listener.h"
#include "server/server.h"

struct rig {
    struct config config;
    struct server server;
    struct listener listener;
    uv_loop_t loop;
    uv_async_t stop, drain, release;
    uv_thread_t thread;
    _Atomic int num_connections; /* set by the loop for the test to read */
};

/* What the endpoints did. */
static _Atomic int num_smuggled, num_handled, num_closed, num_events;
static _Atomic int num_nested; /* endpoints that were called while another's answer was given */
static struct exchange *kept;  /* of /later and /held-stream; the loop's */
static bool answers;           /* on_release is on the stack */

static void reply_text(struct exchange *x, const char *text)
{
    exchange_reply(x, 200, "text/plain", text, strlen(text));
}

static void endpoint_ok(struct exchange *x)
{
    num_handled++;
    num_nested += answers;
    reply_text(x, "ok");
}

static void endpoint_smuggled(struct exchange *x)
{
    num_smuggled++;
    reply_text(x, "smuggled");
}

static void endpoint_echo(struct exchange *x)
{
    num_handled++;
    exchange_reply(x, 200, "application/json", x->body, x->body_bytes);
}

static void endpoint_path(struct exchange *x)
{
    char text[512];
    snprintf(text, sizeof text, "%s|%s|%s|%d", x->path, x->path_rest, x->query, x->api_key_idx);
    reply_text(x, text);
}

static void count_closed(struct exchange *x)
{
    num_closed++;
    if (kept == x) kept = NULL;
}

static void endpoint_later(struct exchange *x)
{
    kept = x;
    x->on_closed = count_closed;
    num_handled++;
}

static void endpoint_held_stream(struct exchange *x)
{
    exchange_start_stream(x, "text/event-stream; charset=utf-8");
    exchange_write(x, "data: first\n\n", 13);
    endpoint_later(x);
}

static void endpoint_stream(struct exchange *x)
{
    num_handled++;
    exchange_start_stream(x, "text/event-stream; charset=utf-8");
    exchange_write(x, ": ping\n\n", 8);
    exchange_write(x, "data: 1\n\n", 9);
    exchange_write(x, "data: [DONE]\n\n", 14);
    exchange_end(x);
}

enum { FLOOD_EVENTS = 20000, FLOOD_EVENT_BYTES = 1024, BIG_BYTES = 16 << 20 };

static void flood(struct exchange *x)
{
    int *next = x->context;
    char event[FLOOD_EVENT_BYTES + 1];
    while (*next < FLOOD_EVENTS) {
        snprintf(event, sizeof event, "data: %0*d\n\n", FLOOD_EVENT_BYTES - 8, *next);
        ++*next;
        num_events++;
        if (!exchange_write(x, event, FLOOD_EVENT_BYTES)) return;
    }
    exchange_end(x);
}

/* As many events as the client takes; never more than the soft limit waits. */
static void endpoint_flood(struct exchange *x)
{
    x->context = arena_alloc(&x->arena, sizeof(int));
    x->on_writable = flood;
    x->on_closed = count_closed;
    exchange_start_stream(x, "text/event-stream; charset=utf-8");
    flood(x);
}

/* Does not care for the soft limit. */
static void endpoint_burst(struct exchange *x)
{
    static char event[FLOOD_EVENT_BYTES];
    memset(event, 'x', sizeof event);
    x->on_closed = count_closed;
    exchange_start_stream(x, "text/event-stream; charset=utf-8");
    for (int i = 0; i < FLOOD_EVENTS; i++) exchange_write(x, event, sizeof event);
}

static void endpoint_big(struct exchange *x)
{
    size_t n = BIG_BYTES;
    char *text = malloc(n);
    memset(text, 'b', n);
    exchange_reply(x, 200, "text/plain", text, n);
    free(text);
}

static _Atomic bool took_over; /* the memory of the last of /big-json */

static void endpoint_big_json(struct exchange *x)
{
    struct buffer body;
    buffer_init(&body, BIG_BYTES);
    memset(buffer_reserve(&body, BIG_BYTES), 'b', BIG_BYTES);
    buffer_commit(&body, BIG_BYTES);
    exchange_reply_json(x, &body);
    took_over = body.data == NULL;
    buffer_deinit(&body);
}

static void endpoint_busy(struct exchange *x)
{
    exchange_error(x, 429, "rate_limit_error", "rate_limit_exceeded", NULL, 7, "try later: %s", "\"soon\"");
}

static const struct route rig_routes[] = {
    {HTTP_METHOD_GET, "/ok", 0, .handler = endpoint_ok},
    {HTTP_METHOD_GET, "/open", ROUTE_OPEN | ROUTE_ALWAYS, .handler = endpoint_ok},
    {HTTP_METHOD_GET, "/smuggled", ROUTE_OPEN | ROUTE_ALWAYS, .handler = endpoint_smuggled},
    {HTTP_METHOD_GET, "/path/*", 0, .handler = endpoint_path},
    {HTTP_METHOD_POST, "/echo", ROUTE_JSON, .handler = endpoint_echo},
    {HTTP_METHOD_POST, "/raw", 0, .handler = endpoint_echo},
    {HTTP_METHOD_GET, "/later", 0, .handler = endpoint_later},
    {HTTP_METHOD_POST, "/later", ROUTE_JSON, .handler = endpoint_later},
    {HTTP_METHOD_GET, "/held-stream", 0, .handler = endpoint_held_stream},
    {HTTP_METHOD_GET, "/stream", 0, .handler = endpoint_stream},
    {HTTP_METHOD_GET, "/flood", 0, .handler = endpoint_flood},
    {HTTP_METHOD_GET, "/burst", 0, .handler = endpoint_burst},
    {HTTP_METHOD_GET, "/big", 0, .handler = endpoint_big},
    {HTTP_METHOD_GET, "/big-json", 0, .handler = endpoint_big_json},
    {HTTP_METHOD_GET, "/busy", 0, .handler = endpoint_busy},
    {.pattern = NULL},
};

/* ---- the loop's side ---- */

static void rig_close_async(struct rig *rig)
{
    uv_close((uv_handle_t *)&rig->stop, NULL);
    uv_close((uv_handle_t *)&rig->drain, NULL);
    uv_close((uv_handle_t *)&rig->release, NULL);
}

static void on_stop(uv_async_t *async)
{
    struct rig *rig = async->data;
    listener_close(&rig->listener);
    rig_close_async(rig);
}

static void on_drain(uv_async_t *async)
{
    struct rig *rig = async->data;
    rig->server.state = SERVER_DRAINING;
    listener_drain(&rig->listener);
}

static void on_release(uv_async_t *async)
{
    (void)async;
    struct exchange *x = kept;
    kept = NULL;
    if (!x) return;
    answers = true;
    if (http_request_of(x)->streaming)
        exchange_end(x);
    else
        reply_text(x, "released");
    answers = false;
}

static void rig_main(void *context)
{
    uv_run(&((struct rig *)context)->loop, UV_RUN_DEFAULT);
}

static void rig_init(struct rig *rig)
{
    struct error err = {0};
    memset(rig, 0, sizeof *rig);
    log_configure(LOG_ERROR, false);
    signal(SIGPIPE, SIG_IGN); /* as server_run does */
    assert_int_equal(config_init(&rig->config, &err), 0);
    rig->config.port = 0;
    assert_int_equal(config_set(&rig->config, "allowed-host", "a", "the rig", &err), 0); /* what tests say */
    num_smuggled = num_handled = num_closed = num_events = num_nested = 0;
    kept = NULL;
}

/* All but the loop's thread: what belongs to it is the test's until rig_run. */
static void rig_open(struct rig *rig)
{
    struct error err = {0};
    assert_int_equal(uv_loop_init(&rig->loop), 0);
    rig->server = (struct server){.loop = &rig->loop, .config = &rig->config, .state = SERVER_READY};
    uv_async_init(&rig->loop, &rig->stop, on_stop);
    uv_async_init(&rig->loop, &rig->drain, on_drain);
    uv_async_init(&rig->loop, &rig->release, on_release);
    rig->stop.data = rig->drain.data = rig->release.data = rig;
    if (listener_open(&rig->listener, &rig->server, rig_routes, &err)) fail_msg("%s", err.text);
}

static void rig_run(struct rig *rig)
{
    assert_int_equal(uv_thread_create(&rig->thread, rig_main, rig), 0);
}

static void rig_start(struct rig *rig)
{
    rig_open(rig);
    rig_run(rig);
}

static void rig_end(struct rig *rig)
{
    uv_async_send(&rig->stop);
    uv_thread_join(&rig->thread);
    assert_int_equal(rig->listener.num_connections, 0);
    assert_int_equal(rig->listener.num_busy, 0);
    assert_int_equal(rig->listener.num_buffered_bytes, 0);
    assert_int_equal(rig->listener.num_open, 0);
    for (int i = 0; i < rig->listener.auth.num_keys; i++)
        assert_int_equal(rig->listener.key_buffered_bytes[i], 0);
    listener_deinit(&rig->listener);
    assert_int_equal(uv_loop_close(&rig->loop), 0);
    assert_int_equal(arena_total_bytes(), 0);
    config_deinit(&rig->config);
}

/* ---- the client's side ---- */

enum { CLIENT_TIMEOUT_S = 20 };

static void client_set_timeouts(int fd)
{
    struct timeval timeout = {.tv_sec = CLIENT_TIMEOUT_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
}

static int client_connect(const struct rig *rig)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)rig->listener.port)};
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    client_set_timeouts(fd);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Sends what the server takes; a server may close in the middle. */
static void client_send(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0) return;
        bytes += sent;
        n -= (size_t)sent;
    }
}

static inline void client_send_text(int fd, const char *text)
{
    client_send(fd, text, strlen(text));
}

/* Everything up to the server's end-of-file, or up to the text until (NULL: none). The caller frees. */
static char *client_read(int fd, const char *until)
{
    size_t n = 0, capacity = 1 << 16;
    char *text = malloc(capacity);
    text[0] = '\0';
    while (!until || !strstr(text, until)) {
        if (n + 1 == capacity) text = realloc(text, capacity *= 2);
        ssize_t got = recv(fd, text + n, capacity - n - 1, 0);
        if (got <= 0) break;
        n += (size_t)got;
        text[n] = '\0';
    }
    return text;
}

static inline int status_of(const char *response)
{
    int status = 0;
    if (sscanf(response, "HTTP/1.1 %d ", &status) != 1) return -1;
    return status;
}

/* One connection, one string of bytes; everything that the server answers until it closes. */
static char *client_ask(const struct rig *rig, const char *bytes, size_t n)
{
    int fd = client_connect(rig);
    client_send(fd, bytes, n);
    char *answer = client_read(fd, NULL);
    close(fd);
    return answer;
}

static inline char *client_ask_text(const struct rig *rig, const char *text)
{
    return client_ask(rig, text, strlen(text));
}

/* Waits until *counter is value; the test fails when that never happens. */
static inline void wait_for(_Atomic int *counter, int value)
{
    for (int i = 0; i < CLIENT_TIMEOUT_S * 1000 && atomic_load(counter) != value; i++) usleep(1000);
    assert_int_equal(atomic_load(counter), value);
}

#endif
