/* thread_limit.h - how many threads this process may keep busy: what its affinity mask and its control group
 * allow, whichever is less. More threads than that only take time from each other. Thread: any. */
#ifndef BASE_THREAD_LIMIT_H
#define BASE_THREAD_LIMIT_H

#include <sched.h>

/* At least 1. */
int thread_limit_usable(void);

/* The affinity mask as the first call found it: threads that pin themselves later do not narrow it. Empty
 * when the machine has more CPUs than a cpu_set_t holds. */
const cpu_set_t *thread_limit_mask(void);

/* CPUs that the control groups of this process grant; 0 when nothing limits it. */
int thread_limit_granted(void);

/* The same for the groups listed in file as in /proc/self/cgroup, version 1 and 2, mounted below mount. */
int thread_limit_groups(const char *file, const char *mount);

/* CPUs that cpu.max (version 2) or cpu.cfs_quota_us (version 1) grants to the group at path and all of its
 * parents below mount, rounded up; 0 when nothing limits it. */
int thread_limit_cgroup(const char *mount, const char *path);

#endif
