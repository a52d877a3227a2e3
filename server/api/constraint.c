#include "server/api/constraint.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "server/api/json_field.h"
#include "server/api/json_gate.h"
#include "server/api/nul_text.h"
#include "server/masks.h"
#include "text/json_numbers.h"
#include "text/tools/tool_grammar.h"

/* White space between two tokens of JSON: enough for a line break and its indentation, too little for a small
 * model to lose itself in. */
enum { SPACES_MAX = 20 };

struct reader {
    const struct server *server;
    bool has_nul;
    struct arena *arena;
    struct answer_form *out;
    struct api_error *err;
};

/* ---- texts ---- */

static int keep_text(struct reader *r, const char *param, const char *text, size_t n)
{
    static const char stand_in[] = "\xF4\x8F\xBF\xBF"; /* of U+0000: nul_text.h */
    if (r->has_nul && memmem(text, n, stand_in, sizeof stand_in - 1))
        return api_error_invalid(r->err, "invalid_value", param, "%s must not hold U+0000", param);
    r->out->constraint.text = arena_copy(r->arena, text, n);
    r->out->constraint.num_bytes = n;
    return r->out->constraint.text ? 0 : api_error_no_memory(r->err);
}

static int keep_json(struct reader *r, const char *param, const cJSON *value)
{
    char *text = json_print_exactly(value);
    if (!text) return api_error_no_memory(r->err);
    int status = keep_text(r, param, text, strlen(text));
    cJSON_free(text);
    return status;
}

/* A schema that is written as a text. */
static int keep_schema_text(struct reader *r, const char *param, char *text)
{
    const struct config *config = r->server->config;
    const struct json_gate_limits limits = {.max_depth = (int)config->max_json_depth,
                                            .max_nodes = (int)config->max_json_nodes,
                                            .max_keys = (int)config->max_json_keys};
    size_t n = strlen(text);
    struct error why = {0};
    json_gate_mend(text, n);
    if (nul_text_is_in(text, n))
        return api_error_invalid(r->err, "invalid_value", param, "%s must not hold U+0000", param);
    if (json_gate_check(text, n, &limits, &why))
        return api_error_invalid(r->err, "invalid_value", param, "%s is a text that is not JSON: %s", param,
                                 why.text);
    return keep_text(r, param, text, n);
}

static int read_schema(struct reader *r, const char *param, const cJSON *value)
{
    if (cJSON_IsString(value)) return keep_schema_text(r, param, value->valuestring);
    if (!cJSON_IsObject(value) && !cJSON_IsBool(value))
        return json_field_refuse_type(value, param, "a JSON schema", r->err);
    return keep_json(r, param, value);
}

static int read_choice(struct reader *r, const char *param, const cJSON *value)
{
    const cJSON *item;
    if (!cJSON_IsArray(value)) return json_field_refuse_type(value, param, "an array of strings", r->err);
    if (!value->child)
        return api_error_invalid(r->err, "invalid_value", param, "%s must not be empty", param);
    int i = 0;
    cJSON_ArrayForEach(item, value)
    {
        char path[96];
        snprintf(path, sizeof path, "%s[%d]", param, i++);
        if (!cJSON_IsString(item)) return json_field_refuse_type(item, path, "a string", r->err);
    }
    return keep_json(r, param, value);
}

static int read_pattern(struct reader *r, const char *param, const cJSON *value)
{
    if (!cJSON_IsString(value)) return json_field_refuse_type(value, param, "a string", r->err);
    if (!value->valuestring[0])
        return api_error_invalid(r->err, "invalid_value", param, "%s must not be empty", param);
    return keep_text(r, param, value->valuestring, strlen(value->valuestring));
}

/* ---- members ---- */

