#include "cli/bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "cli/bench_attention.h"
#include "cli/command.h"
#include "cli/load_report.h"
#include "cli/remote.h"

enum { DEFAULT_STREAMS = 8 };

#define DEFAULT_URL "http://127.0.0.1:8000"

struct bench_options {
    struct load_options load;
    struct load_limits limits;
    int64_t input, output, groups, prefix; /* 0: as the trace has it */
    double burst, spread, scale;           /* spread below 0: as the trace has it */
    const char *url, *model, *key_file, *endpoint, *svg, *trace, *extra_body;
    bool json;
};

#define AT(field) offsetof(struct bench_options, field)

const struct flag bench_flags[] = {
    {"requests", "number", "in total [64]", FLAG_COUNT, AT(load.requests), 1, 10e6},
    {"streams", "number", "most in flight [8; with --rate: any number]", FLAG_COUNT, AT(load.streams), 1,
     65536},
    {"rate", "1/s", "requests arrive at random, so many a second; else each as soon as a stream is free",
     FLAG_REAL, AT(load.rate), 1e-6, 1e6},
    {"input", "words", "of a prompt, about a token each [512]", FLAG_COUNT, AT(input), 1, 4e6},
    {"output", "tokens", "of an answer [128]", FLAG_COUNT, AT(output), 1, 4e6},
    {"trace", "conversation|code|mooncake",
     "arrivals, lengths and groups as public traces have them; options given beside it replace its own",
     FLAG_TEXT, AT(trace), 0, 0},
    {"scale", "factor", "of all lengths of prompts and answers [1]", FLAG_REAL, AT(scale), 1e-4, 1e4},
    {"spread", "sigma", "lengths are log-normal with --input and --output as medians", FLAG_REAL, AT(spread),
     0, 4},
    {"shortest", "tokens", "lengths are drawn evenly from this to --input and --output", FLAG_COUNT,
     AT(load.shortest), 1, 4e6},
    {"burst", "number",
     "of --rate: coefficient of variation of the times between arrivals, gamma distributed [1: Poisson]",
     FLAG_REAL, AT(burst), 0.01, 100},
    {"groups", "number", "prompts fall into so many groups of a common beginning", FLAG_COUNT, AT(groups), 1,
     1e6},
    {"prefix", "words", "of that beginning", FLAG_COUNT, AT(prefix), 1, 4e6},
    {"vocab", "tokens",
     "prompts are token ids below this, exactly --input of them, instead of words (completions)", FLAG_COUNT,
     AT(load.vocabulary), 101, 1e9},
    {"ignore-eos", "", "answers are as long as that; --no-ignore-eos for servers that refuse the field",
     FLAG_SWITCH, AT(load.ignore_eos), 0, 0},
    {"temperature", "number", "of sampling [0]", FLAG_REAL, AT(load.temperature), 0, 10},
    {"extra-body", "json",
     "an object whose members every request has, too; {request} in it is the request's number", FLAG_TEXT,
     AT(extra_body), 0, 0},
    {"seed", "number", "another one, other prompts [0]", FLAG_COUNT, AT(load.seed), 0, 1e15},
    {"trace-seed", "number", "another one, other arrivals, lengths and groups [0]", FLAG_COUNT,
     AT(load.trace_seed), 0, 1e15},
    {"endpoint", "chat|completions", "what is asked [chat; with --vocab: completions]", FLAG_TEXT,
     AT(endpoint), 0, 0},
    {"model", "name", "of the server's models [the first]", FLAG_TEXT, AT(model), 0, 0},
    {"api-key-file", "file", "its first key [FLASHD_API_KEY]", FLAG_TEXT, AT(key_file), 0, 0},
    {"slo-ttft", "ms", "goodput counts streams with a first token within this", FLAG_REAL,
     AT(limits.first_ms), 0, 1e9},
    {"slo-itl", "ms", "and 99 in 100 of its chunks within this of the one before", FLAG_REAL,
     AT(limits.gap_ms), 0, 1e9},
    {"timeout", "seconds", "after which a request counts as lost [600]", FLAG_REAL, AT(load.timeout_s), 0.001,
     1e6},
    {"json", "", "figures as JSON instead of a table", FLAG_SWITCH, AT(json), 0, 0},
    {"svg", "file", "a picture of TTFT and ITL over their percentiles", FLAG_TEXT, AT(svg), 0, 0},
    {.name = NULL},
};

static int fail_plot(const char *path, struct error *err)
{
    return error_set(err, STATUS_IO, "--svg %s: %s", path, strerror(errno));
}

/* A path where nothing can be written is told before the load runs, not behind it. */
static int open_plot(const char *path, FILE **file, struct error *err)
{
    *file = path ? fopen(path, "w") : NULL;
    return path && !*file ? fail_plot(path, err) : STATUS_OK;
}

