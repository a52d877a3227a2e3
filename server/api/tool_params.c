#include "server/api/tool_params.h"

#include <stdlib.h>
#include <string.h>

#include "server/api/json_field.h"
#include "server/masks.h"
#include "text/json_numbers.h"
#include "text/tools/tool_grammar.h"
#include "text/tools/tool_types.h"

enum {
    TOOLS_MAX = 2048,   /* also of those that are allowed */
    CALL_SPACES_MAX = 2 /* white space between two tokens of arguments */
};

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
    const cJSON *strict = json_field_find(function, "strict");
    if (strict && !cJSON_IsBool(strict)) return json_field_refuse_type(strict, at, "a boolean", err);
    return 0;
}

struct named_tool {
    const char *name;
    int index;
};

static int compare_names(const void *a, const void *b)
{
    const struct named_tool *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

/* Those of tools that have been checked, sorted; the caller frees them. NULL: no memory. */
static struct named_tool *sort_names(const cJSON *tools, int *count)
{
    struct named_tool *names = calloc((size_t)cJSON_GetArraySize(tools), sizeof *names);
    const cJSON *tool;
    *count = 0;
    if (!names) return NULL;
    cJSON_ArrayForEach(tool, tools)
    {
        const char *name = json_field_find(json_field_find(tool, "function"), "name")->valuestring;
        names[*count] = (struct named_tool){name, *count};
        ++*count;
    }
    qsort(names, (size_t)*count, sizeof *names, compare_names);
    return names;
}

/* A call names one of them, and its arguments have that one's form. */
static int check_names_differ(const cJSON *tools, struct api_error *err)
{
    int n, twice = -1;
    struct named_tool *names = sort_names(tools, &n);
    if (!names) return api_error_no_memory(err);
    for (int i = 1; i < n && twice < 0; i++)
        if (!strcmp(names[i].name, names[i - 1].name)) twice = i;
    if (twice > 0) {
        char at[48];
        snprintf(at, sizeof at, "tools[%d].function.name", names[twice].index);
        api_error_invalid(err, "invalid_value", at,
                          "%s is `%s`, which tools[%d] is called, too; names must differ", at,
                          names[twice].name, names[twice - 1].index);
    }
    free(names);
    return twice > 0 ? STATUS_INVALID : 0;
}

/* param: of a list of tools. */
static int check_count(const cJSON *list, const char *param, struct api_error *err)
{
    if (cJSON_GetArraySize(list) <= TOOLS_MAX) return 0;
    return api_error_invalid(err, "invalid_value", param, "%s must have at most %d tools", param,
                             (int)TOOLS_MAX);
}

static int check_tools(const cJSON *tools, struct api_error *err)
{
    const cJSON *tool;
    int i = 0;
    if (!cJSON_IsArray(tools)) return json_field_refuse_type(tools, "tools", "an array of tools", err);
    int status = check_count(tools, "tools", err);
    if (status < 0) return status;
    cJSON_ArrayForEach(tool, tools)
    {
        char path[32], at[48];
        snprintf(path, sizeof path, "tools[%d]", i++);
        if (!cJSON_IsObject(tool)) return json_field_refuse_type(tool, path, "an object", err);
        snprintf(at, sizeof at, "%s.type", path);
        const cJSON *type = json_field_find(tool, "type");
        if (type && !is_text(type, "function"))
            return api_error_invalid(err, "unsupported_value", at,
                                     "%s must be \"function\"; this server has no tools of its own", at);
        status = check_function(json_field_find(tool, "function"), path, err);
        if (status < 0) return status;
    }
    return check_names_differ(tools, err);
}

static bool any_is_strict(const cJSON *tools)
{
    const cJSON *tool;
    cJSON_ArrayForEach(tool, tools)
    {
        if (cJSON_IsTrue(json_field_find(json_field_find(tool, "function"), "strict"))) return true;
    }
    return false;
}

/* The members of {"type": "allowed_tools"}: of its own (Responses), or of an object of that name in it (chat). NULL: the
 * choice is another one. */
static const cJSON *find_allowed(const cJSON *choice)
{
    if (!is_text(json_field_find(choice, "type"), "allowed_tools")) return NULL;
    const cJSON *inner = json_field_find(choice, "allowed_tools");
    return inner ? inner : choice;
}

static int compare_name(const void *name, const void *tool)
{
    return strcmp(name, ((const struct named_tool *)tool)->name);
}

/* Of a tool or a choice of one: in an object of its own, or beside the type. */
static const cJSON *find_name(const cJSON *tool)
{
    const cJSON *function = json_field_find(tool, "function");
    return json_field_find(function ? function : tool, "name");
}

static int check_allowed(const cJSON *tool, const struct named_tool *names, int n, struct api_error *err)
{
    const char *name = cJSON_GetStringValue(find_name(tool));
    if (name && bsearch(name, names, (size_t)n, sizeof *names, compare_name)) return 0;
    return api_error_invalid(err, "invalid_value", "tool_choice",
                             "allowed_tools names `%.64s`, which is none of the tools", name ? name : "");
}

/* The model sees all tools, and calls some: what it may call is a matter of the grammar, behind free text, too. */
static int read_allowed(const cJSON *allowed, const cJSON *tools, struct params *out, struct api_error *err)
{
    const cJSON *mode = json_field_find(allowed, "mode"), *list = json_field_find(allowed, "tools"), *tool;
    out->must_call = is_text(mode, "required");
    out->strict_calls = true;
    if ((!out->must_call && !is_text(mode, "auto")) || !cJSON_IsArray(list) || !list->child)
        return api_error_invalid(err, "invalid_value", "tool_choice",
                                 "allowed_tools needs a mode (\"auto\" or \"required\") and tools");
    int status = check_count(list, "tool_choice", err), n;
    if (status < 0) return status;
    struct named_tool *names = sort_names(tools, &n);
    if (!names) return api_error_no_memory(err);
    cJSON_ArrayForEach(tool, list)
    {
        if (status == 0) status = check_allowed(tool, names, n, err);
    }
    free(names);
    return status;
}

/* none, auto, required or Mistral's any; some say it as an object's type. */
static bool is_word(const cJSON *choice, const char *word)
{
    const cJSON *type = json_field_find(choice, "type");
    return is_text(choice, word) || is_text(type, word);
}

/* tool_choice, of a request with tools. */
static int read_choice(const cJSON *choice, const cJSON *tools, struct arena *arena, struct params *out,
                       struct api_error *err)
{
    const cJSON *allowed = find_allowed(choice);
    if (!choice || is_word(choice, "auto")) return 0;
    if (allowed) return read_allowed(allowed, tools, out, err);
    out->must_call = true;
    if (is_word(choice, "required") || is_word(choice, "any")) return 0;
    const cJSON *name = find_name(choice);
    if (!cJSON_IsObject(choice) || !cJSON_IsString(name))
        return api_error_invalid(
            err, "invalid_value", "tool_choice",
            "tool_choice must be \"none\", \"auto\", \"required\", {\"type\": \"function\", "
            "\"function\": {\"name\": ...}} or {\"type\": \"allowed_tools\", ...}");
    if (!tool_find(tools, name->valuestring, strlen(name->valuestring)))
        return api_error_invalid(err, "invalid_value", "tool_choice",
                                 "tool_choice names `%.64s`, which is none of the tools", name->valuestring);
    out->tool_name = arena_copy(arena, name->valuestring, strlen(name->valuestring));
    return out->tool_name ? 0 : api_error_no_memory(err);
}

int tool_params_read(const cJSON *body, struct arena *arena, struct params *out, struct api_error *err)
{
    const cJSON *tools = json_field_find(body, "tools"), *choice = json_field_find(body, "tool_choice");
    bool has_tools = tools && !(cJSON_IsArray(tools) && !tools->child);
    if (choice && !cJSON_IsString(choice) && !cJSON_IsObject(choice))
        return json_field_refuse_type(choice, "tool_choice", "a string or an object", err);
    bool none = is_word(choice, "none");
    if (none) return 0;
    if (!has_tools && choice && !is_word(choice, "auto"))
        return api_error_invalid(err, "invalid_value", "tool_choice",
                                 "tool_choice needs tools to choose from");
    if (!has_tools) return 0;
    int status = check_tools(tools, err);
    if (status < 0) return status;
    out->uses_tools = true;
    out->strict_calls = any_is_strict(tools);
    return read_choice(choice, tools, arena, out, err);
}

/* ---- what calls must look like ---- */

/* {"ebnf": text, "schemas": schemas}, which are taken. */
static int keep_text(const struct buffer *ebnf, cJSON *schemas, struct arena *arena, struct constraint *out,
                     struct api_error *err)
{
    cJSON *both = cJSON_CreateObject();
    char *text = NULL;
    bool added = cJSON_AddItemToObject(both, "schemas", schemas);
    if (!added) cJSON_Delete(schemas);
    if (added && cJSON_AddStringToObject(both, "ebnf", ebnf->data)) text = json_print_exactly(both);
    if (text) {
        out->num_bytes = strlen(text);
        out->text = arena_copy(arena, text, out->num_bytes);
    }
    cJSON_free(text);
    cJSON_Delete(both);
    return out->text ? 0 : api_error_no_memory(err);
}

/* The form of an answer that calls nothing as a schema, of the caller; STATUS_NO_MEMORY alone. */
static int read_answer_schema(const struct constraint *c, cJSON **out, struct api_error *err)
{
    *out = NULL;
    if (c->kind == CONSTRAINT_NONE) return 0;
    const char *text = c->kind == CONSTRAINT_JSON_SCHEMA ? c->text : "{\"type\":\"object\"}";
    *out = cJSON_Parse(text);
    return *out && !json_keep_numbers(*out, text, strlen(text)) ? 0 : api_error_no_memory(err);
}

static int write_demand(const struct server *server, const struct tool_demand *demand, struct arena *arena,
                        struct params *p, struct api_error *err)
{
    enum { EBNF_BYTES_MAX = 16 << 20 };
    const struct tool_format *f = server->tool_format;
    const char *param = p->must_call ? "tool_choice" : demand->answer ? p->form.param : "tools";
    const char *trigger = demand->behind_trigger ? tool_grammar_trigger(f) : NULL;
    struct constraint spaces = {.max_spaces = CALL_SPACES_MAX};
    if (demand->answer) spaces = p->form.constraint;
    struct error why = {0};
    struct buffer ebnf;
    cJSON *schemas = cJSON_CreateObject();
    if (!schemas) return api_error_no_memory(err);
    buffer_init(&ebnf, EBNF_BYTES_MAX);
    int status = tool_grammar_write(f, demand, &ebnf, schemas, &why);
    if (status == 0 && trigger && strlen(trigger) > TRIGGER_BYTES_MAX)
        status = error_set(&why, STATUS_UNSUPPORTED, "this model's calls begin with too long a text");
    if (status == 0) {
        p->form = (struct answer_form){.param = param,
                                       .trigger = trigger,
                                       .constraint = {.kind = CONSTRAINT_CALLS,
                                                      .max_spaces = spaces.max_spaces,
                                                      .whitespace_pattern = spaces.whitespace_pattern}};
        status = keep_text(&ebnf, schemas, arena, &p->form.constraint, err);
    } else {
        char field[sizeof err->param];
        const char *what = tool_grammar_find_field(demand->tools, why.text, field, sizeof field);
        cJSON_Delete(schemas);
        status = field[0] ? api_error_invalid(err, "unsupported_value", field, "%s: %s", field, what)
                          : api_error_invalid(err, "unsupported_value", param, "%s", what);
    }
    buffer_deinit(&ebnf);
    return status;
}

int tool_params_demand(const struct server *server, const cJSON *body, const bool *is_free,
                       struct arena *arena, struct params *p, struct api_error *err)
{
    bool has_form = p->form.constraint.kind != CONSTRAINT_NONE;
    const cJSON *allowed = find_allowed(json_field_find(body, "tool_choice"));
    cJSON *answer = NULL;
    if (!p->must_call && !p->strict_calls && !has_form) return 0;
    int status = p->must_call ? 0 : read_answer_schema(&p->form.constraint, &answer, err);
    const struct tool_demand demand = {.tools = json_field_find(body, "tools"),
                                       .name = p->tool_name,
                                       .allowed = json_field_find(allowed, "tools"),
                                       .is_parallel = p->parallel_tool_calls && !p->tool_name,
                                       .is_free = is_free,
                                       .behind_trigger = !p->must_call && !has_form,
                                       .answer = answer};
    if (status == 0) status = write_demand(server, &demand, arena, p, err);
    cJSON_Delete(answer);
    return status;
}

int tool_params_find_loose(const cJSON *tools, const struct api_error *refusal)
{
    int place;
    if (sscanf(refusal->param, "tools[%d].function.parameters", &place) < 1) return -1;
    const cJSON *function = json_field_find(cJSON_GetArrayItem(tools, place), "function");
    return function && !cJSON_IsTrue(json_field_find(function, "strict")) ? place : -1;
}
