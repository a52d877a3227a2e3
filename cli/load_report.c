#include "cli/load_report.h"

#include <math.h>
#include <stdlib.h>

#include <cjson/cJSON.h>

#include "base/check.h"

/* ---- figures ---- */

static void count_refusal(struct load_report *r, const struct load_result *one)
{
    size_t i = 0;
    while (i < r->num_refused_statuses && r->refused[i].http_status != one->http_status) i++;
    if (i == LOAD_STATUSES_MAX) return;
    if (i == r->num_refused_statuses) {
        r->num_refused_statuses++;
        r->refused[i].http_status = one->http_status;
        r->refused[i].problem = one->problem;
    }
    r->refused[i].count++;
    if (one->retry_after_s < 0) return;
    bool first = r->refused[i].num_with_retry_after++ == 0;
    if (first || one->retry_after_s < r->refused[i].retry_after_min_s)
        r->refused[i].retry_after_min_s = one->retry_after_s;
    if (first || one->retry_after_s > r->refused[i].retry_after_max_s)
        r->refused[i].retry_after_max_s = one->retry_after_s;
}

static bool is_within(double limit, double value)
{
    return limit <= 0 || isnan(value) || value <= limit;
}

static struct load_length *find_length(struct load_report *r, int64_t input)
{
    size_t i = 0;
    while (i + 1 < LOAD_LENGTHS && r->lengths[i].most < input) i++;
    return &r->lengths[i];
}

static void count_first(struct load_report *r, const struct load_result *one, double first_ms, bool good)
{
    struct load_length *length = find_length(r, one->input);
    samples_add(&length->first_ms, first_ms);
    length->num_good += good;
    samples_add(&r->first_ms, first_ms);
}

static void count_complete(struct load_report *r, struct load_result *one)
{
    int64_t num_chunks = (int64_t)one->gaps_ms.count + (one->first_ns > 0);
    int64_t num_tokens = one->num_tokens >= 0 ? one->num_tokens : num_chunks;
    double first_ms = one->first_ns ? (double)(one->first_ns - one->due_ns) / 1e6 : NAN;
    r->num_complete++;
    r->counted_chunks |= one->num_tokens < 0;
    r->num_tokens += num_tokens;
    if (one->num_prompt_tokens > 0) r->num_prompt_tokens += one->num_prompt_tokens;
    if (num_tokens > 1 && one->first_ns)
        samples_add(&r->token_ms, (double)(one->last_ns - one->first_ns) / 1e6 / (double)(num_tokens - 1));
    samples_add(&r->whole_ms, (double)(one->end_ns - one->due_ns) / 1e6);
    samples_add_all(&r->gap_ms, &one->gaps_ms);
    bool good = is_within(r->limits.first_ms, first_ms) &&
                is_within(r->limits.gap_ms, samples_percentile(&one->gaps_ms, 0.99));
    if (one->first_ns) count_first(r, one, first_ms, good);
    r->num_good += good;
    r->num_other_length += r->options->ignore_eos && one->num_tokens >= 0 && one->num_tokens != one->output;
}

/* Four times as long each. */
static void init_lengths(struct load_report *r)
{
    int64_t most = 64;
    for (size_t i = 0; i < LOAD_LENGTHS; i++, most *= 4) r->lengths[i].most = most;
}

void load_report_init(struct load_report *r, const struct load *load, const struct load_options *options,
                      struct load_limits limits, const char *url)
{
    *r = (struct load_report){.options = options, .limits = limits, .url = url};
    init_lengths(r);
    r->seconds = (double)(load->end_ns - load->begin_ns) / 1e9;
    for (int64_t i = 0; i < load->num_begun; i++) {
        struct load_result *one = &load->results[i];
        r->num_ended[one->end]++;
        if (one->end == LOAD_COMPLETE)
            count_complete(r, one);
        else if (one->end == LOAD_REFUSED)
            count_refusal(r, one);
        else if (!r->problem && one->problem[0])
            r->problem = one->problem;
    }
}

void load_report_deinit(struct load_report *r)
{
    for (size_t i = 0; i < LOAD_LENGTHS; i++) samples_deinit(&r->lengths[i].first_ms);
    samples_deinit(&r->first_ms);
    samples_deinit(&r->gap_ms);
    samples_deinit(&r->token_ms);
    samples_deinit(&r->whole_ms);
}

static double rate(const struct load_report *r, int64_t count)
{
    return r->seconds > 0 ? (double)count / r->seconds : 0;
}

static bool has_limits(const struct load_report *r)
{
    return r->limits.first_ms > 0 || r->limits.gap_ms > 0;
}

