/* device.c - the model and its device: the hash model with a latency, failures on order, and requests that it
 * dies of. */
#include "sim/device.h"

#include <signal.h>

#include "engine/engine_internal.h"
#include "sim/watch.h"
#include "unit/engine/fake_model.h"

static struct model *model;
static struct rng latency;
static uint64_t ready_ns[FAKE_FLIGHTS_MAX], mean_latency_ns, copy_latency_ns;
static int oldest, num_in_flight;
static bool seen_running; /* the oldest step, when the engine has looked */
static int64_t num_late_seen, num_mixed_seen;
static bool *was_free; /* by block */

/* ---- steps ---- */

enum { LAUNCH_NS = 50000 }; /* at most, of the host; the step runs already */

/* A request that kills does so when a step that computes its fatal token is launched, or when it runs. */
static void die_of_poison(const struct plan *plan, bool at_launch)
{
    if (watch_plan_is_fatal(plan, at_launch)) engine_end_process(0, SIGSEGV);
}

static const struct plan *oldest_plan(void)
{
    return &world.engine->flights[world.engine->oldest_flight].plan;
}

static void on_begin(const struct step *step)
{
    uint64_t ns = 20000 + rng_skewed(&latency, mean_latency_ns);
    if (rng_chance(&latency, 1)) ns *= 50;
    uint64_t begin = num_in_flight > 0 ? max_of(now_ns(), ready_ns[oldest]) : now_ns();
    ready_ns[(oldest + num_in_flight++) % FAKE_FLIGHTS_MAX] = begin + ns;
    die_of_poison(watch_step(step), true);
    thread_sleep_until(now_ns() + rng_skewed(&latency, LAUNCH_NS));
}

static void on_wait(void)
{
    uint64_t ready = engine_gets_stuck() ? UINT64_MAX : ready_ns[oldest];
    oldest = (oldest + 1) % FAKE_FLIGHTS_MAX;
    num_in_flight--;
    if (ready > now_ns()) thread_sleep_until(ready);
    die_of_poison(oldest_plan(), false);
    thread_pause();
    if (model->num_late_inputs > num_late_seen) mark(MARK_late_inputs);
    if (model->num_mixed_steps > num_mixed_seen) mark(MARK_mixed_steps);
    num_late_seen = model->num_late_inputs;
    num_mixed_seen = model->num_mixed_steps;
}

static bool has_ended(void)
{
    seen_running = ready_ns[oldest] > now_ns();
    return !seen_running;
}

bool sim_device_take_look(void)
{
    bool seen = seen_running;
    seen_running = false;
    return seen;
}

/* ---- copies of blocks ---- */

/* Sometimes slower than any step, so that computing again is cheaper. */
static int on_copy(bool save, const int32_t *block_ids, const int32_t *host_ids, int32_t num_blocks)
{
    if (world.device_may_fail && rng_chance(&latency, 60)) {
        mark(MARK_copy_failed);
        return STATUS_DEVICE;
    }
    thread_sleep_until(now_ns() + (uint64_t)num_blocks * rng_skewed(&latency, copy_latency_ns));
    watch_copy(save, block_ids, host_ids, num_blocks);
    thread_pause();
    return 0;
}

static int on_state_copies(const struct state_copy *copies, int32_t num_copies)
{
    if (world.device_may_fail && rng_chance(&latency, 10)) {
        mark(MARK_copy_failed);
        return STATUS_DEVICE;
    }
    watch_state_copies(copies, num_copies);
    return 0;
}

/* ---- what is looked at from outside ---- */

/* Those of steps in flight are still to be read. */
static void spoil_freed_states(const struct block_manager *blocks)
{
    for (int32_t i = 0; i < world.num_states && model->num_in_flight == 0; i++) {
        int32_t id = world.num_blocks + i;
        if (block_manager_ref_count(blocks, id) == 0 && !block_manager_is_known(blocks, id))
            model->kept[i] = (struct fake_kept){-1, 0xDEAD};
    }
}

void sim_device_spoil_freed(const struct block_manager *blocks)
{
    for (int32_t id = 0; id < world.num_blocks; id++) {
        bool is_free = block_manager_ref_count(blocks, id) == 0 && !block_manager_is_known(blocks, id);
        if (is_free && !was_free[id])
            for (int layer = 0; layer < FAKE_LAYERS; layer++)
                for (int i = 0; i < BLOCK_SIZE; i++) model->kv[layer][id * BLOCK_SIZE + i] = 0xDEAD;
        was_free[id] = is_free;
    }
    spoil_freed_states(blocks);
}

bool sim_device_history_failed(void)
{
    return model->num_histories == model->options.fail_at_history;
}

/* ---- life ---- */

static struct fake_options make_options(struct rng *rng)
{
    struct fake_options options = {.num_steps_in_flight = has(FEATURE_two_steps) ? 2 : 1,
                                   .prefill_decode_equal = !has(FEATURE_unequal_halves),
                                   .num_blocks = world.num_blocks,
                                   .window = world.window,
                                   .window_is_chunk = world.window_is_chunk,
                                   .has_states = has(FEATURE_states),
                                   .fail_at_step = -1,
                                   .on_begin = on_begin,
                                   .on_wait = on_wait,
                                   .has_ended = has_ended,
                                   .on_copy = on_copy,
                                   .on_state_copies = on_state_copies};
    world.device_may_fail = has(FEATURE_device_failures);
    if (!world.device_may_fail) return options;
    if (has(FEATURE_penalties) && rng_chance(rng, 40))
        options.fail_at_history = 1 + (int64_t)rng_skewed(rng, 20);
    else
        options.fail_at_step = (int64_t)rng_skewed(rng, 1000);
    return options;
}

void sim_device_open(int engine_idx)
{
    struct rng rng = rng_of("load", (uint64_t)engine_idx);
    struct fake_options options = make_options(&rng);
    latency = rng_of("latency", (uint64_t)engine_idx);
    mean_latency_ns = 1 + rng_skewed(&latency, 8000000);
    copy_latency_ns = 1 + rng_skewed(&latency, 4000000);
    model = fake_model_create(&options);
    was_free = keep_alloc((size_t)world.num_blocks * sizeof(*was_free));
}

struct model *sim_device_model(const struct engine_options *options)
{
    struct step_limits limits;
    if (model->reads) return model;
    engine_step_limits(options, model_device(model), &limits);
    fake_model_prepare(model, &limits);
    return model;
}

void sim_device_forget(void)
{
    model = NULL;
    oldest = num_in_flight = 0;
    num_late_seen = num_mixed_seen = 0;
    keep_free(was_free);
    was_free = NULL;
}

void sim_device_close(void)
{
    fake_model_destroy(model);
    sim_device_forget();
}
