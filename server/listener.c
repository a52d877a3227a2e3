#include "server/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "server/connection.h"
#include "server/http_metrics.h"
#include "server/inherited.h"
#include "server/loop_watch.h"
#include "server/server.h"

enum {
    BACKLOG = 1024,
    WARNING_INTERVAL_MS = 1000,
    OTHER_DESCRIPTORS = 64, /* model files, log, loop, hang-up watches */
    WATCHES_OF_A_PLACE = 4, /* the connection and its hang-up, also in a process that takes over */
};

/* Descriptors out (EMFILE): libuv gives up a reserve one, accepts and closes what waits, and takes it back,
 * so that the loop neither spins nor leaves clients hanging. */
static void on_connection(uv_stream_t *stream, int uv_status)
{
    loop_watch_enter("a new connection");
    struct listener *l = stream->data;
    if (uv_status == 0) {
        connection_accept(l);
        return;
    }
    uint64_t now_ms = uv_now(l->loop);
    if (l->warned_ms && now_ms - l->warned_ms < WARNING_INTERVAL_MS) return; /* it may happen without end */
    l->warned_ms = now_ms;
    log_warning("cannot accept a connection: %s", uv_strerror(uv_status));
}

/* The next one has waited for the handle. */
static void on_turned_away(uv_handle_t *handle)
{
    struct listener *l = handle->data;
    bool next_waits = l->next_waits && l->listening;
    l->turning_away = l->next_waits = false;
    if (next_waits) connection_accept(l);
}

void listener_turn_away(struct listener *l)
{
    l->next_waits = l->turning_away;
    if (l->turning_away) return;
    bool is_tcp = l->socket.handle.type == UV_TCP;
    int uv_status =
        is_tcp ? uv_tcp_init(l->loop, &l->unwanted.tcp) : uv_pipe_init(l->loop, &l->unwanted.pipe, 0);
    assert_always(uv_status == 0); /* it only fills the handle in */
    log_warning("no memory for a connection: it is closed");
    l->turning_away = true;
    l->unwanted.handle.data = l;
    (void)!uv_accept(&l->socket.stream, &l->unwanted.stream);
    uv_close(&l->unwanted.handle, on_turned_away);
}

/* ---- TCP ---- */

static int parse_address(const struct config *config, struct sockaddr_storage *out, struct error *err)
{
    char host[64];
    size_t n = strlen(config->host);
    bool bracketed = n > 2 && config->host[0] == '[' && config->host[n - 1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)(bracketed ? n - 2 : n), config->host + bracketed);
    if (!strcmp(host, "localhost")) snprintf(host, sizeof host, "127.0.0.1");
    if (uv_ip4_addr(host, (int)config->port, (struct sockaddr_in *)out) == 0) return STATUS_OK;
    if (uv_ip6_addr(host, (int)config->port, (struct sockaddr_in6 *)out) == 0) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "--host %s: an IPv4 or IPv6 address is expected", config->host);
}

static void describe_tcp(struct listener *l)
{
    struct sockaddr_storage address;
    int n = sizeof address;
    char host[48] = "";
    if (uv_tcp_getsockname(&l->socket.tcp, (struct sockaddr *)&address, &n)) return;
    if (address.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&address;
        uv_ip6_name(in6, host, sizeof host);
        l->port = ntohs(in6->sin6_port);
        snprintf(l->address, sizeof l->address, "http://[%s]:%d", host, l->port);
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&address;
        uv_ip4_name(in, host, sizeof host);
        l->port = ntohs(in->sin_port);
        snprintf(l->address, sizeof l->address, "http://%s:%d", host, l->port);
    }
}

static int open_tcp(struct listener *l, struct error *err)
{
    struct sockaddr_storage address;
    int status = parse_address(l->config, &address, err);
    if (!status) status = browser_gate_init(&l->browsers, l->config, (struct sockaddr *)&address, err);
    if (status) return status;
    int uv_status = uv_tcp_init(l->loop, &l->socket.tcp);
    if (uv_status) return error_set(err, STATUS_IO, "no socket: %s", uv_strerror(uv_status));
    l->listening = true;
    uv_status = uv_tcp_bind(&l->socket.tcp, (const struct sockaddr *)&address, 0); /* sets SO_REUSEADDR */
    if (!uv_status) uv_status = uv_listen(&l->socket.stream, BACKLOG, on_connection);
    if (uv_status)
        return error_set(err, STATUS_IO, "cannot listen on --host %s --port %lld: %s", l->config->host,
                         (long long)l->config->port, uv_strerror(uv_status));
    describe_tcp(l);
    return STATUS_OK;
}

