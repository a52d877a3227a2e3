/* heap.h - the memory and the time of one parse or one render: an arena and a budget of work, with a sticky
 * failure.
 *
 * Allocation never needs an error path of its own: when the cap is reached, failed is set and NULL returned;
 * every constructor of texts and values takes NULL quietly and gives something empty, and the interpreter,
 * which looks at failed on every step, stops with STATUS_LIMIT. Nothing is freed before heap_deinit.
 *
 * A unit of work is about a nanosecond: WORK_OF_NODE for a node evaluated, and what memory, comparisons and
 * searches cost, so that no template and no request can buy much time with few nodes.
 * Thread: one user at a time. */
#ifndef TEXT_JINJA_HEAP_H
#define TEXT_JINJA_HEAP_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"

enum { WORK_OF_NODE = 64 };

struct heap {
    struct arena arena;
    uint64_t work_left;
    size_t text_bytes_max; /* no single text may be longer */
    bool failed;
    bool out_of_memory; /* it failed below its cap: malloc did */
};

static inline void heap_init(struct heap *h, size_t max_bytes, size_t text_bytes_max, uint64_t work)
{
    arena_init(&h->arena, max_bytes);
    h->work_left = work;
    h->text_bytes_max = text_bytes_max;
    h->failed = h->out_of_memory = false;
}

static inline void heap_deinit(struct heap *h)
{
    arena_deinit(&h->arena);
}

/* False, and failed, when the budget is used up. */
static inline bool heap_charge(struct heap *h, uint64_t work)
{
    if (work >= h->work_left) {
        h->work_left = 0;
        h->failed = true;
    } else {
        h->work_left -= work;
    }
    return !h->failed;
}

static inline void *heap_alloc(struct heap *h, size_t bytes)
{
    if (!heap_charge(h, bytes / 8)) return NULL;
    void *p = arena_alloc(&h->arena, bytes);
    if (p) return p;
    h->failed = true;
    h->out_of_memory = bytes <= h->arena.max_bytes - h->arena.used_bytes;
    return NULL;
}

static inline void *heap_alloc_array(struct heap *h, size_t count, size_t element_bytes)
{
    uint64_t bytes;
    if (checked_mul(count, element_bytes, &bytes)) return heap_alloc(h, bytes);
    h->failed = true;
    return NULL;
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
