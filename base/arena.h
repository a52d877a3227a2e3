/* arena.h - one request's memory: many small allocations, one cap, freed as a whole.
 *
 * Memory is zeroed and aligned to 16 bytes. arena_alloc returns NULL once max_bytes is reached or
 * malloc fails; nothing else changes. The total over all arenas is kept for the metrics page and
 * for the tests that prove that nothing leaks. Thread: an arena has one user at a time. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks; /* newest first */
    size_t used_bytes, max_bytes;
};

void arena_init(struct arena *a, size_t max_bytes);
void arena_deinit(struct arena *a); /* frees everything; the arena may be used again */

void *arena_alloc(struct arena *a, size_t bytes);
void *arena_alloc_array(struct arena *a, size_t count, size_t element_bytes); /* NULL also on overflow */
char *arena_copy(struct arena *a, const void *bytes, size_t n);               /* n bytes and a NUL */

/* Bytes that all arenas of the process hold from malloc at this moment. */
size_t arena_total_bytes(void);

#endif
