/* device.c - the model and its device: the hash model with a latency, and failures on order; and loading,
 * which makes it. The engine is a thread. */
#include "sim/watch.h"

#include "base/clock.h"
#include "engine/engine_internal.h"
#include "server/engine_host.h"
#include "sim/wraps.h"
#include "text/model_text.h"
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

static int create_engine(struct link *link, struct engine **out, struct error *err)
{
    struct engine_options options = {.max_model_len = MODEL_LEN,
                                     .max_num_seqs = world.max_num_seqs,
                                     .max_num_batched_tokens = world.max_num_batched_tokens,
                                     .max_num_logits = world.max_num_logits,
                                     .num_blocks = world.num_blocks,
                                     .enable_prefix_caching = world.config.enable_prefix_caching};
    const struct link_facts facts = {.vocab_size = FAKE_VOCAB,
                                     .eos_ids = {FAKE_EOS},
                                     .num_eos_ids = 1,
                                     .generation = {-1, -1, -1, -1, -1, -1},
                                     .num_slots =
                                         world.max_num_seqs + (int32_t)world.config.max_queued_requests,
                                     .max_model_len = MODEL_LEN,
                                     .max_num_seqs = world.max_num_seqs,
                                     .max_num_batched_tokens = world.max_num_batched_tokens,
                                     .block_size = BLOCK_SIZE,
                                     .num_blocks = world.num_blocks,
                                     .max_queued_tokens = (uint64_t)world.config.max_queued_tokens};
    if (!model->reads) {
        struct step_limits limits;
        engine_step_limits(&options, model_device(model), &limits);
        fake_model_prepare(model, &limits);
    }
    int status = link_open(link, &facts, err);
    return status ? status : engine_create(model, link, &options, out, err);
}

/* A start that runs out of memory at any allocation leaves nothing behind. */
static void fail_starts(struct rng *rng)
{
    for (int i = 0; has(FEATURE_start_failures) && i < 3; i++) {
        struct error err = {0};
        struct link *link = NULL;
        struct engine *engine = NULL;
        uint64_t live = heap_num_live();
        heap_fail_once(1 + rng_below(rng, 25));
        int status = link_create(&link, &err);
        if (!status) status = create_engine(link, &engine, &err);
        heap_fail_once(0);
        if (status) {
            expect(status == STATUS_NO_MEMORY && err.text[0], "a failed start says %d: %s", status, err.text);
            mark(MARK_starts_failed);
        }
        if (engine) engine_destroy(engine);
        link_destroy(link);
        expect(heap_num_live() == live, "a failed start leaves memory behind");
    }
}

/* ---- engine/run.c's and engine_host.c's place ---- */

static pthread_t thread;

static void load(struct link *link)
{
    struct rng rng = rng_of("load", 0);
    struct fake_options options = make_device_options(&rng);
    struct error err = {0};
    latency = rng_of("latency", 0);
    mean_latency_ns = 1 + rng_skewed(&latency, 8000000);
    model = fake_model_create(&options);
    was_free = keep_alloc((size_t)world.num_blocks * sizeof(*was_free));
    assert_always(create_engine(link, &world.engine, &err) == 0);
    fail_starts(&rng);
}

static void *engine_main_of_thread(void *context)
{
    struct engine_host *h = context;
    struct rng rng = rng_of("loading", 0);
    thread_sleep_until(now_ns() + rng_skewed(&rng, 50000000));
    load(h->link);
    link_set_state(h->link, LINK_READY, NULL);
    engine_serve(world.engine);
    return NULL;
}

static void wake(void *context)
{
    uv_async_send(&((struct engine_host *)context)->wake);
}

static void on_wake(uv_async_t *async)
{
    struct engine_host *h = async->data;
    h->on_wake(h->context);
}

void engine_host_init(struct engine_host *h)
{
    uv_async_init(h->loop, &h->wake, on_wake);
    h->wake.data = h;
    h->main = (engine_main *)(uintptr_t)1; /* a thread; the server only asks whether it is one */
}

int engine_host_start(struct engine_host *h, struct error *err)
{
    (void)err;
    link_set_front_wake(h->link, wake, h);
    pthread_create(&thread, NULL, engine_main_of_thread, h);
    h->runs = true;
    return 0;
}

void engine_host_kill(struct engine_host *h)
{
    (void)h;
}

void engine_host_close(struct engine_host *h)
{
    if (!uv_is_closing((uv_handle_t *)&h->wake)) uv_close((uv_handle_t *)&h->wake, NULL);
}

void engine_host_join(struct engine_host *h)
{
    struct link_stats stats;
    if (!h->runs) return;
    if (!scheduler_is_empty(world.engine->scheduler)) mark(MARK_stopped_with_work);
    link_stop(h->link);
    pthread_join(thread, NULL);
    heap_exempt(true);
    engine_check(world.engine);
    heap_exempt(false);
    link_stats(h->link, &stats);
    expect(stats.num_running == 0 && stats.num_waiting == 0 && stats.num_held_blocks == 0,
           "the engine stopped with %d running, %d waiting, %d blocks held", stats.num_running,
           stats.num_waiting, stats.num_held_blocks);
    struct request_slots *slots = link_slots(h->link);
    expect(request_slots_num_free(slots) == request_slots_count(slots), "slots are lost");
    engine_destroy(world.engine);
    fake_model_destroy(model);
}

/* ---- text/model_text.c's place: words.c needs none ---- */

int model_text_open(const char *path, const char *template_path, struct model_text *out, struct error *err)
{
    static char some_tokenizer;
    (void)path, (void)template_path, (void)err;
    *out = (struct model_text){.tokenizer = (struct tokenizer *)(void *)&some_tokenizer};
    return 0;
}

void model_text_close(struct model_text *t)
{
    *t = (struct model_text){0};
}
