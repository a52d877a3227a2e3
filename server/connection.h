/* connection.h - one client connection: read, check, hand over, write, again.
 *
 *   READING -> BODY -> CHECKING -> RESPONDING -> FLUSHING -> READING ...
 *                                                        `-> LINGERING -> CLOSED
 *
 * One request at a time: bytes behind it wait in a bounded buffer until its response is written, and then the
 * client is not read any more. A state's timer is armed exactly while the state has a deadline. A connection
 * that is closed (by either side, at any moment) stays in memory until libuv has let go of its handles; only
 * then is its endpoint told (on_closed), so never from inside an exchange function.
 *
 * A new connection beyond --max-connections takes the place of the one that has waited longest without being
 * at work, or of a slow one of a client that has more of them (connection_room.c); when all are at work it is taken in reserve,
 * where only routes that are always answered are served: probes get through whatever the others do.
 *
 * After an error of the transport nothing more is parsed: the answer is sent, what still arrives is thrown
 * away for a moment so that the answer is not lost to a reset (lingering), then the socket is closed.
 *
 * Thread: the loop's. */
#ifndef SERVER_CONNECTION_H
#define SERVER_CONNECTION_H

#include <uv.h>

#include "base/stream_socket.h"
#include "server/gate.h"
#include "server/hangup.h"
#include "server/http_reader.h"
#include "server/http_request.h"
#include "server/listener.h"
#include "server/output.h"

enum connection_state {
    CONNECTION_READING,    /* no request yet, or part of a head */
    CONNECTION_BODY,       /* head accepted, body on its way */
    CONNECTION_CHECKING,   /* a worker checks a large body */
    CONNECTION_RESPONDING, /* the endpoint has the exchange */
    CONNECTION_FLUSHING,   /* answered; the client has not taken all of it */
    CONNECTION_LINGERING,  /* our side is shut down; input is thrown away */
    CONNECTION_CLOSED,
};

struct connection {
    union stream_socket socket;
    uv_timer_t timer;
    uv_shutdown_t shutdown;
    struct listener *listener;
    struct connection *next, *previous; /* in one of the listener's lists */
    struct ip_address address;          /* the peer's */
    struct peer *peer;                  /* NULL: not counted, as what a trusted proxy has of many is not */
    enum connection_state state;
    int16_t num_references; /* open handles, running work; freed at 0 */
    bool consuming : 1;     /* connection_consume is on the stack */
    bool reading_stopped : 1;
    bool turn_pending : 1; /* the timer is to go on with input, not a deadline */
    bool half_closed : 1;  /* the client has sent its end-of-file */
    bool head_begun : 1;
    bool wants_head : 1; /* the head that is being read begins with HEAD */
    bool closes : 1;     /* the current response is the last */
    bool probed : 1;     /* the first bytes of the response are out (connection_probe) */
    bool in_reserve : 1; /* all places were taken when it came */
    struct output output;
    struct hangup *hangup;        /* armed while a request is pending and nothing is read */
    struct http_request *request; /* BODY, CHECKING, RESPONDING */
    /* input */
    struct gate_scan scan;
    struct http_reader reader;
    struct buffer input; /* read, not consumed yet */
    struct buffer body;
    size_t num_buffered_bytes; /* in the listener's sum */
    int api_key_idx;           /* in whose sum, too; -1: nobody's, as between requests */
    uint32_t discarded_bytes;  /* while it lingers */
    uint64_t first_byte_ns;
    int64_t num_requests;
    /* deadlines, in the loop's milliseconds */
    uint64_t since_ms, progress_ms;
    uint64_t unsent_since_ms; /* when what is unsent began to be */
    uint64_t taken_seen;
};

/* Takes over the connection that waits at l. */
void connection_accept(struct listener *l);
/* One over a descriptor that is connected, which it takes over, and does not read yet. NULL: no memory, and fd is the
 * caller's. */
struct connection *connection_create_over(struct listener *l, int fd);
/* Closes at once; safe to call twice. */
void connection_close(struct connection *c);
/* A drain began: closes when idle between requests. */
void connection_drain(struct connection *c);

/* ---- between the parts of a connection ---- */

enum {
    CONNECTION_HANDLES = 2,  /* its references when no work runs */
    CONNECTION_RESERVE = 32, /* beyond --max-connections, for probes, and for others to be told so */
    CONNECTION_WAITING_BYTES = 16 * 1024, /* of pipelined requests; with more the client is not read */
    CONNECTION_PROBE_BYTES = 9,           /* "HTTP/1.1 ": what every response begins with */
};

/* connection.c */
void connection_set_state(struct connection *c, enum connection_state state);
void connection_arm(struct connection *c); /* the timer, for the state's deadline as it is now */
void connection_on_timer(uv_timer_t *timer);
void connection_begin_next(struct connection *c); /* the response is written: the next request, or the end */
void connection_release_body(struct connection *c);
void connection_note_buffers(struct connection *c); /* after buffers grew or shrank: the listener's sum */
/* What is held for it is its request's key's until the request is gone. */
void connection_note_key(struct connection *c);
void connection_touch(struct connection *c); /* it waits from now on */
void connection_watch_hangup(struct connection *c);
void connection_stop_hangup(struct connection *c);
/* Sends something to a client that has said all it will, so that one that is gone answers with a reset. */
void connection_probe(struct connection *c);
void connection_drop_reference(struct connection *c);
void connection_send_text(struct connection *c, const char *text);

/* connection_request.c */
/* Answers, and closes; nothing more of this connection is parsed. */
void connection_refuse(struct connection *c, const struct refusal *why);
/* Likewise of a head that was read at least in part: in the shape of what it asks for. */
void connection_refuse_head(struct connection *c, const struct gate_head *head, const struct refusal *why);
void connection_begin_request(struct connection *c, const struct gate_head *head);
void connection_end_body(struct connection *c); /* the whole body is here */

/* connection_room.c */
/* False when there was none, and c is on its way out. */
bool connection_take_place(struct connection *c);
/* As connection_has_room, be it that slow clients are cut off for it. */
bool connection_make_room(struct connection *c, size_t n);

/* connection_input.c */
void connection_start_reading(struct connection *c);
void connection_resume_input(struct connection *c); /* goes on with what was read before */
void connection_resume_later(struct connection *c); /* likewise, at the loop's next turn */

/* ---- for exchange.c ---- */

static inline bool connection_is_open(const struct connection *c)
{
    return c->state != CONNECTION_CLOSED;
}

/* Whether the response about to begin is the last one of this connection. */
bool connection_is_last_response(const struct connection *c);
/* Whether n more bytes may be held for clients (--max-buffered-bytes): half of them for one address, three
 * quarters for one of several keys, two bodies in any case. */
bool connection_has_room(const struct connection *c, size_t n);
/* More is waiting for the client than should: a stream pauses. */
bool connection_is_ahead(const struct connection *c);
/* A route that is not always answered: every place is taken. */
bool connection_is_in_reserve(struct connection *c);
/* Sends response bytes; closes when the socket fails. */
void connection_send(struct connection *c, const uv_buf_t *parts, int num_parts);
/* Likewise of a head and a body, whose memory it may take over. */
void connection_send_whole(struct connection *c, uv_buf_t head, struct buffer *body);
/* The response is complete (everything was given to connection_send): the exchange ends here and is freed. */
void connection_end_request(struct connection *c);
/* The client does not read: closes. */
void connection_cut_off(struct connection *c, const char *reason);

#endif
