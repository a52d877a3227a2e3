/* load.c - many streams against a server at once, one thread, libuv.
 *
 *   load --port P --streams N --input I --output O [--host 127.0.0.1] [--model NAME] [--vocab V] [--rate R]
 *        [--lengths SEED] [--seed S] [--sampling MEMBERS] [--key K]
 *        [--trace conversation|code|mooncake] [--scale F] [--burst CV] [--spread SIGMA] [--groups G --prefix N]
 *        [--slo-first MS --slo-gap MS]
 *
 * Opens N connections to /v1/completions, each with a prompt of I random token ids and a stream of exactly O
 * tokens (ignore_eos). All at once, or with --rate as Poisson arrivals of R a second. Traces as public ones are
 * (trace.h): --trace takes all of its shape, with lengths times --scale; or one by one: --burst makes times between
 * arrivals gamma distributed with this coefficient of variation; --spread makes lengths log-normal with medians I and
 * O; --groups makes streams of one group begin with the same N tokens. Then a table by the prompts' lengths comes last, and how many streams kept both
 * limits, of the first token and of the longest gap but for one in a hundred. --key is the API key. --lengths draws each
 * stream's input from 100 to I and output from 100 to O instead, the same for the same SEED; --seed makes
 * other prompts; --sampling asks for something else than greedy decoding, as members of the request's object:
 * '"temperature": 0.6, "top_k": 20'. A stream is right when its status is 200, its number of tokens is O and
 * it ends with [DONE]. Prints time to first token, time between events, generated tokens a second. Tokens
 * that came together, or whose text was held back, show as fewer events than tokens. Exit code 1 when any
 * stream was not right. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/check.h"
#include "bench/trace.h"

enum { READ_BYTES = 65536, LINE_BYTES_MAX = 65536, BODY_BYTES_PER_TOKEN = 8, BODY_BYTES_EXTRA = 512 };

static struct {
    const char *host, *model, *sampling, *key;
    int port, num_streams, input, output, vocab, num_groups, prefix;
    double rate, burst, spread, output_spread, scale, slo_first_ms, slo_gap_ms;
    unsigned lengths_seed, seed; /* seed: of the prompts */
    bool random_lengths;
} options = {.host = "127.0.0.1",
             .sampling = "\"temperature\":0",
             .port = 8000,
             .num_streams = 64,
             .input = 512,
             .output = 128,
             .vocab = 40000,
             .burst = 1,
             .scale = 1};

struct stream {
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    uv_timer_t timer;
    char *request, *line;
    size_t line_bytes;
    int input, output, group, num_events, usage_tokens, status;
    double *gaps_ms; /* its own */
    bool in_body, done, closed;
    uint64_t begin_ns, last_ns, first_ns;
};

static struct stream *streams;
static struct sockaddr_in address;
static double *gaps_ms; /* between events of one stream, all streams */
static size_t num_gaps, num_gaps_max;
static uint64_t first_begin_ns, last_end_ns;
static uint64_t random_state;

static int random_length(double median, double spread)
{
    if (spread > 0) return trace_length(&random_state, median, spread);
    return options.random_lengths ? 100 + (int)(trace_uniform(&random_state) * (median - 99)) : (int)median;
}

/* ---- what a server sends ---- */

static const char *find_number(const char *line, const char *name)
{
    const char *at = strstr(line, name);
    return at ? at + strlen(name) : NULL;
}

/* An event with a choice brings one token, unless its text is still held back; the usage of the last one
 * counts them all. */
static void take_event(struct stream *s, const char *data)
{
    uint64_t now = uv_hrtime();
    const char *usage = find_number(data, "\"completion_tokens\":");
    if (usage) s->usage_tokens = atoi(usage);
    if (!strncmp(data, "[DONE]", 6)) {
        s->done = true;
        return;
    }
    if (!strstr(data, "\"choices\":[{")) return;
    if (s->num_events++ == 0)
        s->first_ns = now;
    else if (num_gaps < num_gaps_max)
        gaps_ms[num_gaps++] = s->gaps_ms[s->num_events - 2] = (double)(now - s->last_ns) / 1e6;
    s->last_ns = now;
}

