/* ring.h - a single-producer single-consumer ring of 32-bit indices, its capacity a power of two.
 *
 * The producer owns tail, the consumer owns head; each publishes its own with a release store and
 * reads the other's with an acquire load, so everything that the producer wrote before ring_push is
 * visible to the consumer after the ring_pop that returns the index. Holds indices, never pointers. */
#ifndef BASE_RING_H
#define BASE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What both sides share; zeros are an empty ring. */
struct ring_ends {
    _Alignas(64) _Atomic uint32_t head;
    _Alignas(64) _Atomic uint32_t tail;
};

/* One side's view. */
struct ring {
    struct ring_ends *ends;
    uint32_t *items; /* capacity entries, owned by the caller */
    uint32_t mask;   /* capacity - 1 */
};

static inline struct ring ring_view(struct ring_ends *ends, uint32_t *items, uint32_t capacity_pow2)
{
    return (struct ring){ends, items, capacity_pow2 - 1};
}

/* Producer only. False when full. */
static inline bool ring_push(struct ring *r, uint32_t item)
{
    uint32_t tail = atomic_load_explicit(&r->ends->tail, memory_order_relaxed);
    if (tail - atomic_load_explicit(&r->ends->head, memory_order_acquire) > r->mask) return false;
    r->items[tail & r->mask] = item;
    atomic_store_explicit(&r->ends->tail, tail + 1, memory_order_release);
    return true;
}

/* Consumer only. False when empty. */
static inline bool ring_pop(struct ring *r, uint32_t *item)
{
    uint32_t head = atomic_load_explicit(&r->ends->head, memory_order_relaxed);
    if (head == atomic_load_explicit(&r->ends->tail, memory_order_acquire)) return false;
    *item = r->items[head & r->mask];
    atomic_store_explicit(&r->ends->head, head + 1, memory_order_release);
    return true;
}

#endif
