/* mask_cache.h - masks of one grammar that took long to compute, for whoever comes to the same place again.
 *
 * A place is the threads and as much of their stacks as the computation looked at; it is compared in full, so
 * a hit is exact. Owner: whoever holds the grammar. Thread: any number of mask makers at once (a mutex, held
 * while a mask is copied). Memory: at most max_bytes; when they are used up everything is dropped. A mask is kept by its ids, by those in which
 * it differs from another, or whole. */
#ifndef TEXT_GRAMMAR_MASK_CACHE_H
#define TEXT_GRAMMAR_MASK_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { MASK_CACHE_BYTES_DEFAULT = 4 << 20 };

struct mask_cache;
struct vocabulary;
struct frames;
struct thread;
struct grammar;

/* For the masks of one vocabulary. */
int mask_cache_new(const struct grammar *g, const struct vocabulary *v, size_t max_bytes,
                   struct mask_cache **out) must_check;
void mask_cache_free(struct mask_cache *c);
size_t mask_cache_bytes(struct mask_cache *c);

/* Copies the mask of a place to words. */
bool mask_cache_find(struct mask_cache *c, const struct thread *threads, int n, const struct frames *f,
                     uint64_t *words);
/* Keeps the mask of a place; f->touched is the lowest frame that mattered. Best effort. */
void mask_cache_add(struct mask_cache *c, const struct thread *threads, int n, const struct frames *f,
                    const uint64_t *words);

#endif
