#include "text/tools/tool_variants.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "base/check.h"
#include "text/tools/tool_types.h"

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* A copy in place of what stands there; false: no memory. */
static bool put_copy(cJSON *object, const char *name, const cJSON *value)
{
    cJSON *copy = cJSON_Duplicate(value, true);
    cJSON_DeleteItemFromObjectCaseSensitive(object, name);
    if (copy && cJSON_AddItemToObject(object, name, copy)) return true;
    cJSON_Delete(copy);
    return false;
}

/* Adds a part's schema of a parameter, whose keywords count where both have them. */
static bool add_property(cJSON *properties, const cJSON *property)
{
    cJSON *own = cJSON_GetObjectItemCaseSensitive(properties, property->string);
    const cJSON *keyword;
    bool added = true;
    if (!own) return put_copy(properties, property->string, property);
    if (!cJSON_IsObject(own)) return true;
    cJSON_ArrayForEach(keyword, property) added = added && put_copy(own, keyword->string, keyword);
    return added;
}

/* Adds what a part of a schema says of parameters: their schemas, and which are required. */
static bool add_part(cJSON *parameters, const cJSON *part)
{
    cJSON *properties = cJSON_GetObjectItemCaseSensitive(parameters, "properties"),
          *required = cJSON_GetObjectItemCaseSensitive(parameters, "required");
    const cJSON *item;
    bool added = properties && required;
    cJSON_ArrayForEach(item, get(part, "properties")) added = added && add_property(properties, item);
    cJSON_ArrayForEach(item, get(part, "required"))
    {
        cJSON *copy = added ? cJSON_Duplicate(item, true) : NULL;
        added = copy && cJSON_AddItemToArray(required, copy);
        if (!added) cJSON_Delete(copy);
    }
    return added;
}

cJSON *tool_variants_make(const cJSON *function, const cJSON *alternative)
{
    static const char *const definitions[] = {"$defs", "definitions"};
    const cJSON *document = get(function, "parameters"), *own = tool_parameters(function), *part;
    cJSON *variant = cJSON_CreateObject(), *parameters = cJSON_AddObjectToObject(variant, "parameters");
    bool made = parameters && cJSON_AddObjectToObject(parameters, "properties") &&
                cJSON_AddArrayToObject(parameters, "required");
    if (get(function, "strict")) made = made && put_copy(variant, "strict", get(function, "strict"));
    for (size_t i = 0; i < array_length(definitions); i++)
        if (get(document, definitions[i]))
            made = made && put_copy(parameters, definitions[i], get(document, definitions[i]));
    made = made && add_part(parameters, own);
    cJSON_ArrayForEach(part, get(own, "allOf")) made =
        made && add_part(parameters, tool_schema_follow(function, part));
    made = made && add_part(parameters, tool_schema_follow(function, alternative));
    if (made) return variant;
    cJSON_Delete(variant);
    return NULL;
}

const cJSON *tool_variants_alternatives(const cJSON *function)
{
    const cJSON *parameters = tool_parameters(function), *list = get(parameters, "anyOf");
    if (!list) list = get(parameters, "oneOf");
    return cJSON_GetArraySize(list) > 0 ? list : NULL;
}
