/* ollama_body.c - Ollama's /api/chat and /api/generate: a body as a canonical one.
 *
 * Sampling stands in an object of its own, options; what there is about how Ollama runs a model (num_ctx,
 * num_gpu, keep_alive, ...) says nothing to this server and is dropped. An answer streams unless it is told not
 * to, and may fill the context unless num_predict says otherwise. */
#include <string.h>

#include "base/check.h"
#include "server/api/codecs/canonical.h"
#include "server/api/codecs/fill_in_middle.h"
#include "server/api/codecs/ollama.h"

static int refuse_field(struct translation *t, const char *name)
{
    return api_error_invalid(t->err, "unsupported_parameter", name,
                             "%s is not supported by this server; leave it out", name);
}

/* ---- options ---- */

/* Those that a name of the canonical body stands for. */
static const struct {
    const char *name, *canonical;
} options[] = {
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"seed", "seed"},
    {"stop", "stop"},
    {"repeat_penalty", "repetition_penalty"},
    {"repeat_last_n", "repeat_last_n"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
};

/* Those that would change the answer, with the value that says nothing. */
static const struct {
    const char *name;
    double neutral;
} refused_options[] = {{"mirostat", 0}, {"tfs_z", 1}};

/* It stands in the example of all options that Ollama's documents have, and Ollama's own engine does not read it. */
static void warn_of_typical_p(struct translation *t, const cJSON *value)
{
    const cJSON *item = json_field_find(value, "typical_p");
    if (item && (!cJSON_IsNumber(item) || item->valuedouble != 1))
        translation_warn(t, "options.typical_p does nothing");
}

static int refuse_options(struct translation *t, const cJSON *value)
{
    for (size_t i = 0; i < array_length(refused_options); i++) {
        const cJSON *item = json_field_find(value, refused_options[i].name);
        if (item && (!cJSON_IsNumber(item) || item->valuedouble != refused_options[i].neutral))
            return refuse_field(t, refused_options[i].name);
    }
    return 0;
}

/* Zero and below: as many as there is room for, which is the default. */
static int read_num_predict(struct translation *t, cJSON *value)
{
    cJSON *item = cJSON_DetachItemFromObjectCaseSensitive(value, "num_predict");
    if (item && (!cJSON_IsNumber(item) || item->valuedouble > 0))
        return codec_put(t, t->body, "max_tokens", item);
    cJSON_Delete(item);
    return 0;
}

static int read_options(struct translation *t, cJSON *value)
{
    int status = 0;
    if (!cJSON_IsObject(value)) return json_field_refuse_type(value, "options", "an object", t->err);
    for (size_t i = 0; i < array_length(options) && status == 0; i++) {
        cJSON *item = cJSON_DetachItemFromObjectCaseSensitive(value, options[i].name);
        if (item) status = codec_put(t, t->body, options[i].canonical, item);
    }
    warn_of_typical_p(t, value);
    if (status == 0) status = read_num_predict(t, value);
    return status == 0 ? refuse_options(t, value) : status;
}

/* ---- the form of the answer, thinking ---- */

static int read_format(struct translation *t, cJSON *value)
{
    cJSON *format;
    if (cJSON_IsObject(value)) return canonical_put_schema(t, "answer", cJSON_Duplicate(value, true));
    if (!cJSON_IsString(value) || (value->valuestring[0] && strcmp(value->valuestring, "json") != 0))
        return api_error_invalid(t->err, "invalid_value", "format",
                                 "format must be \"json\" or a JSON schema");
    if (!value->valuestring[0]) return 0;
    format = cJSON_CreateObject();
    if (cJSON_AddStringToObject(format, "type", "json_object"))
        return codec_put(t, t->body, "response_format", format);
    cJSON_Delete(format);
    return api_error_no_memory(t->err);
}

static int read_think(struct translation *t, cJSON *value)
{
    if (cJSON_IsString(value))
        return codec_put(t, t->body, "reasoning_effort", cJSON_CreateString(value->valuestring));
    if (!cJSON_IsBool(value)) return json_field_refuse_type(value, "think", "a boolean or a string", t->err);
    cJSON *kwargs = cJSON_CreateObject();
    if (cJSON_AddBoolToObject(kwargs, "enable_thinking", cJSON_IsTrue(value)))
        return codec_put(t, t->body, "chat_template_kwargs", kwargs);
    cJSON_Delete(kwargs);
    return api_error_no_memory(t->err);
}

