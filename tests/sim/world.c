/* world.c - one seed: the server under a configuration made by chance, its clients, and its end. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/metrics.h"
#include "config/api_keys.h"
#include "server/listener.h"
#include "sim/client.h"
#include "sim/watch.h"
#include "sim/wraps.h"

struct world world;
struct report *report;

const char *const feature_names[NUM_FEATURES] = {
#define X(name, percent) #name,
    FEATURES(X)
#undef X
};
const char *const marker_names[NUM_MARKERS] = {
#define X(name) #name,
    MARKERS(X)
#undef X
};

static struct rng faults;
static uint64_t next_fault_ns;
static bool allocations_fail;

void sim_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%10.3f ms  ", (double)now_ns() / 1e6);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

void sim_fail(const char *file, int line, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *p = text; *p; p++)
        if (*p == '\n') *p = '~';
    const char *name = strrchr(file, '/');
    fflush(stdout);
    fprintf(stderr, "sim: %s:%d: %s\n", name ? name + 1 : file, line, text);
    abort();
}

/* ---- configuration ---- */

static void choose_features(void)
{
    static const int32_t percents[NUM_FEATURES] = {
#define X(name, percent) percent,
        FEATURES(X)
#undef X
    };
    struct rng rng = rng_of("features", 0);
    for (int i = 0; i < NUM_FEATURES; i++) {
        bool on = rng_chance(&rng, percents[i]);
        world.features[i] = on && !(world.script.features_off & UINT64_C(1) << i);
    }
}

static void choose_engine(struct rng *rng)
{
    static const int32_t budgets[] = {8, 16, 17, 24};
    world.max_num_seqs = 1 + rng_below(rng, 10);
    world.max_num_batched_tokens = has(FEATURE_small_steps) ? budgets[rng_below(rng, 4)] : 256;
    world.max_num_logits = rng_chance(rng, 50) ? 0 : 1 + rng_below(rng, 40);
    world.max_num_rows = rng_chance(rng, 50) ? 0 : 1 + rng_below(rng, 60);
    world.target_us = has(FEATURE_time_targets) ? 200 + (double)rng_skewed(rng, 20000) : 0;
    world.num_blocks = 30 + rng_below(rng, 70);
    if (has(FEATURE_tiny_pools)) world.num_blocks = rng_chance(rng, 20) ? 6 : 10 + rng_below(rng, 14);
    if (has(FEATURE_storms)) world.num_blocks = min_of(world.num_blocks, 10 + rng_below(rng, 10));
}

/* Of host memory: from none, and too few for one sequence, to more than are ever needed. */
static void choose_host_blocks(void)
{
    struct rng rng = rng_of("host blocks", 0);
    if (has(FEATURE_host_blocks)) world.num_host_blocks = 1 + (int32_t)rng_skewed(&rng, 40);
    world.kv_block_bytes = (uint64_t)FAKE_BLOCK_BYTES << rng_below(&rng, 14);
}

/* Shorter than a block, as long as a prompt, and between. */
static void choose_window(void)
{
    struct rng rng = rng_of("window", 0);
    if (has(FEATURE_windows)) world.window = 1 + (int32_t)rng_skewed(&rng, FAKE_WINDOW_MAX - 1);
    world.window_is_chunk = has(FEATURE_chunks);
    world.kv_groups =
        (struct kv_groups){.count = world.window > 0 ? 2 : 1,
                           .num_ahead = world.max_num_batched_tokens * (has(FEATURE_two_steps) ? 2 : 1),
                           .groups[1] = {world.window, world.window_is_chunk}};
}

static void choose_drafts(void)
{
    struct rng rng = rng_of("drafts", 0);
    bool possible = has(FEATURE_decode_runs) || has(FEATURE_states);
    world.draft_rng = rng_of("draft tokens", 0);
    if (has(FEATURE_drafts) && possible) world.num_draft_tokens = 1 + rng_below(&rng, DRAFT_TOKENS_MAX);
}

/* From one place, which all compete for, to more than are ever needed. */
static void choose_states(void)
{
    struct rng rng = rng_of("states", 0);
    if (has(FEATURE_states)) world.num_states = 1 + (int32_t)rng_skewed(&rng, 24);
}

static void set_option(const char *name, int64_t value)
{
    char text[32];
    struct error err;
    snprintf(text, sizeof text, "%lld", (long long)value);
    int status = config_set(&world.config, name, text, "the simulator", &err);
    expect(status == 0, "%s: %s", name, err.text);
}

static void set_text(const char *name, const char *value)
{
    struct error err;
    int status = config_set(&world.config, name, value, "the simulator", &err);
    expect(status == 0, "%s: %s", name, err.text);
}

