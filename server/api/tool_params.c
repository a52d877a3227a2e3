#include "server/api/tool_params.h"

#include <string.h>

#include "server/api/json_field.h"

static bool is_text(const cJSON *value, const char *text)
{
    return value && cJSON_IsString(value) && !strcmp(value->valuestring, text);
}

static int check_name(const cJSON *name, const char *path, struct api_error *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
    if (!name) return api_error_invalid(err, "missing_required_parameter", path, "%s is missing", path);
    if (!cJSON_IsString(name)) return json_field_refuse_type(name, path, "a string", err);
    size_t n = strlen(name->valuestring);
    if (n > 0 && n <= TOOL_NAME_MAX && strspn(name->valuestring, allowed) == n) return 0;
    return api_error_invalid(err, "invalid_value", path,
                             "%s must have 1 to %d letters, digits or any of _ - . /", path,
                             (int)TOOL_NAME_MAX);
}

static int check_function(const cJSON *function, const char *path, struct api_error *err)
{
    char at[64];
    snprintf(at, sizeof at, "%s.function", path);
    if (!cJSON_IsObject(function)) return json_field_refuse_type(function, at, "an object", err);
    snprintf(at, sizeof at, "%s.function.name", path);
    int status = check_name(json_field_find(function, "name"), at, err);
    if (status < 0) return status;
    const cJSON *parameters = json_field_find(function, "parameters");
    snprintf(at, sizeof at, "%s.function.parameters", path);
    if (parameters && !cJSON_IsObject(parameters))
        return json_field_refuse_type(parameters, at, "a JSON schema", err);
    snprintf(at, sizeof at, "%s.function.strict", path);
    if (!cJSON_IsTrue(json_field_find(function, "strict"))) return 0;
    return api_error_invalid(err, "unsupported_value", at,
                             "%s is not supported yet: arguments are not held to their schema; leave it out",
                             at);
}

static int check_tools(const cJSON *tools, struct api_error *err)
{
    const cJSON *tool;
    int i = 0, status = 0;
    if (!cJSON_IsArray(tools)) return json_field_refuse_type(tools, "tools", "an array of tools", err);
    cJSON_ArrayForEach(tool, tools)
    {
        char path[32], at[48];
        snprintf(path, sizeof path, "tools[%d]", i++);
        if (!cJSON_IsObject(tool)) return json_field_refuse_type(tool, path, "an object", err);
        snprintf(at, sizeof at, "%s.type", path);
        if (!is_text(json_field_find(tool, "type"), "function"))
            return api_error_invalid(err, "unsupported_value", at,
                                     "%s must be \"function\"; this server has no tools of its own", at);
        status = check_function(json_field_find(tool, "function"), path, err);
        if (status < 0) return status;
    }
    return 0;
}

/* Calls that must come need answers that are held to a grammar. */
static int refuse_forced(struct api_error *err)
{
    return api_error_invalid(
        err, "unsupported_value", "tool_choice",
        "tool_choice must be \"none\" or \"auto\": this server cannot make the model call a "
        "function yet");
}

int tool_params_read(const cJSON *body, struct params *out, struct api_error *err)
{
    const cJSON *tools = json_field_find(body, "tools"), *choice = json_field_find(body, "tool_choice");
    bool has_tools = tools && !(cJSON_IsArray(tools) && !tools->child);
    if (choice && !cJSON_IsString(choice) && !cJSON_IsObject(choice))
        return json_field_refuse_type(choice, "tool_choice", "a string or an object", err);
    bool none = is_text(choice, "none");
    int status = has_tools && !none ? check_tools(tools, err) : 0;
    if (status < 0) return status;
    bool known = !choice || none || is_text(choice, "auto");
    if (!known && !has_tools)
        return api_error_invalid(err, "invalid_value", "tool_choice",
                                 "tool_choice needs tools to choose from");
    if (!known) return refuse_forced(err);
    out->uses_tools = has_tools && !none;
    return 0;
}
