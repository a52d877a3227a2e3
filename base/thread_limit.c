#include "base/thread_limit.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

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

int thread_limit_cgroup(const char *mount, const char *path)
{
    char group[PATH_MAX], folder[3 * PATH_MAX];
    snprintf(group, sizeof group, "%s", path);
    int least = 0;
    for (;;) {
        snprintf(folder, sizeof folder, "%s%s", mount, group);
        least = lesser_limit(least, read_limit(folder));
        char *slash = strrchr(group, '/');
        if (!slash) return least;
        *slash = '\0';
    }
}

/* Whether a list such as "cpu,cpuacct" names the controller of CPU time. */
static bool names_cpu(const char *controllers)
{
    char list[PATH_MAX + 2];
    snprintf(list, sizeof list, ",%s,", controllers);
    return strstr(list, ",cpu,") != NULL;
}

/* Lines read "0::/path" (version 2) or "4:cpu,cpuacct:/path" (version 1, mounted under the controllers'
 * names). */
static int limit_of_line(char *line, const char *mount)
{
    char folder[2 * PATH_MAX], *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path) return 0;
    *path++ = '\0';
    if (*++controllers == '\0') return thread_limit_cgroup(mount, path);
    if (!names_cpu(controllers)) return 0;
    snprintf(folder, sizeof folder, "%s/%s", mount, controllers);
    return thread_limit_cgroup(folder, path);
}

int thread_limit_groups(const char *file, const char *mount)
{
    FILE *f = fopen(file, "re");
    if (!f) return 0;
    char line[PATH_MAX + 256];
    int least = 0;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        least = lesser_limit(least, limit_of_line(line, mount));
    }
    fclose(f);
    return least;
}

int thread_limit_granted(void)
{
    return thread_limit_groups("/proc/self/cgroup", "/sys/fs/cgroup");
}

static cpu_set_t first_mask;

static void read_mask(void)
{
    if (sched_getaffinity(0, sizeof first_mask, &first_mask) != 0) CPU_ZERO(&first_mask);
}

const cpu_set_t *thread_limit_mask(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_mask);
    return &first_mask;
}

int thread_limit_usable(void)
{
    int in_mask = CPU_COUNT(thread_limit_mask());
    return max_of(lesser_limit(in_mask > 0 ? in_mask : CPU_SETSIZE, thread_limit_granted()), 1);
}