/* Smaller bounds of memory than the options allow, but not than one body. */
static void choose_places(void)
{
    struct rng rng = rng_of("places", 0);
    if (has(FEATURE_few_places)) {
        set_option("max-connections", 1 + rng_below(&rng, 8));
        if (rng_chance(&rng, 50)) set_option("max-connections-per-address", 1 + rng_below(&rng, 3));
    }
    if (has(FEATURE_small_buffers)) {
        world.config.max_body_bytes = 16384;
        world.config.max_buffered_bytes = 16384 + (uint64_t)rng_below(&rng, 50000);
    }
}

static void choose_keys(void)
{
    struct rng rng = rng_of("keys", 0);
    for (int i = 0; i < 2; i++) {
        char text[32];
        world.key_weights[i] = has(FEATURE_weights) ? 1 + rng_below(&rng, 8) : 1;
        snprintf(text, sizeof text, "key%d weight=%d", i, world.key_weights[i]);
        if (has(FEATURE_salts)) set_text("api-key", text);
    }
    struct error err;
    assert_always(api_keys_load(&world.config, &err) == 0);
}

static void choose_options(struct rng *rng)
{
    struct error err;
    assert_always(config_init(&world.config, &err) == 0);
    assert_always(config_set(&world.config, "served-model-name", "sim", "the simulator", &err) == 0);
    set_option("max-queued-requests", has(FEATURE_few_slots) ? 1 + rng_below(rng, 3) : 40);
    if (has(FEATURE_token_limits)) set_option("max-queued-tokens", 20 + rng_below(rng, 300));
    set_option("seed", rng_below(rng, 1000));
    set_option("write-timeout", 1 + rng_below(rng, 10));
    set_option("ping-interval", 1 + rng_below(rng, 3));
    set_option("drain-timeout", has(FEATURE_short_drains) ? rng_below(rng, 2) : 40);
    struct rng delay = rng_of("drain-delay", 0);
    set_option("drain-delay", rng_chance(&delay, 20) ? 1 : 0);
    set_option("stream-buffer-soft", 4096);
    set_option("stream-buffer-hard", 16384);
    static const int32_t most_deaths[] = {0, 0, 0, 2, 5, 5, 64, 64, 64};
    set_option("max-engine-deaths", most_deaths[rng_below(rng, (int32_t)array_length(most_deaths))]);
    if (has(FEATURE_no_prefix_cache))
        assert_always(config_set(&world.config, "enable-prefix-caching", "false", "the simulator", &err) ==
                      0);
    set_text("allowed-host", "sim");
    set_text("share-answers", "true"); /* where the feature is on */
    if (has(FEATURE_receipts)) set_text("receipts", "true");
    choose_places();
    choose_keys();
}

/* Headers and ends of answers stand in the prompts that many begin with. */
static void plant_answers(void)
{
    struct rng rng = rng_of("answers", 0);
    for (int i = 0; i < NUM_PREFIXES; i++)
        for (int p = rng_below(&rng, 20); p + FAKE_HEADER <= PROMPT_MAX; p += 1 + rng_below(&rng, 30)) {
            bool ends = rng_chance(&rng, 30);
            world.prefixes[i][p] = ends ? FAKE_EOS : FAKE_HEADER_FIRST;
            if (!ends) world.prefixes[i][++p] = FAKE_HEADER_LAST;
        }
}

void world_init(const struct script *script)
{
    world.script = *script;
    choose_features();
    struct rng rng = rng_of("world", 0);
    heap_init();
    choose_engine(&rng);
    choose_host_blocks();
    choose_window();
    choose_states();
    choose_drafts();
    choose_options(&rng);
    faults = rng_of("faults", 0);
    world.num_clients = 16 + rng_below(&rng, CLIENTS_MAX - 15);
    report->num_clients = world.num_clients;
    world.drain_ns = world.second_signal_ns = UINT64_MAX;
    if (has(FEATURE_early_drains)) world.drain_ns = now_ns() + rng_skewed(&rng, 1500000000);
    for (int i = 0; i < NUM_PREFIXES; i++)
        for (int p = 0; p < PROMPT_MAX; p++) world.prefixes[i][p] = rng_below(&rng, FAKE_VOCAB);
    if (has(FEATURE_answers)) plant_answers();
    threads_init();
    clients_init();
    log_configure((enum log_level)(LOG_ERROR + 1), false); /* a line would allocate, and change the run */
    for (int i = 0; i < NUM_FEATURES; i++)
        if (world.features[i]) say("feature %s", feature_names[i]);
    say("%d clients; at most %d sequences, %d tokens a step, %d rows; %d blocks; %lld may wait",
        world.num_clients, world.max_num_seqs, world.max_num_batched_tokens, world.max_num_logits,
        world.num_blocks, (long long)world.config.max_queued_requests);
}

/* ---- what happens beside the server ---- */

