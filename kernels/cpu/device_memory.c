#include "kernels/cpu/device_memory.h"

#include <stdlib.h>
#include <sys/mman.h>

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
