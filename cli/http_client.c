#include "cli/http_client.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <llhttp.h>

enum { REQUEST_BYTES_MAX = 64 << 20, READ_BYTES = 16 << 10 };

/* ---- the URL ---- */

static bool copy(char *to, size_t capacity, const char *from, size_t n)
{
    if (n >= capacity) return false;
    memcpy(to, from, n);
    to[n] = '\0';
    return true;
}

/* What clients write behind the base of an API, and paths here begin with. */
static size_t prefix_bytes(const char *path)
{
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/') n--;
    if (n >= 3 && !memcmp(path + n - 3, "/v1", 3)) n -= 3;
    return n;
}

/* The system's resolver takes larger numbers modulo 65536. */
static bool take_port(struct http_client *c, const char *text, size_t n)
{
    enum { DIGITS_MAX = 5, PORT_MAX = 65535 };
    if (n > DIGITS_MAX || strspn(text, "0123456789") < n || !copy(c->port, sizeof c->port, text, n))
        return false;
    return atoi(c->port) >= 1 && atoi(c->port) <= PORT_MAX;
}

static bool split_authority(struct http_client *c, const char *text, size_t n)
{
    const char *end = text + n, *close = text[0] == '[' ? memchr(text, ']', n) : NULL;
    const char *colon = memchr(close ? close : text, ':', (size_t)(end - (close ? close : text)));
    const char *host_end = close ? close : colon ? colon : end;
    const char *host = close ? text + 1 : text;
    if (!copy(c->host, sizeof c->host, host, (size_t)(host_end - host)) || !c->host[0]) return false;
    if (!colon) return copy(c->port, sizeof c->port, "80", 2);
    return take_port(c, colon + 1, (size_t)(end - colon - 1));
}

int http_client_init(struct http_client *c, const char *url, const char *key, struct error *err)
{
    static const char unix_scheme[] = "unix:", scheme[] = "http://";
    *c = (struct http_client){.key = key};
    if (!strncmp(url, unix_scheme, strlen(unix_scheme))) {
        const char *path = url + strlen(unix_scheme);
        if (copy(c->socket_path, sizeof c->socket_path, path, strlen(path)) &&
            copy(c->host, sizeof c->host, "localhost", 9))
            return STATUS_OK;
    } else if (!strncmp(url, scheme, strlen(scheme))) {
        const char *authority = url + strlen(scheme), *path = strchrnul(authority, '/');
        if (split_authority(c, authority, (size_t)(path - authority)) &&
            copy(c->prefix, sizeof c->prefix, path, prefix_bytes(path)))
            return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID,
                     "%s: http://HOST[:PORT] or unix:PATH is expected (there is no TLS here)", url);
}

/* ---- the connection ---- */

static int connect_unix(const struct http_client *c, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, c->socket_path, sizeof address.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) return fd;
    error_set(err, STATUS_IO, "%s: %s", c->socket_path, strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
}

static int connect_tcp(const struct http_client *c, struct error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    int problem = getaddrinfo(c->host, c->port, &hints, &found), fd = -1;
    if (problem) {
        error_set(err, STATUS_IO, "%s: %s", c->host, gai_strerror(problem));
        return -1;
    }
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0) break;
        error_set(err, STATUS_IO, "%s port %s: %s", c->host, c->port, strerror(errno));
        if (fd >= 0) close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

static int send_all(int fd, const char *bytes, size_t n, struct error *err)
{
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0) return error_set(err, STATUS_IO, "sending failed: %s", strerror(errno));
        bytes += sent;
        n -= (size_t)sent;
    }
    return STATUS_OK;
}

