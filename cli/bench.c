#include "cli/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/load_report.h"
#include "cli/remote.h"

enum { EXIT_USAGE = 2, DEFAULT_STREAMS = 8 };

#define DEFAULT_URL "http://127.0.0.1:8000"

struct bench_options {
    struct load_options load;
    struct load_limits limits;
    const char *url, *model, *key_file, *endpoint, *svg;
    bool json;
};

#define AT(field) offsetof(struct bench_options, field)

const struct flag bench_flags[] = {
    {"requests", "number", "in all [64]", FLAG_COUNT, AT(load.requests), 1, 10e6},
    {"streams", "number", "most at a time [8; with --rate: any number]", FLAG_COUNT, AT(load.streams), 1,
     65536},
    {"rate", "1/s",
     "requests arrive at random, so many a second (Poisson); else each as soon as there is a place",
     FLAG_REAL, AT(load.rate), 1e-6, 1e6},
    {"input", "words", "of a prompt, about a token each [512]", FLAG_COUNT, AT(load.input), 1, 4e6},
    {"output", "tokens", "of an answer [128]", FLAG_COUNT, AT(load.output), 1, 4e6},
    {"ignore-eos", "", "answers are as long as that; --no-ignore-eos for servers that refuse the field",
     FLAG_SWITCH, AT(load.ignore_eos), 0, 0},
    {"temperature", "number", "of sampling [0]", FLAG_REAL, AT(load.temperature), 0, 10},
    {"seed", "number", "of prompts and arrivals: another one, other prompts [0]", FLAG_COUNT, AT(load.seed),
     0, 1e15},
    {"endpoint", "chat|completions", "what is asked [chat]", FLAG_TEXT, AT(endpoint), 0, 0},
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

static int fail(const struct error *err, int code)
{
    fprintf(stderr, "flashd: %s\n", err->text);
    return code;
}

static int write_plot(struct load_report *r, const char *path, struct error *err)
{
    FILE *file = fopen(path, "w");
    if (!file) return error_set(err, STATUS_IO, "--svg %s: %s", path, strerror(errno));
    load_report_plot(r, file);
    bool written = !ferror(file);
    return fclose(file) == 0 && written ? STATUS_OK
                                        : error_set(err, STATUS_IO, "--svg %s: %s", path, strerror(errno));
}

static int report(const struct bench_options *o, const struct load *load)
{
    struct load_report r;
    struct error err = {0};
    int status = 0;
    load_report_init(&r, load, &o->load, o->limits, o->url);
    if (o->json)
        status = load_report_print_json(&r, stdout, &err);
    else
        load_report_print(&r, stdout);
    if (!status && o->svg) status = write_plot(&r, o->svg, &err);
    int code = r.num_complete == o->load.requests ? EXIT_SUCCESS : EXIT_FAILURE;
    load_report_deinit(&r);
    return status ? fail(&err, EXIT_FAILURE) : code;
}

static int run_with(struct bench_options *o, const struct http_client *client)
{
    struct load load = {.num_begun = 0};
    struct error err = {0};
    char *found = NULL;
    int status = o->model ? STATUS_OK : remote_find_model(client, &found, &err);
    o->load.model = o->model ? o->model : found;
    if (!status) status = load_run_all(&load, &o->load, client, &err);
    int code = status ? fail(&err, EXIT_FAILURE) : report(o, &load);
    load_run_deinit(&load);
    free(found);
    return code;
}

static int load_options(struct bench_options *o, int num_args, char **args, struct error *err)
{
    *o = (struct bench_options){.url = DEFAULT_URL, .endpoint = "chat"};
    o->load = (struct load_options){
        .requests = 64, .input = 512, .output = 128, .timeout_s = 600, .ignore_eos = true};
    int status = flags_load(bench_flags, o, "bench serve", &o->url, num_args, args, err);
    o->load.chat = !strcmp(o->endpoint, "chat");
    if (!o->load.streams && !o->load.rate) o->load.streams = DEFAULT_STREAMS;
    return status;
}

int bench_run(int num_args, char **args)
{
    struct bench_options o;
    struct remote remote;
    struct error err = {0};
    if (num_args == 0 || strcmp(args[0], "serve") != 0) {
        error_set(&err, STATUS_INVALID, "bench serve [URL] [options] is expected");
        return fail(&err, EXIT_USAGE);
    }
    if (load_options(&o, num_args - 1, args + 1, &err)) return fail(&err, EXIT_USAGE);
    int code =
        remote_init(&remote, o.url, o.key_file, &err) ? fail(&err, EXIT_USAGE) : run_with(&o, &remote.client);
    remote_deinit(&remote);
    return code;
}
