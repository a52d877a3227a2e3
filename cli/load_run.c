#include "cli/load_run.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"

enum {
    BODY_BYTES_MAX = 64 << 20,
    STREAM_WORDS = 1,
    STREAM_GROUPS = 2,
    FIRST_TOKEN = 100
}; /* below it: control tokens */

/* A token each in most vocabularies, with the blank before it. */
static const char *const words[] = {
    "the",   "of",   "and",  "to",    "in",    "is",   "that",  "for",   "it",   "as",    "was",
    "with",  "on",   "by",   "at",    "from",  "his",  "her",   "they",  "we",   "are",   "this",
    "have",  "not",  "had",  "but",   "what",  "all",  "were",  "when",  "your", "can",   "said",
    "there", "use",  "each", "which", "she",   "how",  "their", "will",  "up",   "other", "about",
    "out",   "many", "then", "them",  "these", "so",   "some",  "would", "make", "like",  "him",
    "into",  "time", "has",  "look",  "two",   "more", "write", "go",    "see"};

struct flight {
    struct run *run;
    struct load_stream *stream; /* NULL: it has not begun, or has ended */
};

struct run {
    struct load *load;
    const struct load_options *options;
    struct load_target target;
    struct flight *flights; /* [requests] */
    int64_t num_in_flight;
    uint64_t trace_state;
    double next_s; /* when the next one arrives, after the beginning */
    uv_timer_t arrival;
    uv_signal_t interrupt;
    bool stopped;
};

/* ---- what is asked ---- */

/* What one request is, drawn in the order of arrivals. */
struct draft {
    int64_t input, output, group;
};

static int64_t draw_length(const struct load_options *o, uint64_t *state, double median, double spread)
{
    if (o->shortest)
        return o->shortest + (int64_t)(trace_uniform(state) * fmax(median - (double)o->shortest + 1, 1));
    return spread > 0 ? trace_length(state, median, spread) : (int64_t)fmax(median, 1);
}

static struct draft draw_draft(const struct load_options *o, uint64_t *state)
{
    const struct trace_shape *t = &o->shape;
    struct draft d = {.input = draw_length(o, state, t->input, t->input_spread)};
    d.output = draw_length(o, state, t->output, t->output_spread);
    if (t->num_groups > 0) d.group = (int64_t)(trace_uniform(state) * (double)t->num_groups);
    return d;
}

/* The beginning of a prompt is its group's. */
static uint32_t draw_word(const struct load_options *o, const struct draft *d, int64_t index, int64_t at)
{
    bool shared = o->shape.num_groups > 0 && at < o->shape.prefix;
    uint64_t stream = shared ? (uint64_t)d->group << 8 | STREAM_GROUPS : (uint64_t)index << 8 | STREAM_WORDS;
    return rng_philox((uint64_t)o->seed, (uint64_t)at, stream).word[0];
}

static void append_prompt(struct buffer *b, const struct load_options *o, const struct draft *d,
                          int64_t index)
{
    buffer_append_char(b, o->vocabulary ? '[' : '"');
    for (int64_t i = 0; i < d->input; i++) {
        uint32_t draw = draw_word(o, d, index, i);
        if (i) buffer_append_char(b, o->vocabulary ? ',' : ' ');
        if (o->vocabulary)
            buffer_printf(b, "%lld", (long long)(FIRST_TOKEN + draw % (o->vocabulary - FIRST_TOKEN)));
        else
            buffer_append_text(b, words[draw % array_length(words)]);
    }
    buffer_append_char(b, o->vocabulary ? ']' : '"');
}

/* "{request}" in it is the request's number. */
static void append_extra(struct buffer *b, const char *extra, int64_t index)
{
    static const char number[] = "{request}";
    if (!extra[0]) return;
    for (const char *at; (at = strstr(extra, number)); extra = at + strlen(number)) {
        buffer_append(b, extra, (size_t)(at - extra));
        buffer_printf(b, "%lld", (long long)index);
    }
    buffer_append_text(b, extra);
    buffer_append_char(b, ',');
}

