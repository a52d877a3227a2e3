/* threads.c - the server's threads as coroutines on one clock.
 *
 * pthread_create makes a coroutine, a futex is a state, and at every yield point (the clock, a look at a
 * request slot, a launch, the end of a poll) the seed decides whether somebody else goes on. So the loop runs
 * between any two of the engine's looks at shared memory, but never between two instructions: memory orders
 * are not simulated. Time stands still while anybody can run, but for a microsecond now and then. */
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "base/clock.h"
#include "sim/sim.h"
#include "sim/wraps.h"

enum { THREADS_MAX = 6, STACK_BYTES = 1 << 20, PAGE_BYTES = 4096 };

enum thread_state {
    THREAD_FREE,
    THREAD_RUNS,
    THREAD_SLEEPS,
    THREAD_POLLS,
    THREAD_IN_FUTEX,
    THREAD_IN_MUTEX,
    THREAD_JOINS,
    THREAD_DONE
};

static struct thread {
    ucontext_t context;
    enum thread_state state;
    void *(*main)(void *);
    void *argument;
    bool is_engine;
    uint64_t wake_ns;
    uintptr_t futex;        /* its place in a page: addresses differ between mappings */
    pthread_mutex_t *mutex; /* that it waits for */
    int num_locked;
    int joined;
    const void *stack; /* of thread 0: known once another has run */
    size_t stack_bytes;
    void *fake_stack; /* AddressSanitizer's */
} threads[THREADS_MAX];

static int running;
static bool choosing; /* others than threads act, on the running one's stack */
static uint64_t clock_ns = 1000000000;
static struct rng order;
static int32_t switch_per_mille;

uint64_t now_ns(void)
{
    return clock_ns;
}

/* ---- who goes on ---- */

static bool is_unlocked(pthread_mutex_t *mutex)
{
    bool is = pthread_mutex_trylock(mutex) == 0;
    if (is) __real_pthread_mutex_unlock(mutex);
    return is;
}

static bool can_run(const struct thread *t)
{
    switch (t->state) {
    case THREAD_RUNS:
        return true;
    case THREAD_SLEEPS:
    case THREAD_IN_FUTEX:
        return t->wake_ns <= clock_ns;
    case THREAD_IN_MUTEX:
        return is_unlocked(t->mutex);
    case THREAD_POLLS:
        return loop_is_ready();
    case THREAD_JOINS:
        return threads[t->joined].state == THREAD_DONE || threads[t->joined].state == THREAD_FREE;
    default:
        return false;
    }
}

static uint64_t next_event_ns(void)
{
    uint64_t next = world_next_ns();
    for (int i = 0; i < THREADS_MAX; i++) {
        if (threads[i].state == THREAD_SLEEPS || threads[i].state == THREAD_IN_FUTEX)
            next = min_of(next, threads[i].wake_ns);
        if (threads[i].state == THREAD_POLLS) next = min_of(next, loop_next_timer_ns());
    }
    return next;
}

static int choose(void)
{
    for (;;) {
        int ids[THREADS_MAX], count = 0;
        choosing = true;
        world_act();
        choosing = false;
        for (int i = 0; i < THREADS_MAX; i++)
            if (can_run(&threads[i])) ids[count++] = i;
        if (count > 0) return ids[count == 1 ? 0 : rng_below(&order, count)];
        uint64_t next = next_event_ns();
        expect(next != UINT64_MAX, "everything waits, nothing will come: a lost wake-up");
        clock_ns = max_of(clock_ns, next);
    }
}

/* AddressSanitizer is told when the stack changes. */
#ifdef __SANITIZE_ADDRESS__
static int came_from;

static void leave(struct thread *from, const struct thread *to)
{
    came_from = (int)(from - threads);
    bool for_good = from->state == THREAD_DONE || from->state == THREAD_FREE;
    __sanitizer_start_switch_fiber(for_good ? NULL : &from->fake_stack, to->stack, to->stack_bytes);
}

static void arrive(struct thread *at)
{
    struct thread *from = &threads[came_from];
    __sanitizer_finish_switch_fiber(at->fake_stack, &from->stack, &from->stack_bytes);
}
#else
static void leave(struct thread *from, const struct thread *to)
{
    (void)from, (void)to;
}

static void arrive(struct thread *at)
{
    (void)at;
}
#endif

static void give_way(void)
{
    int before = running, next = choose();
    threads[next].state = THREAD_RUNS;
    if (next == before) return;
    trace((uint64_t)next << 56 ^ clock_ns);
    running = next;
    leave(&threads[before], &threads[next]);
    swapcontext(&threads[before].context, &threads[next].context);
    arrive(&threads[before]);
}

void thread_pause(void)
{
    if (thread_is_engine()) engine_may_die(1);
    if (choosing || rng_below(&order, 1000) >= switch_per_mille) return;
    clock_ns += rng_skewed(&order, 50000);
    give_way();
}

void thread_linger(void)
{
    if (!has(FEATURE_thread_switches) || !rng_chance(&order, 50)) return;
    clock_ns += rng_skewed(&order, 3000000);
    give_way();
}

void thread_sleep_until(uint64_t ns)
{
    threads[running].state = THREAD_SLEEPS;
    threads[running].wake_ns = ns;
    give_way();
}

void thread_poll(void)
{
    threads[running].state = THREAD_POLLS;
    give_way();
}

bool thread_is_engine(void)
{
    return threads[running].is_engine && !choosing;
}

