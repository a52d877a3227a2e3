/* run.h - an engine from its start to its end, as a thread of the front's process or as a process. */
#ifndef ENGINE_RUN_H
#define ENGINE_RUN_H

#include <sys/types.h>

#include "config/config.h"
#include "link/link.h"

/* Loads what config names, tells the link that it is READY, and serves until link_stop or the device's
 * failure. Blocks. When it cannot start the link says REFUSED and why. A thread: what a device failure leaves
 * is finished. */
void engine_run_thread(struct link *link, const struct config *config);

/* The same as this process's whole purpose, with the front at the other end: link_fd is the region, wake_fd a
 * stream on which a byte wakes the front. Ends with the front, whatever that dies of. Returns the exit code:
 * 0 stopped, 1 could not start, 70 the device failed; requests are left for the next engine. */
int engine_run_process(int link_fd, int wake_fd, pid_t front, const struct config *config);

#endif
