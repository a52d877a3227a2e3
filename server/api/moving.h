/* moving.h - running streams go on in the process that takes this one's place (handover.h, takeover.h).
 *
 *   old   moving_offer: the stream rests, all that is known of it goes into a memory file
 *   new   moving_prepare: the request is read again from its body, its tokens are decoded again, its events are made
 *         again; is their digest that of what the client has?
 *   old   moving_commit: it lets go of the stream; or moving_take_back: it goes on as if nothing had been
 *   new   moving_finish: the sequence goes to the engine as one does that has outlived an engine; or moving_drop
 *
 * One stream at a time. Those stay of whose choices one has ended, that have a client that is behind, or no record
 * (stream_record.h), and those that the new process would not make the same bytes of. Thread: the loop's. */
#ifndef SERVER_API_MOVING_H
#define SERVER_API_MOVING_H

#include "server/listener.h"
#include "server/server.h"

/* ---- the old process ---- */

struct moving_offer {
    int connection_fd; /* still the connection's */
    int state_fd;      /* the receiver of the offer closes it */
};

/* Freezes the oldest stream that can move now and was not refused. False: there is none. */
bool moving_offer(struct server *server, const struct auth *auth, struct moving_offer *out);
/* How many requests are here now, on their way there or not. */
int moving_num_staying(const struct server *server);
/* False: it was taken back meanwhile, because it was ended here. */
bool moving_is_offered(const struct server *server);
void moving_commit(struct server *server);
/* refused: it is not offered again. Nothing happens where none is offered. */
void moving_take_back(struct server *server, bool refused);

/* ---- the new process ---- */

/* Where the key with this digest stands in this process's list, -1 where there are no keys; false: it is none of this process's. */
bool moving_find_key(const struct listener *l, bool has_key, const uint8_t digest[AUTH_DIGEST_BYTES],
                     int *idx) must_check;

typedef void moving_on_prepared(void *context, bool is_ready);

/* Takes the descriptors over. on_prepared is called once, perhaps at once, unless moving_drop comes before it. */
void moving_prepare(struct listener *listener, const struct moving_offer *offer,
                    moving_on_prepared *on_prepared, void *context);
/* Of the stream that is prepared. False: its connection is gone. */
bool moving_finish(struct server *server);
/* Of the one that is prepared or being so; nothing happens where there is none. */
void moving_drop(struct server *server);

#endif
