/* endpoint_ollama.c - Ollama's routes: those that generate or embed, and what its clients ask about models. */
#include <string.h>

#include "base/clock.h"
#include "server/api/codecs/ollama.h"
#include "server/api/generation.h"
#include "server/api/json_field.h"
#include "server/api/model_names.h"
#include "server/api/prepare.h"

enum { PAGE_BYTES_MAX = 1 << 20, LOAD_BODY_BYTES_MAX = 4096 };

/* The level of the interface that is spoken here: clients refuse to talk to older ones. */
#define OLLAMA_VERSION "0.12.6"

/* ---- loading a model ---- */

static bool is_nothing(const cJSON *value)
{
    return !value || cJSON_IsNull(value) || (cJSON_IsString(value) && !value->valuestring[0]) ||
           (cJSON_IsArray(value) && !value->child);
}

/* A keep_alive of nothing, also of one with a unit: let go of it. */
static bool lets_go(const cJSON *body)
{
    const cJSON *value = json_field_find(body, "keep_alive");
    if (cJSON_IsNumber(value)) return value->valuedouble == 0;
    const char *text = cJSON_GetStringValue(value);
    return text && *text == '0' && !strpbrk(text, "123456789");
}

static void answer_load(struct exchange *x, const cJSON *body, const char *empty_answer)
{
    struct api_error err;
    struct buffer line;
    if (params_check_model(x->server, body, &err) < 0) {
        api_error_send(x, &err);
        return;
    }
    const cJSON *model = json_field_find(body, "model");
    buffer_init(&line, PAGE_BYTES_MAX);
    buffer_append_text(&line, "{\"model\":");
    buffer_append_json_text(&line, cJSON_IsString(model) ? model->valuestring : x->server->model_names[0]);
    buffer_append_text(&line, ",\"created_at\":");
    ollama_append_time(&line, clock_wall_ns());
    buffer_printf(&line, ",%s,\"done\":true,\"done_reason\":\"%s\"}", empty_answer,
                  lets_go(body) ? "unload" : "load");
    exchange_reply_page(x, "application/json", &line);
    buffer_deinit(&line);
}

/* Clients have a model loaded, or let go of, by asking it nothing: here it is loaded. Such bodies are short. */
static bool asks_nothing(struct exchange *x, const char *field, const char *empty_answer)
{
    struct api_error err;
    cJSON *body = x->body_bytes <= LOAD_BODY_BYTES_MAX ? prepare_parse(x->body, x->body_bytes, &err) : NULL;
    bool nothing = body && is_nothing(json_field_find(body, field));
    if (nothing) answer_load(x, body, empty_answer);
    cJSON_Delete(body);
    return nothing;
}

void endpoint_ollama_chat(struct exchange *x)
{
    if (asks_nothing(x, "messages", "\"message\":{\"role\":\"assistant\",\"content\":\"\"}")) return;
    generation_start(x, &codec_ollama_chat);
}

void endpoint_ollama_generate(struct exchange *x)
{
    if (asks_nothing(x, "prompt", "\"response\":\"\"")) return;
    generation_start(x, &codec_ollama_generate);
}

/* ---- the others that generate ---- */

void endpoint_ollama_embed(struct exchange *x)
{
    generation_start(x, &codec_ollama_embed);
}

void endpoint_ollama_embedding(struct exchange *x)
{
    generation_start(x, &codec_ollama_embeddings);
}

void endpoint_ollama_version(struct exchange *x)
{
    static const char body[] = "{\"version\":\"" OLLAMA_VERSION "\"}";
    exchange_reply(x, 200, "application/json", body, sizeof body - 1);
}

/* As Ollama writes it: 134.52M, 8.0B. */
static void append_size(struct buffer *out, uint64_t num_parameters)
{
    if (num_parameters >= 1000000000)
        buffer_printf(out, "%.1fB", (double)num_parameters / 1e9);
    else
        buffer_printf(out, "%.2fM", (double)num_parameters / 1e6);
}

/* "details":{...}. How weights are quantised is each tensor's. */
static void append_details(struct buffer *out, const struct server *server)
{
    const struct link_facts *facts = server->facts;
    buffer_printf(
        out,
        "\"details\":{\"parent_model\":\"\",\"format\":\"%s\",\"family\":\"%s\",\"families\":[\"%s\"],"
        "\"quantization_level\":\"\",\"parameter_size\":\"",
        facts->is_gguf ? "gguf" : "safetensors", facts->family, facts->family);
    append_size(out, facts->num_parameters);
    buffer_append_text(out, "\"}");
}

