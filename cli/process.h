/* process.h - what the process inherits from whoever starts it, made fit for a server. Thread: before there
 * are others.
 */
#ifndef CLI_PROCESS_H
#define CLI_PROCESS_H

#include <stdbool.h>

#include "base/status.h"

/* First of all: a descriptor among 0 to 2 that came closed becomes /dev/null, or the next file or socket
 * would take its number and get the log's lines. False: there is no /dev/null, and nowhere to say so. */
bool process_open_standard_descriptors(void);

/* Signals that nobody means for a server, and those that came blocked: a closed terminal, a timer's or a full
 * disk's signal must not end it, and SIGTERM must. */
void process_settle_signals(void);

/* As many descriptors, and as long files (the log, the memory shared with the engine), as the system lets it
 * have; an error when a server cannot live with so few. */
int process_raise_limits(struct error *err) must_check;

/* libuv starts its worker threads when the first is wanted, and ends the process when there is no memory for
 * their stacks, or no process to be had: they start here, where that is an error. They are nicer than the rest, since
 * each operation of a step waits for its slowest thread, and a body of megabytes would hold up every stream. */
int process_start_workers(struct error *err) must_check;

#endif
