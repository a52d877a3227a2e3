/* net.h - sockets as the kernel keeps them: two byte queues and how each end was left. */
#ifndef TESTS_SIM_NET_H
#define TESTS_SIM_NET_H

#include <uv.h>

#include "sim/sim.h"

struct bytes {
    char *data;
    size_t num, capacity;
};

void bytes_append(struct bytes *b, const void *data, size_t n);
void bytes_consume(struct bytes *b, size_t n);

struct hangup {
    void (*on_hangup)(void *context);
    void (*on_end)(void *context);
    void *context;
};

struct socket {
    bool used, accepted;
    int client_idx;
    struct bytes to_server, to_client;
    size_t window;      /* most bytes of to_client */
    bool client_ended;  /* its FIN: nothing more will come */
    bool client_closed; /* the whole socket: what is sent to it brings a reset */
    bool reset;
    bool server_ended, server_closed;
    /* the server's end */
    uv_stream_t *stream;
    bool reading, end_delivered;
    uv_write_t *write;
    const char *write_data;
    int write_status; /* 1: still writing */
    uv_shutdown_t *shutdown;
    struct hangup *hangup;
};

/* Several clients come from one. */
static inline uint32_t client_address(int client_idx)
{
    return 0x0a000000u + (uint32_t)client_idx % 5;
}

/* ---- the client's end ---- */

struct socket *net_connect(int client_idx, size_t window); /* NULL: nobody listens */
void net_send(struct socket *s, const char *data, size_t n);
/* At most max bytes; 0 with *ended or *reset when no more will come. */
size_t net_receive(struct socket *s, char *to, size_t max, bool *ended, bool *reset);
void net_end(struct socket *s);   /* half-closes */
void net_close(struct socket *s); /* what arrives now is answered by a reset */
void net_reset(struct socket *s);

/* client.c: something has come for this client. */
void client_on_readable(int client_idx);

#endif
