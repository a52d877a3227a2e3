/* loop.c - the simulator's libuv: the part of it that the server uses, on simulated sockets and time.
 *
 * Kept as libuv 1.44 does it, because the server relies on it: callbacks run from uv_run only; a write or
 * shutdown that a close cuts short is called back with UV_ECANCELED before the close is; reading stops at the
 * end of input; a connection that the server does not take from uv_listen's callback keeps the listener
 * from reporting others; uv_now stands still within an iteration. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "server/hangup.h"
#include "sim/net.h"
#include "sim/watch.h"

enum { HANDLES_MAX = 512, SOCKETS_MAX = 128, WORKS_MAX = 64 };
enum { ACTIVE = 1, CLOSING = 2, UNREFERENCED = 4, PENDING = 8 };

struct work {
    uv_work_t *request;
    uv_work_cb work;
    uv_after_work_cb after;
    uint64_t due_ns;
    bool done;
};

static uv_handle_t *handles[HANDLES_MAX];
static int num_handles;
static struct socket sockets[SOCKETS_MAX];
static struct work works[WORKS_MAX];
static int num_works, num_sockets; /* num_sockets: that were ever used */
static uv_thread_cb thread_main;
static void *thread_argument;
static uint64_t thread_due_ns, loop_ms, num_timer_starts;
static uv_stream_t *listener;
static uv_connection_cb on_connection;
static bool accept_stuck;
static int raised;
static struct rng chance;

/* ---- handles ---- */

static uintptr_t *flags_of(const void *handle)
{
    return (uintptr_t *)&((uv_handle_t *)(uintptr_t)handle)->u.reserved[1];
}

static struct socket *socket_of(const void *stream)
{
    return ((const uv_handle_t *)stream)->u.reserved[0];
}

static void handle_init(uv_loop_t *loop, void *at, uv_handle_type type)
{
    uv_handle_t *h = at;
    h->loop = loop;
    h->type = type;
    h->close_cb = NULL;
    h->u.reserved[0] = NULL;
    *flags_of(h) = 0;
    expect(num_handles < HANDLES_MAX, "too many handles");
    handles[num_handles++] = h;
}

static bool is_active(const void *handle)
{
    return (*flags_of(handle) & (ACTIVE | CLOSING)) == ACTIVE;
}

int uv_is_active(const uv_handle_t *h)
{
    return is_active(h);
}

int uv_is_closing(const uv_handle_t *h)
{
    return (*flags_of(h) & CLOSING) != 0;
}

void uv_unref(uv_handle_t *h)
{
    *flags_of(h) |= UNREFERENCED;
}

/* Connections that were not taken are reset. */
static void stop_listening(void)
{
    listener = NULL;
    for (int i = 0; i < SOCKETS_MAX; i++) {
        struct socket *s = &sockets[i];
        if (!s->used || s->accepted) continue;
        s->reset = s->accepted = s->server_closed = true;
        if (s->client_closed) s->used = false;
        client_on_readable(s->client_idx);
    }
}

void uv_close(uv_handle_t *h, uv_close_cb close_cb)
{
    expect(!uv_is_closing(h), "a handle is closed twice");
    *flags_of(h) |= CLOSING;
    h->close_cb = close_cb;
    if (h == (uv_handle_t *)listener) stop_listening();
}

int loop_num_open_handles(void)
{
    return num_handles;
}

static void finish_stream(struct socket *s)
{
    if (s->write) {
        uv_write_t *write = s->write;
        s->write = NULL;
        ((uv_stream_t *)s->stream)->write_queue_size = 0;
        write->cb(write, UV_ECANCELED);
    }
    if (s->shutdown) {
        uv_shutdown_t *shutdown = s->shutdown;
        s->shutdown = NULL;
        shutdown->cb(shutdown, UV_ECANCELED);
    }
    s->server_closed = s->server_ended = true;
    s->stream = NULL;
    if (s->to_server.num > 0) s->reset = true; /* closed with unread input */
    client_on_readable(s->client_idx);
    if (s->client_closed) s->used = false;
}

static void close_handles(void)
{
    for (int i = 0; i < num_handles; i++) {
        uv_handle_t *h = handles[i];
        if (!uv_is_closing(h)) continue;
        if (h->u.reserved[0]) finish_stream(socket_of(h));
        handles[i--] = handles[--num_handles];
        if (h->close_cb) h->close_cb(h);
    }
}

