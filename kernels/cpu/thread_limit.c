#include "kernels/cpu/thread_limit.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

/* The file holds "max 100000" or "QUOTA PERIOD", both in microseconds. */
static int read_cpu_max(const char *file)
{
    FILE *f = fopen(file, "re");
    if (!f) return 0;
    long long quota_us, period_us;
    int fields = fscanf(f, "%lld %lld", &quota_us, &period_us);
    fclose(f);
    if (fields != 2 || quota_us <= 0 || period_us <= 0) return 0;
    return (int)min_of(div_up(quota_us, period_us), INT_MAX);
}

int thread_limit_cgroup(const char *mount, const char *path)
{
    char group[PATH_MAX], file[2 * PATH_MAX];
    snprintf(group, sizeof group, "%s", path);
    int least = 0;
    for (;;) {
        snprintf(file, sizeof file, "%s%s/cpu.max", mount, group);
        int limit = read_cpu_max(file);
        if (limit > 0 && (least == 0 || limit < least)) least = limit;
        char *slash = strrchr(group, '/');
        if (!slash) return least;
        *slash = '\0';
    }
}

/* The line of cgroup v2 reads "0::/path". */
static int own_cgroup_limit(void)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f) return 0;
    char line[PATH_MAX + 8];
    int limit = 0;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::", 3) == 0) limit = thread_limit_cgroup("/sys/fs/cgroup", line + 3);
    }
    fclose(f);
    return limit;
}

int thread_limit_usable(void)
{
    cpu_set_t set; /* 1024 CPUs; on larger machines the call fails and one thread per mask is a safe answer */
    int usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : CPU_SETSIZE;
    int limit = own_cgroup_limit();
    if (limit > 0 && limit < usable) usable = limit;
    return max_of(usable, 1);
}
