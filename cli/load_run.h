/* load_run.h - a load on a server of OpenAI's protocol: requests with random prompts, so many at a time or arriving at
 * random, each answered by a stream. Thread: the only one. */
#ifndef CLI_LOAD_RUN_H
#define CLI_LOAD_RUN_H

#include "cli/load_stream.h"
#include "cli/load_trace.h"

struct load_options {
    int64_t requests, streams; /* streams: most at a time; 0: any number */
    double rate;               /* arrivals a second; 0: as soon as there is a place */
    struct trace_shape shape;  /* of arrivals and lengths; a spread of 0: each as long as the median */
    int64_t shortest;          /* not 0: lengths evenly from this to the medians, which are the longest */
    int64_t vocabulary;        /* of token ids below it are the prompts; 0: of words, about a token each */
    int64_t seed, trace_seed;  /* of prompts; of arrivals, lengths and groups */
    double timeout_s, temperature;
    bool chat, ignore_eos;  /* chat: /v1/chat/completions, else /v1/completions */
    const char *extra_body; /* a JSON object's members, without its braces, for every request, "{request}" in
                               them being its number from 0; "": none */
    const char *model;
};

struct load {
    struct load_result *results; /* [requests] */
    int64_t num_begun;           /* a load that was interrupted has begun fewer than requests */
    uint64_t begin_ns, end_ns;   /* of the first, of the last */
};

/* Runs until all have ended, or SIGINT, after which those in flight stay LOAD_PENDING. load_run_deinit also after a
 * failure. */
int load_run_all(struct load *load, const struct load_options *options, const struct http_client *client,
                 struct error *err) must_check;
void load_run_deinit(struct load *load);

#endif
