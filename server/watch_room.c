#include "server/watch_room.h"

#include <errno.h>
#include <sys/epoll.h>

bool watch_room_take(uv_loop_t *loop, uv_os_fd_t fd)
{
    struct epoll_event none = {.data.fd = fd};
    return epoll_ctl(uv_backend_fd(loop), EPOLL_CTL_ADD, fd, &none) == 0 || errno == EEXIST;
}
