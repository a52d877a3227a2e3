/* moved_responses.h - stored responses follow to the process that takes this one's place (handover.h).
 *
 * One at a time, the oldest of each holder first, as a memory file. A background answer that has not ended stays where it is
 * generated: it is told as it stands, without a history, and once more when it has ended. What is told may be read by another
 * program than this one, too: its numbers have their own widths. Thread: the loop's. */
#ifndef SERVER_API_MOVED_RESPONSES_H
#define SERVER_API_MOVED_RESPONSES_H

#include <stdbool.h>

struct auth;
struct listener;
struct server;

/* ---- the old process ---- */

/* Background answers that run are stored as they stand. */
void moved_responses_begin(struct server *server);
/* The next one's file, the caller's; -1: there is none now. */
int moved_responses_next(struct server *server, const struct auth *auth);
/* There is one, or a background answer will be one, here or in the process before. */
bool moved_responses_has_more(const struct server *server);

/* ---- the new process ---- */

/* Stores it, unless its key is none of this process's. fd is the caller's. */
void moved_responses_keep(struct listener *listener, int fd);

#endif
