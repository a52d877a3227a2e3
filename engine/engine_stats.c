#include "engine/engine_internal.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/metrics.h"

/* The rate forgets with this time constant. Only time in which the engine had work counts, so that the rate
 * says what the machine can do and an idle hour does not make Retry-After lie. */
static const double RATE_SECONDS = 5.0;

static void store32(_Atomic int32_t *counter, int32_t value)
{
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

static void store64(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

void engine_count_step(struct engine *e, const struct flight *flight)
{
    struct engine_counters *c = &e->counters;
    uint64_t end_ns = clock_monotonic_ns();
    uint64_t begin_ns =
        max_of(flight->begin_ns, atomic_load_explicit(&c->last_step_end_ns, memory_order_relaxed));
    double seconds = (double)(end_ns - begin_ns) * 1e-9;
    if (seconds > 0) {
        double rate = atomic_load_explicit(&c->tokens_per_second, memory_order_relaxed);
        double step_rate = flight->plan.num_tokens / seconds;
        double weight = rate == 0 ? 1.0 : seconds / (RATE_SECONDS + seconds);
        atomic_store_explicit(&c->tokens_per_second, rate + (step_rate - rate) * weight,
                              memory_order_relaxed);
    }
    counter_add(&c->num_steps, 1);
    store64(&c->last_step_end_ns, end_ns);
    struct metric *iteration = atomic_load_explicit(&e->iteration_metric, memory_order_acquire);
    if (iteration) metric_observe(iteration, flight->plan.num_tokens);
}

void engine_copy_scheduler_stats(struct engine *e)
{
    struct engine_counters *c = &e->counters;
    struct scheduler_stats s;
    scheduler_stats(e->scheduler, &s);
    store32(&c->num_running, s.num_running);
    store32(&c->num_waiting, s.num_waiting);
    store32(&c->num_free_blocks, s.num_free_blocks);
    store32(&c->num_cached_blocks, s.num_cached_blocks);
    store32(&c->num_held_blocks, s.num_held_blocks);
    store64(&c->prefix_query_tokens, s.prefix_query_tokens);
    store64(&c->prefix_hit_tokens, s.prefix_hit_tokens);
    store64(&c->num_preemptions, s.num_preemptions);
}

void engine_stats(const struct engine *e, struct engine_stats *out)
{
    const struct engine_counters *c = &e->counters;
#define LOAD(field) .field = atomic_load_explicit(&c->field, memory_order_relaxed)
    *out = (struct engine_stats){
        LOAD(num_running),      LOAD(num_waiting),         .num_blocks = e->options.num_blocks,
        LOAD(num_free_blocks),  LOAD(num_cached_blocks),   LOAD(num_held_blocks),
        LOAD(num_steps),        LOAD(last_step_end_ns),    LOAD(prompt_tokens),
        LOAD(generated_tokens), LOAD(prefix_query_tokens), LOAD(prefix_hit_tokens),
        LOAD(num_preemptions),  LOAD(discarded_tokens),    LOAD(tokens_per_second),
    };
#undef LOAD
}

void engine_set_iteration_metric(struct engine *e, struct metric *iteration_tokens)
{
    atomic_store_explicit(&e->iteration_metric, iteration_tokens, memory_order_release);
}
