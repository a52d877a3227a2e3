#include "base/arena.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Thousands of streams may wait at once, each with a small arena: the first chunk is small, and the next ones
 * grow with what is used. */
enum { FIRST_CHUNK_BYTES = 768 - 64, CHUNK_BYTES = 4096 - 64, ALIGNMENT = 16 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t used_bytes, capacity_bytes;
    _Alignas(ALIGNMENT) char data[];
};

static _Atomic size_t total_bytes;

void arena_init(struct arena *a, size_t max_bytes)
{
    *a = (struct arena){.max_bytes = max_bytes};
}

void arena_deinit(struct arena *a)
{
    struct arena_chunk *next;
    for (struct arena_chunk *c = a->chunks; c; c = next) {
        next = c->next;
        atomic_fetch_sub_explicit(&total_bytes, sizeof *c + c->capacity_bytes, memory_order_relaxed);
        free(c);
    }
    a->chunks = NULL;
    a->used_bytes = 0;
}

static struct arena_chunk *add_chunk(struct arena *a, size_t bytes)
{
    size_t usual = min_of(max_of(a->used_bytes, (size_t)FIRST_CHUNK_BYTES), (size_t)CHUNK_BYTES);
    size_t capacity = max_of(bytes, usual);
    struct arena_chunk *c = malloc(sizeof *c + capacity);
    if (!c) return NULL;
    *c = (struct arena_chunk){.next = a->chunks, .capacity_bytes = capacity};
    a->chunks = c;
    atomic_fetch_add_explicit(&total_bytes, sizeof *c + capacity, memory_order_relaxed);
    return c;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    if (bytes > a->max_bytes || a->used_bytes > a->max_bytes - bytes) return NULL;
    size_t rounded = align_up(bytes, ALIGNMENT);
    if (rounded < bytes) return NULL;
    struct arena_chunk *c = a->chunks;
    if (!c || c->capacity_bytes - c->used_bytes < rounded) c = add_chunk(a, rounded);
    if (!c) return NULL;
    void *p = c->data + c->used_bytes;
    c->used_bytes += rounded;
    a->used_bytes += rounded;
    return memset(p, 0, bytes);
}

void *arena_alloc_array(struct arena *a, size_t count, size_t element_bytes)
{
    uint64_t bytes;
    if (!checked_mul(count, element_bytes, &bytes)) return NULL;
    return arena_alloc(a, bytes);
}

char *arena_copy(struct arena *a, const void *bytes, size_t n)
{
    if (n == SIZE_MAX) return NULL;
    char *p = arena_alloc(a, n + 1);
    if (p && n > 0) memcpy(p, bytes, n);
    return p;
}

size_t arena_total_bytes(void)
{
    return atomic_load_explicit(&total_bytes, memory_order_relaxed);
}
