/* embeddings.c - OpenAI's /v1/embeddings, Ollama's /api/embed and /api/embeddings, llama.cpp's /embedding and Text Embeddings
 * Inference's /embed: texts in, a row of each out. A choice's text is its embedding, ready to be sent. */
#include <strings.h>

#include "base/clock.h"
#include "server/api/codecs/canonical.h"

/* ---- in ---- */

/* Its canonical name is not another name of the field. */
static int forget_prompt(struct translation *t)
{
    cJSON_DeleteItemFromObjectCaseSensitive(t->body, "prompt");
    return 0;
}

/* What does not fit is cut, unless that is not wanted. */
static int read_truncate(struct translation *t, cJSON *value)
{
    if (!cJSON_IsBool(value)) return json_field_refuse_type(value, "truncate", "a boolean", t->err);
    return codec_put(t, t->body, "truncate_prompt_tokens", cJSON_CreateNumber(cJSON_IsTrue(value) ? -1 : 0));
}

/* At its end. */
static int cut_by_default(struct translation *t)
{
    int status = codec_put(t, t->body, "truncation_side", cJSON_CreateString("right"));
    if (status < 0 || cJSON_GetObjectItemCaseSensitive(t->body, "truncate")) return status;
    return codec_put(t, t->body, "truncate_prompt_tokens", cJSON_CreateNumber(-1));
}

static int begin_embed(struct translation *t)
{
    forget_prompt(t);
    return cut_by_default(t);
}

/* The older route's vectors are as long as they come. */
static int begin_one(struct translation *t)
{
    const cJSON *prompt = json_field_find(t->body, "prompt");
    if (prompt && !cJSON_IsString(prompt))
        return json_field_refuse_type(prompt, "prompt", "a string", t->err);
    int status = codec_put(t, t->body, "normalize", cJSON_CreateFalse());
    return status == 0 ? cut_by_default(t) : status;
}

static const struct codec_field openai_fields[] = {{"input", "prompt", NULL}, {NULL, NULL, NULL}};

static const struct codec_field embed_fields[] = {
    {"input", "prompt", NULL},  {"truncate", NULL, read_truncate}, {"options", NULL, NULL},
    {"keep_alive", NULL, NULL}, {"encoding_format", NULL, NULL},   {NULL, NULL, NULL}};

static const struct codec_field one_fields[] = {
    {"truncate", NULL, read_truncate}, {"options", NULL, NULL},    {"keep_alive", NULL, NULL},
    {"encoding_format", NULL, NULL},   {"dimensions", NULL, NULL}, {NULL, NULL, NULL}};

/* llama.cpp's: -1 leaves a vector's length as it is, 2 makes it one. */
static int read_norm(struct translation *t, cJSON *value)
{
    int64_t norm;
    if (!json_field_as_int(value, -1, INT32_MAX, &norm))
        return json_field_refuse_type(value, "embd_normalize", "an integer", t->err);
    if (norm == 2) return 0;
    if (norm == -1) return codec_put(t, t->body, "normalize", cJSON_CreateFalse());
    return api_error_invalid(t->err, "unsupported_value", "embd_normalize",
                             "embd_normalize must be 2 (Euclidean) or -1 (none)");
}

static const struct codec_field llama_fields[] = {{"content", "prompt", NULL},
                                                  {"input", "prompt", NULL},
                                                  {"embd_normalize", NULL, read_norm},
                                                  {NULL, NULL, NULL}};
static const struct codec_name llama_embedding_names[] = {
    {.name = "input", .canonical = "prompt", .if_sent = true}, {.name = NULL}};

/* Text Embeddings Inference's: what is cut is cut at its end, unless it says Left. */
static int begin_rows(struct translation *t)
{
    forget_prompt(t);
    return codec_put(t, t->body, "truncation_side", cJSON_CreateString("right"));
}

static int read_direction(struct translation *t, cJSON *value)
{
    const char *side = cJSON_GetStringValue(value);
    if (side && !strcasecmp(side, "right")) return 0;
    if (side && !strcasecmp(side, "left"))
        return codec_put(t, t->body, "truncation_side", cJSON_CreateString("left"));
    return api_error_invalid(t->err, "invalid_value", "truncation_direction",
                             "truncation_direction must be \"Left\" or \"Right\"");
}

static int refuse_prompt_name(struct translation *t, cJSON *value)
{
    (void)value;
    return api_error_invalid(t->err, "unsupported_parameter", "prompt_name",
                             "prompt_name is not supported by this server; write what the model wants before "
                             "its texts");
}