/* ---- timers ---- */

int uv_timer_init(uv_loop_t *loop, uv_timer_t *timer)
{
    handle_init(loop, timer, UV_TIMER);
    return 0;
}

int uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat)
{
    if (uv_is_closing((uv_handle_t *)timer)) return UV_EINVAL;
    timer->timer_cb = cb;
    timer->timeout = loop_ms + timeout;
    timer->repeat = repeat;
    timer->start_id = ++num_timer_starts;
    *flags_of(timer) |= ACTIVE;
    return 0;
}

int uv_timer_stop(uv_timer_t *timer)
{
    *flags_of(timer) &= ~(uintptr_t)ACTIVE;
    return 0;
}

static uv_timer_t *next_timer(void)
{
    uv_timer_t *next = NULL;
    for (int i = 0; i < num_handles; i++) {
        uv_timer_t *t = (uv_timer_t *)handles[i];
        if (t->type != UV_TIMER || !is_active(t)) continue;
        if (!next || t->timeout < next->timeout ||
            (t->timeout == next->timeout && t->start_id < next->start_id))
            next = t;
    }
    return next;
}

uint64_t loop_next_timer_ns(void)
{
    const uv_timer_t *next = next_timer();
    return next ? next->timeout * 1000000 : UINT64_MAX;
}

static void run_timers(void)
{
    uv_timer_t *t;
    while ((t = next_timer()) && t->timeout <= loop_ms) {
        uv_timer_stop(t);
        if (t->repeat) uv_timer_start(t, t->timer_cb, t->repeat, t->repeat);
        t->timer_cb(t);
    }
}

/* ---- asyncs and signals ---- */

int uv_async_init(uv_loop_t *loop, uv_async_t *async, uv_async_cb cb)
{
    handle_init(loop, async, UV_ASYNC);
    async->async_cb = cb;
    *flags_of(async) |= ACTIVE;
    return 0;
}

int uv_async_send(uv_async_t *async)
{
    thread_pause();
    *flags_of(async) |= PENDING;
    thread_pause();
    return 0;
}

static bool async_is_pending(const uv_handle_t *h)
{
    return h->type == UV_ASYNC && (*flags_of(h) & PENDING) && !uv_is_closing(h);
}

static void run_asyncs(void)
{
    for (int i = 0; i < num_handles; i++) {
        if (!async_is_pending(handles[i])) continue;
        uv_async_t *async = (uv_async_t *)handles[i];
        *flags_of(async) &= ~(uintptr_t)PENDING;
        async->async_cb(async);
    }
}

int uv_signal_init(uv_loop_t *loop, uv_signal_t *signal)
{
    handle_init(loop, signal, UV_SIGNAL);
    return 0;
}

int uv_signal_start(uv_signal_t *signal, uv_signal_cb cb, int number)
{
    signal->signal_cb = cb;
    signal->signum = number;
    *flags_of(signal) |= ACTIVE;
    return 0;
}

void loop_raise(int signal_number)
{
    raised = signal_number;
}

static void run_signals(void)
{
    int number = raised;
    raised = 0;
    for (int i = 0; i < num_handles && number; i++) {
        uv_signal_t *s = (uv_signal_t *)handles[i];
        if (s->type != UV_SIGNAL || !is_active(s) || s->signum != number) continue;
        s->signal_cb(s, number);
        return;
    }
}

/* ---- before the loop waits ---- */

int uv_prepare_init(uv_loop_t *loop, uv_prepare_t *prepare)
{
    handle_init(loop, prepare, UV_PREPARE);
    return 0;
}

int uv_prepare_start(uv_prepare_t *prepare, uv_prepare_cb cb)
{
    prepare->prepare_cb = cb;
    *flags_of(prepare) |= ACTIVE;
    return 0;
}

static void run_prepares(void)
{
    for (int i = 0; i < num_handles; i++) {
        uv_prepare_t *p = (uv_prepare_t *)handles[i];
        if (p->type == UV_PREPARE && is_active(p)) p->prepare_cb(p);
    }
}

/* ---- workers and the loading thread ---- */

