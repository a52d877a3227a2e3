#include "server/openapi/openapi.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/version.h"
#include "server/api/codec.h"
#include "server/api/field_table.h"

/* openapi.json as it is; a NUL behind it. */
__asm__(".pushsection .rodata\n"
        "openapi_text: .incbin \"server/openapi/openapi.json\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char openapi_text[];

static cJSON *get(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

/* Adds item, which is taken, unless something of this name is there. False: no memory, as a NULL item is. */
static bool add(cJSON *object, const char *name, cJSON *item)
{
    bool is_there = get(object, name) != NULL;
    if (!is_there && item && cJSON_AddItemToObject(object, name, item)) return true;
    cJSON_Delete(item);
    return is_there;
}

static bool add_json(cJSON *object, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool add_json(cJSON *object, const char *name, const char *format, ...)
{
    struct buffer text;
    va_list args;
    buffer_init(&text, 4096);
    va_start(args, format);
    buffer_vprintf(&text, format, args);
    va_end(args);
    bool added =
        add(object, name, buffer_failed(&text) ? NULL : cJSON_ParseWithLength(text.data, text.num_bytes));
    buffer_deinit(&text);
    return added;
}

/* ---- fields of bodies ---- */

/* Describes the canonical field under a name of the protocol's. */
static bool add_field(const cJSON *document, cJSON *properties, const char *name, const struct field_facts *f)
{
    switch (f->type) {
    case FIELD_BOOL:
        return add_json(properties, name, "{\"type\":[\"boolean\",\"null\"]}");
    case FIELD_INT32:
    case FIELD_FLOAT:
        return add_json(properties, name, "{\"type\":[\"%s\",\"null\"],\"minimum\":%.9g,\"maximum\":%.10g}",
                        f->type == FIELD_INT32 ? "integer" : "number", f->min, f->max);
    case FIELD_REFUSED:
        return add_json(properties, name,
                        "{\"description\":\"not supported: refused unless it says nothing\","
                        "\"enum\":[null,%s,%.9g,\"\",[],{}]}",
                        f->neutral != 0 ? "true" : "false", f->neutral);
    default:
        return add(properties, name, cJSON_Duplicate(get(get(document, "x-fields"), f->name), true));
    }
}

/* A protocol's own member of this name, or one that stands for the canonical one. */
static const struct codec_field *find_row(const struct codec *codec, const char *name, bool by_canonical)
{
    for (const struct codec_field *row = codec->fields; row && row->name; row++) {
        const char *candidate = by_canonical ? row->canonical : row->name;
        if (candidate && !strcmp(candidate, name)) return row;
    }
    return NULL;
}

static bool add_fields(const cJSON *document, cJSON *properties, const struct codec *codec)
{
    struct field_facts f;
    bool added = true;
    for (size_t at = 0; field_table_next(codec->kind, &at, &f) && added;) {
        const struct codec_field *row = find_row(codec, f.name, true);
        if (row)
            added = add_field(document, properties, row->name, &f);
        else if (!find_row(codec, f.name, false))
            added = add_field(document, properties, f.name, &f);
    }
    return added;
}

static bool fill_bodies(cJSON *document)
{
    cJSON *schema;
    bool filled = true;
    cJSON_ArrayForEach(schema, get(get(document, "components"), "schemas"))
    {
        const char *path = cJSON_GetStringValue(get(schema, "x-codec"));
        for (size_t i = 0; path && filled && i < array_length(all_codecs); i++)
            if (!strcmp(path, all_codecs[i]->path))
                filled = add_fields(document, get(schema, "properties"), all_codecs[i]);
    }
    return filled;
}

/* ---- routes ---- */

static const char *method_name(enum http_method method)
{
    return method == HTTP_METHOD_POST ? "post" : method == HTTP_METHOD_DELETE ? "delete" : "get";
}

/* A path's parameter stands for what an asterisk matches. */
static bool is_path_of(const char *path, const char *pattern)
{
    size_t n = strcspn(pattern, "*");
    return !strncmp(path, pattern, n) && path[n] == (pattern[n] ? '{' : '\0');
}

cJSON *openapi_find(const cJSON *document, const struct route *route)
{
    cJSON *path, *operation;
    cJSON_ArrayForEach(path, get(document, "paths"))
    {
        if (!is_path_of(path->string, route->pattern)) continue;
        operation = get(path, method_name(route->method));
        if (operation && !get(operation, "x-below")) return operation;
    }
    return NULL;
}

static bool add_error(cJSON *responses, int status, const char *schema)
{
    char code[8];
    snprintf(code, sizeof code, "%d", status);
    return add_json(
        responses, code,
        "{\"description\":\"refused, with the reason in a sentence\",\"content\":{\"application/json\":"
        "{\"schema\":{\"$ref\":\"#/components/schemas/%s\"}}}}",
        schema);
}

static const char *error_schema(const struct route *route)
{
    if (route->append_error == messages_append_error) return "AnthropicError";
    if (route->append_error == text_generation_append_error) return "TextGenerationError";
    return route->append_error == ollama_append_error ? "OllamaError" : "OpenAIError";
}

static bool add_errors(cJSON *responses, const struct route *route)
{
    static const struct {
        int status;
        unsigned flags, without; /* of routes that have these, and not those */
    } errors[] = {
        {400, 0, 0},          {401, 0, ROUTE_OPEN}, {403, 0, 0},          {404, 0, 0}, {405, 0, 0},
        {408, 0, 0},          {413, 0, 0},          {414, 0, 0},          {417, 0, 0}, {421, 0, 0},
        {431, 0, 0},          {500, 0, 0},          {501, 0, 0},          {503, 0, 0}, {505, 0, 0},
        {415, ROUTE_JSON, 0}, {429, ROUTE_JSON, 0}, {504, ROUTE_JSON, 0},
    };
    bool added = true;
    for (size_t i = 0; i < array_length(errors) && added; i++)
        if ((route->flags & errors[i].flags) == errors[i].flags && !(route->flags & errors[i].without))
            added = add_error(responses, errors[i].status, error_schema(route));
    return added;
}

/* What every operation of a route has; several where the route's handler knows what lies below a path (x-below). */
static bool fill_route(cJSON *document, const struct route *route)
{
    cJSON *path;
    bool filled = true;
    cJSON_ArrayForEach(path, get(document, "paths"))
    {
        cJSON *operation = get(path, method_name(route->method));
        if (!filled || !operation || !is_path_of(path->string, route->pattern)) continue;
        filled = add_errors(get(operation, "responses"), route);
        if (filled && !(route->flags & ROUTE_OPEN))
            filled = add_json(operation, "security", "[{\"key\":[]}]");
    }
    return filled;
}

static bool fill_operations(cJSON *document)
{
    bool filled = true;
    for (const struct route *route = server_routes; route->pattern && filled; route++)
        filled = fill_route(document, route);
    return filled;
}

cJSON *openapi_make(void)
{
    cJSON *document = cJSON_Parse(openapi_text);
    cJSON_DeleteItemFromObjectCaseSensitive(get(document, "info"), "version");
    if (document && add_json(get(document, "info"), "version", "\"%s\"", flashd_version()) &&
        fill_bodies(document) && fill_operations(document))
        return document;
    cJSON_Delete(document);
    return NULL;
}

/* Made once, by the first who asks. */
void endpoint_openapi(struct exchange *x)
{
    static char *text;
    cJSON *document = text ? NULL : openapi_make();
    if (document) text = cJSON_PrintUnformatted(document);
    cJSON_Delete(document);
    if (text)
        exchange_reply(x, 200, "application/json", text, strlen(text));
    else
        exchange_error(x, 500, "server_error", NULL, NULL, 0, "out of memory");
}