static int stream_by_default(struct translation *t)
{
    t->fills_context = true;
    if (json_field_find(t->body, "stream")) return 0;
    return codec_put(t, t->body, "stream", cJSON_CreateTrue());
}

static bool is_empty_array(const cJSON *value)
{
    return cJSON_IsArray(value) && !value->child;
}

/* Only where it is asked for: by default a chat that has no room is an error, and none that its client does not see. */
static int read_truncate(struct translation *t, cJSON *value)
{
    if (!cJSON_IsBool(value)) return json_field_refuse_type(value, "truncate", "a boolean", t->err);
    t->drops_turns = cJSON_IsTrue(value);
    return 0;
}

/* ---- chat ---- */

/* A tool's content as parts, the images behind the text, of which nothing but their number stays. */
static int keep_images(const struct place *p, cJSON *message, const cJSON *images)
{
    const char *text = canonical_text(message, "content");
    cJSON *parts = cJSON_CreateArray();
    const cJSON *image;
    int status = parts && text ? canonical_add_part(p, parts, text) : 0;
    cJSON_ArrayForEach(image, images) if (status == 0) status = canonical_add_unseen(p, parts, "image");
    if (status == 0) return codec_put(p->t, message, "content", parts);
    cJSON_Delete(parts);
    return status;
}

static int read_images(const struct place *p, cJSON *message)
{
    const cJSON *images = json_field_find(message, "images");
    const char *role = canonical_text(message, "role");
    if (!images || is_empty_array(images)) return 0;
    if (cJSON_IsArray(images) && role && !strcmp(role, "tool")) return keep_images(p, message, images);
    return api_error_invalid(p->t->err, "unsupported_value", p->path,
                             "%s has images; this model reads text only", p->path);
}

static int read_message(struct translation *t, cJSON *message, int idx)
{
    struct place at = {.t = t};
    snprintf(at.path, sizeof at.path, "messages[%d]", idx);
    if (!cJSON_IsObject(message)) return canonical_refuse_type(&at, message, "an object");
    int status = read_images(&at, message);
    cJSON *thinking = cJSON_DetachItemFromObjectCaseSensitive(message, "thinking");
    cJSON *name = cJSON_DetachItemFromObjectCaseSensitive(message, "tool_name");
    if (thinking && status == 0)
        status = codec_put(t, message, "reasoning_content", thinking);
    else
        cJSON_Delete(thinking);
    if (name && status == 0)
        status = codec_put(t, message, "name", name);
    else
        cJSON_Delete(name);
    if (status == 0 && !json_field_find(message, "content") && !json_field_find(message, "tool_calls"))
        status = codec_put(t, message, "content", cJSON_CreateString(""));
    return status;
}

int ollama_translate_chat(struct translation *t)
{
    cJSON *messages = cJSON_GetObjectItemCaseSensitive(t->body, "messages"), *message;
    int idx = 0, status = stream_by_default(t);
    if (!cJSON_IsArray(messages)) return status; /* the validator says so */
    cJSON_ArrayForEach(message, messages)
    {
        if (status == 0) status = read_message(t, message, idx++);
    }
    return status;
}

/* ---- generate ---- */

static int refuse_template(struct translation *t, cJSON *value)
{
    return cJSON_IsString(value) && !value->valuestring[0] ? 0 : refuse_field(t, "template");
}

static int refuse_images(struct translation *t, cJSON *value)
{
    return is_empty_array(value) ? 0 : refuse_field(t, "images");
}

static int refuse_tools(struct translation *t, cJSON *value)
{
    if (is_empty_array(value)) return 0;
    return api_error_invalid(t->err, "unsupported_parameter", "tools",
                             "tools are not supported by this endpoint; /api/chat takes them");
}

static int refuse_context(struct translation *t, cJSON *value)
{
    return is_empty_array(value) ? 0 : refuse_field(t, "context");
}