static int read_value(struct reader *r, const char *param, enum constraint_kind kind, const cJSON *value)
{
    struct answer_form *form = r->out;
    if (kind == CONSTRAINT_JSON_OBJECT && cJSON_IsFalse(value)) return 0;
    if (form->constraint.kind != CONSTRAINT_NONE)
        return api_error_invalid(r->err, "invalid_value", param,
                                 "%s stands beside %s; an answer can have one form only", param, form->param);
    form->constraint.kind = kind;
    form->param = param;
    switch (kind) {
    case CONSTRAINT_JSON_OBJECT:
        return cJSON_IsTrue(value) ? 0 : json_field_refuse_type(value, param, "a boolean", r->err);
    case CONSTRAINT_JSON_SCHEMA:
    case CONSTRAINT_STRUCTURAL_TAG:
        return read_schema(r, param, value);
    case CONSTRAINT_CHOICE:
        return read_choice(r, param, value);
    default:
        return read_pattern(r, param, value);
    }
}

struct member {
    const char *param, *name; /* name: the end of param */
    enum constraint_kind kind;
};

#define STRUCTURED "structured_outputs."
static const struct member guided[] = {
    {"guided_json", "guided_json", CONSTRAINT_JSON_SCHEMA},
    {"guided_regex", "guided_regex", CONSTRAINT_REGEX},
    {"guided_choice", "guided_choice", CONSTRAINT_CHOICE},
    {"guided_grammar", "guided_grammar", CONSTRAINT_EBNF},
    {"guided_json_object", "guided_json_object", CONSTRAINT_JSON_OBJECT},
    {"json_schema", "json_schema", CONSTRAINT_JSON_SCHEMA}, /* llama.cpp's */
    {"grammar", "grammar", CONSTRAINT_EBNF},
    {"regex", "regex", CONSTRAINT_REGEX}, /* SGLang's */
    {"ebnf", "ebnf", CONSTRAINT_EBNF},
};
static const struct member structured[] = {
    {STRUCTURED "json", "json", CONSTRAINT_JSON_SCHEMA},
    {STRUCTURED "regex", "regex", CONSTRAINT_REGEX},
    {STRUCTURED "choice", "choice", CONSTRAINT_CHOICE},
    {STRUCTURED "grammar", "grammar", CONSTRAINT_EBNF},
    {STRUCTURED "json_object", "json_object", CONSTRAINT_JSON_OBJECT},
    {STRUCTURED "structural_tag", "structural_tag", CONSTRAINT_STRUCTURAL_TAG},
};

static int read_members(struct reader *r, const cJSON *object, const struct member *members, size_t count)
{
    int status = 0;
    for (size_t i = 0; i < count && status == 0; i++) {
        const cJSON *value = json_field_find(object, members[i].name);
        if (value) status = read_value(r, members[i].param, members[i].kind, value);
    }
    return status;
}

static int refuse_unsupported(struct reader *r, const char *param)
{
    return api_error_invalid(r->err, "unsupported_parameter", param,
                             "%s is not supported by this server; leave it out", param);
}

static int read_spaces(struct reader *r, const char *param, const cJSON *pattern)
{
    if (!pattern) return 0;
    if (!cJSON_IsString(pattern))
        return json_field_refuse_type(pattern, param, "a regular expression", r->err);
    if (r->out->constraint.max_spaces == 0)
        return api_error_invalid(r->err, "invalid_value", param, "%s stands beside disable_any_whitespace",
                                 param);
    if (r->out->constraint.whitespace_pattern)
        return api_error_invalid(r->err, "invalid_value", param,
                                 "%s stands beside another whitespace_pattern", param);
    r->out->constraint.whitespace_pattern =
        arena_copy(r->arena, pattern->valuestring, strlen(pattern->valuestring) + 1);
    return r->out->constraint.whitespace_pattern ? 0 : api_error_no_memory(r->err);
}

/* What stands beside a form. */
static int read_options(struct reader *r, const cJSON *body)
{
    const cJSON *object = json_field_find(body, "structured_outputs");
    if (cJSON_IsTrue(json_field_find(object, "disable_any_whitespace"))) r->out->constraint.max_spaces = 0;
    int status =
        read_spaces(r, STRUCTURED "whitespace_pattern", json_field_find(object, "whitespace_pattern"));
    if (status) return status;
    return read_spaces(r, "guided_whitespace_pattern", json_field_find(body, "guided_whitespace_pattern"));
}

