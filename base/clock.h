/* clock.h - the only source of time. Monotonic for everything that is compared, wall clock for
 * what a person reads, and what a thread has had of a processor. A simulator replaces them by clock_set_source. Thread: any. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

struct clock_source {
    uint64_t (*monotonic_ns)(void);
    uint64_t (*wall_ns)(void);      /* since 1970-01-01 UTC */
    uint64_t (*processor_ns)(void); /* the calling thread's; NULL: 0 */
};

uint64_t clock_monotonic_ns(void);
uint64_t clock_wall_ns(void);
uint64_t clock_processor_ns(void);

/* NULL puts the machine's own clocks back. Call before other threads start. */
void clock_set_source(const struct clock_source *source);

/* Writes RFC 3339 with milliseconds and Z, e.g. 2026-11-21T06:50:17.123Z (24 bytes and a NUL). */
void clock_format_wall(uint64_t wall_ns, char text[32]);

#endif
