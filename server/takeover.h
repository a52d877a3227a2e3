/* takeover.h - the streams of the process whose place this one takes go on here: handover.h, seen from the new process.
 * Thread: the loop's. */
#ifndef SERVER_TAKEOVER_H
#define SERVER_TAKEOVER_H

#include "server/handover.h"
#include "server/listener.h"

struct takeover {
    struct listener *listener;
    uv_poll_t poll;
    int fd; /* -1: over, or not begun */
    bool owes_answer;
};

/* This process serves: the old one lets go of the listening socket, and offers its streams down fd, which is taken
 * over. */
void takeover_begin(struct takeover *t, struct listener *listener, int fd,
                    const uint8_t identity[IDENTITY_BYTES]);
void takeover_close(struct takeover *t);

#endif