static void take_line(struct stream *s)
{
    s->line[s->line_bytes] = 0;
    if (!s->in_body && !strncmp(s->line, "HTTP/1.1 ", 9)) s->status = atoi(s->line + 9);
    if (s->line_bytes == 0) s->in_body = true;
    if (s->in_body && !strncmp(s->line, "data: ", 6)) take_event(s, s->line + 6);
    if (s->in_body && s->status != 200 && s->line_bytes > 8)
        fprintf(stderr, "status %d: %s\n", s->status, s->line);
    s->line_bytes = 0;
}

static void on_closed(uv_handle_t *handle)
{
    (void)handle;
}

static void stream_end(struct stream *s)
{
    if (s->closed) return;
    s->closed = true;
    last_end_ns = uv_hrtime();
    uv_close((uv_handle_t *)&s->tcp, on_closed);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    static char bytes[READ_BYTES]; /* consumed before the next read */
    (void)handle, (void)suggested;
    *buffer = uv_buf_init(bytes, sizeof bytes);
}

static void on_read(uv_stream_t *tcp, ssize_t n, const uv_buf_t *buffer)
{
    struct stream *s = tcp->data;
    for (ssize_t i = 0; i < n; i++) {
        char c = buffer->base[i];
        if (c == '\n')
            take_line(s);
        else if (c != '\r' && s->line_bytes + 1 < LINE_BYTES_MAX)
            s->line[s->line_bytes++] = c;
    }
    if (n < 0 || s->done) stream_end(s);
}

/* ---- what it is asked ---- */

static void write_request(struct stream *s, unsigned seed)
{
    size_t room = (size_t)s->input * BODY_BYTES_PER_TOKEN + BODY_BYTES_EXTRA + strlen(options.sampling);
    char *body = malloc(room);
    size_t n = (size_t)snprintf(body, room, "{%s%s%s\"prompt\":[", options.model ? "\"model\":\"" : "",
                                options.model ? options.model : "", options.model ? "\"," : "");
    uint32_t x = seed * 2654435761u + 12345u;
    for (int i = 0; i < s->input; i++) {
        if (i == 0 && options.num_groups > 0) x = (uint32_t)s->group * 2654435761u + 777u;
        if (i == options.prefix && options.num_groups > 0) x = seed * 2654435761u + 12345u;
        x = x * 1664525u + 1013904223u;
        n += (size_t)snprintf(body + n, room - n, "%s%u", i ? "," : "",
                              100 + (x >> 8) % (unsigned)(options.vocab - 100));
    }
    n += (size_t)snprintf(body + n, room - n,
                          "],\"max_tokens\":%d,%s,\"ignore_eos\":true,\"stream\":true,"
                          "\"stream_options\":{\"include_usage\":true}}",
                          s->output, options.sampling);
    s->request = malloc(n + BODY_BYTES_EXTRA);
    sprintf(s->request,
            "POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: "
            "%zu\r\n%s%s%s"
            "Connection: close\r\n\r\n%s",
            options.host, n, options.key ? "Authorization: Bearer " : "", options.key ? options.key : "",
            options.key ? "\r\n" : "", body);
    free(body);
}

static void on_written(uv_write_t *write, int status)
{
    if (status) stream_end(write->data);
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct stream *s = connect->data;
    if (status) {
        fprintf(stderr, "connect: %s\n", uv_strerror(status));
        stream_end(s);
        return;
    }
    uv_buf_t buffer = uv_buf_init(s->request, (unsigned)strlen(s->request));
    uv_tcp_nodelay(&s->tcp, 1);
    uv_read_start((uv_stream_t *)&s->tcp, on_alloc, on_read);
    s->write.data = s;
    uv_write(&s->write, (uv_stream_t *)&s->tcp, &buffer, 1, on_written);
}

