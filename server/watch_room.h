/* watch_room.h - room for one more descriptor among those that the kernel watches for a loop.
 *
 * libuv ends the process where epoll_ctl cannot add one, for want of memory or of watches (fs.epoll.max_user_watches). It takes
 * it, though, that one is there already: so it is added here first, for no event. Thread: the loop's. */
#ifndef SERVER_WATCH_ROOM_H
#define SERVER_WATCH_ROOM_H

#include <stdbool.h>
#include <uv.h>

/* Until the descriptor is closed by libuv, or its poll handle is stopped. False: there is no room, and libuv must not be asked to
 * watch it. */
bool watch_room_take(uv_loop_t *loop, uv_os_fd_t fd);

#endif
