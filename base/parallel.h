/* parallel.h - work that is worth threads of its own, once: they begin with it and end with it. Thread: any. */
#ifndef BASE_PARALLEL_H
#define BASE_PARALLEL_H

#include <stdint.h>

/* Calls run(context, begin, end) for parts of [0, count) that do not overlap and make up all of it, on as many threads as the process may
 * keep busy (base/thread_limit.h) and the caller's; no part is smaller than least, where count is not. Returns when all have. A thread
 * that cannot be had costs speed only. */
void parallel_ranges(int64_t count, int64_t least, void (*run)(void *context, int64_t begin, int64_t end),
                     void *context);

#endif