/* A card of /api/tags, left open. */
static void begin_model(struct buffer *out, const struct server *server, const char *name)
{
    size_t n = strlen(name);
    buffer_append_text(out, "{\"name\":");
    buffer_append_json(out, name, n);
    buffer_append_text(out, ",\"model\":");
    buffer_append_json(out, name, n);
    buffer_append_text(out, ",\"modified_at\":");
    ollama_append_time(out, (uint64_t)server->created * 1000000000u);
    buffer_printf(out, ",\"size\":%lld,\"digest\":\"%s\",", (long long)server->files_bytes,
                  server->files_digest.text);
    append_details(out, server);
}

static void reply_models(struct exchange *x, bool running)
{
    const struct server *server = x->server;
    struct buffer body;
    int at = 0;
    buffer_init(&body, PAGE_BYTES_MAX);
    buffer_append_text(&body, "{\"models\":[");
    for (const char *name; (name = model_name_next(server, &at));) {
        if (at > 1) buffer_append_char(&body, ','); /* the first is no pattern */
        begin_model(&body, server, name);
        if (running) {
            buffer_append_text(&body, ",\"size_vram\":0,\"expires_at\":\"9999-12-31T23:59:59Z\"");
            buffer_printf(&body, ",\"context_length\":%d", server->facts->max_model_len);
        }
        buffer_append_char(&body, '}');
    }
    buffer_append_text(&body, "]}");
    exchange_reply_page(x, "application/json", &body);
    buffer_deinit(&body);
}

void endpoint_ollama_tags(struct exchange *x)
{
    reply_models(x, false);
}

void endpoint_ollama_ps(struct exchange *x)
{
    reply_models(x, true);
}

/* Whether the body names a served model, under "model" or its older name. */
static int check_model(const struct exchange *x, struct api_error *err)
{
    cJSON *body = prepare_parse(x->body, x->body_bytes, err);
    if (!body) return STATUS_INVALID;
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(body, "model");
    if (!name) name = cJSON_GetObjectItemCaseSensitive(body, "name");
    int status = 0;
    if (!cJSON_IsString(name))
        status = api_error_invalid(err, "missing_required_parameter", "model", "model must be a string");
    else if (!model_name_is_served(x->server, name->valuestring))
        status = params_refuse_model(x->server, name->valuestring, err);
    cJSON_Delete(body);
    return status;
}

/* Any chat may have tools: what the template does not know is written into the messages. */
static void append_capabilities(struct buffer *out, const struct server *server)
{
    buffer_append_text(out, ",\"capabilities\":[\"completion\"");
    if (server->facts->pooling != POOLING_NONE) buffer_append_text(out, ",\"embedding\"");
    if (server->tool_format) buffer_append_text(out, ",\"tools\"");
    if (server->tool_format && tool_format_has_reasoning(server->tool_format))
        buffer_append_text(out, ",\"thinking\"");
    buffer_append_char(out, ']');
}

void endpoint_ollama_show(struct exchange *x)
{
    const struct link_facts *facts = x->server->facts;
    struct api_error error;
    struct buffer body;
    if (check_model(x, &error) < 0) {
        api_error_send(x, &error);
        return;
    }
    buffer_init(&body, PAGE_BYTES_MAX);
    buffer_append_text(&body, "{\"modelfile\":\"\",\"parameters\":\"\",\"template\":\"\",");
    append_details(&body, x->server);
    buffer_printf(&body,
                  ",\"model_info\":{\"general.architecture\":\"%s\",\"%s.context_length\":%d,"
                  "\"%s.vocab_size\":%d}",
                  facts->family, facts->family, facts->max_model_len, facts->family, facts->vocab_size);
    append_capabilities(&body, x->server);
    buffer_append_text(&body, ",\"modified_at\":");
    ollama_append_time(&body, (uint64_t)x->server->created * 1000000000u);
    buffer_append_char(&body, '}');
    exchange_reply_page(x, "application/json", &body);
    buffer_deinit(&body);
}

/* What is served is there, and nothing else can be. */
void endpoint_ollama_pull(struct exchange *x)
{
    static const char done[] = "{\"status\":\"success\"}\n";
    struct api_error error;
    if (check_model(x, &error) < 0)
        api_error_send(x, &error);
    else
        exchange_reply(x, 200, "application/x-ndjson", done, sizeof done - 1);
}