int uv_queue_work(uv_loop_t *loop, uv_work_t *request, uv_work_cb work, uv_after_work_cb after)
{
    (void)loop;
    assert_always(num_works < WORKS_MAX);
    works[num_works++] = (struct work){request, work, after, now_ns() + rng_skewed(&chance, 20000000), false};
    return 0;
}

int uv_thread_create(uv_thread_t *thread, uv_thread_cb main, void *argument)
{
    *thread = 0;
    thread_main = main;
    thread_argument = argument;
    thread_due_ns = now_ns() + rng_skewed(&chance, 50000000);
    return 0;
}

static void run_thread(void)
{
    uv_thread_cb main = thread_main;
    thread_main = NULL;
    if (main) main(thread_argument);
}

int uv_thread_join(uv_thread_t *thread)
{
    (void)thread;
    run_thread();
    return 0;
}

uint64_t loop_next_work_ns(void)
{
    uint64_t next = thread_main ? thread_due_ns : UINT64_MAX;
    for (int i = 0; i < num_works; i++)
        if (!works[i].done) next = min_of(next, works[i].due_ns);
    return next;
}

void loop_act(void)
{
    if (thread_main && thread_due_ns <= now_ns()) run_thread();
    for (int i = 0; i < num_works; i++) {
        if (works[i].done || works[i].due_ns > now_ns()) continue;
        works[i].work(works[i].request);
        works[i].done = true;
    }
}

static bool any_work_done(void)
{
    for (int i = 0; i < num_works; i++)
        if (works[i].done) return true;
    return false;
}

static void end_works(void)
{
    for (int i = 0; i < num_works; i++) {
        if (!works[i].done) continue;
        struct work w = works[i];
        works[i--] = works[--num_works];
        mark(MARK_prepared_by_worker);
        w.after(w.request, 0);
    }
}

/* ---- sockets, the client's end ---- */

void bytes_append(struct bytes *b, const void *data, size_t n)
{
    if (b->num + n > b->capacity) {
        b->capacity = 2 * (b->num + n) + 256;
        b->data = keep_realloc(b->data, b->capacity);
    }
    if (n > 0) memcpy(b->data + b->num, data, n);
    b->num += n;
}

void bytes_consume(struct bytes *b, size_t n)
{
    assert_always(n <= b->num);
    if (n > 0) memmove(b->data, b->data + n, b->num - n);
    b->num -= n;
}

struct socket *net_connect(int client_idx, size_t window)
{
    if (!listener) return NULL;
    for (int i = 0; i < SOCKETS_MAX; i++) {
        struct socket *s = &sockets[i];
        if (s->used) continue;
        num_sockets = max_of(num_sockets, i + 1);
        *s = (struct socket){.used = true,
                             .client_idx = client_idx,
                             .window = window,
                             .to_server = {.data = s->to_server.data, .capacity = s->to_server.capacity},
                             .to_client = {.data = s->to_client.data, .capacity = s->to_client.capacity}};
        return s;
    }
    sim_fail(__FILE__, __LINE__, "more sockets than clients");
}

void net_send(struct socket *s, const char *data, size_t n)
{
    assert_always(!s->client_ended);
    if (s->server_closed)
        s->reset = true;
    else
        bytes_append(&s->to_server, data, n);
}

size_t net_receive(struct socket *s, char *to, size_t max, bool *ended, bool *reset)
{
    size_t n = s->reset ? 0 : min_of(max, s->to_client.num);
    if (n > 0) memcpy(to, s->to_client.data, n);
    bytes_consume(&s->to_client, n);
    *reset = s->reset;
    *ended = n == 0 && s->server_ended && s->to_client.num == 0 && !s->write;
    return n;
}

void net_end(struct socket *s)
{
    s->client_ended = true;
}

void net_close(struct socket *s)
{
    s->client_ended = s->client_closed = true;
    if (s->to_client.num > 0) s->reset = true;
    if (s->server_closed) s->used = false;
}

void net_reset(struct socket *s)
{
    net_close(s);
    s->reset = true;
}

/* ---- sockets, the server's end ---- */

int uv_tcp_init(uv_loop_t *loop, uv_tcp_t *tcp)
{
    handle_init(loop, tcp, UV_TCP);
    tcp->write_queue_size = 0;
    return 0;
}

int uv_pipe_init(uv_loop_t *loop, uv_pipe_t *pipe, int ipc)
{
    (void)loop, (void)pipe, (void)ipc;
    return UV_ENOSYS;
}

