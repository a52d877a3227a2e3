/* pace.c - when the engine plans: it waits beside a running step alone, no longer than that is certain to take, not for one that has
 * ended, and has taken in all that was submitted meanwhile. */
#include "scheduler/scheduler_internal.h"
#include "sim/device.h"
#include "sim/watch.h"
#include "sim/wraps.h"

enum { NOTICED_NS = 200000 };

void __wrap_link_sleep_at_most(struct link *l, uint32_t seen, uint64_t timeout_ns)
{
    const struct engine *e = world.engine;
    const struct flight *running = &e->flights[e->oldest_flight];
    uint64_t begin_ns = max_of(running->begin_ns, atomic_load(&e->counters->last_step_end_ns));
    double turn_us = (double)(e->turn_ns - begin_ns) / 1000,
           predicted_us = step_prices_us(&e->scheduler->prices, &running->plan.work),
           certain_us = step_pace_wait_us(&e->pace, predicted_us);
    expect(e->num_in_flight == 1 && has(FEATURE_two_steps), "it waits to plan with %d steps in flight",
           e->num_in_flight);
    expect(turn_us <= certain_us + 1, "it waits until %.0f us of a step that lasts for %.0f for certain",
           turn_us, certain_us);
    expect(sim_device_take_look(), "it sleeps without a look at the step");
    expect(timeout_ns <= NOTICED_NS, "it sleeps for %.0f us whether or not the step ends",
           (double)timeout_ns / 1000);
    mark(MARK_planned_late);
    __real_link_sleep_at_most(l, seen, timeout_ns);
}

void pace_check_arrivals(const struct engine *e)
{
    for (int32_t i = 0; i < SLOTS_MAX; i++) {
        const struct watch *w = &watches[i];
        if (!w->active || w->submitted_ns == 0 || w->submitted_ns >= e->turn_ns || !watch_is_unfinished(i))
            continue;
        expect(e->seq_of_slot[i] != NO_SEQUENCE, "%s came before a plan and is not in it", w->request->id);
    }
}
