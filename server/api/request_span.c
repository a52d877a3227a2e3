#include "server/api/request_span.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { SPAN_BYTES_MAX = 16 << 10 };

static void append_key(struct buffer *out, const char *key)
{
    buffer_printf(out, "%s{\"key\":\"%s\",\"value\":{", out->data[out->num_bytes - 1] == '[' ? "" : ",", key);
}

static void append_text(struct buffer *out, const char *key, const char *value)
{
    if (!value) return;
    append_key(out, key);
    buffer_append_text(out, "\"stringValue\":");
    buffer_append_json_text(out, value);
    buffer_append_text(out, "}}");
}

static void append_int(struct buffer *out, const char *key, int64_t value)
{
    append_key(out, key);
    buffer_printf(out, "\"intValue\":\"%lld\"}}", (long long)value);
}

static void append_real(struct buffer *out, const char *key, double value)
{
    append_key(out, key);
    buffer_printf(out, "\"doubleValue\":%.9g}}", value);
}

/* Between two moments that were reached. */
static void append_time(struct buffer *out, const char *key, uint64_t from_ns, uint64_t to_ns)
{
    if (from_ns > 0 && to_ns >= from_ns) append_real(out, key, (double)(to_ns - from_ns) / 1e9);
}

static void append_attributes(struct buffer *out, const struct generation *g, const struct usage *usage,
                              const char *finish_reason, int http_status, uint64_t now_ns)
{
    const struct choice *c = &g->choices[0];
    char client[IP_ADDRESS_CHARS];
    ip_address_write(&g->client, client);
    append_text(out, "gen_ai.operation.name", g->params.kind == API_CHAT ? "chat" : "text_completion");
    append_text(out, "gen_ai.response.model", g->answer.model);
    append_text(out, "gen_ai.request.id", g->request_id);
    append_text(out, "gen_ai.response.id", g->answer.id);
    append_int(out, "gen_ai.request.n", g->params.n);
    append_int(out, "gen_ai.request.max_tokens", c->max_tokens);
    append_real(out, "gen_ai.request.temperature", g->trace->temperature);
    append_real(out, "gen_ai.request.top_p", g->trace->top_p);
    append_int(out, "gen_ai.usage.prompt_tokens", usage->prompt_tokens);
    append_int(out, "gen_ai.usage.completion_tokens", usage->completion_tokens);
    append_int(out, "gen_ai.usage.cached_tokens", usage->cached_tokens);
    append_time(out, "gen_ai.latency.time_in_queue", g->arrival_ns, c->scheduled_ns);
    append_time(out, "gen_ai.latency.time_to_first_token", g->arrival_ns, c->first_token_ns);
    append_time(out, "gen_ai.latency.time_in_model_prefill", c->scheduled_ns, c->first_token_ns);
    append_time(out, "gen_ai.latency.time_in_model_decode", c->first_token_ns, c->last_token_ns);
    append_time(out, "gen_ai.latency.time_in_model_inference", c->scheduled_ns, c->last_token_ns);
    append_time(out, "gen_ai.latency.e2e", g->arrival_ns, now_ns);
    append_text(out, "gen_ai.response.finish_reason", finish_reason);
    append_text(out, "client.address", client);
    append_text(out, "url.path", g->answer.codec->path);
    append_int(out, "http.response.status_code", http_status);
}

char *request_span_make(const struct generation *g, const struct usage *usage, const char *finish_reason,
                        int http_status, uint64_t now_ns)
{
    const struct trace_context *t = &g->trace->context;
    uint64_t end_ns = clock_wall_ns(), begin_ns = end_ns - (now_ns - g->arrival_ns);
    struct buffer out;
    buffer_init(&out, SPAN_BYTES_MAX);
    buffer_printf(&out, "{\"traceId\":\"%s\",\"spanId\":\"%s\",", t->trace_id, t->span_id);
    if (t->parent_id[0]) buffer_printf(&out, "\"parentSpanId\":\"%s\",", t->parent_id);
    buffer_printf(
        &out,
        "\"name\":\"llm_request\",\"kind\":2,\"startTimeUnixNano\":\"%llu\",\"endTimeUnixNano\":\"%llu\","
        "\"status\":{\"code\":%d},\"attributes\":[",
        (unsigned long long)begin_ns, (unsigned long long)end_ns, http_status >= 500 ? 2 : 0);
    if (!buffer_failed(&out)) append_attributes(&out, g, usage, finish_reason, http_status, now_ns);
    buffer_append_text(&out, "]}");
    char *text = buffer_failed(&out) ? NULL : strdup(out.data);
    buffer_deinit(&out);
    return text;
}
