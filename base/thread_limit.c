#include "base/thread_limit.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/control_group.h"

/* Up to two numbers of a file; returns how many there are ("max 100000" holds none). */
static int read_numbers(const char *folder, const char *name, long long numbers[2])
{
    char path[4 * PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    int count = fscanf(f, "%lld %lld", &numbers[0], &numbers[1]);
    fclose(f);
    return max_of(count, 0);
}

/* Quota and period are in microseconds in both versions; "no quota" is max in one and -1 in the other. */
static int read_limit(const char *folder)
{
    long long us[2], period_us[2];
    if (read_numbers(folder, "cpu.max", us) != 2) {
        if (read_numbers(folder, "cpu.cfs_quota_us", us) < 1 ||
            read_numbers(folder, "cpu.cfs_period_us", period_us) < 1)
            return 0;
        us[1] = period_us[0];
    }
    if (us[0] <= 0 || us[1] <= 0) return 0;
    return (int)min_of(div_up(us[0], us[1]), INT_MAX);
}

static int lesser_limit(int a, int b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

static void take_group(void *least, const char *folder)
{
    *(int *)least = lesser_limit(*(int *)least, read_limit(folder));
}

int thread_limit_cgroup(const char *mount, const char *path)
{
    int least = 0;
    control_group_climb(mount, path, take_group, &least);
    return least;
}

int thread_limit_groups(const char *file, const char *mount)
{
    int least = 0;
    control_group_walk(file, mount, "cpu", take_group, &least);
    return least;
}

int thread_limit_usable(void)
{
    cpu_set_t mask;
    int in_mask = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : CPU_SETSIZE;
    int granted = thread_limit_groups("/proc/self/cgroup", "/sys/fs/cgroup");
    return max_of(lesser_limit(in_mask, granted), 1);
}
