#include "kernels/cpu/device_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

enum { ALIGNMENT = 256, HUGE_PAGE_BYTES = 2 << 20 };

/* calloc, because it takes large pieces from the system as untouched zero pages. */
void *device_memory_alloc(struct device_memory *m, size_t bytes)
{
    uint64_t padded;
    if (!checked_add(bytes, ALIGNMENT, &padded)) return NULL;
    void **list = realloc(m->allocations, ((size_t)m->num_allocations + 1) * sizeof *list);
    if (!list) return NULL;
    m->allocations = list;
    char *memory = calloc(1, padded);
    if (!memory) return NULL;
    m->allocations[m->num_allocations++] = memory;
    char *aligned = (char *)align_up((uintptr_t)memory, ALIGNMENT);
    if (bytes >= 2 * (size_t)HUGE_PAGE_BYTES) {
        char *first = (char *)align_up((uintptr_t)aligned, HUGE_PAGE_BYTES);
        size_t whole = (size_t)(aligned + bytes - first) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        (void)madvise(first, whole, MADV_HUGEPAGE); /* fewer TLB misses; nothing is lost without it */
    }
    return aligned;
}

void *device_memory_alloc_array(struct device_memory *m, uint64_t count, uint64_t element_bytes)
{
    uint64_t bytes;
    return checked_mul(count, element_bytes, &bytes) ? device_memory_alloc(m, bytes) : NULL;
}

void device_memory_free_all(struct device_memory *m)
{
    for (int i = 0; i < m->num_allocations; i++) free(m->allocations[i]);
    free(m->allocations);
    *m = (struct device_memory){0};
}

/* The first number on the line of file that starts with key ("" takes the first line); UINT64_MAX if none,
 * which is also what "max" in a cgroup file means. */
static uint64_t read_number(const char *file, const char *key)
{
    FILE *f = fopen(file, "re");
    if (!f) return UINT64_MAX;
    char line[256];
    uint64_t number = UINT64_MAX;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        unsigned long long value;
        if (sscanf(line + strlen(key), "%llu", &value) == 1) number = value;
        break;
    }
    fclose(f);
    return number;
}

/* Inside a container the group's own files are at the mount's root. */
static uint64_t cgroup_free_bytes(void)
{
    uint64_t limit = read_number("/sys/fs/cgroup/memory.max", "");
    uint64_t used = read_number("/sys/fs/cgroup/memory.current", "");
    if (limit == UINT64_MAX || used == UINT64_MAX) return UINT64_MAX;
    return limit > used ? limit - used : 0;
}

uint64_t device_memory_free_bytes(void)
{
    uint64_t kib = read_number("/proc/meminfo", "MemAvailable:");
    uint64_t machine = kib == UINT64_MAX
                           ? (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE)
                           : kib * 1024;
    uint64_t group = cgroup_free_bytes();
    return min_of(machine, group);
}
