/* wake_word.h - how one side of the link sleeps until the other has something for it; the link's own files
 * only.
 *
 * Who works must never miss waking who sleeps, and a call to somebody who is awake should cost no system
 * call. Both sides do, in this order:
 *
 *   caller:   leave the work;  calls += 1;  if (sleepers) futex_wake(calls)
 *   sleeper:  seen = calls;  a turn that finds nothing;
 *             sleepers += 1;  futex_wait(calls, seen);  sleepers -= 1
 *
 * calls and sleepers are accessed in one total order (seq_cst). If the caller reads sleepers as 0, its
 * addition came before the sleeper's, so the kernel, which compares calls with seen before it puts anybody to
 * sleep, finds them different and returns at once. If it reads more, it wakes one. Who sleeps uses no CPU
 * time at all. The futex is a shared one: the two sides may be processes. */
#ifndef LINK_WAKE_WORD_H
#define LINK_WAKE_WORD_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct wake_word {
    _Atomic uint32_t calls, sleepers;
};

static inline void wake_word_call(struct wake_word *w)
{
    atomic_fetch_add(&w->calls, 1);
    if (atomic_load(&w->sleepers)) syscall(SYS_futex, &w->calls, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* At most timeout_ns; 0: until there is a call. */
static inline void wake_word_sleep(struct wake_word *w, uint32_t seen, uint64_t timeout_ns)
{
    const struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000),
                                     .tv_nsec = (long)(timeout_ns % 1000000000)};
    atomic_fetch_add(&w->sleepers, 1);
    syscall(SYS_futex, &w->calls, FUTEX_WAIT, seen, timeout_ns > 0 ? &timeout : NULL, NULL, 0);
    atomic_fetch_sub(&w->sleepers, 1);
}

#endif