/* ---- Unix socket ---- */

/* Somebody listens at the address. */
static bool is_alive(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return true;
    bool alive = connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 || errno == EAGAIN;
    close(fd);
    return alive;
}

/* libuv says "permission denied" of a folder that is not there. */
static int check_folder(const char *path, struct error *err)
{
    char folder[sizeof((struct sockaddr_un *)NULL)->sun_path];
    struct stat st;
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash) return STATUS_OK;
    slash[slash == folder] = '\0';
    if (stat(folder, &st))
        return error_set(err, STATUS_IO, "--uds %s: %s: %s", path, folder, strerror(errno));
    return STATUS_OK;
}

/* A socket that a killed server left behind is removed; anything else at that path is not touched. */
static int remove_stale_socket(const char *path, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat st;
    if (strlen(path) >= sizeof address.sun_path)
        return error_set(err, STATUS_INVALID, "--uds %s: a path of at most %zu bytes is expected", path,
                         sizeof address.sun_path - 1);
    if (lstat(path, &st)) return check_folder(path, err);
    if (!S_ISSOCK(st.st_mode))
        return error_set(err, STATUS_INVALID, "--uds %s exists and is not a socket", path);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (is_alive(&address)) return error_set(err, STATUS_IO, "--uds %s: another server listens there", path);
    if (unlink(path)) return error_set(err, STATUS_IO, "--uds %s: %s", path, strerror(errno));
    log_info("removed the socket %s that an earlier server left behind", path);
    return STATUS_OK;
}

/* Not uv_pipe_bind: libuv would remove the path when the handle is closed, also when another process listens
 * there by now. */
static int bind_path(uv_pipe_t *pipe, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int uv_status = fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) ? -errno : 0;
    if (!uv_status) uv_status = uv_pipe_open(pipe, fd);
    if (uv_status && fd >= 0) close(fd);
    return uv_status;
}

static int open_unix(struct listener *l, struct error *err)
{
    const char *path = l->config->uds;
    int status = browser_gate_init(&l->browsers, l->config, NULL, err);
    if (!status) status = remove_stale_socket(path, err);
    if (status) return status;
    int uv_status = uv_pipe_init(l->loop, &l->socket.pipe, 0);
    if (uv_status) return error_set(err, STATUS_IO, "no socket: %s", uv_strerror(uv_status));
    l->listening = true;
    uv_status = bind_path(&l->socket.pipe, path);
    l->owns_path = uv_status == 0;
    if (!uv_status) uv_status = uv_listen(&l->socket.stream, BACKLOG, on_connection);
    if (uv_status)
        return error_set(err, STATUS_IO, "cannot listen on --uds %s: %s", path, uv_strerror(uv_status));
    snprintf(l->address, sizeof l->address, "unix:%s", path);
    return STATUS_OK;
}

/* ---- a socket that the process was started with ---- */

static int open_inherited_unix(struct listener *l, const struct inherited *in,
                               const struct sockaddr_un *address, struct error *err)
{
    int status = browser_gate_init(&l->browsers, l->config, NULL, err);
    if (status) return status;
    int uv_status = uv_pipe_init(l->loop, &l->socket.pipe, 0);
    if (!uv_status) uv_status = uv_pipe_open(&l->socket.pipe, in->socket_fd);
    if (uv_status) return error_set(err, STATUS_IO, "no socket: %s", uv_strerror(uv_status));
    l->listening = true;
    l->owns_path = !in->belongs_to_systemd && l->config->uds && !strcmp(l->config->uds, address->sun_path);
    snprintf(l->address, sizeof l->address, "unix:%s", address->sun_path);
    return STATUS_OK;
}

static int open_inherited_tcp(struct listener *l, const struct inherited *in, const struct sockaddr *address,
                              struct error *err)
{
    int status = browser_gate_init(&l->browsers, l->config, address, err);
    if (status) return status;
    int uv_status = uv_tcp_init(l->loop, &l->socket.tcp);
    if (!uv_status) uv_status = uv_tcp_open(&l->socket.tcp, in->socket_fd);
    if (uv_status) return error_set(err, STATUS_IO, "no socket: %s", uv_strerror(uv_status));
    l->listening = true;
    describe_tcp(l);
    return STATUS_OK;
}

union address {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    struct sockaddr_un path;
    struct sockaddr_storage storage;
};

