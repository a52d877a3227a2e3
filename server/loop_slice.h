/* loop_slice.h - the loop's thread runs soon after it wakes, also where every processor computes.
 *
 * Linux gives processor time to ordinary threads in slices of some milliseconds, and a thread that wakes waits for the end of the
 * slice of who runs, unless its own is shorter. The loop's callbacks take microseconds, so that it asks for the shortest
 * slice there is. Its share of the processors stays what it was. Threads and processes that it starts do not inherit it. */
#ifndef FLASHD_SERVER_LOOP_SLICE_H
#define FLASHD_SERVER_LOOP_SLICE_H

/* For the calling thread. Changes nothing where the kernel does not know it (before Linux 6.12), or where somebody has chosen
 * a priority or a policy for this process. */
void loop_slice_shorten(void);

#endif
