/* engine_pace.c - when the next step is planned, where the device takes a second one (step_pace.h). */
#include "base/check.h"
#include "base/clock.h"
#include "engine/engine_internal.h"

enum { DRY_NS = 20000 }; /* whoever waits no longer for a step's end came when it had ended, more or less */

uint64_t engine_flight_start_ns(const struct engine *e, const struct flight *flight)
{
    return max_of(flight->begin_ns,
                  atomic_load_explicit(&e->counters->last_step_end_ns, memory_order_relaxed));
}

static double predict_us(const struct engine *e, const struct flight *flight)
{
    const struct step_prices prices = step_cost_prices(&e->cost);
    return step_prices_us(&prices, &flight->plan.work);
}

uint64_t engine_busy_until_ns(const struct engine *e)
{
    if (e->failed || e->num_in_flight == 0 || e->num_in_flight == e->limits.num_steps_in_flight) return 0;
    const struct flight *flight = &e->flights[e->oldest_flight];
    double us = step_pace_wait_us(&e->pace, predict_us(e, flight));
    return us > 0 ? engine_flight_start_ns(e, flight) + (uint64_t)(us * 1000) : 0;
}

void engine_learn_pace(struct engine *e, uint64_t wait_begin_ns)
{
    if (e->num_in_flight < 2) return;
    const struct flight *ended = &e->flights[e->oldest_flight],
                        *next = &e->flights[(e->oldest_flight + 1) % e->limits.num_steps_in_flight];
    uint64_t now_ns = clock_monotonic_ns();
    double us = (double)(now_ns - engine_flight_start_ns(e, ended)) / 1000;
    step_pace_learn(&e->pace, next->host_us, predict_us(e, ended), us, now_ns - wait_begin_ns < DRY_NS);
}

void engine_notice_end(struct engine *e, uint64_t now_ns)
{
    if (now_ns < e->turn_ns && model_step_has_ended(e->model)) e->turn_ns = now_ns;
}