int uv_spawn(uv_loop_t *loop, uv_process_t *process, const uv_process_options_t *options)
{
    (void)loop, (void)process, (void)options;
    return UV_ENOSYS;
}

int uv_process_kill(uv_process_t *process, int number)
{
    (void)process, (void)number;
    return UV_ENOSYS;
}

int uv_pipe_open(uv_pipe_t *pipe, uv_os_fd_t fd)
{
    (void)pipe, (void)fd;
    return UV_ENOSYS;
}

int uv_tcp_open(uv_tcp_t *tcp, uv_os_sock_t fd)
{
    (void)tcp, (void)fd;
    return UV_ENOSYS;
}

int uv_tcp_bind(uv_tcp_t *tcp, const struct sockaddr *address, unsigned flags)
{
    (void)tcp, (void)address, (void)flags;
    return 0;
}

int uv_listen(uv_stream_t *stream, int backlog, uv_connection_cb cb)
{
    (void)backlog;
    listener = stream;
    on_connection = cb;
    return 0;
}

static struct socket *waiting_connection(void)
{
    for (int i = 0; i < num_sockets; i++)
        if (sockets[i].used && !sockets[i].accepted) return &sockets[i];
    return NULL;
}

int uv_accept(uv_stream_t *server, uv_stream_t *stream)
{
    struct socket *s = waiting_connection();
    assert_always(server == listener && s);
    s->accepted = true;
    s->stream = stream;
    stream->u.reserved[0] = s;
    accept_stuck = false;
    return 0;
}

static void run_listener(void)
{
    struct socket *s;
    while (listener && !accept_stuck && (s = waiting_connection())) {
        accept_stuck = true;
        on_connection(listener, 0);
        if (!accept_stuck) continue;
        say("a connection was not taken: the listener stands still");
    }
}

int uv_read_start(uv_stream_t *stream, uv_alloc_cb alloc_cb, uv_read_cb read_cb)
{
    struct socket *s = socket_of(stream);
    if (uv_is_closing((uv_handle_t *)stream)) return UV_EINVAL;
    if (s->reading) return UV_EALREADY;
    stream->alloc_cb = alloc_cb;
    stream->read_cb = read_cb;
    s->reading = true;
    return 0;
}

int uv_read_stop(uv_stream_t *stream)
{
    socket_of(stream)->reading = false;
    return 0;
}

static bool is_readable(const struct socket *s)
{
    bool something = s->to_server.num > 0 || s->reset || (s->client_ended && !s->end_delivered);
    return s->stream && s->reading && something && !uv_is_closing((uv_handle_t *)s->stream);
}

static void read_socket(struct socket *s)
{
    uv_buf_t buf = {0};
    uv_stream_t *stream = s->stream;
    stream->alloc_cb((uv_handle_t *)stream, 65536, &buf);
    if (s->reset) {
        s->reading = false;
        stream->read_cb(stream, UV_ECONNRESET, &buf);
    } else if (s->to_server.num == 0) {
        s->reading = false;
        s->end_delivered = true;
        stream->read_cb(stream, UV_EOF, &buf);
    } else {
        size_t n = min_of(s->to_server.num, buf.len);
        if (rng_chance(&chance, 20)) n = 1 + (size_t)(rng_next(&chance) % n);
        memcpy(buf.base, s->to_server.data, n);
        bytes_consume(&s->to_server, n);
        stream->read_cb(stream, (ssize_t)n, &buf);
    }
}

/* As many bytes as the client's window takes. */
static size_t transmit(struct socket *s, const char *data, size_t n)
{
    if (s->client_closed) {
        s->reset = true;
        return n;
    }
    n = min_of(n, s->window - min_of(s->window, s->to_client.num));
    bytes_append(&s->to_client, data, n);
    if (n > 0) client_on_readable(s->client_idx);
    return n;
}

int uv_try_write(uv_stream_t *stream, const uv_buf_t bufs[], unsigned num_bufs)
{
    struct socket *s = socket_of(stream);
    size_t total = 0;
    if (uv_is_closing((uv_handle_t *)stream)) return UV_EBADF;
    if (s->write) return UV_EAGAIN;
    if (s->reset) return UV_ECONNRESET;
    if (s->server_ended) return UV_EPIPE;
    for (unsigned i = 0; i < num_bufs; i++) {
        size_t n = transmit(s, bufs[i].base, bufs[i].len);
        total += n;
        if (n < bufs[i].len) break;
    }
    return total == 0 ? UV_EAGAIN : (int)total;
}