static const struct codec_field rows_fields[] = {{"inputs", "prompt", NULL},
                                                 {"truncate", NULL, read_truncate},
                                                 {"truncation_direction", NULL, read_direction},
                                                 {"prompt_name", NULL, refuse_prompt_name},
                                                 {"encoding_format", NULL, NULL},
                                                 {NULL, NULL, NULL}};

/* ---- out ---- */

static void append_embedding(struct buffer *out, const struct choice *c)
{
    buffer_append(out, c->ready.data, c->ready.num_bytes);
}

static void append_openai(struct buffer *out, struct answer *a, const struct event *e)
{
    buffer_printf(out, "{\"id\":\"%s\",\"object\":\"list\",\"created\":%lld,\"model\":", a->id,
                  (long long)a->created);
    buffer_append_json_text(out, a->model);
    buffer_append_text(out, ",\"data\":[");
    for (int i = 0; i < a->num_choices; i++) {
        buffer_printf(out, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", i > 0 ? "," : "", i);
        append_embedding(out, &a->choices[i]);
        buffer_append_char(out, '}');
    }
    buffer_printf(out, "],\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld",
                  (long long)e->usage->prompt_tokens, (long long)e->usage->prompt_tokens);
    codec_append_energy(out, a, e->usage);
    buffer_append_text(out, "}}");
}

static void append_rows(struct buffer *out, struct answer *a, const struct event *e)
{
    (void)e;
    buffer_append_char(out, '[');
    for (int i = 0; i < a->num_choices; i++) {
        if (i > 0) buffer_append_char(out, ',');
        append_embedding(out, &a->choices[i]);
    }
    buffer_append_char(out, ']');
}

static void append_embed(struct buffer *out, struct answer *a, const struct event *e)
{
    buffer_append_text(out, "{\"model\":");
    buffer_append_json_text(out, a->model);
    buffer_append_text(out, ",\"embeddings\":");
    append_rows(out, a, e);
    buffer_printf(out, ",\"total_duration\":%llu,\"load_duration\":0,\"prompt_eval_count\":%lld}",
                  (unsigned long long)(clock_monotonic_ns() - a->arrival_ns),
                  (long long)e->usage->prompt_tokens);
}

static void append_one(struct buffer *out, struct answer *a, const struct event *e)
{
    (void)e;
    buffer_append_text(out, "{\"embedding\":");
    append_embedding(out, &a->choices[0]);
    buffer_append_char(out, '}');
}

/* A list of the rows that were pooled into one. */
static void append_llama(struct buffer *out, struct answer *a, const struct event *e)
{
    (void)e;
    buffer_append_char(out, '[');
    for (int i = 0; i < a->num_choices; i++) {
        buffer_printf(out, "%s{\"index\":%d,\"embedding\":[", i > 0 ? "," : "", i);
        append_embedding(out, &a->choices[i]);
        buffer_append_text(out, "]}");
    }
    buffer_append_char(out, ']');
}

/* ---- the tables ---- */

const struct codec codec_embeddings = {
    .path = "/v1/embeddings",
    .id_prefix = "embd-",
    .kind = API_POOLING,
    .begin = forget_prompt,
    .fields = openai_fields,
    .events = {[EVENT_WHOLE] = append_openai},
    .append_error = response_append_error,
};

const struct codec codec_ollama_embed = {
    .path = "/api/embed",
    .id_prefix = "",
    .kind = API_POOLING,
    .begin = begin_embed,
    .fields = embed_fields,
    .events = {[EVENT_WHOLE] = append_embed},
    .append_error = ollama_append_error,
};

const struct codec codec_ollama_embeddings = {
    .path = "/api/embeddings",
    .id_prefix = "",
    .kind = API_POOLING,
    .begin = begin_one,
    .fields = one_fields,
    .events = {[EVENT_WHOLE] = append_one},
    .append_error = ollama_append_error,
};

const struct codec codec_llama_embedding = {
    .path = "/embedding",
    .id_prefix = "embd-",
    .kind = API_POOLING,
    .begin = forget_prompt,
    .fields = llama_fields,
    .names = llama_embedding_names,
    .events = {[EVENT_WHOLE] = append_llama},
    .append_error = response_append_error,
};

const struct codec codec_embed_rows = {
    .path = "/embed",
    .id_prefix = "embd-",
    .kind = API_POOLING,
    .begin = begin_rows,
    .fields = rows_fields,
    .events = {[EVENT_WHOLE] = append_rows},
    .append_error = text_generation_append_error,
};
