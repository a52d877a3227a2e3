#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static uint64_t read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t machine_monotonic_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

static uint64_t machine_wall_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

static uint64_t machine_processor_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

static const struct clock_source machine = {machine_monotonic_ns, machine_wall_ns, machine_processor_ns};
static const struct clock_source *source = &machine;

void clock_set_source(const struct clock_source *s)
{
    source = s ? s : &machine;
}

uint64_t clock_monotonic_ns(void)
{
    return source->monotonic_ns();
}

uint64_t clock_wall_ns(void)
{
    return source->wall_ns();
}

uint64_t clock_processor_ns(void)
{
    return source->processor_ns ? source->processor_ns() : 0;
}

void clock_format_wall(uint64_t wall_ns, char text[32])
{
    time_t seconds = (time_t)(wall_ns / 1000000000u);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    size_t n = strftime(text, 32, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text + n, 32 - n, ".%03uZ", (unsigned)(wall_ns / 1000000u % 1000u));
}
