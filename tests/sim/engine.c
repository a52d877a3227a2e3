/* engine.c - engine/run.c's and server/engine_host.c's place: what the engine lives in.
 *
 * A thread of the front's process; or a process, that is a thread with a view of the link and a heap of its
 * own, which ends at any yield point or at any time: its stack is never run again, its allocations are
 * forgotten, and only the link's region stays. The front is told later. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine_internal.h"
#include "server/engine_host.h"
#include "sim/device.h"
#include "sim/watch.h"
#include "sim/wraps.h"

enum {
    LOAD_NS_MAX = 50000000,
    JOIN_NS = 2000000000,
    STUCK_PER_100000 = 60,
    STUCK_LOADING_PER_100000 = 1500,
    STUCK_UNTIL_S = 100,
    STUCK_RATE = 100
};

static struct {
    struct engine_host *host;
    uv_async_t end; /* the news of a process's end, on the loop */
    pthread_t thread;
    struct rng rng;
    bool lives, wake_is_lost, is_stuck, is_ended; /* is_ended: by the front, for being stuck */
    bool has_served;                              /* one of them */
    int num_starts, deaths_left;
    uint64_t die_ns, told_ns; /* UINT64_MAX: not */
    uint64_t yields_left;     /* until it dies at one; 0: not */
} process = {.die_ns = UINT64_MAX, .told_ns = UINT64_MAX};

/* ---- loading ---- */

static struct link_facts make_facts(void)
{
    return (struct link_facts){.vocab_size = FAKE_VOCAB,
                               .embedding_size = FAKE_HIDDEN,
                               .pooling = has(FEATURE_mean_pooling) ? POOLING_MEAN : POOLING_LAST,
                               .eos_ids = {FAKE_EOS},
                               .num_eos_ids = 1,
                               .generation = {-1, -1, -1, -1, -1, -1},
                               .num_slots = world.max_num_seqs + (int32_t)world.config.max_queued_requests,
                               .max_model_len = MODEL_LEN,
                               .max_num_seqs = world.max_num_seqs,
                               .max_num_batched_tokens = world.max_num_batched_tokens,
                               .block_size = BLOCK_SIZE,
                               .num_blocks = world.num_blocks,
                               .num_guess_tokens = min_of(world.num_draft_tokens, (int32_t)GUESS_TOKENS_MAX),
                               .max_queued_tokens = (uint64_t)world.config.max_queued_tokens};
}

static int create_engine(struct link *link, struct engine **out, struct error *err)
{
    const struct engine_options options = {.max_model_len = MODEL_LEN,
                                           .max_num_seqs = world.max_num_seqs,
                                           .max_num_batched_tokens = world.max_num_batched_tokens,
                                           .max_num_logits = world.max_num_logits,
                                           .max_num_rows = world.max_num_rows,
                                           .num_draft_tokens = world.num_draft_tokens,
                                           .kv_layout = fake_kv_layout(world.window, world.window_is_chunk),
                                           .num_blocks = world.num_blocks,
                                           .num_states = world.num_states,
                                           .num_host_blocks = world.num_host_blocks,
                                           .kv_block_bytes = world.kv_block_bytes,
                                           .target_us = world.target_us,
                                           .enable_prefix_caching = world.config.enable_prefix_caching,
                                           .decode_runs = has(FEATURE_decode_runs) && !has(FEATURE_states),
                                           .leaves_requests = process.host->main == NULL};
    const struct link_facts facts = link_is_inherited(link) ? *link_facts(link) : make_facts();
    struct model *model = sim_device_model(&options);
    int status = link_open(link, &facts, err);
    return status ? status : engine_create(model, link, &options, out, err);
}

