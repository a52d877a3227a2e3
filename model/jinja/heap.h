/* heap.h - the memory of one parse or one render: an arena with a sticky failure.
 *
 * Allocation never needs an error path of its own: when the cap is reached, failed is set and NULL returned;
 * every constructor of texts and values takes NULL quietly and gives something empty, and the interpreter,
 * which looks at failed on every step, stops with STATUS_LIMIT. Nothing is freed before heap_deinit.
 * Thread: one user at a time. */
#ifndef MODEL_JINJA_HEAP_H
#define MODEL_JINJA_HEAP_H

#include <stdbool.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"

struct heap {
    struct arena arena;
    size_t text_bytes_max; /* no single text may be longer */
    bool failed;
};

static inline void heap_init(struct heap *h, size_t max_bytes, size_t text_bytes_max)
{
    arena_init(&h->arena, max_bytes);
    h->text_bytes_max = text_bytes_max;
    h->failed = false;
}

static inline void heap_deinit(struct heap *h)
{
    arena_deinit(&h->arena);
}

static inline void *heap_alloc(struct heap *h, size_t bytes)
{
    void *p = h->failed ? NULL : arena_alloc(&h->arena, bytes);
    if (!p) h->failed = true;
    return p;
}

static inline void *heap_alloc_array(struct heap *h, size_t count, size_t element_bytes)
{
    void *p = h->failed ? NULL : arena_alloc_array(&h->arena, count, element_bytes);
    if (!p) h->failed = true;
    return p;
}

/* Doubles an array of *capacity elements, its first num copied. False (and failed) when there is no room. */
static inline bool heap_grow(struct heap *h, void **items, int num, int *capacity, size_t element_bytes)
{
    int wanted = *capacity > 0 ? *capacity * 2 : 4;
    void *grown = *capacity > (1 << 29) ? NULL : heap_alloc_array(h, (size_t)wanted, element_bytes);
    if (!grown) {
        h->failed = true;
        return false;
    }
    if (num > 0) memcpy(grown, *items, (size_t)num * element_bytes);
    *items = grown;
    *capacity = wanted;
    return true;
}

#endif