static int write_plot(struct load_report *r, const char *path, FILE *file, struct error *err)
{
    load_report_plot(r, file);
    bool written = fflush(file) == 0 && !ferror(file);
    return written ? STATUS_OK : fail_plot(path, err);
}

static int report(const struct bench_options *o, const struct load *load, FILE *plot)
{
    struct load_report r;
    struct error err = {0};
    int status = 0;
    load_report_init(&r, load, &o->load, o->limits, o->url);
    if (o->json)
        status = load_report_print_json(&r, stdout, &err);
    else
        load_report_print(&r, stdout);
    if (!status && plot) status = write_plot(&r, o->svg, plot, &err);
    bool all_right = r.num_complete == o->load.requests && r.num_other_length == 0;
    load_report_deinit(&r);
    if (status) return command_fail(&err, EXIT_FAILURE);
    return all_right ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int run_with(struct bench_options *o, const struct http_client *client)
{
    struct load load = {.num_begun = 0};
    struct error err = {0};
    char *found = NULL;
    FILE *plot = NULL;
    int status = o->model ? STATUS_OK : remote_find_model(client, &found, &err);
    if (!status) status = open_plot(o->svg, &plot, &err);
    o->load.model = o->model ? o->model : found;
    if (!status) status = load_run_all(&load, &o->load, client, &err);
    int code = status ? command_fail(&err, EXIT_FAILURE) : report(o, &load, plot);
    if (plot) fclose(plot);
    load_run_deinit(&load);
    free(found);
    return code;
}

/* The trace's shape, but for what is told, scaled. */
static void shape_load(struct bench_options *o)
{
    static const struct trace_shape plain = {.input = 512, .output = 128, .burst = 1};
    struct trace_shape *t = &o->load.shape;
    *t = o->trace ? *trace_shape_find(o->trace) : plain;
    if (o->input) t->input = (double)o->input;
    if (o->output) t->output = (double)o->output;
    if (o->burst > 0) t->burst = o->burst;
    if (o->spread >= 0) t->input_spread = t->output_spread = o->spread;
    if (o->groups) t->num_groups = o->groups;
    if (o->prefix) t->prefix = o->prefix;
    t->input *= o->scale;
    t->output *= o->scale;
    t->prefix = (int64_t)((double)t->prefix * o->scale);
}

/* Its members, printed anew; the caller frees *members. A temperature among them replaces --temperature. */
static int find_members(struct bench_options *o, char **members, struct error *err)
{
    cJSON *object = cJSON_Parse(o->extra_body);
    char *text = cJSON_IsObject(object) ? cJSON_PrintUnformatted(object) : NULL;
    if (cJSON_HasObjectItem(object, "temperature")) o->load.temperature = NAN;
    cJSON_Delete(object);
    if (!text)
        return error_set(err, STATUS_INVALID, "--extra-body: a JSON object is expected, not \"%.200s\"",
                         o->extra_body);
    text[strlen(text) - 1] = '\0';
    *members = text;
    o->load.extra_body = text + 1;
    return STATUS_OK;
}

static int load_options(struct bench_options *o, int num_args, char **args, struct error *err)
{
    *o = (struct bench_options){.url = DEFAULT_URL, .scale = 1, .spread = -1, .extra_body = "{}"};
    o->load = (struct load_options){.requests = 64, .timeout_s = 600, .ignore_eos = true};
    int status = flags_load(bench_flags, o, "bench serve", &o->url, num_args, args, err);
    if (status) return status;
    if (!o->endpoint) o->endpoint = o->load.vocabulary ? "completions" : "chat";
    o->load.chat = !strcmp(o->endpoint, "chat");
    if (o->load.chat && o->load.vocabulary)
        return error_set(err, STATUS_INVALID, "--vocab: a chat has no prompt of token ids");
    if (!o->load.streams && !o->load.rate) o->load.streams = DEFAULT_STREAMS;
    shape_load(o);
    return STATUS_OK;
}

int bench_run(int num_args, char **args)
{
    struct bench_options o;
    struct remote remote;
    struct error err = {0};
    char *members = NULL;
    if (num_args > 0 && !strcmp(args[0], "attention")) return bench_attention_run(num_args - 1, args + 1);
    if (num_args == 0 || strcmp(args[0], "serve") != 0) {
        error_set(&err, STATUS_INVALID,
                  "bench serve [URL] [options] or bench attention [options] is expected");
        return command_fail(&err, EXIT_USAGE);
    }
    if (load_options(&o, num_args - 1, args + 1, &err) || find_members(&o, &members, &err))
        return command_fail(&err, EXIT_USAGE);
    int code = remote_init(&remote, o.url, o.key_file, &err) ? command_fail(&err, EXIT_USAGE)
                                                             : run_with(&o, &remote.client);
    remote_deinit(&remote);
    free(members);
    return code;
}