/* A start that runs out of memory at any allocation leaves nothing behind. */
static void fail_starts(void)
{
    struct rng rng = rng_of("failed starts", 0);
    for (int i = 0; has(FEATURE_start_failures) && i < 3; i++) {
        struct error err = {0};
        struct link *link = NULL;
        struct engine *engine = NULL;
        uint64_t live = heap_num_live();
        heap_fail_once(1 + rng_below(&rng, 25));
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

static void load(struct link *link)
{
    struct error err = {0};
    sim_device_open(process.num_starts - 1);
    struct engine *engine;
    int status = create_engine(link, &engine, &err);
    expect(status == 0, "the engine does not start: %s", err.text);
    if (process.num_starts == 1) fail_starts();
    const struct step_prices guess = step_prices_guess(400, 16, 100, 0.01);
    if (world.target_us > 0) engine_guess_prices(engine, &guess);
    judge_engine(engine);
    world.engine = engine;
    process.has_served = true;
    link_set_state(link, LINK_READY, NULL);
}

static void take_time(void)
{
    struct rng rng = rng_of("loading", (uint64_t)process.num_starts);
    thread_sleep_until(now_ns() + rng_skewed(&rng, LOAD_NS_MAX));
}

/* Ready, and the front may still wait for its texts. */
static void may_die_early(void)
{
    if (process.num_starts > 1 || world.server || !has(FEATURE_engine_deaths)) return;
    if (rng_chance(&process.rng, 10)) process.die_ns = now_ns() + rng_skewed(&process.rng, LOAD_NS_MAX / 5);
}

/* ---- what never ends ---- */

static bool gets_stuck(int32_t per_100000, const char *what)
{
    if (!has(FEATURE_engine_deaths) || !process.lives || process.deaths_left == 0 ||
        now_ns() > STUCK_UNTIL_S * 1000000000ull || rng_below(&process.rng, 100000) >= per_100000)
        return false;
    say("%s never ends", what);
    process.deaths_left--;
    process.is_stuck = true;
    return true;
}

/* The watch knows how long a step may take, once the engine has a speed. */
bool engine_gets_stuck(void)
{
    struct link_stats stats;
    if (!world.server) return false;
    link_stats(process.host->link, &stats);
    /* In a drain more often: the process then ends under it. */
    int32_t odds = world.drain_sent ? 400 * STUCK_PER_100000 : STUCK_PER_100000;
    return stats.tokens_per_second >= STUCK_RATE && gets_stuck(odds, "a step");
}

/* The first load takes as long as it takes. */
static void may_hang_loading(void)
{
    if (process.num_starts == 1 || !gets_stuck(STUCK_LOADING_PER_100000, "loading")) return;
    mark(MARK_engine_hung_loading);
    thread_sleep_until(UINT64_MAX);
}

/* ---- a thread ---- */

static void wake(void *context)
{
    uv_async_send(&((struct engine_host *)context)->wake);
}

static void *run_thread(void *context)
{
    struct engine_host *h = context;
    take_time();
    load(h->link);
    engine_serve(world.engine);
    return NULL;
}

/* ---- a process ---- */

static void check_stopped(const struct link *link)
{
    struct link_stats stats;
    heap_exempt(true);
    engine_check(world.engine);
    heap_exempt(false);
    link_stats(link, &stats);
    expect(stats.num_free_host_blocks == world.num_host_blocks, "the engine stopped with %d host blocks free",
           stats.num_free_host_blocks);
    expect(stats.num_running == 0 && stats.num_waiting == 0 && stats.num_held_blocks == 0,
           "the engine stopped with %d running, %d waiting, %d blocks held", stats.num_running,
           stats.num_waiting, stats.num_held_blocks);
}

static void close_engine(void)
{
    engine_destroy(world.engine);
    world.engine = NULL;
    sim_device_close();
}

static void *run_process(void *context)
{
    struct engine_host *h = context;
    struct error err = {0};
    struct link *link;
    uint64_t live = heap_num_live_of_engine();
    take_time();
    assert_always(link_attach(dup(link_fd(h->link)), &link, &err) == 0);
    link_set_front_wake(link, wake, h);
    take_time();
    may_hang_loading();
    load(link);
    may_die_early();
    engine_serve(world.engine);
    if (engine_failed(world.engine)) {
        mark(MARK_engine_failed_and_replaced);
        engine_end_process(70, 0);
    }
    check_stopped(link);
    process.lives = false; /* what would die now has nothing left to lose */
    process.die_ns = UINT64_MAX;
    close_engine();
    link_destroy(link);
    expect(heap_num_live_of_engine() == live, "the engine leaves memory behind");
    return NULL;
}

static void mark_death(void)
{
    const struct engine *e = world.engine;
    if (link_state(process.host->link) == LINK_LOADING) mark(MARK_engine_died_while_loading);
    if (thread_engine_sleeps()) mark(MARK_engine_died_idle);
    if (e && e->num_in_flight == 2) mark(MARK_engine_died_with_two_steps);
    if (link_is_stopping(process.host->link)) mark(MARK_died_while_stopping);
}

void engine_end_process(int exit_code, int signal)
{
    struct engine_host *h = process.host;
    if (!process.lives) return;
    say("the engine dies: exit code %d, signal %d", exit_code, signal);
    mark_death();
    if (signal == SIGSEGV) link_note_fault(h->link); /* as its handler does */
    judge_death(world.engine, signal != SIGKILL || process.is_ended);
    watch_death();
    world.engine = NULL;
    sim_device_forget();
    heap_forget_engine();
    report->num_deaths++;
    h->end = (struct engine_end){.exit_code = exit_code, .signal = signal};
    snprintf(h->end.text, sizeof h->end.text, "signal %d, exit code %d", signal, exit_code);
    process.lives = false;
    process.die_ns = UINT64_MAX;
    process.told_ns = now_ns() + rng_skewed(&process.rng, 20000000);
    process.wake_is_lost = rng_chance(&process.rng, 50);
    trace(now_ns());
    thread_kill_engine();
}

static void on_end(uv_async_t *async)
{
    struct engine_host *h = async->data;
    h->runs = false;
    if (!process.has_served) {
        mark(MARK_engine_died_before_the_first_ready);
        world.exit_code = 1;
    } else if (!world.server)
        mark(MARK_engine_died_before_the_texts);
    h->on_end(h->context, &h->end);
}

/* ---- when it dies ---- */

static void plan_death(void)
{
    struct rng *rng = &process.rng;
    process.die_ns = UINT64_MAX;
    process.yields_left = 0;
    if (!has(FEATURE_engine_deaths) || process.deaths_left == 0) return;
    process.deaths_left--;
    if (rng_chance(rng, process.num_starts == 1 ? 4 : 15))
        process.die_ns = now_ns() + rng_skewed(rng, 2 * LOAD_NS_MAX);
    else if (rng_chance(rng, 35))
        process.die_ns = now_ns() + 2 * LOAD_NS_MAX + rng_skewed(rng, 2000000000);
    else
        process.yields_left = 1 + rng_skewed(rng, 40000);
}

void engine_may_die(uint64_t weight)
{
    if (!process.lives || !world.engine || process.yields_left == 0) return;
    process.yields_left -= min_of(process.yields_left, weight);
    if (process.yields_left == 0) engine_end_process(0, rng_chance(&process.rng, 60) ? SIGSEGV : SIGKILL);
}

void engine_act(void)
{
    if (now_ns() >= process.die_ns) engine_end_process(0, SIGKILL);
    if (now_ns() < process.told_ns) return;
    process.told_ns = UINT64_MAX;
    if (!uv_is_closing((uv_handle_t *)&process.end)) uv_async_send(&process.end);
}

uint64_t engine_next_ns(void)
{
    return min_of(process.die_ns, process.told_ns);
}

/* ---- the host ---- */

static void on_wake(uv_async_t *async)
{
    struct engine_host *h = async->data;
    if (!process.wake_is_lost) h->on_wake(h->context);
}

void engine_host_init(struct engine_host *h)
{
    process.host = h;
    process.rng = rng_of("deaths", 0);
    process.deaths_left = 1 + (int)rng_skewed(&process.rng, 40);
    uv_async_init(h->loop, &h->wake, on_wake);
    uv_async_init(h->loop, &process.end, on_end);
    h->wake.data = process.end.data = h;
    h->inited = true;
    h->main = has(FEATURE_engine_process) ? NULL : (engine_main *)(uintptr_t)1; /* only whether it is one */
}

int engine_host_start(struct engine_host *h, struct error *err)
{
    expect(!h->runs, "a second engine is started");
    if (world.server && has(FEATURE_allocation_failures) && rng_chance(&process.rng, 10)) {
        mark(MARK_engine_not_started);
        return error_set(err, STATUS_IO, "no process today");
    }
    process.num_starts++;
    process.wake_is_lost = false;
    process.lives = h->main == NULL;
    process.is_stuck = process.is_ended = false;
    if (process.lives) plan_death();
    if (h->main) link_set_front_wake(h->link, wake, h);
    if (world.server && world.server->state == SERVER_DRAINING) mark(MARK_restarted_in_drain);
    thread_create_engine(&process.thread, h->main ? run_thread : run_process, h);
    h->runs = true;
    return 0;
}

pid_t engine_host_pid(const struct engine_host *host)
{
    (void)host;
    return 0;
}

void engine_host_kill(struct engine_host *h)
{
    if (h->main || !process.lives) return;
    expect(process.is_stuck, "an engine that is not stuck is killed");
    mark(MARK_stuck_engine_killed);
    process.is_ended = true;
    engine_end_process(0, SIGKILL);
}

void engine_host_close(struct engine_host *h)
{
    if (!h->inited || uv_is_closing((uv_handle_t *)&h->wake)) return;
    uv_close((uv_handle_t *)&h->wake, NULL);
    uv_close((uv_handle_t *)&process.end, NULL);
}

void engine_host_join(struct engine_host *h)
{
    if (!h->runs) return;
    bool has_work = world.engine && !scheduler_is_empty(world.engine->scheduler);
    if (has_work) mark(MARK_stopped_with_work);
    link_stop(h->link);
    if (process.lives) {
        bool dies = has(FEATURE_engine_deaths) && rng_chance(&process.rng, has_work ? 80 : 30);
        if (dies) process.yields_left = 1 + (uint64_t)rng_below(&process.rng, 40);
        process.die_ns = min_of(process.die_ns, now_ns() + JOIN_NS);
    }
    if (h->main || process.lives) pthread_join(process.thread, NULL);
    h->runs = false;
    if (!h->main) return;
    check_stopped(h->link);
    close_engine();
}
