#include "server/span_export.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/version.h"

enum {
    BATCH_MAX = 256, /* spans of one request to the collector */
    BODY_BYTES_MAX = 4 << 20,
    PAUSE_MS = 1000,
    TIMEOUT_SECONDS = 5,
    LAST_TIMEOUT_SECONDS = 2, /* of all that is sent at the end, and of each request of it */
    WARNING_INTERVAL_S = 60,
};

struct span_export {
    char host[256], port[8], path[512];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* under the lock */
    char *waiting[SPANS_WAITING_MAX]; /* a ring */
    int first, num_waiting;
    bool stops;
    uint64_t give_up_ns; /* once it stops */
    _Atomic uint64_t num_sent, num_dropped;
    uint64_t warned_ns; /* the thread's */
};

/* ---- the endpoint ---- */

static int fail_endpoint(const char *endpoint, struct error *err)
{
    return error_set(err, STATUS_INVALID, "--otlp-endpoint %s: http://host[:port][/path] is expected",
                     endpoint);
}

/* ":4318", of n bytes. The system's resolver takes larger numbers modulo 65536. */
static bool is_port(const char *text, int n)
{
    enum { BYTES_MAX = 6, PORT_MAX = 65535 };
    if (*text != ':' || n > BYTES_MAX || (int)strspn(text + 1, "0123456789") != n - 1) return false;
    return atoi(text + 1) >= 1 && atoi(text + 1) <= PORT_MAX;
}

/* An IPv6 address stands in brackets. */
static int read_endpoint(struct span_export *e, const char *endpoint, struct error *err)
{
    static const char scheme[] = "http://";
    if (strncmp(endpoint, scheme, sizeof scheme - 1) != 0) return fail_endpoint(endpoint, err);
    const char *host = endpoint + sizeof scheme - 1, *path = host + strcspn(host, "/");
    bool bracketed = host[0] == '[';
    const char *host_end = bracketed ? strchr(host, ']') : host + strcspn(host, ":/");
    if (!host_end || host_end > path) return fail_endpoint(endpoint, err);
    const char *port = host_end + bracketed;
    int host_bytes = (int)(host_end - host) - bracketed, port_bytes = (int)(path - port) - 1;
    if (host_bytes < 1 || host_bytes >= (int)sizeof e->host || strlen(path) >= sizeof e->path ||
        port > path || (port < path && !is_port(port, port_bytes + 1)))
        return fail_endpoint(endpoint, err);
    snprintf(e->host, sizeof e->host, "%.*s", host_bytes, host + bracketed);
    snprintf(e->port, sizeof e->port, "%.*s", port < path ? port_bytes : 4, port < path ? port + 1 : "4318");
    snprintf(e->path, sizeof e->path, "%s", path[0] && path[1] ? path : "/v1/traces");
    return STATUS_OK;
}

/* ---- one request to the collector ---- */

static int open_socket(const struct span_export *e, int timeout_seconds, char problem[128])
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const struct timeval timeout = {.tv_sec = timeout_seconds};
    struct addrinfo *found = NULL;
    int fd = -1, status = getaddrinfo(e->host, e->port, &hints, &found);
    if (status) snprintf(problem, 128, "%s", gai_strerror(status));
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) continue;
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout); /* bounds connect, too */
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) break;
        snprintf(problem, 128, "%s", strerror(errno));
        close(fd);
        fd = -1;
    }
    if (found) freeaddrinfo(found);
    return fd;
}

static bool send_all(int fd, const struct buffer *bytes)
{
    for (size_t sent = 0; sent < bytes->num_bytes;) {
        ssize_t n = send(fd, bytes->data + sent, bytes->num_bytes - sent, MSG_NOSIGNAL);
        if (n <= 0) return false;
        sent += (size_t)n;
    }
    return true;
}

/* Of the answer only the first line matters. */
static int read_status(int fd)
{
    char line[64] = "";
    size_t n = 0;
    while (n < sizeof line - 1 && !memchr(line, '\n', n)) {
        ssize_t more = recv(fd, line + n, sizeof line - 1 - n, 0);
        if (more <= 0) break;
        n += (size_t)more;
    }
    int http_status = 0;
    return sscanf(line, "HTTP/1.%*d %d", &http_status) == 1 ? http_status : 0;
}

static bool post(const struct span_export *e, const struct buffer *request, int timeout_seconds,
                 char problem[128])
{
    int fd = open_socket(e, timeout_seconds, problem);
    if (fd < 0) return false;
    int http_status = send_all(fd, request) ? read_status(fd) : 0;
    close(fd);
    if (http_status / 100 == 2) return true;
    if (http_status)
        snprintf(problem, 128, "it answers %d", http_status);
    else
        snprintf(problem, 128, "it does not answer");
    return false;
}

