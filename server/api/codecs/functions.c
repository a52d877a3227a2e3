#include "server/api/codecs/functions.h"

#include <string.h>

#include "server/api/codecs/canonical.h"

/* What kept points to, of a request with functions. */
static char asked;

static int add_tool(struct translation *t, cJSON *tools, const cJSON *function)
{
    cJSON *tool = cJSON_CreateObject();
    if (!cJSON_AddStringToObject(tool, "type", "function") || !cJSON_AddItemToArray(tools, tool)) {
        cJSON_Delete(tool);
        return api_error_no_memory(t->err);
    }
    return codec_put(t, tool, "function", cJSON_Duplicate(function, true));
}

int functions_read(struct translation *t, cJSON *value)
{
    const cJSON *tools = json_field_find(t->body, "tools"), *function;
    if (!cJSON_IsArray(value))
        return json_field_refuse_type(value, "functions", "an array of functions", t->err);
    if (!value->child) return 0;
    if (tools && !(cJSON_IsArray(tools) && !tools->child))
        return api_error_invalid(t->err, "invalid_value", "functions",
                                 "functions is what tools was called before; leave one of them out");
    cJSON *list = cJSON_CreateArray();
    int status = codec_put(t, t->body, "tools", list);
    cJSON_ArrayForEach(function, value) if (status == 0) status = add_tool(t, list, function);
    if (status == 0) status = codec_put(t, t->body, "parallel_tool_calls", cJSON_CreateFalse());
    t->kept = &asked;
    return status;
}

int functions_read_choice(struct translation *t, cJSON *value)
{
    const char *name = canonical_text(value, "name");
    bool is_word =
        cJSON_IsString(value) && (!strcmp(value->valuestring, "none") || !strcmp(value->valuestring, "auto"));
    if (!is_word && !name)
        return api_error_invalid(t->err, "invalid_value", "function_call",
                                 "function_call must be \"none\", \"auto\" or {\"name\": ...}");
    if (t->kept != &asked) return 0; /* there is nothing to call */
    return codec_put(t, t->body, "tool_choice",
                     name ? canonical_named_choice(name) : cJSON_CreateString(value->valuestring));
}

bool functions_are_asked(const struct answer *a)
{
    return a->context->params->kept == &asked;
}