/* A text completion's log probabilities are asked for by how many alternatives there shall be. */
static int count_logprobs(struct translation *t)
{
    bool wanted = false;
    cJSON *top = cJSON_DetachItemFromObjectCaseSensitive(t->body, "top_logprobs");
    int status = json_field_bool(t->body, "logprobs", &wanted, t->err);
    cJSON_DeleteItemFromObjectCaseSensitive(t->body, "logprobs");
    if (status == 0 && wanted && top && !cJSON_IsNull(top)) return codec_put(t, t->body, "logprobs", top);
    cJSON_Delete(top);
    return status == 0 && wanted ? codec_put(t, t->body, "logprobs", cJSON_CreateNumber(0)) : status;
}

static bool has_suffix(const struct translation *t)
{
    const cJSON *suffix = json_field_find(t->body, "suffix");
    return suffix && (!cJSON_IsString(suffix) || suffix->valuestring[0]);
}

/* A prompt is a user's message, unless it is raw or stands before a gap. */
int ollama_translate_generate(struct translation *t)
{
    bool raw = false;
    struct place at = {t, "prompt"};
    cJSON *parts;
    int status = json_field_bool(t->body, "raw", &raw, t->err);
    if (status == 0) status = stream_by_default(t);
    if (status < 0) return status;
    const cJSON *instructions = json_field_find(t->body, "system");
    const char *system = cJSON_GetStringValue(instructions);
    const cJSON *prompt = json_field_find(t->body, "prompt");
    if (prompt && !cJSON_IsString(prompt)) return canonical_refuse_type(&at, prompt, "a string");
    if (instructions && !system) return json_field_refuse_type(instructions, "system", "a string", t->err);
    if (raw || has_suffix(t)) {
        t->kind = API_COMPLETIONS;
        status = fill_in_middle_read_suffix(t);
        return status == 0 ? count_logprobs(t) : status;
    }
    cJSON_DeleteItemFromObjectCaseSensitive(t->body, "suffix");
    cJSON *messages = translation_messages(t);
    if (!messages ||
        (system && system[0] &&
         (!canonical_add_message(messages, "system", &parts) || canonical_add_part(&at, parts, system) < 0)))
        return api_error_no_memory(t->err);
    return canonical_add_message(messages, "user", &parts)
               ? canonical_add_part(&at, parts, prompt ? prompt->valuestring : "")
               : api_error_no_memory(t->err);
}

const struct codec_field ollama_chat_fields[] = {
    {.name = "options", .read = read_options},
    {.name = "format", .read = read_format},
    {.name = "think", .read = read_think},
    {.name = "truncate", .read = read_truncate},
    {.name = "shift"}, /* of an answer that outgrows the context, which ends here */
    {.name = "n", .read = canonical_read_n},
    {.name = NULL},
};

const struct codec_field ollama_generate_fields[] = {
    {.name = "options", .read = read_options},
    {.name = "format", .read = read_format},
    {.name = "think", .read = read_think},
    {.name = "truncate", .read = read_truncate},
    {.name = "shift"},
    {.name = "template", .read = refuse_template},
    {.name = "images", .read = refuse_images},
    {.name = "context", .read = refuse_context},
    {.name = "tools", .read = refuse_tools},
    {.name = "messages"},                    /* the prompt becomes them */
    {.name = "n", .read = canonical_read_n}, /* there is one answer */
    {.name = NULL},
};

const struct codec_name ollama_names[] = {
    {.name = "options.num_predict", .canonical = "max_tokens"},
    {.name = "options.temperature", .canonical = "temperature"},
    {.name = "options.top_k", .canonical = "top_k"},
    {.name = "options.top_p", .canonical = "top_p"},
    {.name = "options.min_p", .canonical = "min_p"},
    {.name = "options.seed", .canonical = "seed"},
    {.name = "options.stop", .canonical = "stop"},
    {.name = "options.repeat_penalty", .canonical = "repetition_penalty"},
    {.name = "options.repeat_last_n", .canonical = "repeat_last_n"},
    {.name = "options.presence_penalty", .canonical = "presence_penalty"},
    {.name = "options.frequency_penalty", .canonical = "frequency_penalty"},
    {.name = "format", .canonical = "response_format.json_schema.schema"},
    {.name = NULL},
};
