/* heap.c - the server's allocator: counts what is out, fails on demand, and fills memory with rubbish before
 * it is used and after it is given back. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "sim/sim.h"
#include "sim/wraps.h"

static uint64_t num_live, num_live_of_engine, num_failed;
static struct rng failures;
static int32_t fail_every, fail_countdown;
static bool forbidden, exempt;

void *keep_alloc(size_t bytes)
{
    void *p = __real_malloc(bytes);
    assert_always(p);
    return memset(p, 0, bytes);
}

void *keep_realloc(void *p, size_t bytes)
{
    p = __real_realloc(p, bytes);
    assert_always(p);
    return p;
}

void keep_free(void *p)
{
    __real_free(p);
}

uint64_t heap_num_live(void)
{
    return num_live + num_live_of_engine;
}

uint64_t heap_num_live_of_engine(void)
{
    return num_live_of_engine;
}

void heap_forget_engine(void)
{
    num_live_of_engine = 0;
    forbidden = false;
    fail_countdown = 0;
}

uint64_t heap_num_failed(void)
{
    return num_failed;
}

void heap_fail_every(int32_t n)
{
    fail_every = n;
}

void heap_fail_once(int32_t n)
{
    fail_countdown = n;
}

void heap_forbid(bool f)
{
    forbidden = f;
}

void heap_exempt(bool e)
{
    exempt = e;
}

static bool fails(void)
{
    if (exempt) return false;
    expect(!(forbidden && thread_is_engine()), "the engine allocates memory in a turn");
    bool now = fail_countdown > 0 && --fail_countdown == 0;
    if (fail_every > 0 && !thread_is_engine()) now |= rng_below(&failures, fail_every) == 0;
    if (!now) return false;
    num_failed++;
    mark(MARK_allocations_failed);
    say("an allocation fails");
    return true;
}

/* The beginning is enough to be noticed. */
static void *spoil(void *p, int value, size_t bytes)
{
    enum { SPOILED_BYTES = 512 };
    return memset(p, value, min_of(bytes, (size_t)SPOILED_BYTES));
}

static void *hand_out(void *p)
{
    assert_always(p);
    *(thread_is_engine() ? &num_live_of_engine : &num_live) += 1;
    return p;
}

void *__wrap_malloc(size_t bytes)
{
    if (fails()) return NULL;
    return spoil(hand_out(__real_malloc(bytes)), 0xA5, bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total) || fails()) return NULL;
    return memset(hand_out(__real_malloc(total)), 0, total);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    if (fails()) return NULL;
    return spoil(hand_out(__real_aligned_alloc(alignment, bytes)), 0xA5, bytes);
}

void __wrap_free(void *p)
{
    if (!p) return;
    assert_always(heap_num_live() > 0);
    *(thread_is_engine() ? &num_live_of_engine : &num_live) -= 1;
    spoil(p, 0x5A, malloc_usable_size(p));
    __real_free(p);
}

/* Always moves, so that nobody gets away with an old pointer. */
void *__wrap_realloc(void *p, size_t bytes)
{
    void *moved = __wrap_malloc(bytes);
    if (!moved || !p) return moved;
    memcpy(moved, p, min_of(bytes, malloc_usable_size(p)));
    __wrap_free(p);
    return moved;
}

char *__wrap_strndup(const char *text, size_t n)
{
    size_t length = min_of(strlen(text), n);
    char *copy = __wrap_malloc(length + 1);
    if (!copy) return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *__wrap_strdup(const char *text)
{
    return __wrap_strndup(text, strlen(text));
}

void heap_init(void)
{
    failures = rng_of("heap", 0);
    cJSON_InitHooks(&(cJSON_Hooks){__wrap_malloc, __wrap_free});
}
