/* cohere.c - Cohere's /v2/embed and /v1/embed: texts in, a row of each out, by its type, or in /v1/embed as it is where no type is
 * asked for. What is too long is cut at its end unless truncate says otherwise. A choice's text is its embedding, ready to be sent. */
#include <string.h>

#include "server/api/codecs/canonical.h"
#include "server/api/nul_text.h"

enum { TEXTS_BYTES_MAX = 64 << 20 };

/* params->kept; in the arena. */
struct cohere_kept {
    const char *texts; /* the JSON array that the answer tells again */
    const char *type;  /* "float", "base64"; NULL: none was asked for */
};

static struct cohere_kept *kept_of(struct translation *t)
{
    if (!t->kept && (t->kept = arena_alloc(t->arena, sizeof(struct cohere_kept))))
        *(struct cohere_kept *)t->kept = (struct cohere_kept){.texts = "[]"};
    return t->kept;
}

/* ---- in ---- */

/* With its NULs, which the body's own copy has not. False: no memory. */
static bool append_text(struct translation *t, struct buffer *out, const char *text)
{
    char *copy = arena_copy(t->arena, text, strlen(text));
    size_t n = strlen(text);
    if (copy && t->has_nul) n = nul_text_restore(copy, n);
    if (copy) buffer_append_json(out, copy, n);
    return copy != NULL;
}

static int keep_texts(struct translation *t, const cJSON *texts)
{
    struct cohere_kept *kept = kept_of(t);
    const cJSON *text;
    struct buffer out;
    bool is_kept = kept != NULL;
    buffer_init(&out, TEXTS_BYTES_MAX);
    buffer_append_char(&out, '[');
    cJSON_ArrayForEach(text, texts)
    {
        if (text != texts->child) buffer_append_char(&out, ',');
        is_kept = is_kept && append_text(t, &out, text->valuestring);
    }
    buffer_append_char(&out, ']');
    if (is_kept && !buffer_failed(&out)) kept->texts = arena_copy(t->arena, out.data, out.num_bytes);
    is_kept = is_kept && !buffer_failed(&out) && kept->texts;
    buffer_deinit(&out);
    return is_kept ? 0 : api_error_no_memory(t->err);
}

static int read_texts(struct translation *t, const cJSON *texts)
{
    struct place at = {.t = t};
    const cJSON *text;
    int i = 0;
    if (!cJSON_IsArray(texts)) return json_field_refuse_type(texts, "texts", "an array of strings", t->err);
    cJSON_ArrayForEach(text, texts)
    {
        snprintf(at.path, sizeof at.path, "texts[%d]", i++);
        if (!cJSON_IsString(text)) return canonical_refuse_type(&at, text, "a string");
    }
    return keep_texts(t, texts);
}

static int begin(struct translation *t)
{
    const cJSON *texts = json_field_find(t->body, "texts"), *inputs = json_field_find(t->body, "inputs");
    cJSON_DeleteItemFromObjectCaseSensitive(t->body, "prompt"); /* its canonical name is none of Cohere's */
    if (!texts && !inputs)
        return api_error_invalid(t->err, "missing_required_parameter", "texts",
                                 "texts is missing: an array of strings");
    if (texts && inputs)
        return api_error_invalid(t->err, "invalid_value", "inputs",
                                 "inputs stands beside texts; one of them is embedded");
    int status = codec_put(t, t->body, "truncation_side", cJSON_CreateString("right"));
    if (status == 0) status = codec_put(t, t->body, "truncate_prompt_tokens", cJSON_CreateNumber(-1));
    return status == 0 && texts ? read_texts(t, texts) : status;
}

static int refuse_images(struct translation *t, cJSON *value)
{
    if (cJSON_IsArray(value) && !value->child) return 0;
    return api_error_invalid(t->err, "unsupported_value", "images",
                             "images are not supported: this model reads text only");
}

/* The texts of an input's parts, one behind the other. */
static int join_parts(struct translation *t, const struct place *at, const cJSON *input, struct buffer *out)
{
    const cJSON *content = json_field_find(input, "content"), *part;
    buffer_clear(out);
    if (!cJSON_IsArray(content) || !content->child)
        return canonical_refuse_type(at, input, "an object with content, an array of parts");
    cJSON_ArrayForEach(part, content)
    {
        const char *text = canonical_text(part, "text");
        if (!canonical_is(part, "text") || !text)
            return api_error_invalid(t->err, "unsupported_value", at->path,
                                     "%s has a part that is no text; this model reads text only", at->path);
        buffer_append_text(out, text);
    }
    buffer_append(out, "", 1);
    return buffer_failed(out) ? api_error_no_memory(t->err) : 0;
}

static int collect_inputs(struct translation *t, const cJSON *inputs, cJSON *texts)
{
    struct place at = {.t = t};
    const cJSON *input;
    struct buffer text;
    int i = 0, status = 0;
    buffer_init(&text, TEXTS_BYTES_MAX);
    cJSON_ArrayForEach(input, inputs)
    {
        snprintf(at.path, sizeof at.path, "inputs[%d]", i++);
        if (status == 0) status = join_parts(t, &at, input, &text);
        if (status == 0 && !cJSON_AddItemToArray(texts, cJSON_CreateString(text.data)))
            status = api_error_no_memory(t->err);
    }
    buffer_deinit(&text);
    return status;
}

