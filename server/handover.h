/* handover.h - this process's streams go on in the one that takes its place (upgrade.h), so that it can end, and its stored
 * responses are there, too.
 *
 *   old                        new                (takeover.h)
 *    | <-- SERVES, identity --- |                 it listens; the old one does not any more
 *    | --- OFFER + 2 fds -----> |                 a stream that rests here, and its connection; one at a time
 *    | <-- READY --------------- |                it would have sent the same bytes up to here
 *    | --- YOURS --------------> |                the old one has let go of it; only now does the new one touch the socket
 *    | <-- NO ------------------ |                it stays, and so it does after WITHDRAWN instead of YOURS
 *    | --- RESPONSE + fd ------> |                 a stored response (api/moved_responses.h)
 *    | <-- KEPT ---------------- |                 or not: the next one may come
 *
 * Why so: the new process reads the request's body again, decodes the tokens again and makes the events again, so that no
 * codec has a state that must be written down; a digest of the bytes proves it (api/moving.h). What it computes on from is
 * what a sequence has that outlives an engine (recovery.h). Only between processes of one identity (identity.h);
 * responses, which are texts, go to any that knows the word.
 *
 * Until YOURS is sent a stream is the old one's: where the new one dies, answers with NO, or does not answer in time, the
 * old one goes on with it as if nothing had been. Messages are one datagram each on a pair of sockets. Thread: the
 * loop's. */
#ifndef SERVER_HANDOVER_H
#define SERVER_HANDOVER_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "server/identity.h"

enum handover_kind {
    HANDOVER_SERVES = '!',
    HANDOVER_OFFER = 'O',
    HANDOVER_READY = 'R',
    HANDOVER_YOURS = 'Y',
    HANDOVER_WITHDRAWN = 'W',
    HANDOVER_NO = 'N',
    HANDOVER_RESPONSE = 'S',
    HANDOVER_KEPT = 'K',
};

enum { HANDOVER_FDS = 2 };

struct handover_message {
    uint8_t kind;
    uint8_t identity[IDENTITY_BYTES]; /* SERVES; the others are without */
};

/* identity may be NULL; num_fds: at most HANDOVER_FDS. False: the other end is gone, or does not read. */
bool handover_send(int fd, enum handover_kind kind, const uint8_t *identity, const int *fds,
                   int num_fds) must_check;
/* 1: a message; 0: none yet; -1: the other end is gone. fds: -1 where none came; they are the caller's. */
int handover_receive(int fd, struct handover_message *out, int fds[HANDOVER_FDS]);

/* ---- the old process ---- */

struct server;
struct auth;

struct handover {
    struct server *server;
    const struct auth *auth;
    uv_poll_t poll;
    uv_timer_t timer; /* an answer that is due, or the next look for streams */
    int fd;           /* -1: over, or not begun */
    bool same;        /* streams go on there, too */
    bool awaits_answer, has_told;
    int num_moved, num_refused;
};

/* Takes fd over. same: the new process would make the same bytes; else every stream stays. */
void handover_begin(struct handover *h, int fd, bool same);
/* The new process is there, and is to have more. */
bool handover_has_more(const struct handover *h);
/* Nothing moves any more. */
void handover_close(struct handover *h);

#endif
