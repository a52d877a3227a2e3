#include "base/memory_limit.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/control_group.h"

/* The first number on the line of file that starts with key ("" takes the first line); otherwise if there is none, as in
 * version 2's "max". */
static uint64_t read_number(const char *folder, const char *name, const char *key, uint64_t otherwise)
{
    char path[4 * PATH_MAX], line[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    if (!f) return otherwise;
    while (fgets(line, sizeof line, f)) {
        unsigned long long value;
        if (strncmp(line, key, strlen(key)) != 0) continue;
        if (sscanf(line + strlen(key), " %llu", &value) == 1) otherwise = value;
        break;
    }
    fclose(f);
    return otherwise;
}

static void take_least(struct memory_limit *least, struct memory_limit other)
{
    least->total = min_of(least->total, other.total);
    least->free = min_of(least->free, other.free);
}

static void take_group(void *least, const char *folder)
{
    uint64_t limit = min_of(read_number(folder, "memory.max", "", UINT64_MAX),
                            read_number(folder, "memory.high", "", UINT64_MAX));
    uint64_t used = read_number(folder, "memory.current", "", 0);
    uint64_t unused_files = read_number(folder, "memory.stat", "inactive_file ", 0);
    if (limit == UINT64_MAX) {
        limit = read_number(folder, "memory.limit_in_bytes", "", UINT64_MAX);
        used = read_number(folder, "memory.usage_in_bytes", "", 0);
        unused_files = read_number(folder, "memory.stat", "total_inactive_file ", 0);
    }
    if (limit == UINT64_MAX) return;
    used -= min_of(used, unused_files);
    take_least(least, (struct memory_limit){limit, limit > used ? limit - used : 0});
}

struct memory_limit memory_limit_of_groups(const char *file, const char *mount)
{
    struct memory_limit least = {UINT64_MAX, UINT64_MAX};
    control_group_walk(file, mount, "memory", take_group, &least);
    return least;
}

/* pages: sysconf's name of what there is instead of the line. */
static uint64_t machine_bytes(const char *line, int pages)
{
    const uint64_t kib = read_number("/proc", "meminfo", line, UINT64_MAX);
    return kib == UINT64_MAX ? (uint64_t)sysconf(pages) * (uint64_t)sysconf(_SC_PAGESIZE) : kib * 1024;
}

struct memory_limit memory_limit_now(void)
{
    struct memory_limit least = memory_limit_of_groups("/proc/self/cgroup", "/sys/fs/cgroup");
    take_least(&least, (struct memory_limit){machine_bytes("MemTotal:", _SC_PHYS_PAGES),
                                             machine_bytes("MemAvailable:", _SC_AVPHYS_PAGES)});
    return least;
}
