/* device.c - the model and its device: the hash model with a latency, and failures on order; and loading,
 * which makes it. */
#include "sim/watch.h"

#include "base/clock.h"
#include "engine/engine_internal.h"
#include "engine/load.h"
#include "unit/engine/fake_model.h"

static struct model *model;
static struct rng latency;
static uint64_t ready_ns[FAKE_FLIGHTS_MAX], mean_latency_ns;
static int oldest, num_in_flight;
static int64_t num_late_seen, num_mixed_seen;
static bool *was_free; /* by block */

static void on_begin(const struct step *step)
{
    uint64_t ns = 20000 + rng_skewed(&latency, mean_latency_ns);
    if (rng_chance(&latency, 1)) ns *= 50;
    uint64_t begin = num_in_flight > 0 ? max_of(now_ns(), ready_ns[oldest]) : now_ns();
    ready_ns[(oldest + num_in_flight++) % FAKE_FLIGHTS_MAX] = begin + ns;
    watch_step(step);
    thread_pause();
}

static void on_wait(void)
{
    uint64_t ready = ready_ns[oldest];
    oldest = (oldest + 1) % FAKE_FLIGHTS_MAX;
    num_in_flight--;
    if (ready > now_ns()) thread_sleep_until(ready);
    thread_pause();
    if (model->num_late_inputs > num_late_seen) mark(MARK_late_inputs);
    if (model->num_mixed_steps > num_mixed_seen) mark(MARK_mixed_steps);
    num_late_seen = model->num_late_inputs;
    num_mixed_seen = model->num_mixed_steps;
}

void device_poison_freed(const struct block_manager *blocks)
{
    for (int32_t id = 0; id < world.num_blocks; id++) {
        bool is_free = block_manager_ref_count(blocks, id) == 0 && !block_manager_is_known(blocks, id);
        if (is_free && !was_free[id])
            for (int layer = 0; layer < FAKE_LAYERS; layer++)
                for (int i = 0; i < BLOCK_SIZE; i++) model->kv[layer][id * BLOCK_SIZE + i] = 0xDEAD;
        was_free[id] = is_free;
    }
}

bool device_history_failed(void)
{
    return model->num_histories == model->options.fail_at_history;
}

/* ---- load.c's place ---- */

const char *const load_phase_names[LOAD_PHASES] = {"files", "tokenizer", "device", "weights", "engine"};

static const struct generation_defaults no_defaults = {-1, -1, -1, -1, -1, -1};

const struct model_config *model_files_config(const struct model_files *files)
{
    (void)files;
    return &model->config;
}

const struct generation_defaults *model_files_generation_defaults(const struct model_files *files)
{
    (void)files;
    return &no_defaults;
}

static struct fake_options make_device_options(struct rng *rng)
{
    struct fake_options options = {.num_steps_in_flight = has(FEATURE_two_steps) ? 2 : 1,
                                   .prefill_decode_equal = !has(FEATURE_unequal_halves),
                                   .num_blocks = world.num_blocks,
                                   .fail_at_step = -1,
                                   .on_begin = on_begin,
                                   .on_wait = on_wait};
    world.device_may_fail = has(FEATURE_device_failures);
    if (!world.device_may_fail) return options;
    if (has(FEATURE_penalties) && rng_chance(rng, 40))
        options.fail_at_history = 1 + (int64_t)rng_skewed(rng, 20);
    else
        options.fail_at_step = (int64_t)rng_skewed(rng, 1000);
    return options;
}

static int create_engine(struct load *load, struct error *err)
{
    struct engine_options options = {.max_model_len = MODEL_LEN,
                                     .max_num_seqs = world.max_num_seqs,
                                     .max_num_batched_tokens = world.max_num_batched_tokens,
                                     .max_num_logits = world.max_num_logits,
                                     .num_blocks = world.num_blocks,
                                     .enable_prefix_caching = load->config->enable_prefix_caching,
                                     .wake_loop = load->wake_loop,
                                     .wake_context = load->wake_context};
    int32_t num_slots = world.max_num_seqs + (int32_t)load->config->max_queued_requests;
    if (!model->reads) {
        struct step_limits limits;
        engine_step_limits(&options, model_device(model), &limits);
        fake_model_prepare(model, &limits);
    }
    int status = request_slots_create(num_slots, MODEL_LEN, &load->slots, err);
    if (!status) status = engine_create(model, load->slots, &options, &load->engine, err);
    return status;
}

/* A start that runs out of memory at any allocation leaves nothing behind. */
static void fail_starts(const struct load *like, struct rng *rng)
{
    struct load copy = *like, *load = &copy;
    load->engine = NULL;
    load->slots = NULL;
    for (int i = 0; has(FEATURE_start_failures) && i < 3; i++) {
        struct error err = {0};
        uint64_t live = heap_num_live();
        heap_fail_once(1 + rng_below(rng, 25));
        int status = create_engine(load, &err);
        heap_fail_once(0);
        if (status) {
            expect(status == STATUS_NO_MEMORY && err.text[0], "a failed start says %d: %s", status, err.text);
            mark(MARK_starts_failed);
        }
        if (load->engine) engine_destroy(load->engine);
        if (load->slots) request_slots_destroy(load->slots);
        load->engine = NULL;
        load->slots = NULL;
        expect(heap_num_live() == live, "a failed start leaves memory behind");
    }
}

int load_run(struct load *load, struct error *err)
{
    struct rng rng = rng_of("load", 0);
    struct fake_options options = make_device_options(&rng);
    latency = rng_of("latency", 0);
    mean_latency_ns = 1 + rng_skewed(&latency, 8000000);
    model = fake_model_create(&options);
    was_free = keep_alloc((size_t)world.num_blocks * sizeof(*was_free));
    load->model = model;
    if (create_engine(load, err)) return STATUS_NO_MEMORY;
    fail_starts(load, &rng);
    world.engine = load->engine;
    load->tokenizer = (struct tokenizer *)model; /* words.c needs none */
    load->max_model_len = MODEL_LEN;
    load->max_queued_tokens = load->config->max_queued_tokens ? load->config->max_queued_tokens : 1 << 20;
    return engine_start(load->engine, err);
}

void load_release(struct load *load)
{
    if (!load->engine) return;
    struct engine_stats stats;
    engine_stop(load->engine);
    heap_exempt(true);
    engine_check(load->engine);
    heap_exempt(false);
    engine_stats(load->engine, &stats);
    expect(stats.num_running == 0 && stats.num_waiting == 0 && stats.num_held_blocks == 0,
           "the engine stopped with %d running, %d waiting, %d blocks held", stats.num_running,
           stats.num_waiting, stats.num_held_blocks);
    expect(request_slots_num_free(load->slots) == request_slots_count(load->slots), "slots are lost");
    engine_destroy(load->engine);
    request_slots_destroy(load->slots);
    fake_model_destroy(model);
}
