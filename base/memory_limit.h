/* memory_limit.h - how much memory this process may have at all, and could still get: of what the machine and its control groups have,
 * whichever is less. Thread: any. */
#ifndef BASE_MEMORY_LIMIT_H
#define BASE_MEMORY_LIMIT_H

#include <stdint.h>

struct memory_limit {
    uint64_t total, free; /* bytes */
};

struct memory_limit memory_limit_now(void);

/* Of the groups listed in file, as /proc/self/cgroup, and their parents, version 1 and 2, mounted below mount; UINT64_MAX when nothing
 * limits it. Files in memory that were not used lately count as free. */
struct memory_limit memory_limit_of_groups(const char *file, const char *mount);

#endif
