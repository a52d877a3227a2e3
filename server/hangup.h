/* hangup.h - notices that a peer has reset a connection while nothing is being read from it.
 *
 * libuv reports a reset only to a reader. After an end-of-file, or while a pipelining client is not being
 * read, this watches a duplicate of the descriptor for errors and hang-ups alone. Thread: the loop's. */
#ifndef SERVER_HANGUP_H
#define SERVER_HANGUP_H

#include <uv.h>

struct hangup;

/* NULL when there is no descriptor left: the next write will notice. */
struct hangup *hangup_watch(uv_stream_t *stream, void (*on_hangup)(void *context), void *context);
void hangup_stop(struct hangup *h); /* NULL is fine; on_hangup is not called any more */

#endif