void http_client_compose(const struct http_client *c, const char *path, const char *body, struct buffer *to)
{
    bool bracketed = strchr(c->host, ':');
    buffer_printf(to, "%s %s%s HTTP/1.1\r\nHost: %s%s%s%s%s\r\nConnection: close\r\n", body ? "POST" : "GET",
                  c->prefix, path, bracketed ? "[" : "", c->host, bracketed ? "]" : "", c->port[0] ? ":" : "",
                  c->port);
    if (c->key) buffer_printf(to, "Authorization: Bearer %s\r\n", c->key);
    if (c->header[0]) buffer_printf(to, "%s\r\n", c->header);
    if (body) buffer_printf(to, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    buffer_append_text(to, "\r\n");
    if (body) buffer_append_text(to, body);
}

static int send_request(const struct http_client *c, int fd, const char *path, const char *body,
                        struct error *err)
{
    struct buffer text;
    buffer_init(&text, REQUEST_BYTES_MAX);
    http_client_compose(c, path, body, &text);
    int status = buffer_failed(&text) ? error_set(err, STATUS_NO_MEMORY, "out of memory")
                                      : send_all(fd, text.data, text.num_bytes, err);
    buffer_deinit(&text);
    return status;
}

int http_client_find_address(const struct http_client *c, struct sockaddr_storage *address, struct error *err)
{
    socklen_t num_bytes = sizeof *address;
    int fd = connect_tcp(c, err);
    if (fd < 0) return STATUS_IO;
    int problem = getpeername(fd, (struct sockaddr *)address, &num_bytes);
    int status =
        problem ? error_set(err, STATUS_IO, "%s port %s: %s", c->host, c->port, strerror(errno)) : STATUS_OK;
    close(fd);
    return status;
}

/* ---- the answer ---- */

struct answer {
    llhttp_t parser;
    http_body *on_body;
    void *context;
    bool complete;
};

static int hand_over(llhttp_t *parser, const char *bytes, size_t n)
{
    struct answer *a = parser->data;
    return a->on_body(a->context, bytes, n) ? HPE_OK : HPE_USER;
}

static int end_answer(llhttp_t *parser)
{
    ((struct answer *)parser->data)->complete = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {.on_body = hand_over, .on_message_complete = end_answer};

static int set_silence(int fd, int seconds, struct error *err)
{
    struct timeval limit = {.tv_sec = seconds};
    if (seconds == 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0) return STATUS_OK;
    return error_set(err, STATUS_IO, "no limit of %d s: %s", seconds, strerror(errno));
}

static int receive(int fd, struct answer *a, int *http_status, struct error *err)
{
    char bytes[READ_BYTES];
    while (!a->complete) {
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n < 0 && errno == EAGAIN) return error_set(err, STATUS_IO, "the server is silent");
        if (n < 0 && errno != EINTR) return error_set(err, STATUS_IO, "reading failed: %s", strerror(errno));
        llhttp_errno_t problem = n > 0    ? llhttp_execute(&a->parser, bytes, (size_t)n)
                                 : n == 0 ? llhttp_finish(&a->parser)
                                          : HPE_USER;
        if (problem == HPE_USER) {
            *http_status = 0;
            return STATUS_OK;
        }
        if ((problem != HPE_OK && problem != HPE_PAUSED) || (n == 0 && !a->complete))
            return error_set(err, STATUS_IO, "the server's answer ends early, or is not HTTP");
    }
    *http_status = a->parser.status_code;
    return STATUS_OK;
}

int http_client_ask(const struct http_client *c, const char *path, const char *body, http_body *on_body,
                    void *context, int *http_status, struct error *err)
{
    struct answer answer = {.on_body = on_body, .context = context};
    int fd = c->socket_path[0] ? connect_unix(c, err) : connect_tcp(c, err);
    if (fd < 0) return STATUS_IO;
    llhttp_init(&answer.parser, HTTP_RESPONSE, &settings);
    answer.parser.data = &answer;
    int status = set_silence(fd, c->silence_s, err);
    if (!status) status = send_request(c, fd, path, body, err);
    if (!status) status = receive(fd, &answer, http_status, err);
    close(fd);
    return status;
}
