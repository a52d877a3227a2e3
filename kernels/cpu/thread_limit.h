/* thread_limit.h - how many threads this process may keep busy: what its affinity mask and its control group
 * allow, whichever is less. More threads than that only take time from each other. Thread: any. */
#ifndef KERNELS_CPU_THREAD_LIMIT_H
#define KERNELS_CPU_THREAD_LIMIT_H

/* At least 1. */
int thread_limit_usable(void);

/* CPUs that cgroup v2's cpu.max grants to the group at path (as in /proc/self/cgroup) and all of its parents
 * below mount, rounded up; 0 when nothing limits it. */
int thread_limit_cgroup(const char *mount, const char *path);

#endif