static struct thread *engine_thread(void)
{
    int id = 1;
    while (id < THREADS_MAX && (!threads[id].is_engine || threads[id].state == THREAD_FREE)) id++;
    return id < THREADS_MAX ? &threads[id] : NULL;
}

void thread_kill_engine(void)
{
    struct thread *t = engine_thread();
    assert_always(t);
    t->state = THREAD_FREE;
    if (t == &threads[running] && !choosing) give_way();
}

bool thread_engine_sleeps(void)
{
    const struct thread *t = engine_thread();
    return t && t->state == THREAD_IN_FUTEX;
}

/* ---- the clock ---- */

static uint64_t monotonic(void)
{
    thread_pause();
    clock_ns += 100;
    return clock_ns;
}

static uint64_t wall(void)
{
    uint64_t jump =
        has(FEATURE_clock_jumps) ? fake_mix(world.script.seed, clock_ns >> 25) % 7200000000000u : 0;
    return clock_ns + 1700000000000000000u - jump;
}

void threads_init(void)
{
    static const struct clock_source source = {monotonic, wall, NULL};
    clock_set_source(&source);
    order = rng_of("threads", 0);
    threads[0].state = THREAD_RUNS;
    if (has(FEATURE_thread_switches)) switch_per_mille = 1 + (int32_t)rng_skewed(&order, 300);
}

/* ---- what the server calls ---- */

static void begin(int id)
{
    struct thread *t = &threads[id];
    arrive(t);
    t->main(t->argument);
    t->state = THREAD_DONE;
    give_way();
}

/* Apart, or the compiler fears for the loop's variable when getcontext returns twice. */
static __attribute__((noinline)) int find_free(void)
{
    int id = 1;
    while (threads[id].state != THREAD_FREE) id++;
    return id;
}

/* One that a dead thread has left is used again. */
static void *stack_of(const struct thread *t)
{
    void *stack = (void *)(uintptr_t)t->stack;
    if (!stack) stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_always(stack != MAP_FAILED);
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(stack, STACK_BYTES);
#endif
    return stack;
}

static int create(void *(*main)(void *), void *argument, bool is_engine)
{
    int id = find_free();
    struct thread *t = &threads[id];
    *t = (struct thread){.state = THREAD_RUNS,
                         .main = main,
                         .argument = argument,
                         .is_engine = is_engine,
                         .stack = stack_of(t),
                         .stack_bytes = STACK_BYTES};
    getcontext(&t->context);
    t->context.uc_stack.ss_sp = (void *)(uintptr_t)t->stack;
    t->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&t->context, (void (*)(void))begin, 1, id);
    return id;
}

void thread_create_engine(pthread_t *thread, void *(*main)(void *), void *argument)
{
    *thread = (pthread_t)create(main, argument, true);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*main)(void *),
                          void *argument)
{
    (void)attributes;
    *thread = (pthread_t)create(main, argument, false);
    return 0;
}

/* A mask may take longer than a step. */
static void be_slow(void)
{
    const struct thread *t = &threads[running];
    bool makes_masks = running != 0 && !t->is_engine && !choosing && t->num_locked == 0;
    if (makes_masks && has(FEATURE_slow_masks) && rng_chance(&order, 10))
        thread_sleep_until(clock_ns + rng_skewed(&order, 30000000));
}

/* Who holds it has been interrupted, and goes on some time. */
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    be_slow();
    while (pthread_mutex_trylock(mutex) != 0) {
        expect(!choosing, "a worker waits for a mutex");
        threads[running].state = THREAD_IN_MUTEX;
        threads[running].mutex = mutex;
        give_way();
    }
    threads[running].num_locked += !choosing;
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    threads[running].num_locked -= !choosing;
    return __real_pthread_mutex_unlock(mutex);
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    (void)result;
    threads[running].state = THREAD_JOINS;
    threads[running].joined = (int)thread;
    give_way();
    return 0;
}

int __wrap_pthread_setname_np(pthread_t thread, const char *name)
{
    (void)thread, (void)name;
    return 0;
}

static uint64_t wake_time(const struct timespec *timeout)
{
    return timeout ? clock_ns + (uint64_t)timeout->tv_sec * 1000000000 + (uint64_t)timeout->tv_nsec
                   : UINT64_MAX;
}

long __wrap_syscall(long number, const void *address, int operation, uint32_t value,
                    const struct timespec *timeout)
{
    const uint32_t *futex = address;
    uintptr_t place = (uintptr_t)address % PAGE_BYTES;
    bool is_engine = thread_is_engine();
    if (number != SYS_futex) return -1; /* what asks for short slices is refused: there are none here */
    thread_pause();
    if (operation == FUTEX_WAIT) {
        if (*futex != value) {
            if (is_engine && !timeout) mark(MARK_engine_sleep_refused);
            return -1;
        }
        if (is_engine && !timeout) mark(MARK_engine_slept);
        threads[running].state = THREAD_IN_FUTEX;
        threads[running].wake_ns = wake_time(timeout);
        threads[running].futex = place;
        give_way();
        return 0;
    }
    for (int i = 0; i < THREADS_MAX && value > 0; i++) {
        if (threads[i].state != THREAD_IN_FUTEX || threads[i].futex != place) continue;
        threads[i].state = THREAD_RUNS;
        value--;
    }
    return 0;
}

ssize_t __wrap_getrandom(void *to, size_t bytes, unsigned flags)
{
    static uint64_t count;
    (void)flags;
    for (size_t i = 0; i < bytes; i++) ((uint8_t *)to)[i] = (uint8_t)fake_mix(world.script.seed, ++count);
    return (ssize_t)bytes;
}
