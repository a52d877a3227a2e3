/* pool.h - an array that grows up to a maximum, with a sticky failure.
 *
 * The parts of a grammar are built in such arrays and refer to each other by index, since the memory moves. A
 * push that finds no memory or no place sets status (STATUS_NO_MEMORY, STATUS_LIMIT) and gives NULL; the
 * builders look at it at their ends. Owner: whoever called pool_init. Thread: none of its own. */
#ifndef TEXT_GRAMMAR_POOL_H
#define TEXT_GRAMMAR_POOL_H

#include <stddef.h>
#include <stdint.h>

struct pool {
    void *items;
    uint32_t count, capacity, max;
    uint32_t item_bytes;
    int status;
};

void pool_init(struct pool *p, size_t item_bytes, uint32_t max);
void pool_deinit(struct pool *p);

/* Appends n items with undefined contents and returns the first, NULL on failure (then nothing changed). */
void *pool_push(struct pool *p, uint32_t n);

#define pool_items(type, p) ((type *)(p)->items)

#endif
