#include "server/api/request_log.h"

#include <math.h>
#include <stdio.h>

#include "base/log.h"

static double ms_of(uint64_t ns)
{
    return round((double)ns / 1e3) / 1e3; /* microseconds are enough */
}

void request_log_write(const struct request_record *r)
{
    struct log_field fields[22];
    int count = 0;
    char seed[24]; /* a text, as a request may have it: readers of JSON round numbers of 64 bits */
    snprintf(seed, sizeof seed, "%lld", (long long)r->seed);
#define TEXT(name, value)                                                                                    \
    fields[count++] = (struct log_field){.key = name, .type = LOG_FIELD_TEXT, .text = value}
#define INT(name, value)                                                                                     \
    fields[count++] = (struct log_field)                                                                     \
    {                                                                                                        \
        .key = name, .type = LOG_FIELD_INT, .integer = value                                                 \
    }
#define MS(name, ns)                                                                                         \
    fields[count++] = (struct log_field)                                                                     \
    {                                                                                                        \
        .key = name, .type = LOG_FIELD_REAL, .real = ms_of(ns)                                               \
    }
    TEXT("request_id", r->request_id);
    TEXT("client", r->client);
    TEXT("method", "POST");
    TEXT("path", r->path);
    INT("status", r->http_status);
    TEXT("model", r->model);
    if (r->key) TEXT("key", r->key);
    if (r->trace_id) TEXT("trace_id", r->trace_id);
    INT("prompt_tokens", r->prompt_tokens);
    INT("cached_tokens", r->cached_tokens);
    INT("completion_tokens", r->completion_tokens);
    if (r->preemptions) INT("preemptions", r->preemptions);
    if (r->queue_ns) MS("queue_ms", r->queue_ns);
    if (r->ttft_ns) MS("ttft_ms", r->ttft_ns);
    MS("duration_ms", r->duration_ns);
    TEXT("finish_reason", r->finish_reason);
    INT("stream", r->stream);
    INT("n", r->n);
    if (r->constraint) TEXT("constraint", r->constraint);
    TEXT("seed", seed);
    if (r->ignored_fields) TEXT("ignored_fields", r->ignored_fields);
#undef TEXT
#undef INT
#undef MS
    log_fields(LOG_INFO, "request", fields, count);
}
