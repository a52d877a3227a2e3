/* memory_limit.h - how much memory this process could still get: what the machine and its control groups have left, whichever
 * is less. Thread: any. */
#ifndef BASE_MEMORY_LIMIT_H
#define BASE_MEMORY_LIMIT_H

#include <stdint.h>

uint64_t memory_limit_free(void);

/* What the groups listed in file, as /proc/self/cgroup, and their parents have left, version 1 and 2, mounted below mount;
 * UINT64_MAX when nothing limits it. Files in memory that were not used lately count as free. */
uint64_t memory_limit_of_groups(const char *file, const char *mount);

#endif