static void stream_begin(uv_timer_t *timer)
{
    struct stream *s = timer->data;
    s->begin_ns = uv_hrtime();
    if (!first_begin_ns) first_begin_ns = s->begin_ns;
    s->connect.data = s->tcp.data = s;
    uv_tcp_init(timer->loop, &s->tcp);
    uv_tcp_connect(&s->connect, &s->tcp, (const struct sockaddr *)&address, on_connected);
    uv_close((uv_handle_t *)timer, on_closed);
}

/* ---- table ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const double *sorted, size_t n, double p)
{
    return n ? sorted[(size_t)(p * (double)(n - 1) + 0.5)] : NAN;
}

/* Streams whose prompts have at most so many tokens and more than the line above. */
static void print_lengths(int above, int most)
{
    double *first_ms = malloc((size_t)options.num_streams * sizeof *first_ms);
    size_t count = 0, num_kept = 0;
    for (int i = 0; i < options.num_streams; i++) {
        const struct stream *s = &streams[i];
        if (s->input <= above || s->input > most || s->num_events == 0) continue;
        size_t n = (size_t)(s->num_events - 1);
        qsort(s->gaps_ms, n, sizeof *s->gaps_ms, compare);
        first_ms[count++] = (double)(s->first_ns - s->begin_ns) / 1e6;
        bool first_kept = options.slo_first_ms <= 0 || first_ms[count - 1] <= options.slo_first_ms;
        num_kept += first_kept && (options.slo_gap_ms <= 0 || n == 0 ||
                                   percentile(s->gaps_ms, n, 0.99) <= options.slo_gap_ms);
    }
    qsort(first_ms, count, sizeof *first_ms, compare);
    if (count > 0)
        printf(
            "  prompts up to %7d: %5zu, first token, ms %10.1f median %10.1f p99, limits kept by %5.1f %%\n",
            most, count, percentile(first_ms, count, 0.5), percentile(first_ms, count, 0.99),
            100.0 * (double)num_kept / (double)count);
    free(first_ms);
}

static int print_table(void)
{
    double *first_ms = malloc((size_t)options.num_streams * sizeof *first_ms);
    int num_right = 0, num_first = 0;
    long num_tokens = 0, num_events = 0;
    for (int i = 0; i < options.num_streams; i++) {
        struct stream *s = &streams[i];
        num_tokens += s->usage_tokens;
        num_events += s->num_events;
        if (s->status == 200 && s->done && s->usage_tokens == s->output) num_right++;
        if (s->num_events > 0) first_ms[num_first++] = (double)(s->first_ns - s->begin_ns) / 1e6;
    }
    qsort(first_ms, (size_t)num_first, sizeof *first_ms, compare);
    qsort(gaps_ms, num_gaps, sizeof *gaps_ms, compare);
    double seconds = (double)(last_end_ns - first_begin_ns) / 1e9;
    printf("%d streams, %d in, %d out%s: %d right, %ld tokens in %ld events in %.3f s\n", options.num_streams,
           options.input, options.output, options.random_lengths ? " at most" : "", num_right, num_tokens,
           num_events, seconds);
    printf("  generated tokens/s        %10.0f\n", (double)num_tokens / seconds);
    printf("  time to first token, ms   %10.2f median %10.2f p99\n",
           percentile(first_ms, (size_t)num_first, 0.5), percentile(first_ms, (size_t)num_first, 0.99));
    printf("  time between events, ms   %10.2f median %10.2f p90 %10.2f p99 %10.2f most\n",
           percentile(gaps_ms, num_gaps, 0.5), percentile(gaps_ms, num_gaps, 0.9),
           percentile(gaps_ms, num_gaps, 0.99), percentile(gaps_ms, num_gaps, 1));
    free(first_ms);
    bool by_length = options.spread > 0 || options.slo_first_ms > 0 || options.slo_gap_ms > 0;
    for (int most = 64, above = 0; by_length && above < 2000000; above = most, most *= 4)
        print_lengths(above, most);
    return num_right == options.num_streams ? 0 : 1;
}

