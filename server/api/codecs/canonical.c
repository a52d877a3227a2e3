#include "server/api/codecs/canonical.h"

#include <string.h>

const char *canonical_text(const cJSON *object, const char *name)
{
    const cJSON *value = json_field_find(object, name);
    return cJSON_IsString(value) ? value->valuestring : NULL;
}

bool canonical_is(const cJSON *object, const char *type)
{
    const char *is = canonical_text(object, "type");
    return is && !strcmp(is, type);
}

int canonical_refuse_type(const struct place *p, const cJSON *value, const char *what)
{
    return json_field_refuse_type(value, p->path, what, p->t->err);
}

int canonical_read_n(struct translation *t, cJSON *value)
{
    int64_t n;
    if (json_field_as_int(value, 1, 1, &n)) return 0;
    return api_error_invalid(t->err, "unsupported_value", "n", "n must be 1: this protocol has one answer");
}

/* ---- messages ---- */

cJSON *canonical_add_message(cJSON *messages, const char *role, cJSON **parts)
{
    cJSON *message = cJSON_CreateObject();
    if (message && cJSON_AddStringToObject(message, "role", role) &&
        (*parts = cJSON_AddArrayToObject(message, "content")) && cJSON_AddItemToArray(messages, message))
        return message;
    cJSON_Delete(message);
    return NULL;
}

int canonical_add_part(const struct place *p, cJSON *parts, const char *text)
{
    cJSON *part = cJSON_CreateObject();
    if (part && cJSON_AddStringToObject(part, "type", "text") &&
        cJSON_AddStringToObject(part, "text", text) && cJSON_AddItemToArray(parts, part))
        return 0;
    cJSON_Delete(part);
    return api_error_no_memory(p->t->err);
}

int canonical_add_unseen(const struct place *p, cJSON *parts, const char *type)
{
    cJSON *part = cJSON_CreateObject();
    if (part && cJSON_AddStringToObject(part, "type", type) && cJSON_AddItemToArray(parts, part)) return 0;
    cJSON_Delete(part);
    return api_error_no_memory(p->t->err);
}

int canonical_add_reasoning(struct translation *t, cJSON *message, const char *text)
{
    cJSON *pieces = cJSON_GetObjectItemCaseSensitive(message, "reasoning_content"),
          *piece = cJSON_CreateString(text);
    if (!pieces) pieces = cJSON_AddArrayToObject(message, "reasoning_content");
    if (piece && pieces && cJSON_AddItemToArray(pieces, piece)) return 0;
    cJSON_Delete(piece);
    return api_error_no_memory(t->err);
}

static int join_pieces(struct translation *t, cJSON *message, const cJSON *pieces)
{
    struct buffer joined;
    const cJSON *piece;
    buffer_init(&joined, SIZE_MAX / 2);
    cJSON_ArrayForEach(piece, pieces)
    {
        if (piece != pieces->child) buffer_append_char(&joined, '\n');
        buffer_append_text(&joined, piece->valuestring);
    }
    int status = buffer_failed(&joined) ? api_error_no_memory(t->err)
                                        : codec_put(t, message, "reasoning_content",
                                                    cJSON_CreateString(joined.data ? joined.data : ""));
    buffer_deinit(&joined);
    return status;
}

int canonical_join_reasoning(struct translation *t)
{
    cJSON *message;
    int status = 0;
    cJSON_ArrayForEach(message, t->messages)
    {
        const cJSON *pieces = cJSON_GetObjectItemCaseSensitive(message, "reasoning_content");
        if (status == 0 && cJSON_IsArray(pieces)) status = join_pieces(t, message, pieces);
    }
    return status;
}

int canonical_fill(const struct place *p, cJSON *parts)
{
    return parts->child ? 0 : canonical_add_part(p, parts, "");
}

/* ---- tools ---- */

