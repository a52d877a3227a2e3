/* log_writer.h - brings lines to stderr without making anybody wait for whoever reads it.
 *
 * Between start and stop a line is copied into a bounded queue, and a thread of its own writes the queue:
 * each line with one write(2), no lock held. When the reader stalls and the queue is full, lines are dropped,
 * counted, and the next line that gets through is followed by one that says how many; so they are when the disk is
 * full, and a line that it cut is ended before the next. Before and after, and
 * in programs that never start it, lines are written by whoever logs, who waits a second at most.
 *
 * A process that aborts waits a moment for the queue to be written. A child between fork and exec must not
 * log: the lock may be held by a thread that it does not have. Thread: any; start and stop: one. */
#ifndef BASE_LOG_WRITER_H
#define BASE_LOG_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

int log_writer_start(struct error *err) must_check;

/* Waits until everything is written, but two seconds at most. Later lines are written directly. */
void log_writer_stop(void);

/* At most LOG_LINE_BYTES_MAX bytes, the newline among them. */
void log_writer_put(const char *line, size_t n);

/* Lines that nobody will see, for the queue was full, or the disk; but for those that are counted elsewhere. */
uint64_t log_writer_num_dropped(void);
/* From now on they are counted there, with those until now; NULL: here again. */
void log_writer_count_at(_Atomic uint64_t *counter);

#endif
