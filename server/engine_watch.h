/* engine_watch.h - is the engine getting anywhere. Thread: the loop's. */
#ifndef SERVER_ENGINE_WATCH_H
#define SERVER_ENGINE_WATCH_H

#include "server/server.h"

/* It owes a request tokens and has ended no step for longer than ten of its longest steps would take at the
 * speed it had: busy is not dead, a long step is legal, and a client that does not read is not its fault. Or it
 * loads again and takes ten times as long as it ever took; the first load takes as long as it takes. Who waits for
 * an answer looks at least every LOOK_SECONDS: where nobody has for longer, this process was stopped itself, as its
 * machine or container may be, and its engine with it, which gets its time anew. */
enum { LOOK_SECONDS = 5 };
bool engine_is_stuck(struct server *server);

#endif
