#include "kernels/cpu/thread_pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/thread_limit.h"

/* Longer than the serial pieces between two operations of a forward pass, far shorter than anything a
 * person could see as load. */
enum { SPIN_NS = 50 * 1000, PAUSES_PER_LOOK = 16 };

struct worker {
    struct thread_pool *pool;
    pthread_t thread;
    int thread_idx;
};

/* run() publishes task and context by raising generation; the last worker to finish brings num_remaining to
 * zero. Each side announces that it is about to sleep before it looks a last time (in the kernel, at the
 * futex word), and the other side changes the word before it looks for sleepers: with sequentially consistent
 * operations one of the two sees the other, so no wake-up is lost. */
struct thread_pool {
    int num_threads;
    void (*task)(void *context, int thread_idx, int num_threads);
    void *context;
    struct worker *workers; /* num_threads - 1 */
    bool stopping;
    _Alignas(64) _Atomic uint32_t generation;
    _Atomic int32_t num_asleep;
    _Alignas(64) _Atomic uint32_t num_remaining;
    _Atomic bool caller_asleep;
};

static void futex_sleep(_Atomic uint32_t *word, uint32_t expected)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Not clock_monotonic_ns: a simulator may have replaced that by a clock that stands still. */
static uint64_t spin_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Spins while *word == value; true as soon as it differs, false when it is time to sleep. */
static bool spin_until_changed(_Atomic uint32_t *word, uint32_t value)
{
    uint64_t end_ns = spin_clock_ns() + SPIN_NS;
    do {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value) return true;
            __builtin_ia32_pause();
        }
    } while (spin_clock_ns() < end_ns);
    return false;
}

static void wait_for_generation_after(struct thread_pool *p, uint32_t seen)
{
    if (spin_until_changed(&p->generation, seen)) return;
    atomic_fetch_add(&p->num_asleep, 1);
    while (atomic_load(&p->generation) == seen) futex_sleep(&p->generation, seen);
    atomic_fetch_sub(&p->num_asleep, 1);
}

static void *worker_main(void *argument)
{
    struct worker *w = argument;
    struct thread_pool *p = w->pool;
    for (uint32_t seen = 0;; seen++) {
        wait_for_generation_after(p, seen);
        if (p->stopping) return NULL;
        p->task(p->context, w->thread_idx, p->num_threads);
        if (atomic_fetch_sub(&p->num_remaining, 1) == 1 && atomic_load(&p->caller_asleep))
            futex_wake_all(&p->num_remaining);
    }
}

static void wait_for_workers(struct thread_pool *p)
{
    uint32_t remaining;
    while ((remaining = atomic_load(&p->num_remaining)) != 0) {
        if (spin_until_changed(&p->num_remaining, remaining)) continue;
        atomic_store(&p->caller_asleep, true);
        if (atomic_load(&p->num_remaining) == remaining) futex_sleep(&p->num_remaining, remaining);
        atomic_store(&p->caller_asleep, false);
    }
}

static void start_generation(struct thread_pool *p)
{
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->num_asleep) > 0) futex_wake_all(&p->generation);
}

void thread_pool_run(struct thread_pool *p, void (*task)(void *context, int thread_idx, int num_threads),
                     void *context)
{
    if (p->num_threads > 1) {
        p->task = task;
        p->context = context;
        atomic_store_explicit(&p->num_remaining, (uint32_t)p->num_threads - 1, memory_order_relaxed);
        start_generation(p);
    }
    task(context, 0, p->num_threads);
    if (p->num_threads > 1) wait_for_workers(p);
}

int thread_pool_num_threads(const struct thread_pool *p)
{
    return p->num_threads;
}

static void stop_workers(struct thread_pool *p, int num_workers)
{
    p->stopping = true;
    start_generation(p);
    for (int i = 0; i < num_workers; i++) pthread_join(p->workers[i].thread, NULL);
}

static void pool_free(struct thread_pool *p)
{
    free(p->workers);
    free(p);
}

static struct thread_pool *pool_alloc(int num_threads)
{
    struct thread_pool *p = aligned_alloc(64, align_up(sizeof *p, 64));
    if (!p) return NULL;
    *p = (struct thread_pool){.num_threads = num_threads};
    p->workers = calloc((size_t)num_threads, sizeof *p->workers);
    if (p->workers) return p;
    pool_free(p);
    return NULL;
}

int thread_pool_create(int num_threads, struct thread_pool **out, struct error *err)
{
    if (num_threads <= 0) num_threads = thread_limit_usable();
    struct thread_pool *p = pool_alloc(num_threads);
    if (!p) return error_set(err, STATUS_NO_MEMORY, "no memory for a pool of %d threads", num_threads);
    for (int i = 0; i < num_threads - 1; i++) {
        p->workers[i] = (struct worker){.pool = p, .thread_idx = i + 1};
        if (pthread_create(&p->workers[i].thread, NULL, worker_main, &p->workers[i]) != 0) {
            stop_workers(p, i);
            pool_free(p);
            return error_set(err, STATUS_NO_MEMORY,
                             "could not start thread %d of %d; --threads sets the number", i + 1,
                             num_threads);
        }
    }
    *out = p;
    return STATUS_OK;
}

void thread_pool_destroy(struct thread_pool *p)
{
    if (!p) return;
    stop_workers(p, p->num_threads - 1);
    pool_free(p);
}
