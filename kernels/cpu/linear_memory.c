#include "kernels/cpu/linear_memory.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/check.h"

enum { ALIGNMENT = 64, HUGE_PAGE_BYTES = 2 << 20, REGION_BYTES = 64 << 20 };

#ifdef __SANITIZE_ADDRESS__

/* Each weight by itself, so that the sanitizer sees reads past its end. */
void *linear_memory_alloc(size_t bytes)
{
    return aligned_alloc(ALIGNMENT, align_up(bytes, ALIGNMENT));
}

void linear_memory_free(void *memory)
{
    free(memory);
}

#else

/* The header stands at the start of its region. */
struct region {
    struct region *next;
    size_t size_bytes, used_bytes;
    int num_weights;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct region *regions;

/* size_bytes of address space aligned to a huge page. */
static uint8_t *map_aligned(size_t size_bytes)
{
    const size_t map_bytes = size_bytes + HUGE_PAGE_BYTES;
    uint8_t *const map = mmap(NULL, map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return NULL;
    const size_t before = (size_t)(-(uintptr_t)map % HUGE_PAGE_BYTES), after = HUGE_PAGE_BYTES - before;
    if (before) munmap(map, before);
    if (after) munmap(map + before + size_bytes, after);
    return map + before;
}

static struct region *region_create(size_t first_bytes)
{
    const size_t needed = align_up(sizeof(struct region), ALIGNMENT) + first_bytes;
    const size_t size_bytes = align_up(max_of(needed, (size_t)REGION_BYTES), HUGE_PAGE_BYTES);
    struct region *const r = (void *)map_aligned(size_bytes);
    if (!r) return NULL;
    madvise(r, size_bytes, MADV_HUGEPAGE);
    *r = (struct region){regions, size_bytes, align_up(sizeof *r, ALIGNMENT), 0};
    regions = r;
    return r;
}

static struct region *region_with_room(size_t bytes)
{
    for (struct region *r = regions; r; r = r->next)
        if (r->size_bytes - r->used_bytes >= bytes) return r;
    return region_create(bytes);
}

void *linear_memory_alloc(size_t bytes)
{
    if (bytes > PTRDIFF_MAX - 2 * (size_t)REGION_BYTES) return NULL;
    bytes = align_up(bytes, ALIGNMENT);
    pthread_mutex_lock(&mutex);
    struct region *const r = region_with_room(bytes);
    uint8_t *memory = NULL;
    if (r) {
        memory = (uint8_t *)r + r->used_bytes;
        r->used_bytes += bytes;
        r->num_weights++;
    }
    pthread_mutex_unlock(&mutex);
    return memory;
}

void linear_memory_free(void *memory)
{
    if (!memory) return;
    pthread_mutex_lock(&mutex);
    struct region **at = &regions;
    while ((uintptr_t)memory - (uintptr_t)*at >= (*at)->size_bytes) at = &(*at)->next;
    struct region *const r = *at;
    if (--r->num_weights == 0) {
        *at = r->next;
        munmap(r, r->size_bytes);
    }
    pthread_mutex_unlock(&mutex);
}

#endif