void __wrap_api_on_loaded(struct server *server, const char *const *names, const double *seconds, int num)
{
    __real_api_on_loaded(server, names, seconds, num);
    world.server = server;
}

void __wrap_api_abort_all(struct server *server, int http_status, const char *type, const char *message)
{
    world.aborted = true;
    if (!world.exit_code && !world.told_twice) mark(MARK_drain_timed_out);
    __real_api_abort_all(server, http_status, type, message);
}

static void send_signal(void)
{
    say("SIGTERM");
    loop_raise(SIGTERM);
    if (!world.drain_sent) {
        world.drain_sent = true;
        if (has(FEATURE_second_signals) && has(FEATURE_early_drains))
            world.second_signal_ns = now_ns() + rng_skewed(&faults, 40000000);
    } else {
        world.told_twice = true;
        world.second_signal_ns = UINT64_MAX;
    }
}

/* Memory runs short for a while, now and then; not while the server starts. */
static void toggle_allocations(void)
{
    allocations_fail = !allocations_fail && has(FEATURE_allocation_failures) && world.server != NULL;
    heap_fail_every(allocations_fail ? 2 + (int32_t)rng_skewed(&faults, 200) : 0);
    next_fault_ns = now_ns() + 1 + rng_skewed(&faults, allocations_fail ? 20000000 : 100000000);
}

void world_act(void)
{
    if (has(FEATURE_allocation_failures) && now_ns() >= next_fault_ns) toggle_allocations();
    loop_act();
    engine_act();
    heap_exempt(true);
    clients_act();
    heap_exempt(false);
    if (!world.drain_sent && world.drain_ns == UINT64_MAX && clients_are_done())
        world.drain_ns = now_ns() + 1;
    if (!world.drain_sent && now_ns() >= world.drain_ns) send_signal();
    if (now_ns() >= world.second_signal_ns) send_signal();
    expect(now_ns() < 600000000000u, "not done after ten minutes");
}

uint64_t world_next_ns(void)
{
    uint64_t next = min_of(clients_next_ns(), loop_next_work_ns());
    if (!world.drain_sent) next = min_of(next, world.drain_ns);
    next = min_of(next, engine_next_ns());
    if (allocations_fail) next = min_of(next, next_fault_ns);
    return min_of(next, world.second_signal_ns);
}

/* ---- the end ---- */

static double metric_of(const char *page, const char *name)
{
    double sum = 0;
    for (const char *at = page; (at = strstr(at, name)); at++) {
        if (at > page && at[-1] != '\n') continue;
        at += strcspn(at, " ");
        sum += strtod(at, NULL);
    }
    return sum;
}

/* L1 as an operator sees it. */
void __wrap_metrics_reset(void)
{
    struct buffer page;
    heap_exempt(true);
    buffer_init(&page, 1 << 20);
    metrics_render(&page, 0);
    double admitted = metric_of(page.data, "flashd_requests_admitted_total");
    double finished = metric_of(page.data, "flashd_requests_finished_total");
    expect(admitted == finished && admitted == clients_num_admitted(),
           "the metrics: %g admitted, %g finished; the clients know of %d", admitted, finished,
           clients_num_admitted());
    buffer_deinit(&page);
    heap_exempt(false);
    __real_metrics_reset();
}

/* The last moment at which slots can be asked for. */
void __wrap_recovery_deinit(struct recovery *r)
{
    if (world.server) {
        struct request_slots *slots = world.server->slots;
        expect(request_slots_num_free(slots) == request_slots_count(slots), "slots are lost");
    }
    __real_recovery_deinit(r);
}

static _Noreturn void finish(void)
{
    report->complete = true;
    fflush(NULL);
    __real__exit(0);
}

void __wrap__exit(int exit_code)
{
    say("the process ends with code %d", exit_code);
    expect(exit_code == world.exit_code, "exit code %d instead of %d", exit_code, world.exit_code);
    if (exit_code == 70)
        mark(MARK_exits_70);
    else if (exit_code == 0)
        mark(MARK_killed_by_second_signal);
    world.all_recorded = true;
    heap_exempt(true);
    clients_end();
    finish();
}

void world_run(void)
{
    uint64_t live = heap_num_live();
    int exit_code = server_run(&world.config, NULL);
    world.ending = world.all_recorded = true;
    heap_fail_every(0);
    heap_exempt(true);
    expect(exit_code == world.exit_code, "exit code %d instead of %d", exit_code, world.exit_code);
    if (!world.aborted) mark(MARK_drained_quietly);
    clients_end();
    expect(heap_num_live() == live, "%lld allocations are left", (long long)(heap_num_live() - live));
    expect(arena_total_bytes() == 0, "%zu bytes of arenas are left", arena_total_bytes());
    finish();
}
