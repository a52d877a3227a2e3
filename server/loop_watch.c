#include "server/loop_watch.h"

#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/log.h"

/* Per thread, so that tests may run several loops. */
static _Thread_local struct {
    const char *name; /* of the callback that runs; NULL: the loop waits */
    uint64_t begin_ns;
    uint64_t processor_ns; /* the thread's, when the loop last went to wait */
} watch;

static void end_measurement(uint64_t now_ns)
{
    uint64_t ms = (now_ns - watch.begin_ns) / 1000000;
    if (watch.name && ms > LOOP_WATCH_MS)
        log_warning("the loop was held up for %llu ms by: %s; it had a processor for %llu ms at most",
                    (unsigned long long)ms, watch.name,
                    (unsigned long long)(clock_processor_ns() - watch.processor_ns) / 1000000);
    watch.name = NULL;
}

void loop_watch_enter(const char *name)
{
    uint64_t now_ns = clock_monotonic_ns();
    end_measurement(now_ns);
    watch.name = name;
    watch.begin_ns = now_ns;
}

void loop_watch_leave(void)
{
    if (watch.name) end_measurement(clock_monotonic_ns());
    watch.processor_ns = clock_processor_ns();
}