/* Whether a new socket would listen there, too. */
static bool is_configured(const struct config *config, const union address *address)
{
    union address own = {0};
    bool any_port = config->port == 0;
    if (config->uds || address->any.sa_family == AF_UNIX)
        return config->uds && address->any.sa_family == AF_UNIX &&
               !strcmp(config->uds, address->path.sun_path);
    if (parse_address(config, &own.storage, NULL) || own.any.sa_family != address->any.sa_family)
        return false;
    if (own.any.sa_family == AF_INET6)
        return !memcmp(&own.in6.sin6_addr, &address->in6.sin6_addr, sizeof own.in6.sin6_addr) &&
               (any_port || own.in6.sin6_port == address->in6.sin6_port);
    return own.in.sin_addr.s_addr == address->in.sin_addr.s_addr &&
           (any_port || own.in.sin_port == address->in.sin_port);
}

/* An upgrade may come with other options. Where systemd listens, its own file says where. */
static void warn_of_address(const struct listener *l, const struct inherited *in,
                            const union address *address)
{
    const struct config *config = l->config;
    if (in->belongs_to_systemd || is_configured(config, address)) return;
    if (config->uds)
        log_warning("--uds %s takes effect when the server is stopped and started: an upgrade keeps the "
                    "socket, %s",
                    config->uds, l->address);
    else
        log_warning("--host %s --port %lld take effect when the server is stopped and started: an upgrade "
                    "keeps the socket, %s",
                    config->host, (long long)config->port, l->address);
}

static int open_inherited(struct listener *l, const struct inherited *in, struct error *err)
{
    union address address = {0};
    socklen_t n = sizeof address;
    if (getsockname(in->socket_fd, &address.any, &n))
        return error_set(err, STATUS_IO, "no socket: %s", strerror(errno));
    int status = address.any.sa_family == AF_UNIX ? open_inherited_unix(l, in, &address.path, err)
                                                  : open_inherited_tcp(l, in, &address.any, err);
    if (!status) warn_of_address(l, in, &address);
    return status;
}

/* ---- limits and life ---- */

uint64_t listener_num_places(uint64_t num_descriptors, uint64_t num_watches)
{
    const uint64_t others = OTHER_DESCRIPTORS;
    uint64_t by_descriptors = num_descriptors - min_of(others, num_descriptors / 2);
    uint64_t by_watches = (num_watches - min_of(others, num_watches / 2)) / WATCHES_OF_A_PLACE;
    return max_of(min_of(by_descriptors, by_watches), (uint64_t)1);
}

static uint64_t find_num_watches(void)
{
    unsigned long long count = 0;
    FILE *file = fopen("/proc/sys/fs/epoll/max_user_watches", "re");
    bool found = file && fscanf(file, "%llu", &count) == 1;
    if (file) fclose(file);
    return found ? count : UINT64_MAX;
}

/* As many connections as asked for, or as the system allows. */
static int choose_max_connections(const struct config *config)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) limit.rlim_cur = UINT64_MAX;
    uint64_t num_watches = find_num_watches(), room = listener_num_places(limit.rlim_cur, num_watches);
    if ((uint64_t)config->max_connections <= room) return (int)config->max_connections;
    bool lacks_descriptors = room == listener_num_places(limit.rlim_cur, UINT64_MAX);
    log_warning(
        "--max-connections %lld is more than %s allows; %llu are served", (long long)config->max_connections,
        lacks_descriptors ? "the descriptor limit" : "fs.epoll.max_user_watches", (unsigned long long)room);
    return (int)room;
}

/* Those of before keep their places, and what is held for them. */
int listener_reload_keys(struct listener *l, struct error *err)
{
    struct auth auth;
    int status = auth_init(&auth, &l->config->api_key, err);
    if (status) return status;
    uint64_t *held = realloc(l->key_buffered_bytes, ((size_t)auth.num_keys + 1) * sizeof *held);
    if (!held) {
        auth_deinit(&auth);
        return error_set(err, STATUS_NO_MEMORY, "out of memory");
    }
    for (int i = l->auth.num_keys; i < auth.num_keys; i++) held[i] = 0;
    l->key_buffered_bytes = held;
    auth_deinit(&l->auth);
    l->auth = auth;
    return STATUS_OK;
}

