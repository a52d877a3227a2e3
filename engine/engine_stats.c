#include "engine/engine_internal.h"

#include "base/check.h"
#include "base/clock.h"

/* The rate forgets with this time constant. Only time in which the engine had work counts, so that the rate
 * says what the machine can do and an idle hour does not make Retry-After lie. */
static const double RATE_SECONDS = 5.0;

static void store32(_Atomic int32_t *counter, int32_t value)
{
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

/* What another engine knew stays until this one knows better. */
static void store_known(_Atomic double *counter, double value)
{
    if (value > 0) atomic_store_explicit(counter, value, memory_order_relaxed);
}

static void store64(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

static void count_step_tokens(struct link_counters *c, int32_t num_tokens)
{
    int bucket = 0;
    while (bucket < STEP_TOKENS_BOUNDS && num_tokens > step_tokens_bounds[bucket]) bucket++;
    counter_add(&c->step_tokens[bucket], 1);
    counter_add(&c->step_tokens_sum, (uint64_t)num_tokens);
}

static void learn_cost(struct engine *e, const struct flight *flight, double us)
{
    struct link_counters *c = e->counters;
    step_cost_learn(&e->cost, &flight->plan.work, us);
    struct step_prices p = step_cost_prices(&e->cost);
    scheduler_set_prices(e->scheduler, &p);
    store_known(&c->prompt_token_us, p.prompt_token);
    store_known(&c->prompt_pair_us, p.prompt_pair);
    store_known(&c->prompt_step_us, p.prompt_step);
    store_known(&c->decode_token_us, p.decode_token);
    store_known(&c->decode_pair_us, p.decode_pair);
    store_known(&c->decode_step_us, p.decode_step);
}

void engine_count_step(struct engine *e, const struct flight *flight)
{
    struct link_counters *c = e->counters;
    counter_add(&c->num_steps, 1); /* at once: who was on board is not any more */
    uint64_t end_ns = clock_monotonic_ns();
    double seconds = (double)(end_ns - engine_flight_start_ns(e, flight)) * 1e-9;
    if (seconds > 0) {
        double rate = atomic_load_explicit(&c->tokens_per_second, memory_order_relaxed);
        double step_rate = flight->plan.num_tokens / seconds;
        double weight = rate == 0 ? 1.0 : seconds / (RATE_SECONDS + seconds);
        atomic_store_explicit(&c->tokens_per_second, rate + (step_rate - rate) * weight,
                              memory_order_relaxed);
    }
    step_rates_add(&e->rates, seconds, flight->plan.num_prefill_tokens,
                   flight->plan.num_tokens - flight->plan.num_prefill_tokens);
    store_known(&c->prefill_seconds_per_token, step_rates_prefill_seconds_per_token(&e->rates));
    store_known(&c->decode_seconds_per_step, step_rates_decode_seconds_per_step(&e->rates));
    learn_cost(e, flight, seconds * 1e6);
    store64(&c->last_step_end_ns, end_ns);
    count_step_tokens(c, flight->plan.num_tokens);
}

void engine_count_dequeued(struct engine *e, const struct request_slot *slot)
{
    counter_add(&e->counters->num_dequeued, 1);
    counter_add(&e->counters->dequeued_prompt_tokens, (uint64_t)max_of(slot->input.num_prompt_tokens, 0));
}

void engine_count_lookup(struct engine *e, const struct sequence *seq)
{
    if (!e->options.enable_prefix_caching || seq->prompt_logprobs) return;
    counter_add(&e->counters->prefix_query_tokens, (uint64_t)seq->num_prompt);
    counter_add(&e->counters->prefix_hit_tokens, (uint64_t)seq->num_cached_tokens);
}

void engine_copy_scheduler_stats(struct engine *e)
{
    struct link_counters *c = e->counters;
    struct scheduler_stats s;
    scheduler_stats(e->scheduler, &s);
    store32(&c->num_running, s.num_running);
    store32(&c->num_waiting, s.num_waiting);
    store32(&c->num_free_blocks, s.num_free_blocks);
    store32(&c->num_cached_blocks, s.num_cached_blocks);
    store32(&c->num_held_blocks, s.num_held_blocks);
    store32(&c->num_host_blocks, e->options.num_host_blocks);
    store32(&c->num_free_host_blocks, s.num_free_host_blocks);
    store64(&c->num_preemptions, e->inherited.num_preemptions + s.num_preemptions);
    store64(&c->num_saved, e->inherited.num_saved + s.num_saved);
}
