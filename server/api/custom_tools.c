#include "server/api/custom_tools.h"

#include <stdlib.h>
#include <string.h>

#include "server/api/codecs/canonical.h"
#include "server/api/json_field.h"

#define INPUT "input"

/* ---- tools ---- */

static cJSON *get(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static bool is_custom(const cJSON *value)
{
    return canonical_is(value, "custom") && cJSON_IsObject(get(value, "custom"));
}

/* {"type": "object", "properties": {"input": {"type": "string"}}, ...}; *input becomes the inner schema. */
static cJSON *make_parameters(cJSON **input)
{
    const char *names[] = {INPUT};
    cJSON *schema = cJSON_CreateObject(), *properties = NULL;
    *input = NULL;
    if (cJSON_AddStringToObject(schema, "type", "object"))
        properties = cJSON_AddObjectToObject(schema, "properties");
    if (properties) *input = cJSON_AddObjectToObject(properties, INPUT);
    if (*input && cJSON_AddStringToObject(*input, "type", "string") &&
        cJSON_AddItemToObject(schema, "required", cJSON_CreateStringArray(names, 1)) &&
        cJSON_AddFalseToObject(schema, "additionalProperties"))
        return schema;
    cJSON_Delete(schema);
    return NULL;
}

static int add_pattern(struct translation *t, cJSON *function, cJSON *input, const char *pattern)
{
    char *whole = malloc(strlen(pattern) + sizeof "^(?:)$");
    if (whole) sprintf(whole, "^(?:%s)$", pattern);
    bool added = whole && cJSON_AddStringToObject(input, "pattern", whole) &&
                 cJSON_AddTrueToObject(function, "strict");
    free(whole);
    return added ? 0 : api_error_no_memory(t->err);
}

/* Behind the description, for the model. */
static int tell_grammar(struct translation *t, cJSON *function, const char *grammar)
{
    const char *description = canonical_text(function, "description");
    struct buffer text;
    buffer_init(&text, SIZE_MAX / 2);
    buffer_printf(&text, "%s%sThe input must match this Lark grammar:\n", description ? description : "",
                  description ? "\n" : "");
    buffer_append_text(&text, grammar);
    buffer_append(&text, "", 1);
    cJSON *whole = buffer_failed(&text) ? NULL : cJSON_CreateString(text.data);
    buffer_deinit(&text);
    translation_warn(t, "the Lark grammar of tool %.32s is told to the model and not held",
                     canonical_text(function, "name"));
    return whole ? codec_put(t, function, "description", whole) : api_error_no_memory(t->err);
}

static int read_format(struct translation *t, const char *path, const cJSON *format, cJSON *function,
                       cJSON *input)
{
    const cJSON *grammar = get(format, "grammar");
    const char *syntax = canonical_text(grammar, "syntax"),
               *definition = canonical_text(grammar, "definition");
    if (!format || cJSON_IsNull(format) || canonical_is(format, "text")) return 0;
    if (canonical_is(format, "grammar") && syntax && definition && !strcmp(syntax, "regex"))
        return add_pattern(t, function, input, definition);
    if (canonical_is(format, "grammar") && syntax && definition && !strcmp(syntax, "lark"))
        return tell_grammar(t, function, definition);
    return api_error_invalid(t->err, "invalid_value", path,
                             "%s must be {\"type\": \"text\"}, or a grammar of syntax regex or lark with its "
                             "definition",
                             path);
}

static int become_function(struct translation *t, cJSON *tool, int index)
{
    const cJSON *custom = get(tool, "custom");
    const char *name = canonical_text(custom, "name"), *description = canonical_text(custom, "description");
    char path[64];
    snprintf(path, sizeof path, "tools[%d].custom.name", index);
    if (!name)
        return api_error_invalid(t->err, "missing_required_parameter", path, "%s must be a string", path);
    cJSON *input, *schema = make_parameters(&input), *function = cJSON_CreateObject();
    bool made = schema && cJSON_AddStringToObject(function, "name", name) &&
                (!description || cJSON_AddStringToObject(function, "description", description)) &&
                cJSON_AddItemToObject(function, "parameters", schema);
    if (!made) {
        if (!get(function, "parameters")) cJSON_Delete(schema);
        cJSON_Delete(function);
        return api_error_no_memory(t->err);
    }
    snprintf(path, sizeof path, "tools[%d].custom.format", index);
    int status = read_format(t, path, get(custom, "format"), function, input);
    cJSON *known = cJSON_CreateString(name);
    if (!known || !cJSON_AddItemToArray(t->custom_tools, known)) {
        cJSON_Delete(known);
        cJSON_Delete(function);
        return api_error_no_memory(t->err);
    }
    if (status == 0) status = codec_put(t, tool, "type", cJSON_CreateString("function"));
    if (status == 0)
        status = codec_put(t, tool, "function", function);
    else
        cJSON_Delete(function);
    cJSON_DeleteItemFromObjectCaseSensitive(tool, "custom");
    return status;
}

/* ---- what names them ---- */

/* {"type": "custom", "custom": {"name"}} in a choice is a function's. */
static int rename_choice(struct translation *t, cJSON *choice)
{
    const char *name = canonical_text(get(choice, "custom"), "name");
    if (!is_custom(choice) || !name) return 0;
    cJSON *named = canonical_named_choice(name);
    cJSON *function = named ? cJSON_DetachItemFromObjectCaseSensitive(named, "function") : NULL;
    cJSON_Delete(named);
    if (!function) return api_error_no_memory(t->err);
    int status = codec_put(t, choice, "function", function);
    cJSON_DeleteItemFromObjectCaseSensitive(choice, "custom");
    return status ? status : codec_put(t, choice, "type", cJSON_CreateString("function"));
}

static int rename_choices(struct translation *t, cJSON *choice)
{
    cJSON *allowed = get(choice, "allowed_tools"), *item;
    int status = rename_choice(t, choice);
    cJSON_ArrayForEach(item, get(allowed ? allowed : choice, "tools")) if (status == 0) status =
        rename_choice(t, item);
    return status;
}

char *custom_tools_print_input(const char *input)
{
    cJSON *object = cJSON_CreateObject();
    char *text = cJSON_AddStringToObject(object, INPUT, input) ? cJSON_PrintUnformatted(object) : NULL;
    cJSON_Delete(object);
    return text;
}

static int become_call(struct translation *t, cJSON *call)
{
    const cJSON *custom = get(call, "custom");
    const char *name = canonical_text(custom, "name"), *input = canonical_text(custom, "input");
    if (!is_custom(call) || !name || !input) return 0; /* the validator's */
    char *text = custom_tools_print_input(input);
    cJSON *function = cJSON_CreateObject();
    bool made = text && cJSON_AddStringToObject(function, "name", name) &&
                cJSON_AddStringToObject(function, "arguments", text);
    cJSON_free(text);
    if (!made) {
        cJSON_Delete(function);
        return api_error_no_memory(t->err);
    }
    int status = codec_put(t, call, "function", function);
    cJSON_DeleteItemFromObjectCaseSensitive(call, "custom");
    return status ? status : codec_put(t, call, "type", cJSON_CreateString("function"));
}

int custom_tools_become_functions(struct translation *t)
{
    cJSON *tool, *message, *call;
    int status = 0, i = 0;
    t->custom_tools = cJSON_CreateArray();
    if (!t->custom_tools) return api_error_no_memory(t->err);
    cJSON_ArrayForEach(tool, get(t->body, "tools"))
    {
        if (status == 0 && is_custom(tool)) status = become_function(t, tool, i);
        i++;
    }
    if (status == 0) status = rename_choices(t, get(t->body, "tool_choice"));
    cJSON_ArrayForEach(message, get(t->body, "messages"))
    {
        cJSON_ArrayForEach(call, get(message, "tool_calls")) if (status == 0) status = become_call(t, call);
    }
    return status;
}

/* ---- which they are: by a type that the validator lets no client give a function ---- */

static cJSON *find_tool(const cJSON *tools, const char *name)
{
    cJSON *tool;
    cJSON_ArrayForEach(tool, tools)
    {
        const char *own = canonical_text(get(tool, "function"), "name");
        if (own && !strcmp(own, name)) return tool;
    }
    return NULL;
}

int custom_tools_mark(cJSON *tools, const cJSON *names)
{
    const cJSON *name;
    cJSON_ArrayForEach(name, names)
    {
        cJSON *tool = find_tool(tools, name->valuestring), *type = tool ? cJSON_CreateString("custom") : NULL;
        if (!tool || (type && cJSON_ReplaceItemInObjectCaseSensitive(tool, "type", type))) continue;
        cJSON_Delete(type);
        return STATUS_NO_MEMORY;
    }
    return 0;
}

bool custom_tools_find(const cJSON *tools, const char *name)
{
    return canonical_is(find_tool(tools, name), "custom");
}
