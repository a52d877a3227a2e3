/* request_span.h - a finished request as an OpenTelemetry span: vLLM's name and attributes (gen_ai.usage..., .request...,
 * .latency...), and what the semantic conventions have beside them. Numbers and names only, as in the log line. Thread:
 * the loop's. */
#ifndef SERVER_API_REQUEST_SPAN_H
#define SERVER_API_REQUEST_SPAN_H

#include "server/api/generation.h"
#include "server/trace_context.h"

/* What a span says that nobody else keeps until the end. */
struct request_trace {
    struct trace_context context;
    double temperature, top_p;
};

/* JSON from malloc, or NULL: out of memory. now_ns: monotonic. */
char *request_span_make(const struct generation *g, const struct usage *usage, const char *finish_reason,
                        int http_status, uint64_t now_ns);

#endif
