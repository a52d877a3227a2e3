#include "server/api/request_metrics.h"

#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "base/version.h"
#include "config/lora_modules.h"
#include "server/api/loras.h"
#include "server/grammars.h"
#include "server/masks.h"

const char *const outcome_names[NUM_OUTCOMES] = {"done", "client_gone", "engine_fault", "aborted", "moved"};

static const double ttft_bounds[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                     1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
static const double itl_bounds[] = {.0005, .001, .002, .003, .004, .005, .0075, .01, .025, .05, .075, .1, .15,
                                    .2,    .3,   .4,   .5,   .75,  1,    2.5,   5,   7.5,  10,  20,   40, 80};
static const double latency_bounds[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                        30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
static const double fine_latency_bounds[] = {.001, .002, .005, .01, .02, .05, .1,  .2,   .3,  .5,
                                             .8,   1,    1.5,  2,   2.5, 5,   10,  15,   20,  30,
                                             40,   50,   60,   120, 240, 480, 960, 1920, 7680};
static const double n_bounds[] = {1, 2, 5, 10, 20};

enum finished_reason { FINISHED_STOP, FINISHED_LENGTH, FINISHED_ABORT, FINISHED_ERROR, NUM_FINISHED_REASONS };
static const char *const finished_reason_names[NUM_FINISHED_REASONS] = {"stop", "length", "abort", "error"};

enum { LABELS_BYTES_MAX = 1024, LORA_LABELS_BYTES = LORA_MODULES_MAX * 2 * LORA_NAME_BYTES + 128 };

/* A counter that follows a total which someone else keeps. */
struct follower {
    struct metric *metric;
    double seen;
};

static struct {
    bool registered;
    struct metric *running, *waiting, *waiting_for_room, *kv_usage, *cache_config, *loras;
    struct metric *prompt_tokens, *prompt_computed, *prompt_hit, *prompt_cached, *generation_tokens;
    struct metric *success[NUM_FINISHED_REASONS];
    struct follower preemptions, saved, prefix_queries, prefix_hits, discarded, drafts_accepted,
        drafts_rejected, steps, energy;
    struct metric *first_write, *write_gap;
    struct metric *ttft, *itl, *tpot, *e2e, *queue, *inference, *prefill, *decode;
    struct metric *length_prompt, *length_generation, *length_most, *params_max_tokens, *params_n,
        *kv_computed;
    struct metric *iteration_tokens;
    struct metric *admitted, *finished[NUM_OUTCOMES], *in_flight, *slots_free, *arena_bytes;
    struct metric *blocks_free, *blocks_cached, *blocks_held, *blocks_saved;
    struct follower grammars_compiled, grammars_refused, grammars_found, compile_seconds, masks, withheld;
    struct metric *grammar_bytes;
} m;

/* ---- registration ---- */

static char model_labels[LABELS_BYTES_MAX]; /* model_name="...",engine="0" */

static void make_labels(const struct server *server)
{
    struct buffer labels;
    buffer_init(&labels, LABELS_BYTES_MAX - 1);
    buffer_append_text(&labels, "model_name=\"");
    metrics_escape_label(&labels, server->model_names[0]);
    buffer_append_text(&labels, "\",engine=\"0\"");
    snprintf(model_labels, sizeof model_labels, "%s",
             buffer_failed(&labels) ? "model_name=\"\",engine=\"0\"" : labels.data);
    buffer_deinit(&labels);
}

/* With one more label, written name="value". */
static struct metric *add_labelled(enum metric_type type, const char *name, const char *help,
                                   const char *label)
{
    char labels[LABELS_BYTES_MAX + 192];
    snprintf(labels, sizeof labels, "%s,%s", model_labels, label);
    return metric_register(type, name, help, labels, NULL, 0);
}

static struct metric *add_counter(const char *name, const char *help)
{
    return metric_register(METRIC_COUNTER, name, help, model_labels, NULL, 0);
}

static struct metric *add_gauge(const char *name, const char *help)
{
    return metric_register(METRIC_GAUGE, name, help, model_labels, NULL, 0);
}

#define add_histogram(name, help, bounds)                                                                    \
    metric_register(METRIC_HISTOGRAM, name, help, model_labels, bounds, (int)array_length(bounds))

/* 1 2 5 10 20 50 ... up to the longest sequence. */
static int make_length_bounds(int32_t max_model_len, double bounds[METRIC_BUCKETS_MAX])
{
    static const int steps[] = {1, 2, 5};
    int count = 0;
    for (int64_t power = 1; count < METRIC_BUCKETS_MAX; power *= 10) {
        for (size_t i = 0; i < array_length(steps) && count < METRIC_BUCKETS_MAX; i++) {
            if (steps[i] * power > max_model_len) return count;
            bounds[count++] = (double)(steps[i] * power);
        }
    }
    return count;
}

static struct metric *add_lengths(const char *name, const char *help, const double *bounds, int num_bounds)
{
    return metric_register(METRIC_HISTOGRAM, name, help, model_labels, bounds, num_bounds);
}

/* This engine never sleeps; dashboards take one that does not say so for down. */
static void register_sleep_state(void)
{
    static const char *const labels[] = {"sleep_state=\"awake\"", "sleep_state=\"weights_offloaded\"",
                                         "sleep_state=\"discard_all\""};
    for (size_t i = 0; i < array_length(labels); i++)
        metric_set(add_labelled(METRIC_GAUGE, "vllm:engine_sleep_state",
                                "Whether the engine is in this state: 1 or 0.", labels[i]),
                   i == 0);
}

/* Which adapters there are, as gateways look for them that send requests to where theirs is: all that are there can run at once. */
static void append_lora_labels(struct buffer *labels, const struct loras *loras)
{
    int num = 0;
    buffer_printf(labels, "max_lora=\"%d\",waiting_lora_adapters=\"\",running_lora_adapters=\"",
                  loras_num_places(loras));
    for (int i = 1; i <= loras_num_places(loras); i++) {
        if (!loras_is_there(loras, i)) continue;
        if (num++ > 0) buffer_append_char(labels, ',');
        metrics_escape_label(labels, loras_name(loras, i));
    }
    buffer_append_text(labels, "\"");
}

void request_metrics_tell_loras(const struct server *server)
{
    struct buffer labels;
    if (!m.loras) return;
    buffer_init(&labels, LORA_LABELS_BYTES);
    append_lora_labels(&labels, server->loras);
    if (!buffer_failed(&labels)) metric_set_labels(m.loras, labels.data);
    metric_set(m.loras, (double)(clock_wall_ns() / 1000000000));
    buffer_deinit(&labels);
}

static void register_lora(const struct server *server)
{
    m.loras = metric_register(METRIC_GAUGE, "vllm:lora_requests_info",
                              "Since when these adapters of LoRA are there, in Unix time.", "", NULL, 0);
    request_metrics_tell_loras(server);
}

static void register_state(const struct server *server)
{
    m.running = add_gauge("vllm:num_requests_running", "Sequences in the running batch.");
    m.waiting = add_gauge("vllm:num_requests_waiting", "Sequences that wait to be scheduled.");
    m.waiting_for_room = add_labelled(METRIC_GAUGE, "vllm:num_requests_waiting_by_reason",
                                      "Sequences that wait, by what for.", "reason=\"capacity\"");
    add_labelled(METRIC_GAUGE, "vllm:num_requests_waiting_by_reason", "Sequences that wait, by what for.",
                 "reason=\"deferred\"");
    m.kv_usage =
        add_gauge("vllm:kv_cache_usage_perc", "Share of the K/V blocks that running sequences hold, 0 to 1.");
    char label[128];
    snprintf(label, sizeof label, "block_size=\"%d\",num_gpu_blocks=\"%d\",enable_prefix_caching=\"%s\"",
             server->facts->block_size, server->facts->num_blocks,
             server->config->enable_prefix_caching ? "True" : "False");
    m.cache_config = add_labelled(METRIC_GAUGE, "vllm:cache_config_info", "Shape of the K/V cache.", label);
    metric_set(m.cache_config, 1);
    register_sleep_state();
    register_lora(server);
}

static void register_tokens(void)
{
    m.prompt_tokens =
        add_counter("vllm:prompt_tokens_total", "Prompt tokens processed, cached ones included.");
    m.prompt_computed = add_labelled(METRIC_COUNTER, "vllm:prompt_tokens_by_source_total",
                                     "Prompt tokens by where they came from.", "source=\"local_compute\"");
    m.prompt_hit = add_labelled(METRIC_COUNTER, "vllm:prompt_tokens_by_source_total",
                                "Prompt tokens by where they came from.", "source=\"local_cache_hit\"");
    m.prompt_cached =
        add_counter("vllm:prompt_tokens_cached_total", "Prompt tokens found in the prefix cache.");
    m.generation_tokens = add_counter("vllm:generation_tokens_total", "Tokens generated and taken up.");
    for (int i = 0; i < NUM_FINISHED_REASONS; i++) {
        char label[64];
        snprintf(label, sizeof label, "finished_reason=\"%s\"", finished_reason_names[i]);
        m.success[i] =
            add_labelled(METRIC_COUNTER, "vllm:request_success_total", "Finished sequences.", label);
    }
    m.preemptions.metric = add_counter("vllm:num_preemptions_total", "Preemptions.");
    m.prefix_queries.metric = add_counter("vllm:prefix_cache_queries_total",
                                          "Tokens looked up in the prefix cache, once a sequence.");
    m.prefix_hits.metric = add_counter("vllm:prefix_cache_hits_total", "Tokens found there.");
}

static void register_times(void)
{
    m.ttft = add_histogram("vllm:time_to_first_token_seconds",
                           "From a request's first byte to its first token at the engine.", ttft_bounds);
    m.itl = add_histogram("vllm:inter_token_latency_seconds", "Between tokens of a sequence at the engine.",
                          itl_bounds);
    m.tpot = add_histogram("vllm:request_time_per_output_token_seconds",
                           "Mean time per token after a sequence's first.", itl_bounds);
    m.e2e = add_histogram("vllm:e2e_request_latency_seconds", "From a request's first byte to its end.",
                          latency_bounds);
    m.queue = add_histogram("vllm:request_queue_time_seconds", "Until first scheduled.", fine_latency_bounds);
    m.inference = add_histogram("vllm:request_inference_time_seconds",
                                "From first scheduled to the last token.", latency_bounds);
    m.prefill = add_histogram("vllm:request_prefill_time_seconds", "From first scheduled to the first token.",
                              fine_latency_bounds);
    m.decode = add_histogram("vllm:request_decode_time_seconds", "From the first token to the last.",
                             fine_latency_bounds);
}

static void register_sizes(const struct server *server)
{
    double bounds[METRIC_BUCKETS_MAX];
    int count = make_length_bounds(server->facts->max_model_len, bounds);
    m.length_prompt =
        add_lengths("vllm:request_prompt_tokens", "Prompt tokens of a sequence.", bounds, count);
    m.length_generation =
        add_lengths("vllm:request_generation_tokens", "Generated tokens of a sequence.", bounds, count);
    m.length_most = add_lengths("vllm:request_max_num_generation_tokens",
                                "Generated tokens of a request's longest choice.", bounds, count);
    m.params_max_tokens =
        add_lengths("vllm:request_params_max_tokens", "max_tokens of a sequence.", bounds, count);
    m.kv_computed = add_lengths("vllm:request_prefill_kv_computed_tokens",
                                "Prompt tokens computed, cached ones left out.", bounds, count);
    m.params_n = add_histogram("vllm:request_params_n", "n of a request.", n_bounds);
    m.iteration_tokens =
        add_histogram("vllm:iteration_tokens_total", "Tokens in an engine step.", step_tokens_bounds);
}

static struct metric *add_own(enum metric_type type, const char *name, const char *help, const char *labels)
{
    return metric_register(type, name, help, labels, NULL, 0);
}

static void register_own(const struct server *server, const char *const *phase_names,
                         const double *phase_seconds, int num_phases)
{
    char labels[256];
    snprintf(labels, sizeof labels, "version=\"%s\",commit=\"%s\"", flashd_version(), flashd_commit());
    metric_set(add_own(METRIC_GAUGE, "flashd_build_info", "What runs.", labels), 1);
    for (int i = 0; i < num_phases; i++) {
        snprintf(labels, sizeof labels, "phase=\"%s\"", phase_names[i]);
        metric_set(
            add_own(METRIC_GAUGE, "flashd_startup_seconds", "Time that a start-up phase took.", labels),
            phase_seconds[i]);
    }
    m.admitted =
        add_own(METRIC_COUNTER, "flashd_requests_admitted_total", "Generation requests admitted.", "");
    for (int i = 0; i < NUM_OUTCOMES; i++) {
        snprintf(labels, sizeof labels, "outcome=\"%s\"", outcome_names[i]);
        m.finished[i] = add_own(METRIC_COUNTER, "flashd_requests_finished_total",
                                "Admitted requests that ended.", labels);
    }
    m.in_flight =
        add_own(METRIC_GAUGE, "flashd_requests_in_flight", "Admitted requests that have not ended.", "");
    m.slots_free = add_own(METRIC_GAUGE, "flashd_request_slots_free", "Slots for further sequences.", "");
    m.blocks_free = add_own(METRIC_GAUGE, "flashd_kv_blocks", "K/V blocks by state.", "state=\"free\"");
    m.blocks_cached = add_own(METRIC_GAUGE, "flashd_kv_blocks", "K/V blocks by state.", "state=\"cached\"");
    m.blocks_held = add_own(METRIC_GAUGE, "flashd_kv_blocks", "K/V blocks by state.", "state=\"held\"");
    m.arena_bytes = add_own(METRIC_GAUGE, "flashd_arena_bytes", "Memory of requests in flight.", "");
    m.steps.metric = add_own(METRIC_COUNTER, "flashd_engine_steps_total", "Forward steps.", "");
    m.blocks_saved = add_own(METRIC_GAUGE, "flashd_kv_host_blocks",
                             "Blocks in host memory that preempted sequences will come back to.", "");
    m.saved.metric =
        add_own(METRIC_COUNTER, "flashd_preemptions_saved_total",
                "Preemptions whose K/V blocks went to host memory; the others compute again.", "");
    if (server->facts->measures_energy)
        m.energy.metric =
            add_own(METRIC_COUNTER, "flashd_energy_joules_total",
                    "What the device used while it computed; the answers' usage is made of it.", "");
    m.discarded.metric = add_own(METRIC_COUNTER, "flashd_discarded_tokens_total",
                                 "Tokens computed for a sequence that had ended.", "");
    static const char drafts[] = "flashd_draft_tokens_total",
                      drafts_help[] = "Tokens that were verified before they were known to follow.";
    m.drafts_accepted.metric = add_own(METRIC_COUNTER, drafts, drafts_help, "result=\"accepted\"");
    m.drafts_rejected.metric = add_own(METRIC_COUNTER, drafts, drafts_help, "result=\"rejected\"");
}

static void register_stream_times(void)
{
    m.first_write = metric_register(METRIC_HISTOGRAM, "flashd_stream_first_write_seconds",
                                    "From a request's first byte to the write of its stream's first token.",
                                    "", ttft_bounds, (int)array_length(ttft_bounds));
    m.write_gap =
        metric_register(METRIC_HISTOGRAM, "flashd_stream_write_gap_seconds",
                        "Between writes of a stream's tokens, by token; a client that does not read "
                        "makes it longer.",
                        "", itl_bounds, (int)array_length(itl_bounds));
}

static void register_forms(void)
{
    static const char name[] = "flashd_grammars_total", help[] = "Grammars that requests asked for.";
    m.grammars_compiled.metric = add_own(METRIC_COUNTER, name, help, "result=\"compiled\"");
    m.grammars_refused.metric = add_own(METRIC_COUNTER, name, help, "result=\"refused\"");
    m.grammars_found.metric = add_own(METRIC_COUNTER, name, help, "result=\"cached\"");
    m.compile_seconds.metric =
        add_own(METRIC_COUNTER, "flashd_grammar_compile_seconds_total", "Time that compiling took.", "");
    m.grammar_bytes = add_own(METRIC_GAUGE, "flashd_grammar_bytes",
                              "Memory of grammars and of the masks kept for them.", "");
    m.masks.metric = add_own(METRIC_COUNTER, "flashd_masks_total", "Masks of tokens made.", "");
    m.withheld.metric = add_own(METRIC_COUNTER, "flashd_rows_withheld_total",
                                "Tokens that were computed again since their mask came late.", "");
}

void request_metrics_register(struct server *server, const char *const *phase_names,
                              const double *phase_seconds, int num_phases)
{
    memset(&m, 0, sizeof m);
    make_labels(server);
    register_state(server);
    register_tokens();
    register_times();
    register_sizes(server);
    register_own(server, phase_names, phase_seconds, num_phases);
    register_stream_times();
    register_forms();
    m.registered = true;
}

/* ---- counting ---- */

static double seconds_of(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

void request_metrics_count_admitted(void)
{
    metric_add(m.admitted, 1);
}

void request_metrics_count_prompt(int32_t num_tokens, int32_t num_cached_tokens)
{
    metric_add(m.prompt_tokens, num_tokens);
    metric_add(m.prompt_computed, num_tokens - num_cached_tokens);
    metric_add(m.prompt_hit, num_cached_tokens);
    metric_add(m.prompt_cached, num_cached_tokens);
}

void request_metrics_count_tokens(int num_new, int num_gaps, uint64_t from_ns, uint64_t to_ns)
{
    metric_add(m.generation_tokens, num_new);
    for (int i = 0; i < num_gaps; i++) metric_observe(m.itl, seconds_of(from_ns, to_ns) / num_gaps);
}

void request_metrics_observe_first_token(uint64_t arrival_ns, uint64_t first_token_ns)
{
    metric_observe(m.ttft, seconds_of(arrival_ns, first_token_ns));
}

void request_metrics_observe_write(int num_new, uint64_t previous_ns, uint64_t arrival_ns, uint64_t now_ns)
{
    if (!previous_ns) metric_observe(m.first_write, seconds_of(arrival_ns, now_ns));
    for (int i = 0; previous_ns && i < num_new; i++)
        metric_observe(m.write_gap, seconds_of(previous_ns, now_ns) / num_new);
}

static enum finished_reason finished_reason_of(const struct choice *c, enum outcome outcome)
{
    if (c->finish_reason) return strcmp(c->finish_reason, "length") != 0 ? FINISHED_STOP : FINISHED_LENGTH;
    return outcome == OUTCOME_ENGINE_FAULT ? FINISHED_ERROR : FINISHED_ABORT;
}

void request_metrics_observe_choice(const struct choice *c, int32_t n, uint64_t arrival_ns, uint64_t now_ns,
                                    enum outcome outcome)
{
    metric_add(m.success[finished_reason_of(c, outcome)], 1);
    metric_observe(m.e2e, seconds_of(arrival_ns, now_ns));
    metric_observe(m.length_prompt, c->num_prompt_tokens);
    metric_observe(m.length_generation, c->num_pulled);
    metric_observe(m.params_max_tokens, c->max_tokens);
    metric_observe(m.params_n, n);
    if (!c->scheduled_ns) return;
    metric_observe(m.queue, seconds_of(arrival_ns, c->scheduled_ns));
    metric_observe(m.kv_computed, c->num_prompt_tokens - c->num_cached_tokens);
    if (!c->first_token_ns) return;
    metric_observe(m.prefill, seconds_of(c->scheduled_ns, c->first_token_ns));
    metric_observe(m.inference, seconds_of(c->scheduled_ns, c->last_token_ns));
    metric_observe(m.decode, seconds_of(c->first_token_ns, c->last_token_ns));
    if (c->num_pulled > 1)
        metric_observe(m.tpot, seconds_of(c->first_token_ns, c->last_token_ns) / (c->num_pulled - 1));
}

void request_metrics_count_finished(enum outcome outcome, int32_t most_generated_tokens)
{
    metric_add(m.finished[outcome], 1);
    metric_observe(m.length_most, most_generated_tokens);
}

static void follow(struct follower *f, double total)
{
    if (total <= f->seen) return;
    metric_add(f->metric, total - f->seen);
    f->seen = total;
}

static void refresh_forms(const struct server *server)
{
    struct grammars_stats s;
    grammars_stats(server->grammars, &s);
    follow(&m.grammars_compiled, (double)s.num_compiled);
    follow(&m.grammars_refused, (double)s.num_refused);
    follow(&m.grammars_found, (double)s.num_found);
    follow(&m.compile_seconds, s.compile_seconds);
    metric_set(m.grammar_bytes, (double)s.num_bytes);
    follow(&m.masks, (double)masks_num_made(server->masks));
}

void request_metrics_refresh(const struct server *server, int num_in_flight)
{
    if (!m.registered) return;
    struct link_stats s;
    link_stats(server->link, &s);
    metric_set(m.running, s.num_running);
    metric_set(m.waiting, s.num_waiting);
    metric_set(m.waiting_for_room, s.num_waiting);
    metric_set(m.kv_usage, (double)s.num_held_blocks / server->facts->num_blocks);
    metric_set(m.blocks_free, s.num_free_blocks);
    metric_set(m.blocks_cached, s.num_cached_blocks);
    metric_set(m.blocks_held, s.num_held_blocks);
    metric_set(m.in_flight, num_in_flight);
    metric_set(m.slots_free, request_slots_num_free(server->slots));
    metric_set(m.arena_bytes, (double)arena_total_bytes());
    metric_set(m.blocks_saved, s.num_host_blocks - s.num_free_host_blocks);
    follow(&m.preemptions, (double)s.num_preemptions);
    follow(&m.saved, (double)s.num_saved);
    follow(&m.prefix_queries, (double)s.prefix_query_tokens);
    follow(&m.prefix_hits, (double)s.prefix_hit_tokens);
    follow(&m.discarded, (double)s.discarded_tokens);
    follow(&m.drafts_accepted, (double)s.accepted_tokens);
    follow(&m.drafts_rejected, (double)(s.draft_tokens - s.accepted_tokens));
    if (m.energy.metric) follow(&m.energy, (double)s.energy_uj * 1e-6);
    follow(&m.steps, (double)s.num_steps);
    follow(&m.withheld, (double)s.num_withheld);
    if (server->masks) refresh_forms(server);
    const struct link_counters *c = link_counters(server->link);
    metric_copy_histogram(m.iteration_tokens, c->step_tokens, (double)atomic_load(&c->step_tokens_sum));
}
