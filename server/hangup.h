/* hangup.h - notices that a peer has left while nothing is being read from it.
 *
 * libuv reports an end-of-file or a reset only to a reader. After an end-of-file, or while a pipelining
 * client is not being read, this watches a duplicate of the descriptor for the rest. Thread: the loop's. */
#ifndef SERVER_HANGUP_H
#define SERVER_HANGUP_H

#include <uv.h>

struct hangup;

/* on_hangup: the connection is reset. on_end, once: the peer has sent its end-of-file; NULL when that is
 * known already. Returns NULL when there is no descriptor left: the next write will notice. */
struct hangup *hangup_watch(uv_stream_t *stream, void (*on_hangup)(void *context),
                            void (*on_end)(void *context), void *context);
void hangup_stop(struct hangup *h); /* NULL is fine; nothing is called any more */

#endif
