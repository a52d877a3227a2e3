/* check.h - asserts in three tiers, and arithmetic on sizes that cannot wrap.
 *
 *   assert_always  cheap, on in production: a broken invariant is worse than a restart
 *   assert_debug   on in test and sanitizer builds (FLASHD_DEBUG)
 *   *_check()      whole-structure walks, each in its own module
 *
 * Never assert on client data or on the contents of a file: those are statuses. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define assert_always(condition)                                                                             \
    do {                                                                                                     \
        if (__builtin_expect(!(condition), 0)) check_failed(#condition, __FILE__, __LINE__);                 \
    } while (0)

#ifdef FLASHD_DEBUG
#define assert_debug(condition) assert_always(condition)
#else
#define assert_debug(condition) ((void)sizeof(condition))
#endif

__attribute__((noreturn)) static inline void check_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "flashd: %s:%d: invariant broken: %s\n", file, line, condition);
    abort();
}

/* Each returns false, leaving *out alone, when the true result does not fit. */
static inline bool checked_add(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool checked_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

#define array_length(a) (sizeof(a) / sizeof((a)[0]))
/* Each operand is evaluated once. Not for constants: an enum or the size of an array. */
#define min_of(a, b) extreme_of(a, <, b, __COUNTER__)
#define max_of(a, b) extreme_of(a, >, b, __COUNTER__)
#define extreme_of(a, is_before, b, number) extreme_named(a, is_before, b, number)
#define extreme_named(a, is_before, b, number)                                                               \
    __extension__({                                                                                          \
        __typeof__(1 ? (a) : (b)) first_##number = (a), second_##number = (b);                               \
        first_##number is_before second_##number ? first_##number : second_##number;                         \
    })

static inline int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline size_t align_up(size_t n, size_t alignment)
{
    return (n + alignment - 1) / alignment * alignment;
}

#endif
