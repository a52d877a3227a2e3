#include "server/inherited.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"

static int check_socket(int fd, struct error *err)
{
    int listens = 0;
    socklen_t n = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) || !listens)
        return error_set(err, STATUS_INVALID,
                         "descriptor %d, which this process was started with, is no "
                         "listening socket",
                         fd);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return STATUS_OK;
}

/* It made the pair of sockets, whether it is still there or not: what it left listens in any case. */
static bool is_from_predecessor(const char *value)
{
    struct ucred maker;
    socklen_t n = sizeof maker;
    return value && getsockopt(INHERITED_TOLD_FD, SOL_SOCKET, SO_PEERCRED, &maker, &n) == 0 &&
           atoi(value) == (int)maker.pid;
}

static bool is_from_systemd(const char *count, const char *pid)
{
    return count && pid && atoi(pid) == (int)getpid() && atoi(count) > 0;
}

int inherited_take(struct inherited *in, struct error *err)
{
    const char *of = getenv(UPGRADE_VARIABLE), *count = getenv("LISTEN_FDS");
    bool from_predecessor = is_from_predecessor(of),
         from_systemd = is_from_systemd(count, getenv("LISTEN_PID"));
    *in = (struct inherited){.socket_fd = -1, .told_fd = -1};
    int status = STATUS_OK;
    if (from_systemd && atoi(count) > 1)
        status = error_set(err, STATUS_INVALID, "one socket is expected from systemd, %d came", atoi(count));
    else if (from_predecessor || from_systemd)
        status = check_socket(INHERITED_SOCKET_FD, err);
    if (!status && (from_predecessor || from_systemd)) in->socket_fd = INHERITED_SOCKET_FD;
    if (!status && from_predecessor) {
        in->told_fd = INHERITED_TOLD_FD;
        fcntl(INHERITED_TOLD_FD, F_SETFD, FD_CLOEXEC);
    }
    in->belongs_to_systemd = from_systemd || (from_predecessor && strchr(of, '+'));
    static const char *const names[] = {UPGRADE_VARIABLE, "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"};
    for (size_t i = 0; i < array_length(names); i++) unsetenv(names[i]);
    return status;
}

int inherited_take_told_fd(struct inherited *in)
{
    int fd = in->told_fd;
    in->told_fd = -1;
    return fd;
}

void inherited_deinit(struct inherited *in)
{
    if (in->told_fd >= 0) close(in->told_fd);
    in->told_fd = -1;
}