static void write_more(struct socket *s)
{
    size_t n = transmit(s, s->write_data, s->stream->write_queue_size);
    s->write_data += n;
    s->stream->write_queue_size -= n;
    if (s->reset) s->write_status = UV_ECONNRESET;
    if (s->stream->write_queue_size == 0) s->write_status = 0;
}

int uv_write(uv_write_t *write, uv_stream_t *stream, const uv_buf_t bufs[], unsigned num_bufs, uv_write_cb cb)
{
    struct socket *s = socket_of(stream);
    assert_always(num_bufs == 1 && !s->write);
    if (uv_is_closing((uv_handle_t *)stream)) return UV_EBADF;
    write->handle = stream;
    write->cb = cb;
    s->write = write;
    s->write_data = bufs[0].base;
    s->write_status = 1;
    stream->write_queue_size = bufs[0].len;
    write_more(s);
    return 0;
}

size_t uv_stream_get_write_queue_size(const uv_stream_t *stream)
{
    return stream->write_queue_size;
}

static bool can_write(const struct socket *s)
{
    if (!s->stream || !s->write || uv_is_closing((uv_handle_t *)s->stream)) return false;
    return s->write_status != 1 || s->reset || s->client_closed || s->to_client.num < s->window;
}

static void run_write(struct socket *s)
{
    if (s->write_status == 1) write_more(s);
    if (s->write_status == 1) return;
    uv_write_t *write = s->write;
    s->write = NULL;
    s->stream->write_queue_size = 0;
    write->cb(write, s->write_status);
}

int uv_shutdown(uv_shutdown_t *shutdown, uv_stream_t *stream, uv_shutdown_cb cb)
{
    struct socket *s = socket_of(stream);
    if (uv_is_closing((uv_handle_t *)stream) || s->server_ended) return UV_ENOTCONN;
    shutdown->handle = stream;
    shutdown->cb = cb;
    s->shutdown = shutdown;
    return 0;
}

static bool can_shut_down(const struct socket *s)
{
    return s->stream && s->shutdown && !s->write && !uv_is_closing((uv_handle_t *)s->stream);
}

static void run_shutdown(struct socket *s)
{
    uv_shutdown_t *shutdown = s->shutdown;
    s->shutdown = NULL;
    s->server_ended = true;
    client_on_readable(s->client_idx);
    shutdown->cb(shutdown, s->reset ? UV_ENOTCONN : 0);
}

struct hangup *hangup_watch(uv_stream_t *stream, void (*on_hangup)(void *context),
                            void (*on_end)(void *context), void *context)
{
    struct hangup *h = calloc(1, sizeof *h);
    if (!h) return NULL;
    *h = (struct hangup){on_hangup, on_end, context};
    socket_of(stream)->hangup = h;
    return h;
}

void hangup_stop(struct hangup *h)
{
    for (int i = 0; i < SOCKETS_MAX && h; i++)
        if (sockets[i].hangup == h) sockets[i].hangup = NULL;
    free(h);
}

static bool has_hung_up(const struct socket *s)
{
    if (!s->stream || !s->hangup || uv_is_closing((uv_handle_t *)s->stream)) return false;
    return (s->reset && s->hangup->on_hangup) || (s->client_ended && s->hangup->on_end);
}

static void run_hangup(struct socket *s)
{
    struct hangup h = *s->hangup;
    s->hangup->on_end = NULL;
    if (s->reset) s->hangup->on_hangup = NULL;
    if (s->reset)
        h.on_hangup(h.context);
    else
        h.on_end(h.context);
}

static void run_sockets(void)
{
    int first = rng_below(&chance, max_of(num_sockets, 1));
    for (int i = 0; i < num_sockets; i++) {
        struct socket *s = &sockets[(first + i) % num_sockets];
        if (!s->used) continue;
        if (is_readable(s)) read_socket(s);
        if (can_write(s)) run_write(s);
        if (can_shut_down(s)) run_shutdown(s);
        if (has_hung_up(s)) run_hangup(s);
    }
}

/* ---- small ones ---- */