/* The body stands first, since the head has its length. */
static bool make_request(const struct span_export *e, char *const *spans, int num_spans, struct buffer *out)
{
    struct buffer body;
    buffer_init(&body, BODY_BYTES_MAX);
    buffer_append_text(&body, "{\"resourceSpans\":[{\"resource\":{\"attributes\":["
                              "{\"key\":\"service.name\",\"value\":{\"stringValue\":\"flashd\"}},"
                              "{\"key\":\"service.version\",\"value\":{\"stringValue\":");
    buffer_append_json_text(&body, flashd_version());
    buffer_printf(&body, "}},{\"key\":\"process.pid\",\"value\":{\"intValue\":\"%d\"}}]},", (int)getpid());
    buffer_append_text(&body, "\"scopeSpans\":[{\"scope\":{\"name\":\"flashd\"},\"spans\":[");
    for (int i = 0; i < num_spans; i++) {
        if (i > 0) buffer_append_char(&body, ',');
        buffer_append_text(&body, spans[i]);
    }
    buffer_append_text(&body, "]}]}]}");
    buffer_printf(out,
                  "POST %s HTTP/1.1\r\nHost: %s:%s\r\nUser-Agent: flashd/%s\r\n"
                  "Content-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                  e->path, e->host, e->port, flashd_version(), body.num_bytes);
    if (!buffer_failed(&body)) buffer_append(out, body.data, body.num_bytes);
    bool complete = !buffer_failed(&body) && !buffer_failed(out);
    buffer_deinit(&body);
    return complete;
}

static void warn(struct span_export *e, const char *problem)
{
    uint64_t now_ns = clock_monotonic_ns();
    if (e->warned_ns && now_ns - e->warned_ns < WARNING_INTERVAL_S * 1000000000ull) return;
    e->warned_ns = now_ns;
    log_warning("spans do not reach --otlp-endpoint at %s:%s: %s; they are dropped and counted", e->host,
                e->port, problem);
}

static void send_batch(struct span_export *e, char **spans, int num_spans, bool last)
{
    struct buffer request;
    char problem[128] = "out of memory";
    buffer_init(&request, BODY_BYTES_MAX + 2048);
    bool sent = make_request(e, spans, num_spans, &request) &&
                post(e, &request, last ? LAST_TIMEOUT_SECONDS : TIMEOUT_SECONDS, problem);
    buffer_deinit(&request);
    atomic_fetch_add(sent ? &e->num_sent : &e->num_dropped, (uint64_t)num_spans);
    if (!sent) warn(e, problem);
    for (int i = 0; i < num_spans; i++) free(spans[i]);
}

/* ---- the thread ---- */

static int take_batch(struct span_export *e, char **spans)
{
    int count = min_of(e->num_waiting, (int)BATCH_MAX);
    for (int i = 0; i < count; i++) spans[i] = e->waiting[(e->first + i) % SPANS_WAITING_MAX];
    e->first = (e->first + count) % SPANS_WAITING_MAX;
    e->num_waiting -= count;
    return count;
}

/* Sooner when many wait. */
static void wait_for_spans(struct span_export *e)
{
    struct timespec until;
    while (e->num_waiting == 0 && !e->stops) pthread_cond_wait(&e->wake, &e->lock);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PAUSE_MS / 1000;
    while (e->num_waiting < BATCH_MAX && !e->stops)
        if (pthread_cond_clockwait(&e->wake, &e->lock, CLOCK_MONOTONIC, &until)) break;
}

static bool is_done(const struct span_export *e)
{
    return e->stops && (e->num_waiting == 0 || clock_monotonic_ns() >= e->give_up_ns);
}

static void *run(void *context)
{
    struct span_export *e = context;
    char *spans[BATCH_MAX];
    pthread_setname_np(pthread_self(), "spans");
    pthread_mutex_lock(&e->lock);
    while (!is_done(e)) {
        wait_for_spans(e);
        int count = take_batch(e, spans);
        bool stops = e->stops;
        pthread_mutex_unlock(&e->lock);
        if (count > 0) send_batch(e, spans, count, stops);
        pthread_mutex_lock(&e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* What is still there is told, since no metric will. */
static void drop_rest(struct span_export *e)
{
    if (e->num_waiting > 0)
        log_warning("%d spans were not sent to --otlp-endpoint before the end; they are dropped",
                    e->num_waiting);
    atomic_fetch_add(&e->num_dropped, (uint64_t)e->num_waiting);
    while (e->num_waiting > 0) free(e->waiting[(e->first + --e->num_waiting) % SPANS_WAITING_MAX]);
}

/* ---- life ---- */

int span_export_create(const char *endpoint, struct span_export **out, struct error *err)
{
    struct span_export *e = calloc(1, sizeof *e);
    if (!e) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    int status = read_endpoint(e, endpoint, err);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, NULL);
    if (!status && pthread_create(&e->thread, NULL, run, e))
        status = error_set(err, STATUS_IO, "cannot start a thread");
    if (status) {
        free(e);
        return status;
    }
    *out = e;
    return STATUS_OK;
}

void span_export_put(struct span_export *e, char *span)
{
    pthread_mutex_lock(&e->lock); /* held for the moment of a few pointers only */
    bool fits = span && e->num_waiting < SPANS_WAITING_MAX;
    if (fits) e->waiting[(e->first + e->num_waiting++) % SPANS_WAITING_MAX] = span;
    bool wakes = e->num_waiting == 1 || e->num_waiting == BATCH_MAX;
    pthread_mutex_unlock(&e->lock);
    if (wakes) pthread_cond_signal(&e->wake);
    if (fits) return;
    atomic_fetch_add(&e->num_dropped, 1);
    free(span);
}

void span_export_destroy(struct span_export *e)
{
    if (!e) return;
    pthread_mutex_lock(&e->lock);
    e->stops = true;
    e->give_up_ns = clock_monotonic_ns() + LAST_TIMEOUT_SECONDS * 1000000000ull;
    pthread_mutex_unlock(&e->lock);
    pthread_cond_signal(&e->wake);
    pthread_join(e->thread, NULL);
    drop_rest(e);
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

uint64_t span_export_num_sent(const struct span_export *e)
{
    return atomic_load(&e->num_sent);
}

uint64_t span_export_num_dropped(const struct span_export *e)
{
    return atomic_load(&e->num_dropped);
}