static void take_shape(const char *name)
{
    const struct trace_shape *shape = trace_shape_find(name);
    assert_always(shape);
    options.input = (int)shape->input;
    options.output = (int)shape->output;
    options.spread = shape->input_spread;
    options.output_spread = shape->output_spread;
    options.burst = shape->burst;
    options.num_groups = shape->num_groups;
    options.prefix = shape->prefix;
}

static void parse(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (!strcmp(name, "--host")) options.host = value;
        if (!strcmp(name, "--port")) options.port = atoi(value);
        if (!strcmp(name, "--model")) options.model = value;
        if (!strcmp(name, "--streams")) options.num_streams = atoi(value);
        if (!strcmp(name, "--input")) options.input = atoi(value);
        if (!strcmp(name, "--output")) options.output = atoi(value);
        if (!strcmp(name, "--vocab")) options.vocab = atoi(value);
        if (!strcmp(name, "--seed")) options.seed = (unsigned)atoi(value);
        if (!strcmp(name, "--sampling")) options.sampling = value;
        if (!strcmp(name, "--rate")) options.rate = atof(value);
        if (!strcmp(name, "--key")) options.key = value;
        if (!strcmp(name, "--burst")) options.burst = fmax(atof(value), 0.01);
        if (!strcmp(name, "--spread")) options.spread = options.output_spread = atof(value);
        if (!strcmp(name, "--trace")) take_shape(value);
        if (!strcmp(name, "--scale")) options.scale = atof(value);
        if (!strcmp(name, "--groups")) options.num_groups = atoi(value);
        if (!strcmp(name, "--prefix")) options.prefix = atoi(value);
        if (!strcmp(name, "--slo-first")) options.slo_first_ms = atof(value);
        if (!strcmp(name, "--slo-gap")) options.slo_gap_ms = atof(value);
        if (!strcmp(name, "--lengths")) {
            options.random_lengths = true;
            options.lengths_seed = (unsigned)atoi(value);
        }
    }
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    streams = calloc((size_t)options.num_streams, sizeof *streams);
    random_state = options.lengths_seed * 7919u + 1;
    options.prefix = (int)(options.prefix * options.scale);
    double at_s = 0;
    uv_loop_t *loop = uv_default_loop();
    uv_ip4_addr(options.host, options.port, &address);
    for (int i = 0; i < options.num_streams; i++) {
        struct stream *s = &streams[i];
        s->input = random_length(options.input * options.scale, options.spread);
        s->output = random_length(options.output * options.scale, options.output_spread);
        s->group = options.num_groups > 0 ? (int)(trace_uniform(&random_state) * options.num_groups) : 0;
        s->gaps_ms = malloc((size_t)s->output * sizeof *s->gaps_ms);
        s->line = malloc(LINE_BYTES_MAX);
        num_gaps_max += (size_t)s->output;
        write_request(s, options.seed * 10007u + (unsigned)i + 1);
        s->timer.data = s;
        uv_timer_init(loop, &s->timer);
        if (options.rate > 0) at_s += trace_gap(&random_state, options.rate, options.burst);
        uv_timer_start(&s->timer, stream_begin, (uint64_t)(at_s * 1e3), 0);
    }
    gaps_ms = malloc(num_gaps_max * sizeof *gaps_ms);
    uv_run(loop, UV_RUN_DEFAULT);
    int exit_code = print_table();
    for (int i = 0; i < options.num_streams; i++) {
        free(streams[i].request);
        free(streams[i].line);
        free(streams[i].gaps_ms);
    }
    free(streams);
    free(gaps_ms);
    return exit_code;
}
