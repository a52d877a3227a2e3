/* thread_limit.h - how many threads this process may keep busy: what its affinity mask and its control group
 * allow, whichever is less. More threads than that only take time from each other. Thread: any. */
#ifndef BASE_THREAD_LIMIT_H
#define BASE_THREAD_LIMIT_H

/* At least 1. */
int thread_limit_usable(void);

/* CPUs that the groups listed in file as in /proc/self/cgroup, version 1 and 2, mounted below mount, grant; 0 when nothing
 * limits them. */
int thread_limit_groups(const char *file, const char *mount);

/* CPUs that cpu.max (version 2) or cpu.cfs_quota_us (version 1) grants to the group at path and all of its
 * parents below mount, rounded up; 0 when nothing limits it. */
int thread_limit_cgroup(const char *mount, const char *path);

#endif
