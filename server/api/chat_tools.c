#include "server/api/chat_tools.h"

#include <string.h>

#include "base/check.h"

static cJSON *get(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static bool has_type(const cJSON *schema, const char *name)
{
    const char *own = cJSON_GetStringValue(get(schema, "type"));
    return own && !strcmp(own, name);
}

/* Takes value. A null counts as nothing. */
static bool add_missing(cJSON *object, const char *name, cJSON *value)
{
    const cJSON *own = get(object, name);
    if (!own || cJSON_IsNull(own)) {
        cJSON_DeleteItemFromObjectCaseSensitive(object, name);
        if (value && cJSON_AddItemToObject(object, name, value)) return true;
    }
    cJSON_Delete(value);
    return false;
}

/* ---- each schema in a schema ---- */

typedef bool change_schema(cJSON *schema);

static bool change_each(cJSON *parameters, change_schema *change);

static bool change_whole(cJSON *schema, change_schema *change)
{
    static const char *const inner[] = {"items", "additionalProperties"};
    cJSON *child;
    bool changed = change(schema);
    changed |= change_each(schema, change);
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
        if ((child = get(schema, inner[i]))) changed |= change_whole(child, change);
    cJSON_ArrayForEach(child, get(schema, "prefixItems")) changed |= change_whole(child, change);
    cJSON_ArrayForEach(child, get(schema, "anyOf")) changed |= change_whole(child, change);
    cJSON_ArrayForEach(child, get(schema, "oneOf")) changed |= change_whole(child, change);
    return changed;
}

/* Depth: that of the body's JSON, which is bounded (json_gate.h). */
static bool change_each(cJSON *parameters, change_schema *change)
{
    bool changed = false;
    cJSON *schema;
    cJSON_ArrayForEach(schema, get(parameters, "properties")) changed |= change_whole(schema, change);
    return changed;
}

/* ---- what was left out ---- */

static bool make_whole(cJSON *schema)
{
    bool changed;
    if (!cJSON_IsObject(schema)) return false;
    changed = add_missing(schema, "description", cJSON_CreateString(""));
    if (has_type(schema, "array")) changed |= add_missing(schema, "items", cJSON_CreateObject());
    if (has_type(schema, "object"))
        changed |= add_missing(schema, "additionalProperties", cJSON_CreateObject());
    return changed;
}

static bool make_function_whole(cJSON *function)
{
    bool changed = add_missing(function, "description", cJSON_CreateString(""));
    changed |= add_missing(function, "parameters", cJSON_CreateObject());
    cJSON *parameters = get(function, "parameters");
    if (!cJSON_IsObject(parameters)) return changed;
    changed |= add_missing(parameters, "type", cJSON_CreateString("object"));
    changed |= add_missing(parameters, "properties", cJSON_CreateObject());
    return change_each(parameters, make_whole) || changed;
}

/* ---- what templates cannot read ---- */

static bool become_empty(cJSON *object, const char *name)
{
    return cJSON_IsBool(get(object, name)) &&
           cJSON_ReplaceItemInObjectCaseSensitive(object, name, cJSON_CreateObject());
}

static bool have_one_type(cJSON *schema)
{
    const cJSON *types = get(schema, "type"), *type;
    if (!cJSON_IsArray(types)) return false;
    const char *first = "null";
    cJSON_ArrayForEach(type, types)
    {
        const char *name = cJSON_GetStringValue(type);
        if (!name || !strcmp(name, "null")) continue;
        first = name;
        break;
    }
    cJSON *text = cJSON_CreateString(first);
    return text && cJSON_ReplaceItemInObjectCaseSensitive(schema, "type", text);
}

/* As other notations of schemas call theirs: STRING, float. */
static bool forget_unknown_type(cJSON *schema)
{
    static const char *const known[] = {"string", "number", "integer", "boolean", "null", "array", "object"};
    const char *type = cJSON_GetStringValue(get(schema, "type"));
    bool is_known = !type;
    for (size_t i = 0; i < array_length(known); i++) is_known |= type && !strcmp(type, known[i]);
    if (!is_known) cJSON_DeleteItemFromObjectCaseSensitive(schema, "type");
    return !is_known;
}

/* A tuple as older drafts have it. */
static bool have_items_of_one_schema(cJSON *schema)
{
    cJSON *items = get(schema, "items");
    if (!cJSON_IsArray(items)) return false;
    cJSON *first = items->child ? cJSON_DetachItemFromArray(items, 0) : cJSON_CreateObject();
    if (first && cJSON_ReplaceItemInObjectCaseSensitive(schema, "items", first)) return true;
    cJSON_Delete(first);
    return false;
}

static bool empty_properties(cJSON *schema)
{
    cJSON *properties = get(schema, "properties"), *property, *next;
    bool changed = false;
    for (property = properties ? properties->child : NULL; property; property = next) {
        next = property->next;
        changed |= become_empty(properties, property->string);
    }
    return changed;
}

static bool make_plain(cJSON *schema)
{
    if (!cJSON_IsObject(schema)) return false;
    bool changed = have_one_type(schema);
    changed |= forget_unknown_type(schema);
    changed |= have_items_of_one_schema(schema);
    changed |= empty_properties(schema);
    return become_empty(schema, "items") || changed;
}

bool chat_tools_change(cJSON *tools, enum chat_tools_change change)
{
    bool changed = false;
    cJSON *tool;
    cJSON_ArrayForEach(tool, tools)
    {
        cJSON *function = get(tool, "function");
        if (!cJSON_IsObject(function)) continue;
        if (change == TOOLS_PLAIN) changed |= change_whole(get(function, "parameters"), make_plain);
        changed |= add_missing(tool, "type", cJSON_CreateString("function"));
        changed |= make_function_whole(function);
    }
    return changed;
}
