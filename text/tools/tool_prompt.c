#include "text/tools/tool_prompt.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <time.h>

#include "text/tools/format.h"
#include "text/tools/slice.h"

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* ---- variables ---- */

static bool add_copy(cJSON *context, const char *name, const cJSON *value)
{
    const cJSON *old = get(context, name);
    if (old && !cJSON_IsNull(old)) return true;
    cJSON *copy = cJSON_Duplicate(value, true);
    cJSON_DeleteItemFromObjectCaseSensitive(context, name);
    if (copy && cJSON_AddItemToObject(context, name, copy)) return true;
    cJSON_Delete(copy);
    return false;
}

static bool add_text(cJSON *context, const char *name, const char *text)
{
    return get(context, name) || (text && cJSON_AddStringToObject(context, name, text));
}

int tool_prompt_add_variables(const struct tool_format *f, cJSON *context, const cJSON *tools,
                              int64_t now_seconds)
{
    char day[32];
    struct tm utc;
    time_t now = (time_t)now_seconds;
    if (f && !f->renders_tools) return 0;
    strftime(day, sizeof day, "%Y-%m-%d", gmtime_r(&now, &utc));
    char *text = cJSON_PrintUnformatted(tools);
    bool added = add_copy(context, "tools", tools) && add_copy(context, "available_tools", tools) &&
                 add_text(context, "functions", text) && add_text(context, "datetime", day);
    cJSON_free(text);
    return added ? 0 : STATUS_NO_MEMORY;
}

/* ---- calls ---- */

/* A text of the format with its slots filled. */
static void append_filled(struct buffer *out, const char *text, const char *id, int index)
{
    for (; *text; text++) {
        if (*text == SLOT_ID)
            buffer_append_text(out, id ? id : "0");
        else if (*text == SLOT_INDEX)
            buffer_printf(out, "%d", index);
        else
            buffer_append_char(out, *text);
    }
}

static void append_printed(struct buffer *out, const cJSON *value)
{
    char *text = cJSON_PrintUnformatted(value);
    if (text)
        buffer_append_text(out, text);
    else
        out->failed = true;
    cJSON_free(text);
}

/* A number as the client wrote it, where that was kept (json_numbers.h). */
static void append_number(struct buffer *out, const cJSON *value)
{
    if (value->valuestring)
        buffer_append_text(out, value->valuestring);
    else
        append_printed(out, value);
}

static void append_literal(const struct tool_format *f, struct buffer *out, const cJSON *value);

static void append_members(const struct tool_format *f, struct buffer *out, const cJSON *value)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, value)
    {
        if (item != value->child) buffer_append_text(out, ", ");
        if (item->string) {
            buffer_append_json_text(out, item->string);
            buffer_append_text(out, ": ");
        }
        append_literal(f, out, item);
    }
}

/* JSON in the usual spacing, Python's words where the format has them. */
static void append_literal(const struct tool_format *f, struct buffer *out, const cJSON *value)
{
    if (cJSON_IsString(value)) {
        buffer_append_json_text(out, value->valuestring);
    } else if (cJSON_IsNumber(value)) {
        append_number(out, value);
    } else if (cJSON_IsBool(value)) {
        const char *words[] = {"false", "true", "False", "True"};
        buffer_append_text(out, words[cJSON_IsTrue(value) + 2 * f->is_python]);
    } else if (cJSON_IsNull(value)) {
        buffer_append_text(out, f->is_python ? "None" : "null");
    } else {
        buffer_append_char(out, cJSON_IsArray(value) ? '[' : '{');
        append_members(f, out, value);
        buffer_append_char(out, cJSON_IsArray(value) ? ']' : '}');
    }
}

void tool_prompt_write_json(const cJSON *value, struct buffer *out)
{
    append_literal(&tool_format_generic, out, value);
}

static void append_parameters(const struct tool_format *f, struct buffer *out, const cJSON *arguments)
{
    const cJSON *value;
    cJSON_ArrayForEach(value, arguments)
    {
        bool is_text = cJSON_IsString(value);
        if (value != arguments->child) buffer_append_text(out, f->parameter_separator);
        buffer_append_text(out, f->key_begin);
        buffer_append_text(out, value->string);
        buffer_append_text(out, f->key_end[is_text ? FOR_STRING : FOR_OTHER]);
        if (is_text && f->values == VALUES_RAW)
            buffer_append_text(out, value->valuestring);
        else
            append_literal(f, out, value);
        buffer_append_text(out, f->value_end);
    }
}

static void append_arguments(const struct tool_format *f, struct buffer *out, const cJSON *arguments)
{
    if (f->notation == ARGUMENTS_TAGGED)
        append_parameters(f, out, cJSON_IsObject(arguments) ? arguments : NULL);
    else if (cJSON_IsObject(arguments))
        append_literal(f, out, arguments);
    else
        buffer_append_text(out, cJSON_IsString(arguments) ? arguments->valuestring : "{}");
}

static void append_call(const struct tool_format *f, struct buffer *out, const cJSON *call, int index)
{
    const cJSON *function = get(call, "function");
    const cJSON *arguments = get(function, "arguments");
    const char *name = cJSON_GetStringValue(get(function, "name")),
               *id = cJSON_GetStringValue(get(call, "id"));
    append_filled(out, f->call_begin, id, index);
    buffer_append_text(out, name ? name : "");
    append_filled(out, f->name_end, id, index);
    append_arguments(f, out, arguments);
    append_filled(out, f->call_end, id, index);
}

void tool_prompt_write_calls(const struct tool_format *f, const cJSON *calls, struct buffer *out)
{
    const cJSON *call;
    int index = 0;
    buffer_append_text(out, f->section_begin);
    cJSON_ArrayForEach(call, calls)
    {
        bool touches = !*f->call_separator && !*f->section_begin;
        if (index > 0) buffer_append_text(out, touches ? "\n" : f->call_separator);
        append_call(f, out, call, index++);
    }
    buffer_append_text(out, f->section_end);
}

/* ---- instructions ---- */

void tool_prompt_write_tools(const struct tool_format *f, const cJSON *tools, struct buffer *out)
{
    const cJSON *tool;
    cJSON *example =
        cJSON_Parse("[{\"id\": \"call00001\", \"function\": {\"name\": \"function_name\", \"arguments\": "
                    "{\"parameter_name\": \"value\"}}}]");
    buffer_append_text(out,
                       "# Tools\n\nYou may call functions to assist with the user's query. They are listed "
                       "here, one JSON object a line:\n<tools>\n");
    cJSON_ArrayForEach(tool, tools)
    {
        append_printed(out, tool);
        buffer_append_char(out, '\n');
    }
    buffer_append_text(out,
                       "</tools>\n\nTo call a function, write exactly this, with its name and arguments:\n");
    tool_prompt_write_calls(f, example, out);
    cJSON_Delete(example);
}
