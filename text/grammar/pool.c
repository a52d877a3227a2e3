#include "text/grammar/pool.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/status.h"

void pool_init(struct pool *p, size_t item_bytes, uint32_t max)
{
    *p = (struct pool){.item_bytes = (uint32_t)item_bytes, .max = max};
}

void pool_deinit(struct pool *p)
{
    free(p->items);
    *p = (struct pool){.item_bytes = p->item_bytes, .max = p->max};
}

void *pool_push(struct pool *p, uint32_t n)
{
    if (n > p->max - p->count) {
        p->status = STATUS_LIMIT;
        return NULL;
    }
    if (n > p->capacity - p->count) {
        uint64_t capacity = max_of((uint64_t)p->count + n, (uint64_t)p->capacity * 2);
        capacity = min_of(max_of(capacity, 32), p->max);
        void *items = realloc(p->items, (size_t)capacity * p->item_bytes);
        if (!items) {
            p->status = STATUS_NO_MEMORY;
            return NULL;
        }
        p->items = items;
        p->capacity = (uint32_t)capacity;
    }
    void *first = (char *)p->items + (size_t)p->count * p->item_bytes;
    p->count += n;
    return first;
}
