/* listener.h - the listening socket, and what all connections share.
 *
 *   open -> retired (each answer closes its connection) -> draining (idle ones are closed, too) -> closed
 *
 * Thread: the loop's. Memory: the owner's; listener_deinit after the loop has run out of handles. */
#ifndef SERVER_LISTENER_H
#define SERVER_LISTENER_H

#include <uv.h>

#include "base/stream_socket.h"
#include "server/auth.h"
#include "server/browser_gate.h"
#include "server/gate.h"
#include "server/http_log.h"
#include "server/peers.h"
#include "server/proxies.h"
#include "server/router.h"

enum { READ_BUFFER_BYTES = 64 * 1024 };

/* Connections by the time of their last change, oldest first. */
struct connection_list {
    struct connection *first, *last;
};

struct listener {
    uv_loop_t *loop;
    struct server *server;
    const struct config *config;
    const struct route *routes;
    struct auth auth;
    struct browser_gate browsers;
    struct gate_limits limits;
    struct http_log log;
    union stream_socket socket;
    bool listening; /* there is a socket */
    bool owns_path; /* of a Unix socket: it is removed in the end */
    bool retired;
    union stream_socket unwanted; /* a connection that there is no memory for, being closed */
    bool turning_away, next_waits;
    char address[128]; /* where, for the log: "http://127.0.0.1:8000", "unix:/run/flashd.sock" */
    int port;          /* the one in use; 0 for a Unix socket */
    struct connection_list
        waiting; /* with no request, or with an answer that is out: may be closed for others */
    struct connection_list others; /* at work, or closed and not freed yet */
    struct peers peers;
    struct proxies proxies;
    int num_connections;             /* in both lists */
    int num_open, max_connections;   /* num_open: without those that are closed */
    int num_busy;                    /* connections with a request that is not answered completely */
    void (*on_quiet)(void *context); /* num_busy came down to 0 */
    void *quiet_context;
    uint64_t warned_ms;                  /* of accepting that fails; 0: never */
    uint64_t num_requests, request_seed; /* for ids */
    uint64_t num_buffered_bytes;         /* of input, bodies and answers, held by all connections */
    uint64_t *key_buffered_bytes;        /* [auth.num_keys] of it, held for requests with each key */
    char *read_buffer;           /* libuv hands over each read before it begins the next: one is enough */
    struct gate_header *headers; /* scratch, max_headers of them */
};

/* How many connections there may be with so many descriptors for the process, of few of which half are for the rest, and so
 * many that its user may watch in the kernel (epoll): of one more libuv would end the process. */
uint64_t listener_num_places(uint64_t num_descriptors, uint64_t num_watches);

/* Listens; on a socket that the process was started with (server->inherited) only once listener_accept says so.
 * routes ends with a NULL pattern. server->loop and server->config are set. */
int listener_open(struct listener *l, struct server *server, const struct route *routes,
                  struct error *err) must_check;
/* The configuration's keys are others now. STATUS_NO_MEMORY: those of before hold. */
int listener_reload_keys(struct listener *l, struct error *err) must_check;
/* Takes the connection that waits and closes it: one that nobody takes would stop libuv from reporting more.
 */
void listener_turn_away(struct listener *l);
/* Whoever connects is taken from now on. */
int listener_accept(struct listener *l, struct error *err) must_check;
/* Another process listens with a copy of the socket: this one stops, and leaves the path of a Unix socket. */
void listener_hand_over(struct listener *l);
/* Before the process ends on the spot. */
void listener_remove_path(const struct listener *l);
/* Stops accepting. */
void listener_stop(struct listener *l);
/* From now on every answer closes its connection. */
void listener_retire(struct listener *l);
/* So it does, and idle ones are closed. */
void listener_drain(struct listener *l);
/* Stops accepting and closes every connection as it is. */
void listener_close(struct listener *l);
void listener_deinit(struct listener *l);

#endif
