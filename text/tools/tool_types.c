#include "text/tools/tool_types.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "text/json_pointer.h"
#include "text/tools/literal_json.h"

/* Schemas that are looked at for one parameter, references among them; references that follow each other. */
enum { SCHEMAS_MAX = 128, REFERENCES_MAX = 8 };

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static bool is_text(const char *text, const char *bytes, size_t num_bytes)
{
    return text && strlen(text) == num_bytes && !memcmp(text, bytes, num_bytes);
}

const cJSON *tool_function(const cJSON *tool)
{
    const cJSON *function = get(tool, "function");
    return function ? function : tool;
}

const cJSON *tool_find(const cJSON *tools, const char *name, size_t num_bytes)
{
    const cJSON *tool;
    cJSON_ArrayForEach(tool, tools)
    {
        const cJSON *function = tool_function(tool);
        if (is_text(cJSON_GetStringValue(get(function, "name")), name, num_bytes)) return function;
    }
    return NULL;
}

bool tool_any_begins(const cJSON *tools, const char *name, size_t num_bytes)
{
    const cJSON *tool;
    cJSON_ArrayForEach(tool, tools)
    {
        const char *text = cJSON_GetStringValue(get(tool_function(tool), "name"));
        if (text && strlen(text) >= num_bytes && !memcmp(text, name, num_bytes)) return true;
    }
    return false;
}

static unsigned type_named(const char *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } names[] = {
        {"string", LITERAL_STRING},   {"number", LITERAL_NUMBER | LITERAL_INTEGER},
        {"integer", LITERAL_INTEGER}, {"boolean", LITERAL_BOOLEAN},
        {"null", LITERAL_NULL},       {"array", LITERAL_ARRAY},
        {"object", LITERAL_OBJECT},
    };
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i].name, name)) return names[i].type;
    return 0;
}

static unsigned type_of_value(const cJSON *value)
{
    if (cJSON_IsString(value)) return LITERAL_STRING;
    if (cJSON_IsNumber(value)) return LITERAL_NUMBER | LITERAL_INTEGER;
    if (cJSON_IsBool(value)) return LITERAL_BOOLEAN;
    if (cJSON_IsNull(value)) return LITERAL_NULL;
    return cJSON_IsArray(value) ? LITERAL_ARRAY : LITERAL_OBJECT;
}

/* ---- references ---- */

/* No more than num_left, of which they are taken. */
static const cJSON *follow(const cJSON *document, const cJSON *schema, int *num_left)
{
    for (int i = 0; i < REFERENCES_MAX && *num_left >= 0; i++) {
        const char *reference = cJSON_GetStringValue(get(schema, "$ref"));
        const cJSON *all = get(schema, "allOf");
        if (reference)
            schema = *reference == '#' ? json_pointer_follow(document, reference + 1, NULL) : NULL;
        else if (cJSON_GetArraySize(all) == 1 && !get(schema, "type"))
            schema = all->child;
        else
            return schema;
        --*num_left;
    }
    return NULL;
}

const cJSON *tool_schema_follow(const cJSON *function, const cJSON *schema)
{
    return follow(get(function, "parameters"), schema, &(int){REFERENCES_MAX});
}

const cJSON *tool_parameters(const cJSON *function)
{
    return tool_schema_follow(function, get(function, "parameters"));
}

/* ---- types ---- */

/* References may lead back: no more schemas are looked at than num_left. */
struct look {
    const cJSON *document;
    int num_left;
};

static unsigned types_of(struct look *l, const cJSON *schema);

/* 0 as soon as one alternative does not say. */
static unsigned types_of_alternatives(struct look *l, const cJSON *list)
{
    unsigned types = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        unsigned more = types_of(l, item);
        if (more == 0) return 0;
        types |= more;
    }
    return types;
}

/* What all of them allow that say. */
static unsigned types_of_parts(struct look *l, const cJSON *list)
{
    unsigned types = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        unsigned more = types_of(l, item);
        if (more > 0) types = types > 0 ? types & more : more;
    }
    return types;
}

static unsigned types_of(struct look *l, const cJSON *schema)
{
    const cJSON *item;
    if (l->num_left-- <= 0) return 0;
    schema = follow(l->document, schema, &l->num_left);
    const cJSON *type = get(schema, "type");
    unsigned types = type_named(cJSON_GetStringValue(type));
    if (cJSON_IsArray(type)) {
        cJSON_ArrayForEach(item, type) types |= type_named(cJSON_GetStringValue(item));
    }
    if (types == 0) {
        cJSON_ArrayForEach(item, get(schema, "enum")) types |= type_of_value(item);
    }
    if (types == 0 && get(schema, "const")) types = type_of_value(get(schema, "const"));
    if (types == 0) types = types_of_alternatives(l, get(schema, "anyOf"));
    if (types == 0) types = types_of_alternatives(l, get(schema, "oneOf"));
    if (types == 0) types = types_of_parts(l, get(schema, "allOf"));
    return types;
}

unsigned tool_schema_types(const cJSON *function, const cJSON *schema)
{
    return types_of(&(struct look){get(function, "parameters"), SCHEMAS_MAX}, schema);
}

static const cJSON *find_property(const cJSON *schema, const char *key, size_t num_bytes)
{
    const cJSON *property;
    cJSON_ArrayForEach(property, get(schema, "properties"))
    {
        if (is_text(property->string, key, num_bytes)) return property;
    }
    return NULL;
}

bool tool_requires_any(const cJSON *function)
{
    return cJSON_GetArraySize(get(tool_parameters(function), "required")) > 0;
}

ssize_t tool_match_parameter(const cJSON *function, struct span at)
{
    ssize_t longest = MATCH_NOT;
    const cJSON *property;
    cJSON_ArrayForEach(property, get(tool_parameters(function), "properties"))
    {
        ssize_t n = match_exact(property->string, strlen(property->string), at);
        if (n == MATCH_MORE) return MATCH_MORE;
        if (n > longest) longest = n;
    }
    return longest;
}

bool tool_has_parameter(const cJSON *function, const char *key, size_t num_bytes)
{
    return find_property(tool_parameters(function), key, num_bytes);
}

/* Of a parameter that schemas of a list have; 0 as soon as one of these does not say. */
static unsigned types_in_list(const cJSON *function, const cJSON *list, const char *key, size_t num_bytes)
{
    unsigned types = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        const cJSON *property = find_property(tool_schema_follow(function, item), key, num_bytes);
        if (!property) continue;
        unsigned more = tool_schema_types(function, property);
        if (more == 0) return 0;
        types |= more;
    }
    return types;
}

unsigned tool_parameter_types(const cJSON *function, const char *key, size_t num_bytes)
{
    static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
    const cJSON *parameters = tool_parameters(function),
                *property = find_property(parameters, key, num_bytes);
    unsigned types = property ? tool_schema_types(function, property) : 0;
    for (size_t i = 0; !property && types == 0 && i < sizeof lists / sizeof *lists; i++)
        types = types_in_list(function, get(parameters, lists[i]), key, num_bytes);
    return types;
}