int uv_fileno(const uv_handle_t *h, uv_os_fd_t *fd)
{
    (void)h, (void)fd;
    return UV_EBADF;
}

int uv_backend_fd(const uv_loop_t *loop)
{
    (void)loop;
    return -1;
}

int uv_poll_init(uv_loop_t *loop, uv_poll_t *poll, int fd)
{
    (void)loop, (void)poll, (void)fd;
    return UV_EBADF;
}

int uv_poll_start(uv_poll_t *poll, int events, uv_poll_cb cb)
{
    (void)poll, (void)events, (void)cb;
    return UV_EBADF;
}

int uv_tcp_nodelay(uv_tcp_t *tcp, int enable)
{
    (void)tcp, (void)enable;
    return 0;
}

int uv_tcp_getpeername(const uv_tcp_t *tcp, struct sockaddr *name, int *bytes)
{
    const struct socket *s = socket_of(tcp);
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (!s) return UV_ENOTCONN;
    address.sin_addr.s_addr = htonl(client_address(s->client_idx));
    *bytes = sizeof address;
    memcpy(name, &address, sizeof address);
    return 0;
}

int uv_tcp_getsockname(const uv_tcp_t *tcp, struct sockaddr *name, int *bytes)
{
    (void)tcp, (void)name, (void)bytes;
    return UV_ENOTCONN;
}

int uv_ip4_addr(const char *ip, int port, struct sockaddr_in *address)
{
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    return inet_pton(AF_INET, ip, &address->sin_addr) == 1 ? 0 : UV_EINVAL;
}

int uv_ip6_addr(const char *ip, int port, struct sockaddr_in6 *address)
{
    (void)ip, (void)port, (void)address;
    return UV_EINVAL;
}

int uv_ip4_name(const struct sockaddr_in *address, char *text, size_t bytes)
{
    (void)address, (void)text, (void)bytes;
    return UV_EINVAL;
}

int uv_ip6_name(const struct sockaddr_in6 *address, char *text, size_t bytes)
{
    (void)address, (void)text, (void)bytes;
    return UV_EINVAL;
}

uv_buf_t uv_buf_init(char *base, unsigned n)
{
    return (uv_buf_t){.base = base, .len = n};
}

const char *uv_strerror(int uv_status)
{
    return uv_status == UV_ECANCELED ? "canceled" : "a simulated error";
}

/* ---- the loop ---- */

int uv_loop_init(uv_loop_t *loop)
{
    memset(loop, 0, sizeof *loop);
    chance = rng_of("loop", 0);
    loop_ms = now_ns() / 1000000;
    return 0;
}

int uv_loop_close(uv_loop_t *loop)
{
    (void)loop;
    expect(num_handles == 0, "the loop is closed with %d handles open", num_handles);
    return 0;
}

uint64_t uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return loop_ms;
}

bool loop_is_ready(void)
{
    const uv_timer_t *timer = next_timer();
    if ((timer && timer->timeout <= now_ns() / 1000000) || raised || any_work_done()) return true;
    if (listener && !accept_stuck && waiting_connection()) return true;
    for (int i = 0; i < num_handles; i++)
        if (uv_is_closing(handles[i]) || async_is_pending(handles[i])) return true;
    for (int i = 0; i < num_sockets; i++) {
        const struct socket *s = &sockets[i];
        if (!s->used) continue;
        if (is_readable(s) || can_shut_down(s) || can_write(s)) return true;
        if (has_hung_up(s)) return true;
    }
    return false;
}

static bool is_alive(void)
{
    for (int i = 0; i < num_handles; i++)
        if (uv_is_closing(handles[i]) || !(*flags_of(handles[i]) & UNREFERENCED)) return true;
    return num_works > 0;
}

int uv_run(uv_loop_t *loop, uv_run_mode mode)
{
    (void)loop;
    do {
        loop_ms = now_ns() / 1000000;
        run_timers();
        run_prepares();
        if (mode == UV_RUN_DEFAULT && !loop_is_ready()) thread_poll();
        loop_ms = now_ns() / 1000000;
        run_asyncs();
        run_signals();
        run_listener();
        run_sockets();
        end_works();
        close_handles();
        watch_loop();
        thread_pause();
    } while (mode == UV_RUN_DEFAULT && is_alive());
    return 0;
}
