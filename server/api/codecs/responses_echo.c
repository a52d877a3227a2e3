/* responses_echo.c - what a response tells of its request. */
#include <math.h>

#include "base/check.h"
#include "server/api/codecs/canonical.h"
#include "server/api/codecs/responses.h"

enum {
    METADATA_PAIRS_MAX = 16,
    METADATA_KEY_MAX = 64,
    METADATA_VALUE_MAX = 512
}; /* characters; OpenAI's limits */

/* is: of which type it is told, in whatever form it came, and must be where nothing else reads it: an answer has what
 * its schema says. A TIER is the one that there is. */
static const struct {
    const char *name, *otherwise;
    enum { ANY, TEXT, WHOLE, NUMBER, TRUTH, METADATA, TIER, TOOLS, REASONING, FORM } is;
} echoed[] = {
    {"frequency_penalty", "0", NUMBER},
    {"instructions", "null", ANY},
    {"max_output_tokens", "null", NUMBER},
    {"max_tool_calls", "null", WHOLE},
    {"metadata", "{}", METADATA},
    {"parallel_tool_calls", "true", TRUTH},
    {"presence_penalty", "0", NUMBER},
    {"previous_response_id", "null", ANY},
    {"prompt_cache_key", "null", TEXT},
    {"reasoning", "{\"effort\":null,\"summary\":null}", REASONING},
    {"safety_identifier", "null", TEXT},
    {"service_tier", "\"default\"", TIER},
    {"store", "true", TRUTH},
    {"temperature", "1", NUMBER},
    {"text", "{\"format\":{\"type\":\"text\"}}", FORM},
    {"tool_choice", "\"auto\"", ANY},
    {"tools", "[]", TOOLS},
    {"top_logprobs", "0", WHOLE},
    {"top_p", "1", NUMBER},
    {"truncation", "\"disabled\"", ANY},
    {"user", "null", TEXT},
};

/* What an object has when it came without. */
struct member {
    const char *name, *otherwise;
};
static const struct member of_tools[] = {
    {"description", "null"}, {"parameters", "null"}, {"strict", "null"}, {NULL, NULL}};
static const struct member of_reasoning[] = {{"effort", "null"}, {"summary", "null"}, {NULL, NULL}};
static const struct member of_text[] = {{"format", "{\"type\":\"text\"}"}, {NULL, NULL}};

/* ---- telling ---- */

static void append_json(struct buffer *out, const cJSON *value)
{
    char *printed = cJSON_PrintUnformatted(value);
    if (printed)
        buffer_append_text(out, printed);
    else
        out->failed = true;
    cJSON_free(printed);
}

static void append_object(struct buffer *out, const cJSON *object, const struct member *members)
{
    append_json(out, object);
    if (!cJSON_IsObject(object) || buffer_failed(out)) return;
    out->num_bytes--; /* the brace */
    bool empty = !object->child;
    for (; members->name; members++) {
        if (cJSON_HasObjectItem(object, members->name)) continue;
        buffer_printf(out, "%s\"%s\":%s", empty ? "" : ",", members->name, members->otherwise);
        empty = false;
    }
    buffer_append_char(out, '}');
}

static void append_tools(struct buffer *out, const cJSON *tools)
{
    static const struct member none[] = {{NULL, NULL}};
    const cJSON *tool;
    buffer_append_char(out, '[');
    cJSON_ArrayForEach(tool, tools)
    {
        if (tool != tools->child) buffer_append_char(out, ',');
        append_object(out, tool, canonical_is(tool, "function") ? of_tools : none);
    }
    buffer_append_char(out, ']');
}

static void append_number(struct buffer *out, const cJSON *value)
{
    double number;
    if (json_field_number(value, &number) && isfinite(number))
        buffer_printf(out, "%.15g", number);
    else
        append_json(out, value);
}

static void append_truth(struct buffer *out, const cJSON *body, const char *name)
{
    bool value = false;
    struct api_error unread;
    if (json_field_bool(body, name, &value, &unread))
        buffer_append_text(out, "null");
    else
        buffer_append_text(out, value ? "true" : "false");
}

void responses_append_echo(struct buffer *out, const cJSON *body)
{
    for (size_t i = 0; i < array_length(echoed); i++) {
        const cJSON *value = json_field_find(body, echoed[i].name);
        buffer_printf(out, ",\"%s\":", echoed[i].name);
        if (!value || echoed[i].is == TIER)
            buffer_append_text(out, echoed[i].otherwise);
        else if (echoed[i].is == WHOLE || echoed[i].is == NUMBER)
            append_number(out, value);
        else if (echoed[i].is == TRUTH)
            append_truth(out, body, echoed[i].name);
        else if (echoed[i].is == TOOLS)
            append_tools(out, value);
        else if (echoed[i].is == REASONING)
            append_object(out, value, of_reasoning);
        else if (echoed[i].is == FORM)
            append_object(out, value, of_text);
        else
            append_json(out, value);
    }
}

/* ---- checking ---- */

static size_t num_characters(const char *text)
{
    size_t n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static int check_metadata(const cJSON *metadata, struct api_error *err)
{
    const cJSON *pair;
    if (!cJSON_IsObject(metadata)) return json_field_refuse_type(metadata, "metadata", "an object", err);
    cJSON_ArrayForEach(pair, metadata)
    {
        if (!cJSON_IsString(pair))
            return json_field_refuse_type(pair, "metadata", "an object of strings", err);
        if (num_characters(pair->string) > METADATA_KEY_MAX ||
            num_characters(pair->valuestring) > METADATA_VALUE_MAX)
            return api_error_invalid(
                err, "invalid_value", "metadata",
                "metadata must have keys of at most %d and values of at most %d characters", METADATA_KEY_MAX,
                METADATA_VALUE_MAX);
    }
    if (cJSON_GetArraySize(metadata) <= METADATA_PAIRS_MAX) return 0;
    return api_error_invalid(err, "invalid_value", "metadata", "metadata must have at most %d keys",
                             METADATA_PAIRS_MAX);
}

int responses_check_echo(struct translation *t)
{
    for (size_t i = 0; i < array_length(echoed); i++) {
        const cJSON *value = json_field_find(t->body, echoed[i].name);
        int64_t number;
        if (!value) continue;
        if ((echoed[i].is == TEXT || echoed[i].is == TIER) && !cJSON_IsString(value))
            return json_field_refuse_type(value, echoed[i].name, "a string", t->err);
        if (echoed[i].is == WHOLE && !json_field_as_int(value, 0, INT32_MAX, &number))
            return api_error_invalid(t->err, "invalid_value", echoed[i].name,
                                     "%s must be an integer of at least 0", echoed[i].name);
        if (echoed[i].is == METADATA && check_metadata(value, t->err)) return STATUS_INVALID;
    }
    return 0;
}
