/* loop_watch.h - which callback held the loop up: one that takes more than 50 ms is logged with its name, and with what the
 * loop's thread has had of a processor since it last waited: much less where other programs had them.
 *
 * Each callback of libuv begins with loop_watch_enter, which ends the measurement of the one before it; the
 * last of an iteration ends with loop_watch_leave, when the loop goes to wait. Costs one reading of the clock
 * a callback, and one of the processor's time an iteration. Thread: the loop's. */
#ifndef SERVER_LOOP_WATCH_H
#define SERVER_LOOP_WATCH_H

enum { LOOP_WATCH_MS = 50 };

/* name: static text, for the log. */
void loop_watch_enter(const char *name);
void loop_watch_leave(void);

#endif
