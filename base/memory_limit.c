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
    *(uint64_t *)least = min_of(*(uint64_t *)least, limit > used ? limit - used : 0);
}

uint64_t memory_limit_of_groups(const char *file, const char *mount)
{
    uint64_t least = UINT64_MAX;
    control_group_walk(file, mount, "memory", take_group, &least);
    return least;
}

uint64_t memory_limit_free(void)
{
    uint64_t kib = read_number("/proc", "meminfo", "MemAvailable:", UINT64_MAX);
    uint64_t machine = kib == UINT64_MAX
                           ? (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE)
                           : kib * 1024;
    return min_of(machine, memory_limit_of_groups("/proc/self/cgroup", "/sys/fs/cgroup"));
}
