/* endpoints.c - the small ones: generation endpoints' doors, the models and the metrics page. */
#include <string.h>
#include <strings.h>
#include <time.h>

#include "server/api/generation.h"
#include "server/api/loras.h"
#include "server/api/model_names.h"

enum { PAGE_BYTES_MAX = 16 << 20 };

void endpoint_completions(struct exchange *x)
{
    generation_start(x, &codec_completions);
}

void endpoint_chat_completions(struct exchange *x)
{
    generation_start(x, &codec_chat);
}

void endpoint_embeddings(struct exchange *x)
{
    generation_start(x, &codec_embeddings);
}

void endpoint_cohere_embed(struct exchange *x)
{
    generation_start(x, &codec_cohere_embed);
}

void endpoint_cohere_embed_v1(struct exchange *x)
{
    generation_start(x, &codec_cohere_embed_v1);
}

void endpoint_embed(struct exchange *x)
{
    generation_start(x, &codec_embed_rows);
}

void endpoint_generate(struct exchange *x)
{
    generation_start(x, &codec_text_generation);
}

void endpoint_generate_stream(struct exchange *x)
{
    generation_start(x, &codec_text_generation_stream);
}

/* What the model does. */
void endpoint_root(struct exchange *x)
{
    generation_start(x, x->server->facts->is_encoder ? &codec_embed_rows : &codec_text_generation_root);
}

void endpoint_score(struct exchange *x)
{
    generation_start(x, &codec_score);
}

void endpoint_rerank(struct exchange *x)
{
    generation_start(x, &codec_rerank);
}

void endpoint_messages(struct exchange *x)
{
    generation_start(x, &codec_messages);
}

/* ---- models ---- */

static void append_model(struct buffer *out, const struct server *server, const char *name)
{
    buffer_append_text(out, "{\"id\":");
    buffer_append_json_text(out, name);
    const int lora = loras_find(server->loras, name);
    buffer_printf(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"flashd\",\"root\":",
                  (long long)server->created);
    buffer_append_json_text(out, lora ? loras_path(server->loras, lora) : server->model_names[0]);
    buffer_append_text(out, ",\"parent\":");
    if (lora)
        buffer_append_json_text(out, server->model_names[0]);
    else
        buffer_append_text(out, "null");
    buffer_printf(out, ",\"max_model_len\":%d}", server->facts->max_model_len);
}

static void append_models(struct buffer *out, const struct server *server)
{
    buffer_append_text(out, "{\"object\":\"list\",\"data\":[");
    int at = 0;
    for (const char *name; (name = model_name_next(server, &at));) {
        if (at > 1) buffer_append_char(out, ','); /* the first is no pattern */
        append_model(out, server, name);
    }
    buffer_append_text(out, "]}");
}

/* Anthropic's: its clients say which version of its protocol they speak. */
static bool is_anthropic(const struct exchange *x)
{
    return exchange_header(x, "anthropic-version") != NULL;
}

static void append_anthropic_model(struct buffer *out, const struct server *server, const char *name)
{
    char time[32];
    time_t seconds = (time_t)server->created;
    struct tm tm;
    gmtime_r(&seconds, &tm);
    strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", &tm);
    buffer_append_text(out, "{\"type\":\"model\",\"id\":");
    buffer_append_json_text(out, name);
    buffer_append_text(out, ",\"display_name\":");
    buffer_append_json_text(out, name);
    buffer_printf(
        out,
        ",\"created_at\":\"%s\",\"lifecycle\":\"active\",\"deprecated_at\":null,\"retires_at\":null,"
        "\"line\":null,\"capabilities\":null,\"max_input_tokens\":%d,\"max_tokens\":%d}",
        time, server->facts->max_model_len, server->facts->max_model_len);
}

/* All of them are one page, whatever its limit. */
static void append_anthropic_models(struct buffer *out, const struct server *server)
{
    const char *last = server->model_names[0];
    buffer_append_text(out, "{\"data\":[");
    int at = 0;
    for (const char *name; (name = model_name_next(server, &at));) {
        if (at > 1) buffer_append_char(out, ','); /* the first is no pattern */
        append_anthropic_model(out, server, last = name);
    }
    buffer_append_text(out, "],\"has_more\":false,\"first_id\":");
    buffer_append_json_text(out, server->model_names[0]);
    buffer_append_text(out, ",\"last_id\":");
    buffer_append_json_text(out, last);
    buffer_append_char(out, '}');
}

static void refuse_model(struct exchange *x)
{
    struct api_error error;
    params_refuse_model(x->server, x->path_rest, &error);
    api_error_send(x, &error);
}

void endpoint_models(struct exchange *x)
{
    const char *name = x->path_rest[0] ? x->path_rest : NULL;
    if (name && !model_name_is_served(x->server, name)) {
        refuse_model(x);
        return;
    }
    struct buffer body;
    buffer_init(&body, PAGE_BYTES_MAX);
    if (name)
        (is_anthropic(x) ? append_anthropic_model : append_model)(&body, x->server, name);
    else
        (is_anthropic(x) ? append_anthropic_models : append_models)(&body, x->server);
    exchange_reply_page(x, "application/json", &body);
    buffer_deinit(&body);
}

/* ---- metrics ---- */

/* Prometheus offers OpenMetrics first; everything else gets the plain text format. */
static bool wants_openmetrics(const struct exchange *x)
{
    const char *accept = exchange_header(x, "accept");
    return accept && strcasestr(accept, "application/openmetrics-text") != NULL;
}

void endpoint_metrics(struct exchange *x)
{
    bool openmetrics = wants_openmetrics(x);
    struct api *api = x->server->api;
    exchange_reply_page(
        x,
        openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                    : "text/plain; version=0.0.4; charset=utf-8",
        metrics_page_text(openmetrics ? &api->openmetrics : &api->metrics, x->server, openmetrics));
}
