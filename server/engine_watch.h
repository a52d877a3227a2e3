/* engine_watch.h - is the engine getting anywhere. Thread: the loop's. */
#ifndef SERVER_ENGINE_WATCH_H
#define SERVER_ENGINE_WATCH_H

#include "server/server.h"

/* It owes a request tokens and has ended no step for longer than ten of its longest steps would take at the
 * speed it had: busy is not dead, a long step is legal, and a client that does not read is not its fault. Or it
 * loads again and takes ten times as long as it ever took; the first load takes as long as it takes. */
bool engine_is_stuck(const struct server *server);

#endif