/* Those that ended otherwise than complete or refused. */
static const struct {
    enum load_end end;
    const char *name, *text;
} failures[] = {{LOAD_FAILED, "failed", "an error in the stream"},
                {LOAD_CUT_OFF, "cut_off", "the answer ended early, or is no stream"},
                {LOAD_UNREACHABLE, "unreachable", "no connection"},
                {LOAD_TIMED_OUT, "timed_out", "timed out"},
                {LOAD_PENDING, "interrupted", "interrupted"}};

static const double percentiles[] = {0.5, 0.9, 0.95, 0.99, 1};

/* ---- table ---- */

static void print_failures(const struct load_report *r, FILE *out)
{
    for (size_t i = 0; i < r->num_refused_statuses; i++) {
        fprintf(out, "  status %d             %8lld", r->refused[i].http_status,
                (long long)r->refused[i].count);
        if (r->refused[i].num_with_retry_after > 0)
            fprintf(out, "   Retry-After %lld to %lld s", (long long)r->refused[i].retry_after_min_s,
                    (long long)r->refused[i].retry_after_max_s);
        fprintf(out, "   %.160s\n", r->refused[i].problem);
    }
    for (size_t i = 0; i < array_length(failures); i++)
        if (r->num_ended[failures[i].end] > 0)
            fprintf(out, "  %-39s %8lld\n", failures[i].text, (long long)r->num_ended[failures[i].end]);
    if (r->num_other_length > 0)
        fprintf(out, "  %-39s %8lld   --ignore-eos asks for it\n", "not of the length that was asked",
                (long long)r->num_other_length);
    if (r->problem) fprintf(out, "  %.200s\n", r->problem);
}

static bool has_several_lengths(const struct load_report *r)
{
    size_t count = 0;
    for (size_t i = 0; i < LOAD_LENGTHS; i++) count += r->lengths[i].first_ms.count > 0;
    return count > 1;
}

static void print_lengths(struct load_report *r, FILE *out)
{
    if (!has_several_lengths(r)) return;
    fprintf(out, "\n  %-20s %9s %9s %9s%s\n", "TTFT by prompt", "count", "p50", "p99",
            has_limits(r) ? "  within limits" : "");
    for (struct load_length *l = r->lengths; l < r->lengths + LOAD_LENGTHS; l++) {
        size_t count = l->first_ms.count;
        if (count == 0) continue;
        fprintf(out, "  up to %-14lld %9zu %9.2f %9.2f", (long long)l->most, count,
                samples_percentile(&l->first_ms, 0.5), samples_percentile(&l->first_ms, 0.99));
        if (has_limits(r)) fprintf(out, "   %10.1f %%", 100.0 * (double)l->num_good / (double)count);
        fprintf(out, "\n");
    }
}

static void print_shape(const struct load_options *o, FILE *out)
{
    const struct trace_shape *t = &o->shape;
    if (t->name) fprintf(out, "%s: ", t->name);
    if (o->shortest > 0) fprintf(out, "%lld to ", (long long)o->shortest);
    fprintf(out, "%.0f %s in, ", t->input, o->vocabulary ? "token ids" : "words");
    if (o->shortest > 0) fprintf(out, "%lld to ", (long long)o->shortest);
    fprintf(out, "%.0f tokens out, ", t->output);
    if (t->input_spread > 0 || t->output_spread > 0)
        fprintf(out, "medians of spreads %g and %g, ", t->input_spread, t->output_spread);
    if (t->num_groups > 0)
        fprintf(out, "%lld groups that share %lld, ", (long long)t->num_groups, (long long)t->prefix);
    fprintf(out, "seed %lld\n", (long long)o->seed);
}

static void print_row(const char *name, struct samples *s, FILE *out)
{
    fprintf(out, "  %-20s %9.2f", name, samples_mean(s));
    for (size_t i = 0; i < array_length(percentiles); i++)
        fprintf(out, " %9.2f", samples_percentile(s, percentiles[i]));
    fprintf(out, "\n");
}

void load_report_print(struct load_report *r, FILE *out)
{
    const struct load_options *o = r->options;
    fprintf(out, "%s, %s, %s: %lld requests, ", r->url, o->model, o->chat ? "chat" : "completions",
            (long long)o->requests);
    if (o->streams > 0) fprintf(out, "at most %lld at a time, ", (long long)o->streams);
    if (o->rate > 0) fprintf(out, "%g a second, ", o->rate);
    print_shape(o, out);
    fprintf(out, "  complete             %8lld   in %.2f s\n", (long long)r->num_complete, r->seconds);
    print_failures(r, out);
    if (r->num_complete == 0) return;
    fprintf(out, "  requests/s           %8.2f\n", rate(r, r->num_complete));
    if (has_limits(r))
        fprintf(out, "  goodput, requests/s  %8.2f   %.1f %% of those that were sent\n", rate(r, r->num_good),
                100.0 * (double)r->num_good / (double)o->requests);
    fprintf(out, "  generated tokens/s   %8.1f%s\n", rate(r, r->num_tokens),
            r->counted_chunks ? "   (chunks: the server sends no usage)" : "");
    fprintf(out, "  prompt tokens/s      %8.1f\n\n", rate(r, r->num_prompt_tokens));
    fprintf(out, "  %-20s %9s %9s %9s %9s %9s %9s\n", "ms", "mean", "p50", "p90", "p95", "p99", "most");
    print_row("first token (TTFT)", &r->first_ms, out);
    print_row("between chunks (ITL)", &r->gap_ms, out);
    print_row("per token (TPOT)", &r->token_ms, out);
    print_row("end to end", &r->whole_ms, out);
    print_lengths(r, out);
}

