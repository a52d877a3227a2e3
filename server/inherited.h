/* inherited.h - the listening socket that this process was started with, if it was: by systemd (LISTEN_FDS and
 * LISTEN_PID, sd_listen_fds(3)), or by the flashd that it replaces (upgrade.h). Clients that connect before this
 * process is ready wait. Thread: the loop's. */
#ifndef SERVER_INHERITED_H
#define SERVER_INHERITED_H

#include <stdbool.h>

#include "base/status.h"

/* "PID" of the process that is replaced; "PID+" where its socket is systemd's. */
#define UPGRADE_VARIABLE "FLASHD_UPGRADE_OF"

enum {
    INHERITED_SOCKET_FD = 3,
    INHERITED_TOLD_FD = 4, /* to the process that is replaced: handover.h */
};

struct inherited {
    int socket_fd;           /* -1: none */
    int told_fd;             /* -1: nobody is replaced */
    bool belongs_to_systemd; /* which goes on listening when this process has ended */
};

/* Takes the variables out of the environment: no child has them. An error when what they name is no listening
 * socket. */
int inherited_take(struct inherited *in, struct error *err) must_check;
/* told_fd is the caller's from now on; -1: none. */
int inherited_take_told_fd(struct inherited *in);
void inherited_deinit(struct inherited *in);

#endif
