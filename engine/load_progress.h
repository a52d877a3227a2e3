/* load_progress.h - how much of the weights is in: a bar for whoever watches a terminal, else a line of the log every second.
 * Thread: one. */
#ifndef ENGINE_LOAD_PROGRESS_H
#define ENGINE_LOAD_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct load_progress {
    bool at_terminal;
    uint64_t said_ns;
    int percent; /* that the bar shows; -1: there is none yet */
};

void load_progress_begin(struct load_progress *p, bool wants_bar);

/* Of model_create: context is the struct, fraction goes up to 1. */
void load_progress_tell(void *context, double fraction);

/* Takes away the bar. */
void load_progress_end(struct load_progress *p);

#endif