static int prepare(struct listener *l, struct error *err)
{
    const struct config *config = l->config;
    l->limits = (struct gate_limits){.max_header_bytes = config->max_header_bytes,
                                     .max_url_bytes = config->max_url_bytes,
                                     .max_headers = (int)config->max_headers,
                                     .max_body_bytes = config->max_body_bytes};
    l->max_connections = choose_max_connections(config);
    l->read_buffer = malloc(READ_BUFFER_BYTES);
    l->headers = calloc((size_t)config->max_headers, sizeof *l->headers);
    if (!l->read_buffer || !l->headers) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    uint64_t seeds[2];
    if (getrandom(seeds, sizeof seeds, 0) != sizeof seeds)
        return error_set(err, STATUS_IO, "no random numbers: %s", strerror(errno));
    l->request_seed = seeds[0];
    int status = proxies_init(&l->proxies, &config->trusted_proxies, err);
    if (!status) status = peers_init(&l->peers, l->max_connections, seeds[1], err);
    return status ? status : listener_reload_keys(l, err);
}

/* libuv's table of watchers is indexed by descriptor, grows with it, and libuv ends the process when there is
 * no memory for that: it grows now, by watching for a moment the highest descriptor that can come. */
static void on_event(uv_poll_t *poll, int uv_status, int events)
{
    (void)poll;
    (void)uv_status;
    (void)events;
}

static void on_poll_closed(uv_handle_t *handle)
{
    free(handle);
}

static void grow_watchers(struct listener *l)
{
    struct rlimit limit;
    uv_os_fd_t own;
    uv_poll_t *poll = malloc(sizeof *poll);
    /* a hang-up watch has its own */
    uint64_t highest = 2 * ((uint64_t)l->max_connections + CONNECTION_RESERVE) + OTHER_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) highest = min_of(highest, (uint64_t)limit.rlim_cur - 1);
    int fd = uv_fileno(&l->socket.handle, &own) ? -1 : fcntl(own, F_DUPFD_CLOEXEC, (int)highest);
    if (!poll || fd < 0 || uv_poll_init(l->loop, poll, fd)) {
        free(poll);
    } else {
        uv_poll_start(poll, UV_DISCONNECT, on_event);
        uv_close((uv_handle_t *)poll, on_poll_closed);
    }
    if (fd >= 0) close(fd);
}

int listener_open(struct listener *l, struct server *server, const struct route *routes, struct error *err)
{
    *l =
        (struct listener){.loop = server->loop, .server = server, .config = server->config, .routes = routes};
    int status = prepare(l, err);
    const struct inherited *in = server->inherited;
    if (!status && in && in->socket_fd >= 0)
        status = open_inherited(l, in, err);
    else if (!status)
        status = l->config->uds ? open_unix(l, err) : open_tcp(l, err);
    if (l->listening) l->socket.handle.data = l;
    if (!status) {
        grow_watchers(l);
        http_log_init(&l->log, l->loop);
    }
    if (status) listener_stop(l);
    return status;
}

int listener_accept(struct listener *l, struct error *err)
{
    const struct inherited *in = l->server->inherited;
    if (!l->listening || !in || in->socket_fd < 0) return STATUS_OK;
    int uv_status = uv_listen(&l->socket.stream, BACKLOG, on_connection);
    if (!uv_status) return STATUS_OK;
    return error_set(err, STATUS_IO, "cannot listen on %s: %s", l->address, uv_strerror(uv_status));
}

void listener_hand_over(struct listener *l)
{
    l->owns_path = false;
    listener_stop(l);
}

void listener_remove_path(const struct listener *l)
{
    if (l->owns_path && l->config->uds) unlink(l->config->uds);
}

void listener_stop(struct listener *l)
{
    if (!l->listening) return;
    l->listening = false;
    listener_remove_path(l);
    uv_close(&l->socket.handle, NULL);
}

void listener_retire(struct listener *l)
{
    l->retired = true;
}

void listener_drain(struct listener *l)
{
    listener_retire(l);
    for (struct connection *c = l->waiting.first, *next; c; c = next) {
        next = c->next; /* one that is closed goes to the others */
        connection_drain(c);
    }
}

void listener_close(struct listener *l)
{
    listener_stop(l);
    http_log_close(&l->log);
    while (l->waiting.first) connection_close(l->waiting.first);
    for (struct connection *c = l->others.first, *next; c; c = next) {
        next = c->next; /* one that is closed goes to the end */
        connection_close(c);
    }
}

void listener_deinit(struct listener *l)
{
    assert_always(l->num_connections == 0);
    auth_deinit(&l->auth);
    free(l->key_buffered_bytes);
    peers_deinit(&l->peers);
    proxies_deinit(&l->proxies);
    free(l->headers);
    free(l->read_buffer);
}
