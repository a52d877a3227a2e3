/* thread_pool.h - runs one task on all threads at once and waits for all of them.
 *
 * The calling thread is thread 0 and takes part; a pool of n threads has n - 1 workers. A task divides its
 * work by (thread_idx, num_threads); thread_pool_range is the usual way. What is computed must not depend
 * on the division: the pool gives speed, never an order of summation.
 *
 * A worker that has nothing to do spins for tens of microseconds (the next operation of a forward pass comes
 * within a few) and then sleeps on a futex: an idle server uses no CPU.
 * No thread is pinned: on processors that other programs use, too, one that may not move waits for its own while another
 * idles, and in each operation all wait for it.
 *
 * Thread: one thread at a time calls thread_pool_run; tasks must not call it. */
#ifndef KERNELS_CPU_THREAD_POOL_H
#define KERNELS_CPU_THREAD_POOL_H

#include <stdint.h>

#include "base/status.h"

struct thread_pool;

/* num_threads 0: as many as the process may keep busy (base/thread_limit.h). */
int thread_pool_create(int num_threads, struct thread_pool **out, struct error *err) must_check;
void thread_pool_destroy(struct thread_pool *p);
int thread_pool_num_threads(const struct thread_pool *p);

/* Calls task(context, 0 .. num_threads - 1, num_threads) once on each thread; returns when all have returned,
 * with everything they wrote visible. */
void thread_pool_run(struct thread_pool *p, void (*task)(void *context, int thread_idx, int num_threads),
                     void *context);

/* The contiguous part [*begin, *end) of num_items that belongs to thread_idx; parts differ by one at most. */
static inline void thread_pool_range(int64_t num_items, int thread_idx, int num_threads, int64_t *begin,
                                     int64_t *end)
{
    *begin = num_items * thread_idx / num_threads;
    *end = num_items * (thread_idx + 1) / num_threads;
}

#endif
