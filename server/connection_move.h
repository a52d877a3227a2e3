/* connection_move.h - a connection in the middle of a stream goes to another process, as a copy of its descriptor:
 * frozen here, adopted there, then either thawed here or let go of here and thawed there (exchange.h). At no time do two
 * processes read it or write to it. Thread: the loop's. */
#ifndef SERVER_CONNECTION_MOVE_H
#define SERVER_CONNECTION_MOVE_H

#include "server/exchange.h"
#include "server/listener.h"

/* What is known of a connection and its request beside the descriptor. */
struct moved_connection {
    char request_id[64];
    uint64_t arrival_ns;
    int64_t num_requests;
    int version_minor;
    bool closes, half_closed;
};

/* Of a frozen one: its descriptor, which stays its own. input: bytes that were read behind the request. */
int connection_move_out(const struct exchange *x, struct moved_connection *out, const char **input,
                        size_t *input_bytes) must_check;

/* A connection over fd, frozen, with a stream of this route and key whose head is out. Takes fd over, also when it fails.
 * NULL: every place is taken, or no memory. */
struct exchange *connection_adopt(struct listener *l, int fd, const struct moved_connection *in,
                                  const char *input, size_t input_bytes, const char *path,
                                  int api_key_idx) must_check;

#endif