static int read_inputs(struct translation *t, cJSON *value)
{
    if (!cJSON_IsArray(value)) return json_field_refuse_type(value, "inputs", "an array of objects", t->err);
    cJSON *texts = cJSON_CreateArray();
    int status = texts ? collect_inputs(t, value, texts) : api_error_no_memory(t->err);
    if (status == 0) status = keep_texts(t, texts);
    if (status == 0) return codec_put(t, t->body, "prompt", texts);
    cJSON_Delete(texts);
    return status;
}

/* One of those that there are: whole numbers and bits are Cohere's own models'. */
static int read_types(struct translation *t, cJSON *value)
{
    struct cohere_kept *kept = kept_of(t);
    const cJSON *type = cJSON_IsArray(value) ? value->child : NULL;
    const char *name = cJSON_GetStringValue(type);
    if (!kept) return api_error_no_memory(t->err);
    bool is_base64 = name && !strcmp(name, "base64");
    if (!type || !name || type->next || (!is_base64 && strcmp(name, "float") != 0))
        return api_error_invalid(
            t->err, "unsupported_value", "embedding_types",
            "embedding_types must be [\"float\"] or [\"base64\"]: one type in a request");
    kept->type = is_base64 ? "base64" : "float";
    return codec_put(t, t->body, "encoding_format", cJSON_CreateString(kept->type));
}

static int read_truncate(struct translation *t, cJSON *value)
{
    const char *name = cJSON_GetStringValue(value);
    if (name && !strcmp(name, "END")) return 0;
    if (name && !strcmp(name, "START"))
        return codec_put(t, t->body, "truncation_side", cJSON_CreateString("left"));
    if (!name || strcmp(name, "NONE") != 0)
        return api_error_invalid(t->err, "invalid_value", "truncate",
                                 "truncate must be \"NONE\", \"START\" or \"END\"");
    cJSON_DeleteItemFromObjectCaseSensitive(t->body, "truncate_prompt_tokens");
    return 0;
}

/* Behind truncate: where nothing may be cut, there is the model's limit. */
static int read_max_tokens(struct translation *t, cJSON *value)
{
    int64_t most;
    if (!json_field_as_int(value, 1, INT32_MAX, &most))
        return api_error_invalid(t->err, "invalid_value", "max_tokens",
                                 "max_tokens must be an integer, at least 1");
    if (!json_field_find(t->body, "truncate_prompt_tokens")) return 0;
    return codec_put(t, t->body, "truncate_prompt_tokens", cJSON_CreateNumber((double)most));
}

static const struct codec_field fields[] = {{.name = "encoding_format"}, /* has another name */
                                            {.name = "texts", .canonical = "prompt"},
                                            {.name = "inputs", .read = read_inputs},
                                            {.name = "images", .read = refuse_images},
                                            {.name = "embedding_types", .read = read_types},
                                            {.name = "truncate", .read = read_truncate},
                                            {.name = "max_tokens", .read = read_max_tokens},
                                            {.name = NULL}};

static const struct codec_name names[] = {{.name = "inputs", .canonical = "prompt", .if_sent = true},
                                          {.name = NULL}};

/* ---- out ---- */

static void append_rows(struct buffer *out, const struct answer *a)
{
    buffer_append_char(out, '[');
    for (int i = 0; i < a->num_choices; i++) {
        if (i > 0) buffer_append_char(out, ',');
        buffer_append(out, a->choices[i].ready.data, a->choices[i].ready.num_bytes);
    }
    buffer_append_char(out, ']');
}

static void append_answer(struct buffer *out, const struct answer *a, const struct usage *u, const char *type,
                          int version)
{
    const struct cohere_kept *kept = a->context->params->kept;
    buffer_printf(out, "{\"id\":\"%s\",\"embeddings\":", a->id);
    if (type) buffer_printf(out, "{\"%s\":", type);
    append_rows(out, a);
    if (type) buffer_append_char(out, '}');
    buffer_append_text(out, ",\"texts\":");
    buffer_append_text(out, kept->texts);
    buffer_printf(out,
                  ",\"meta\":{\"api_version\":{\"version\":\"%d\"},\"billed_units\":{\"input_tokens\":%lld}",
                  version, (long long)u->prompt_tokens);
    codec_append_energy(out, a, u);
    buffer_printf(out, "},\"response_type\":\"embeddings_%s\"}", type ? "by_type" : "floats");
}

static void append_v2(struct buffer *out, struct answer *a, const struct event *e)
{
    const struct cohere_kept *kept = a->context->params->kept;
    append_answer(out, a, e->usage, kept->type ? kept->type : "float", 2);
}

static void append_v1(struct buffer *out, struct answer *a, const struct event *e)
{
    const struct cohere_kept *kept = a->context->params->kept;
    append_answer(out, a, e->usage, kept->type, 1);
}

/* ---- the tables ---- */

const struct codec codec_cohere_embed = {
    .path = "/v2/embed",
    .id_prefix = "embd-",
    .kind = API_POOLING,
    .begin = begin,
    .fields = fields,
    .names = names,
    .events = {[EVENT_WHOLE] = append_v2},
    .append_error = response_append_error,
};

const struct codec codec_cohere_embed_v1 = {
    .path = "/v1/embed",
    .id_prefix = "embd-",
    .kind = API_POOLING,
    .begin = begin,
    .fields = fields,
    .names = names,
    .events = {[EVENT_WHOLE] = append_v1},
    .append_error = response_append_error,
};