/* An object's member that is not known is not a form that was asked for and is left out by mistake. */
static int check_members(struct reader *r, const cJSON *object)
{
    static const char *const options[] = {"disable_any_whitespace", "disable_fallback",
                                          "disable_additional_properties"}; /* so they are: grammars.c */
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        char param[96];
        bool is_known =
            cJSON_IsNull(item) || cJSON_IsFalse(item) || !strcmp(item->string, "whitespace_pattern");
        for (size_t i = 0; i < array_length(structured); i++)
            is_known |= !strcmp(item->string, structured[i].name);
        for (size_t i = 0; i < array_length(options); i++)
            is_known |= cJSON_IsBool(item) && !strcmp(item->string, options[i]);
        snprintf(param, sizeof param, STRUCTURED "%.60s", item->string);
        if (!is_known) return refuse_unsupported(r, param);
    }
    return 0;
}

static int read_structured(struct reader *r, const cJSON *body)
{
    const cJSON *object = json_field_find(body, "structured_outputs");
    if (!object) return 0;
    if (!cJSON_IsObject(object))
        return json_field_refuse_type(object, "structured_outputs", "an object", r->err);
    int status = check_members(r, object);
    return status ? status : read_members(r, object, structured, array_length(structured));
}

static int read_guided(struct reader *r, const cJSON *body)
{
    return read_members(r, body, guided, array_length(guided));
}

/* ---- response_format ---- */

/* A schema that stands beside the type: llama.cpp's, Together's and Fireworks' form. */
static int read_beside_type(struct reader *r, const cJSON *schema)
{
    if (!cJSON_IsObject(schema) && !cJSON_IsBool(schema))
        return json_field_refuse_type(schema, "response_format.schema", "a JSON schema", r->err);
    return read_value(r, "response_format.schema", CONSTRAINT_JSON_SCHEMA, schema);
}

static int read_named_schema(struct reader *r, const cJSON *format)
{
    const cJSON *named = json_field_find(format, "json_schema"), *beside = json_field_find(format, "schema");
    bool strict;
    if (!named && beside) return read_beside_type(r, beside);
    if (!cJSON_IsObject(named))
        return json_field_refuse_type(named, "response_format.json_schema", "an object", r->err);
    const cJSON *name = json_field_find(named, "name"), *schema = json_field_find(named, "schema");
    if (name && !cJSON_IsString(name))
        return json_field_refuse_type(name, "response_format.json_schema.name", "a string", r->err);
    if (json_field_bool(named, "strict", &strict, r->err))
        return json_field_refuse_type(json_field_find(named, "strict"), "response_format.json_schema.strict",
                                      "a boolean", r->err);
    if (!cJSON_IsObject(schema) && !cJSON_IsBool(schema))
        return json_field_refuse_type(schema, "response_format.json_schema.schema", "a JSON schema", r->err);
    return read_value(r, "response_format.json_schema.schema", CONSTRAINT_JSON_SCHEMA, schema);
}

static int read_json(struct reader *r, const cJSON *format)
{
    const cJSON *schema = json_field_find(format, "schema");
    if (schema) return read_beside_type(r, schema);
    return read_value(r, "response_format.type", CONSTRAINT_JSON_OBJECT, &(cJSON){.type = cJSON_True});
}

/* A text of a form of its own, which has to be there. */
static int read_own_form(struct reader *r, const char *param, enum constraint_kind kind, const cJSON *value)
{
    if (value) return read_value(r, param, kind, value);
    return api_error_invalid(r->err, "missing_required_parameter", param, "%s is missing", param);
}

