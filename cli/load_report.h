/* load_report.h - what a load has shown: counts, percentiles, rates; as a table, as JSON, as a picture. Thread: none of
 * its own. */
#ifndef CLI_LOAD_REPORT_H
#define CLI_LOAD_REPORT_H

#include <stdio.h>

#include "cli/load_run.h"

enum { LOAD_STATUSES_MAX = 16, LOAD_LENGTHS = 10 };

struct load_limits {
    double first_ms, gap_ms; /* of a stream's first token, and of 99 in 100 of its gaps; 0: any */
};

/* Complete ones whose prompts were asked to have at most so many tokens, and more than the row before has. */
struct load_length {
    int64_t most, num_good;
    struct samples first_ms;
};

struct load_report {
    const struct load_options *options;
    struct load_limits limits;
    const char *url;
    double seconds;
    int64_t num_complete, num_good; /* good: complete, and within the limits */
    int64_t num_other_length;       /* complete, and of another number of tokens than ignore_eos asks for */
    int64_t num_ended[LOAD_TIMED_OUT + 1];
    struct {
        int http_status;
        int64_t count, num_with_retry_after, retry_after_min_s, retry_after_max_s;
        const char *problem;      /* of the first of them */
    } refused[LOAD_STATUSES_MAX]; /* [num_refused_statuses] */
    size_t num_refused_statuses;
    const char *problem; /* of the first that failed otherwise; NULL: none, or it is not told */
    int64_t num_prompt_tokens, num_tokens; /* of complete ones */
    bool counted_chunks;                   /* a server sent no usage: a chunk counts as a token */
    struct load_length lengths[LOAD_LENGTHS];
    struct samples first_ms, gap_ms, token_ms,
        whole_ms; /* token_ms: mean of a stream behind its first token */
};

/* Borrows all that it is given. load_report_deinit in the end. */
void load_report_init(struct load_report *r, const struct load *load, const struct load_options *options,
                      struct load_limits limits, const char *url);
void load_report_deinit(struct load_report *r);

void load_report_print(struct load_report *r, FILE *out);
int load_report_print_json(struct load_report *r, FILE *out, struct error *err) must_check;

/* SVG: TTFT and ITL over their percentiles; its colours follow the reader's light or dark scheme. */
void load_report_plot(struct load_report *r, FILE *out);

#endif
