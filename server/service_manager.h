/* service_manager.h - what a service manager (systemd) hears: that the server is ready, that it stops and how long that may take, and that
 * its loop still turns (sd_notify(3), WatchdogSec=). Silent unless NOTIFY_SOCKET names a socket; a message that
 * cannot be sent at once is dropped. Thread: the loop's. */
#ifndef SERVER_SERVICE_MANAGER_H
#define SERVER_SERVICE_MANAGER_H

#include <stdbool.h>
#include <sys/un.h>

#include <uv.h>

#include "config/text_list.h"

struct service_manager {
    int fd; /* -1: nobody listens */
    struct sockaddr_un address;
    socklen_t address_bytes;
    char environment[2][160]; /* NOTIFY_SOCKET=..., WATCHDOG_USEC=..., as they were; "": there was none */
    bool supervises;          /* this process: it, or another that told so */
    uint64_t period_ms;       /* of its watchdog; 0: it has none */
    uv_timer_t watchdog;      /* its owner closes it with the loop's other handles */
};

/* Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment: no child has them. */
void service_manager_init(struct service_manager *m, uv_loop_t *loop);
/* Which variables the process that takes this one's place is to have. 0 or STATUS_NO_MEMORY. */
int service_manager_append_environment(const struct service_manager *m, struct text_list *out) must_check;
/* message: lines of NAME=value, as in sd_notify(3). */
void service_manager_tell(const struct service_manager *m, const char *message);
/* From now on its watchdog hears that the loop turns. */
void service_manager_tell_ready(struct service_manager *m);
void service_manager_deinit(struct service_manager *m);

#endif