/* ---- JSON ---- */

static void add_samples(cJSON *to, const char *name, struct samples *s)
{
    static const char *const names[] = {"p50", "p90", "p95", "p99", "max"};
    cJSON *row = cJSON_AddObjectToObject(to, name);
    cJSON_AddNumberToObject(row, "count", (double)s->count);
    cJSON_AddNumberToObject(row, "mean", samples_mean(s)); /* NAN is written as null */
    for (size_t i = 0; i < array_length(percentiles); i++)
        cJSON_AddNumberToObject(row, names[i], samples_percentile(s, percentiles[i]));
}

static void add_failures(const struct load_report *r, cJSON *to)
{
    cJSON *refused = cJSON_AddArrayToObject(to, "refused");
    for (size_t i = 0; i < r->num_refused_statuses; i++) {
        cJSON *row = cJSON_CreateObject();
        cJSON_AddNumberToObject(row, "status", r->refused[i].http_status);
        cJSON_AddNumberToObject(row, "count", (double)r->refused[i].count);
        cJSON_AddNumberToObject(row, "with_retry_after", (double)r->refused[i].num_with_retry_after);
        cJSON_AddStringToObject(row, "message", r->refused[i].problem);
        if (!cJSON_AddItemToArray(refused, row)) cJSON_Delete(row);
    }
    for (size_t i = 0; i < array_length(failures); i++)
        cJSON_AddNumberToObject(to, failures[i].name, (double)r->num_ended[failures[i].end]);
}

static void add_lengths(struct load_report *r, cJSON *to)
{
    cJSON *lengths = cJSON_AddArrayToObject(to, "by_prompt");
    for (struct load_length *l = r->lengths; l < r->lengths + LOAD_LENGTHS; l++) {
        if (l->first_ms.count == 0) continue;
        cJSON *row = cJSON_CreateObject();
        cJSON_AddNumberToObject(row, "most", (double)l->most);
        if (has_limits(r)) cJSON_AddNumberToObject(row, "good", (double)l->num_good);
        add_samples(row, "ttft_ms", &l->first_ms);
        if (!cJSON_AddItemToArray(lengths, row)) cJSON_Delete(row);
    }
}

static void add_figures(struct load_report *r, cJSON *to)
{
    cJSON_AddStringToObject(to, "url", r->url);
    cJSON_AddStringToObject(to, "model", r->options->model);
    cJSON_AddNumberToObject(to, "requests", (double)r->options->requests);
    cJSON_AddNumberToObject(to, "seconds", r->seconds);
    cJSON_AddNumberToObject(to, "complete", (double)r->num_complete);
    add_failures(r, to);
    cJSON_AddNumberToObject(to, "other_length", (double)r->num_other_length);
    cJSON_AddNumberToObject(to, "requests_per_second", rate(r, r->num_complete));
    if (has_limits(r)) cJSON_AddNumberToObject(to, "goodput_per_second", rate(r, r->num_good));
    cJSON_AddNumberToObject(to, "prompt_tokens", (double)r->num_prompt_tokens);
    cJSON_AddNumberToObject(to, "completion_tokens", (double)r->num_tokens);
    cJSON_AddBoolToObject(to, "counted_chunks", r->counted_chunks);
    cJSON_AddNumberToObject(to, "completion_tokens_per_second", rate(r, r->num_tokens));
    add_samples(to, "ttft_ms", &r->first_ms);
    add_samples(to, "itl_ms", &r->gap_ms);
    add_samples(to, "tpot_ms", &r->token_ms);
    add_samples(to, "e2e_ms", &r->whole_ms);
    add_lengths(r, to);
}

int load_report_print_json(struct load_report *r, FILE *out, struct error *err)
{
    cJSON *all = cJSON_CreateObject();
    if (all) add_figures(r, all);
    char *text = cJSON_Print(all);
    cJSON_Delete(all);
    if (!text) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    fprintf(out, "%s\n", text);
    free(text);
    return STATUS_OK;
}
