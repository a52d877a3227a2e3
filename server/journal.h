/* journal.h - lines that are kept in a file (--journal), within a limit of bytes, without making anybody wait for it.
 *
 * A thread of its own writes what is queued. When a line would make the file longer than half of the limit, the file
 * becomes FILE.1, in place of the one before, and FILE begins anew; a file that somebody else has moved away is opened
 * anew, too. Its lock keeps other servers out, and lets in the process that takes this one's place: both write one. A
 * line that finds the queue full, or no room on the disk, is dropped and counted; the log tells of the first after one
 * that was written. The file is its owner's alone (0600). Thread: any; create and destroy: one. */
#ifndef SERVER_JOURNAL_H
#define SERVER_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct journal;

/* line_bytes: the longest line. joins: who writes the file is replaced by this process. The file is open when this returns, or err
 * says why not. */
int journal_create(const char *path, uint64_t bytes_max, size_t line_bytes, bool joins, struct journal **out,
                   struct error *err) must_check;
/* Waits until everything is written, but two seconds at most. NULL: nothing. */
void journal_destroy(struct journal *j);

/* n bytes, the newline among them. */
void journal_put(struct journal *j, const char *line, size_t n);
/* A line that could not be put together. */
void journal_count_dropped(struct journal *j);

uint64_t journal_num_written(const struct journal *j); /* lines */
uint64_t journal_num_dropped(const struct journal *j);

#endif