static int read_response_format(struct reader *r, const cJSON *body)
{
    const cJSON *format = json_field_find(body, "response_format");
    if (!format) return 0;
    if (!cJSON_IsObject(format))
        return json_field_refuse_type(format, "response_format", "an object", r->err);
    const cJSON *type = json_field_find(format, "type");
    if (!cJSON_IsString(type))
        return json_field_refuse_type(type, "response_format.type", "a string", r->err);
    if (!strcmp(type->valuestring, "text")) return 0;
    if (!strcmp(type->valuestring, "json_schema")) return read_named_schema(r, format);
    if (!strcmp(type->valuestring, "json_object")) return read_json(r, format);
    if (!strcmp(type->valuestring, "grammar"))
        return read_own_form(r, "response_format.grammar", CONSTRAINT_EBNF,
                             json_field_find(format, "grammar"));
    if (!strcmp(type->valuestring, "regex"))
        return read_own_form(r, "response_format.pattern", CONSTRAINT_REGEX,
                             json_field_find(format, "pattern"));
    if (!strcmp(type->valuestring, "structural_tag"))
        return read_value(r, "response_format", CONSTRAINT_STRUCTURAL_TAG, format);
    return api_error_invalid(
        r->err, "unsupported_value", "response_format.type",
        "response_format.type must be \"text\", \"json_object\", \"json_schema\", \"grammar\", "
        "\"regex\" or \"structural_tag\"; got \"%.40s\"",
        type->valuestring);
}

bool constraint_is_named(const char *body, size_t num_bytes)
{
    static const char *const names[] = {
        "format\"", "structured_outputs\"", "guided_", "grammar\"", "json_schema\"", "regex\"", "ebnf\""};
    for (size_t i = 0; i < array_length(names); i++)
        if (memmem(body, num_bytes, names[i], strlen(names[i]))) return true;
    return false;
}

bool constraint_may_be_in(const char *body, size_t num_bytes)
{
    /* A name may be written with escapes; those are all alike. */
    return constraint_is_named(body, num_bytes) || memmem(body, num_bytes, "\\u", 2);
}

int constraint_read(const struct server *server, const cJSON *body, bool has_nul, struct arena *arena,
                    struct answer_form *out, struct api_error *err)
{
    struct reader r = {.server = server, .has_nul = has_nul, .arena = arena, .out = out, .err = err};
    *out = (struct answer_form){.constraint.max_spaces = SPACES_MAX};
    int status = read_options(&r, body);
    if (status == 0) status = read_response_format(&r, body);
    if (status == 0) status = read_structured(&r, body);
    if (status == 0) status = read_guided(&r, body);
    return status;
}

/* ---- the grammar ---- */

/* The prompt may have opened a block of reasoning, which has its own form. */
static int wait_for_reasoning(const struct server *server, struct answer_form *form, struct error *why)
{
    const char *close = tool_format_reasoning_end(server->tool_format);
    if (strlen(close) > TRIGGER_BYTES_MAX)
        return error_set(why, STATUS_UNSUPPORTED, "this model's reasoning ends with too long a text");
    form->trigger = close;
    form->must_begin = true;
    return 0;
}

static int refuse_grammar(const struct answer_form *form, const cJSON *tools, const struct error *why,
                          struct api_error *err)
{
    char field[sizeof err->param];
    if (why->status == STATUS_NO_MEMORY) return api_error_no_memory(err);
    if (why->status == STATUS_NO_SLOT) {
        api_error_set(err, 503, "service_unavailable_error", NULL, form->param, "%s", why->text);
        err->retry_after_seconds = 1;
        return STATUS_INVALID;
    }
    const char *code = why->status == STATUS_UNSUPPORTED ? "unsupported_value" : "invalid_value";
    const char *what = why->text, *param = form->param;
    if (form->constraint.kind == CONSTRAINT_CALLS) {
        what = tool_grammar_find_field(tools, why->text, field, sizeof field);
        if (field[0]) param = field;
    }
    return api_error_invalid(err, code, param, "%s: %s", param, what);
}

int constraint_compile(const struct server *server, const cJSON *tools, bool opens_reasoning,
                       struct answer_form *form, struct api_error *err)
{
    struct error why = {0};
    int status = 0;
    if (form->constraint.kind == CONSTRAINT_NONE) return 0;
    if (!form->trigger && opens_reasoning) status = wait_for_reasoning(server, form, &why);
    if (status == 0) status = grammars_get(server->grammars, &form->constraint, &form->grammar, &why);
    return status ? refuse_grammar(form, tools, &why, err) : 0;
}