static void append_body(struct buffer *b, const struct load_options *o, const struct draft *d, int64_t index)
{
    buffer_append_text(b, "{\"model\":");
    buffer_append_json_text(b, o->model);
    buffer_append_text(b, o->chat ? ",\"messages\":[{\"role\":\"user\",\"content\":" : ",\"prompt\":");
    append_prompt(b, o, d, index);
    buffer_printf(b, "%s,\"max_tokens\":%lld,", o->chat ? "}]" : "", (long long)d->output);
    if (!isnan(o->temperature)) buffer_printf(b, "\"temperature\":%g,", o->temperature);
    if (o->ignore_eos) buffer_append_text(b, "\"ignore_eos\":true,");
    append_extra(b, o->extra_body, index);
    buffer_append_text(b, "\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
}

/* ---- when ---- */

static void go_on(struct run *run);

static void on_end(void *context)
{
    struct flight *flight = context;
    flight->stream = NULL;
    flight->run->num_in_flight--;
    go_on(flight->run);
}

/* due_ns 0: as soon as its request is written. One for which there is no memory stays pending. */
static void begin(struct run *run, uint64_t due_ns)
{
    const char *path = run->options->chat ? "/v1/chat/completions" : "/v1/completions";
    int64_t index = run->load->num_begun++;
    struct load_result *result = &run->load->results[index];
    struct flight *flight = &run->flights[index];
    struct draft draft = draw_draft(run->options, &run->trace_state);
    struct buffer body;
    buffer_init(&body, BODY_BYTES_MAX);
    append_body(&body, run->options, &draft, index);
    flight->run = run;
    result->input = draft.input;
    result->output = draft.output;
    result->due_ns = due_ns ? due_ns : clock_monotonic_ns();
    if (!buffer_failed(&body))
        flight->stream = load_stream_begin(&run->target, path, body.data, result, on_end, flight);
    run->num_in_flight += flight->stream != NULL;
    buffer_deinit(&body);
}

static void on_arrival(uv_timer_t *timer)
{
    go_on(timer->data);
}

/* Begins what is due and has a place. One that had to wait for its place was due before: its times count the wait. */
static void go_on(struct run *run)
{
    const struct load_options *o = run->options;
    uint64_t now = clock_monotonic_ns();
    while (!run->stopped && run->load->num_begun < o->requests &&
           (!o->streams || run->num_in_flight < o->streams)) {
        uint64_t due_ns = o->rate > 0 ? run->load->begin_ns + (uint64_t)(run->next_s * 1e9) : 0;
        if (due_ns > now) {
            uv_timer_start(&run->arrival, on_arrival, (due_ns - now) / 1000000 + 1, 0);
            return;
        }
        begin(run, due_ns);
        if (o->rate > 0) run->next_s += trace_gap(&run->trace_state, o->rate, o->shape.burst);
    }
}

static void on_interrupt(uv_signal_t *interrupt, int number)
{
    struct run *run = interrupt->data;
    (void)number;
    run->stopped = true;
    uv_timer_stop(&run->arrival);
    for (int64_t i = 0; i < run->load->num_begun; i++)
        if (run->flights[i].stream) load_stream_stop(run->flights[i].stream);
}

/* ---- all of it ---- */

static void run_loop(struct run *run)
{
    uv_loop_t *loop = uv_default_loop();
    uv_timer_init(loop, &run->arrival);
    uv_signal_init(loop, &run->interrupt);
    run->arrival.data = run->interrupt.data = run;
    uv_signal_start(&run->interrupt, on_interrupt, SIGINT);
    uv_unref((uv_handle_t *)&run->interrupt);
    run->load->begin_ns = clock_monotonic_ns();
    go_on(run);
    uv_run(loop, UV_RUN_DEFAULT);
    run->load->end_ns = clock_monotonic_ns();
    uv_close((uv_handle_t *)&run->arrival, NULL);
    uv_close((uv_handle_t *)&run->interrupt, NULL);
    uv_run(loop, UV_RUN_DEFAULT);
    uv_loop_close(loop);
}

int load_run_all(struct load *load, const struct load_options *options, const struct http_client *client,
                 struct error *err)
{
    struct run run = {.load = load,
                      .options = options,
                      .target.client = client,
                      .trace_state = (uint64_t)options->trace_seed * 7919 + 1};
    *load = (struct load){.num_begun = 0};
    run.target.timeout_ms = (uint64_t)(options->timeout_s * 1e3);
    if (!client->socket_path[0] && http_client_find_address(client, &run.target.address, err))
        return STATUS_IO;
    load->results = calloc((size_t)options->requests, sizeof *load->results);
    run.flights = calloc((size_t)options->requests, sizeof *run.flights);
    int status = load->results && run.flights ? STATUS_OK : error_set(err, STATUS_NO_MEMORY, "out of memory");
    if (!status) run_loop(&run);
    free(run.flights);
    return status;
}

void load_run_deinit(struct load *load)
{
    for (int64_t i = 0; i < load->num_begun; i++) samples_deinit(&load->results[i].gaps_ms);
    free(load->results);
    *load = (struct load){.num_begun = 0};
}