/* An object of type function whose inner object has the name; *function becomes the inner one. */
static cJSON *make_function(const char *name, cJSON **function)
{
    cJSON *outer = cJSON_CreateObject();
    *function = cJSON_AddObjectToObject(outer, "function");
    if (*function && cJSON_AddStringToObject(outer, "type", "function") &&
        cJSON_AddStringToObject(*function, "name", name))
        return outer;
    cJSON_Delete(outer);
    return NULL;
}

cJSON *canonical_named_choice(const char *name)
{
    cJSON *function;
    return make_function(name, &function);
}

int canonical_add_call(struct translation *t, cJSON *message, const char *id, const char *name,
                       cJSON *arguments)
{
    cJSON *function, *call = make_function(name, &function);
    cJSON *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls");
    if (!calls) calls = cJSON_AddArrayToObject(message, "tool_calls");
    if (!call || !calls || !cJSON_AddStringToObject(call, "id", id) || !cJSON_AddItemToArray(calls, call)) {
        cJSON_Delete(call);
        cJSON_Delete(arguments);
        return api_error_no_memory(t->err);
    }
    return codec_put(t, function, "arguments", arguments);
}

int canonical_add_tool(struct translation *t, cJSON *tools, const cJSON *flat, cJSON *schema)
{
    const char *description = canonical_text(flat, "description");
    const cJSON *strict = json_field_find(flat, "strict"); /* the validator's */
    cJSON *function, *tool = make_function(canonical_text(flat, "name"), &function);
    if (!tool || (description && !cJSON_AddStringToObject(function, "description", description)) ||
        (strict && !cJSON_AddItemToObject(function, "strict", cJSON_Duplicate(strict, true))) ||
        !cJSON_AddItemToArray(tools, tool)) {
        cJSON_Delete(tool);
        cJSON_Delete(schema);
        return api_error_no_memory(t->err);
    }
    return schema ? codec_put(t, function, "parameters", schema) : 0;
}

int canonical_keep_place(const struct place *p, const cJSON *tools)
{
    struct translation *t = p->t;
    const cJSON *last = tools->child ? tools->child->prev : NULL;
    if (last == t->last_tool) return 0;
    struct tool_place *own = arena_alloc(t->arena, sizeof *own);
    if (!own) return api_error_no_memory(t->err);
    *own = (struct tool_place){.path = arena_copy(t->arena, p->path, strlen(p->path)),
                               .index = t->tool_places ? t->tool_places->index + 1 : 0,
                               .next = t->tool_places};
    t->tool_places = own;
    t->last_tool = last;
    return own->path ? 0 : api_error_no_memory(t->err);
}

int canonical_read_tools(struct translation *t, const cJSON *value, canonical_tool_reader *read_tool)
{
    struct place at = {.t = t};
    cJSON *tools, *tool;
    int i = 0, status = 0;
    if (!cJSON_IsArray(value)) return json_field_refuse_type(value, "tools", "an array of tools", t->err);
    tools = cJSON_AddArrayToObject(t->body, "tools");
    if (!tools) return api_error_no_memory(t->err);
    cJSON_ArrayForEach(tool, value)
    {
        snprintf(at.path, sizeof at.path, "tools[%d]", i++);
        if (status == 0 && !cJSON_IsObject(tool)) status = canonical_refuse_type(&at, tool, "an object");
        if (status == 0) status = read_tool(&at, tools, tool);
        if (status == 0) status = canonical_keep_place(&at, tools);
    }
    if (status < 0) t->tool_places = NULL; /* what refused it has named its place */
    return status;
}

/* ---- the form of the answer ---- */

int canonical_put_schema(struct translation *t, const char *name, cJSON *schema)
{
    cJSON *format = cJSON_CreateObject(), *inner = cJSON_AddObjectToObject(format, "json_schema");
    if (inner && cJSON_AddStringToObject(format, "type", "json_schema") &&
        cJSON_AddStringToObject(inner, "name", name) &&
        (!schema || cJSON_AddItemToObject(inner, "schema", schema)))
        return codec_put(t, t->body, "response_format", format);
    cJSON_Delete(format);
    cJSON_Delete(schema);
    return api_error_no_memory(t->err);
}
