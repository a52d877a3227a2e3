#include "text/tools/tool_grammar.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/grammar/regex_tree.h"
#include "text/grammar/schema.h"
#include "text/tools/format.h"
#include "text/tools/literal_json.h"
#include "text/tools/match.h"
#include "text/tools/slice.h"
#include "text/tools/tool_types.h"
#include "text/tools/tool_variants.h"

enum { EBNF_BYTES_MAX = 16 << 20, DEFINITIONS_BYTES_MAX = 64 << 20, LENGTH_STATES_MAX = 4000 };

/* Sorted. */
struct names {
    const char **texts;
    size_t num;
};

struct writer {
    const struct tool_format *format;
    struct buffer *out;
    cJSON *schemas;
    int num_schemas;
    struct error *err;
    int status;
    bool only_strict;         /* arguments of other functions are free */
    const bool *is_free;      /* tool_demand's */
    int tool, parameter;      /* whose schemas these are; -1: of the answer, of all arguments */
    bool names_parameter;     /* it is the one of that number in the function's own schema */
    size_t definitions_bytes; /* of all copies */
    struct names allowed;     /* of functions, where only some are */
};

/* ---- texts ---- */

static void write_bytes(struct writer *w, const char *text, size_t n)
{
    buffer_append_char(w->out, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            buffer_printf(w->out, "\\%c", c);
        else if (c < 0x20)
            buffer_printf(w->out, "\\x%02x", c);
        else
            buffer_append_char(w->out, (char)c);
    }
    buffer_append_text(w->out, "\" ");
}

/* A text of the format, its slots filled by the model. */
static void write_text(struct writer *w, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, "\x01\x02\x03");
        if (n > 0) write_bytes(w, text, n);
        text += n;
        if (*text == SLOT_ID) buffer_append_text(w->out, "[a-zA-Z0-9]{9} ");
        if (*text == SLOT_INDEX) buffer_append_text(w->out, "[0-9]{1,4} ");
        if (*text == SLOT_TYPE)
            buffer_append_text(w->out, "( \"number\" | \"boolean\" | \"null\" | \"object\" | \"array\" ) ");
        text += *text != '\0';
    }
}

static void write_not_mark(struct writer *w, struct slice mark)
{
    buffer_append_text(w->out, "/^(?![\\s\\S]*");
    for (size_t i = 0; i < mark.n; i++) {
        if (strchr("/\\^$.*+?()[]{}|", mark.bytes[i])) buffer_append_char(w->out, '\\');
        buffer_append_char(w->out, mark.bytes[i]);
    }
    buffer_append_char(w->out, ')');
}

/* Any text that does not hold the mark. */
static void write_until(struct writer *w, struct slice mark)
{
    write_not_mark(w, mark);
    buffer_append_text(w->out, "[\\s\\S]*$/ ");
}

/* A pattern within the slashes. */
static void write_pattern(struct writer *w, const char *before, const char *pattern, const char *behind)
{
    buffer_append_text(w->out, before);
    for (const char *c = pattern; *c; c++) {
        if (*c == '/') buffer_append_char(w->out, '\\');
        buffer_append_char(w->out, *c);
        if (*c == '\\' && c[1]) buffer_append_char(w->out, *++c);
    }
    buffer_append_text(w->out, behind);
}

/* ---- parts ---- */

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static void fail(struct writer *w, int status, const char *what)
{
    if (w->status == 0) w->status = error_set(w->err, status, "%s", what);
}

/* ---- names ---- */

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Those of a list of texts, or of functions; the caller frees texts. */
static struct names collect_names(struct writer *w, const cJSON *list)
{
    struct names n = {.texts = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *n.texts)};
    const cJSON *item;
    if (!n.texts) {
        fail(w, STATUS_NO_MEMORY, "no memory for names");
        return n;
    }
    cJSON_ArrayForEach(item, list)
    {
        const cJSON *name = cJSON_IsObject(item) ? get(tool_function(item), "name") : item;
        if (cJSON_IsString(name)) n.texts[n.num++] = name->valuestring;
    }
    qsort(n.texts, n.num, sizeof *n.texts, compare_texts);
    return n;
}

static bool has_name(const struct names *n, const char *name)
{
    return n->num > 0 && bsearch(&name, n->texts, n->num, sizeof *n->texts, compare_texts);
}

/* ---- schemas ---- */

/* Adds a schema under a name of its own, which says whose it is (tool_grammar_find_field), and writes the name. */
static void write_schema(struct writer *w, cJSON *schema)
{
    char name[64], *end = name + snprintf(name, sizeof name, "schema-%d", w->num_schemas++);
    if (w->tool >= 0) end += snprintf(end, 24, "-tool-%d", w->tool);
    if (w->tool >= 0 && w->parameter >= 0) snprintf(end, 16, "-%d", w->parameter);
    if (!schema || !cJSON_AddItemToObject(w->schemas, name, schema)) {
        cJSON_Delete(schema);
        fail(w, STATUS_NO_MEMORY, "no memory for a schema");
    }
    buffer_printf(w->out, "%s ", name);
}

static bool is_free(const struct writer *w, const cJSON *function)
{
    bool may_be = w->only_strict || (w->is_free && w->is_free[w->tool]);
    return may_be && !cJSON_IsTrue(get(function, "strict"));
}

/* The arguments as one object. */
static void write_object(struct writer *w, const cJSON *function)
{
    const cJSON *parameters = is_free(w, function) ? NULL : get(function, "parameters");
    bool has_own = parameters && !cJSON_IsNull(parameters);
    cJSON *schema = has_own ? cJSON_Duplicate(parameters, true) : cJSON_CreateObject();
    if (cJSON_IsNull(get(schema, "type"))) cJSON_DeleteItemFromObjectCaseSensitive(schema, "type");
    if (schema && !get(schema, "type") && !cJSON_AddStringToObject(schema, "type", "object")) {
        cJSON_Delete(schema);
        schema = NULL;
    }
    write_schema(w, schema);
}

/* What it holds in memory, about. */
static size_t json_bytes(const cJSON *value)
{
    size_t n = sizeof *value;
    if (value->string) n += strlen(value->string);
    if (value->valuestring) n += strlen(value->valuestring);
    for (const cJSON *child = value->child; child; child = child->next) n += json_bytes(child);
    return n;
}

static bool refers(const cJSON *schema)
{
    if (get(schema, "$ref") || get(schema, "$dynamicRef")) return true;
    for (const cJSON *child = schema->child; child; child = child->next)
        if (refers(child)) return true;
    return false;
}

#define TOO_LARGE                                                                                            \
    "the tools have too many parameters beside so large definitions ($defs); make them fewer or smaller"

/* A parameter's schema is a document by itself, with what it may refer to. */
static void add_definitions(struct writer *w, cJSON *schema, const cJSON *definitions)
{
    if (!definitions || !cJSON_IsObject(schema) || get(schema, definitions->string) || w->status) return;
    w->definitions_bytes += json_bytes(definitions);
    if (w->definitions_bytes > DEFINITIONS_BYTES_MAX)
        fail(w, STATUS_LIMIT, TOO_LARGE);
    else
        cJSON_AddItemToObject(schema, definitions->string, cJSON_Duplicate(definitions, true));
}

#define PROPERTIES "#/properties/"
#define MOVED_PROPERTIES ".properties" /* under $defs */

/* Whether some reference leads to the document's properties; moves: it then leads to where they are moved. */
static bool refers_to_properties(cJSON *schema, bool moves)
{
    cJSON *reference = cJSON_GetObjectItemCaseSensitive(schema, "$ref");
    bool found =
        cJSON_IsString(reference) && !strncmp(reference->valuestring, PROPERTIES, strlen(PROPERTIES));
    if (found && moves) {
        char *text = cJSON_malloc(strlen(reference->valuestring) + sizeof "#/$defs/" MOVED_PROPERTIES);
        if (text)
            sprintf(text, "#/$defs/" MOVED_PROPERTIES "/%s", reference->valuestring + strlen(PROPERTIES));
        found = text && cJSON_SetValuestring(reference, text);
        cJSON_free(text);
    }
    for (cJSON *child = schema->child; child; child = child->next)
        found |= refers_to_properties(child, moves);
    return found;
}

/* Its other properties, which would say something of the value if they stood where they did. */
static void add_properties(struct writer *w, cJSON *schema, const cJSON *properties)
{
    if (!properties || w->status || !refers_to_properties(schema, false)) return;
    cJSON *definitions = cJSON_GetObjectItemCaseSensitive(schema, "$defs");
    if (!definitions) definitions = cJSON_AddObjectToObject(schema, "$defs");
    w->definitions_bytes += json_bytes(properties);
    if (w->definitions_bytes > DEFINITIONS_BYTES_MAX)
        fail(w, STATUS_LIMIT, TOO_LARGE);
    else if (!cJSON_AddItemToObject(definitions, MOVED_PROPERTIES, cJSON_Duplicate(properties, true)))
        fail(w, STATUS_NO_MEMORY, "no memory for a schema");
    refers_to_properties(schema, true);
}

/* Takes the schema. */
static void write_own_schema(struct writer *w, cJSON *schema, const cJSON *function)
{
    const cJSON *parameters = get(function, "parameters");
    if (schema && refers(schema)) {
        add_definitions(w, schema, get(parameters, "$defs"));
        add_definitions(w, schema, get(parameters, "definitions"));
        add_properties(w, schema, get(parameters, "properties"));
    }
    write_schema(w, schema);
}

static void write_value_schema(struct writer *w, const cJSON *property, const cJSON *function)
{
    write_own_schema(w, cJSON_Duplicate(property, true), function);
}

static bool add_type(cJSON *list, const char *name)
{
    cJSON *type = cJSON_CreateString(name);
    if (type && cJSON_AddItemToArray(list, type)) return true;
    cJSON_Delete(type);
    return false;
}

/* Those values of a property that are of these types. */
static void write_values_of(struct writer *w, const cJSON *property, const cJSON *function, unsigned types)
{
    static const struct {
        unsigned type;
        const char *name;
    } names[] = {{LITERAL_NUMBER, "number"}, {LITERAL_INTEGER, "integer"}, {LITERAL_BOOLEAN, "boolean"},
                 {LITERAL_NULL, "null"},     {LITERAL_ARRAY, "array"},     {LITERAL_OBJECT, "object"}};
    cJSON *schema = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(schema, "type"),
          *all = cJSON_AddArrayToObject(schema, "allOf"), *copy = cJSON_Duplicate(property, true);
    bool made = list && all && copy && cJSON_AddItemToArray(all, copy);
    for (size_t i = 0; i < array_length(names); i++)
        if (types & names[i].type) made = made && add_type(list, names[i].name);
    if (made) {
        write_own_schema(w, schema, function);
        return;
    }
    if (!all || !all->child) cJSON_Delete(copy);
    cJSON_Delete(schema);
    fail(w, STATUS_NO_MEMORY, "no memory for a schema");
}

/* ---- parameters ---- */

/* Whether a value says that it is a string, by a name or its quotes. */
static bool tells_strings(const struct tool_format *f)
{
    return *f->quote || strcmp(f->key_end[FOR_STRING], f->key_end[FOR_OTHER]) != 0;
}

/* A length that a schema asks for; -1: none, or more than is held. */
static double length_of(const cJSON *schema, const char *key, size_t most)
{
    const cJSON *n = get(schema, key);
    bool is_held = cJSON_IsNumber(n) && n->valuedouble >= 0 && n->valuedouble <= (double)most;
    return is_held ? floor(n->valuedouble) : -1;
}

/* A pattern that is refused is told of as it is written and by its parameter, not as a part of what is made of it. */
static void check_pattern(struct writer *w, const char *pattern)
{
    struct regex_tree tree;
    struct error why = {0};
    int status = regex_parse(pattern, strlen(pattern), &tree, &why);
    regex_tree_deinit(&tree);
    if (status && w->status == 0)
        w->status = error_set(w->err, status, "schema-0-tool-%d-%d: \"pattern\": %s", w->tool, w->parameter,
                              why.text);
}

/* Any text without the mark that the schema's pattern, format and lengths allow. An automaton has a state for each length and
 * each byte of the mark: longer ones are not held. */
static void write_text_of(struct writer *w, const cJSON *schema, struct slice mark)
{
    const char *pattern = cJSON_GetStringValue(get(schema, "pattern")),
               *format = cJSON_GetStringValue(get(schema, "format"));
    if (format) format = schema_format_pattern(format);
    size_t longest =
        (pattern || format ? LENGTH_STATES_MAX / 8 : LENGTH_STATES_MAX) / max_of(mark.n, (size_t)1);
    double least = length_of(schema, "minLength", longest), most = length_of(schema, "maxLength", longest);
    write_not_mark(w, mark);
    if (pattern) check_pattern(w, pattern);
    if (pattern) write_pattern(w, "(?=[\\s\\S]*(?:", pattern, "))");
    if (format) write_pattern(w, "(?=(?:", format, ")$)");
    if (most >= 0)
        buffer_printf(w->out, "(?=[\\s\\S]{%.0f,%.0f}$)", max_of(least, 0.0), most);
    else if (least > 0)
        buffer_printf(w->out, "(?=[\\s\\S]{%.0f,}$)", least);
    buffer_append_text(w->out, "[\\s\\S]*$/ ");
}

static bool has_text(const cJSON *items)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, items) if (cJSON_IsString(item)) return true;
    return false;
}

/* The strings of an enum or const, or any text without the mark that the schema allows. Where other values may stand, too, and are
 * not told from strings, they look like text: any is let in, or null beside what a schema allows. */
static void write_raw(struct writer *w, const cJSON *schema, const cJSON *function, struct slice mark)
{
    const cJSON *value = get(schema, "const"), *items = get(schema, "enum"), *item;
    if (cJSON_IsString(value)) {
        write_bytes(w, value->valuestring, strlen(value->valuestring));
        return;
    }
    if (!items || !items->child) {
        unsigned types = tool_schema_types(function, schema);
        bool is_told = tells_strings(w->format),
             or_null = types == (LITERAL_STRING | LITERAL_NULL) && !is_told;
        if (or_null) buffer_append_text(w->out, "( \"null\" | ");
        if (types == LITERAL_STRING || or_null || (is_told && (types & LITERAL_STRING)))
            write_text_of(w, schema, mark);
        else
            write_until(w, mark);
        if (or_null) buffer_append_text(w->out, ") ");
        return;
    }
    bool only_text = tells_strings(w->format) && has_text(items);
    const char *between = "( ";
    cJSON_ArrayForEach(item, items)
    {
        if (!cJSON_IsString(item) && only_text) continue;
        buffer_append_text(w->out, between);
        between = "| ";
        char *text = cJSON_IsString(item) ? item->valuestring : cJSON_PrintUnformatted(item);
        if (text) write_bytes(w, text, strlen(text));
        if (!cJSON_IsString(item)) cJSON_free(text);
    }
    buffer_append_text(w->out, ") ");
}

/* One of the alternatives: a string's as it is, others as literals where strings and others look alike. */
static void write_alternatives(struct writer *w, const cJSON *list, const cJSON *function, struct slice mark)
{
    const char *between = "( ";
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        unsigned types = tool_schema_types(function, item);
        bool is_text = types == 0 || (types & LITERAL_STRING);
        if (!is_text && tells_strings(w->format)) continue;
        buffer_append_text(w->out, between);
        between = "| ";
        if (is_text)
            write_raw(w, tool_schema_follow(function, item), function, mark);
        else
            write_value_schema(w, item, function);
    }
    if (*between == '(')
        write_until(w, mark);
    else
        buffer_append_text(w->out, ") ");
}

/* A parameter that may be a string. */
static void write_string(struct writer *w, const cJSON *property, const cJSON *function, struct slice mark)
{
    const cJSON *schema = tool_schema_follow(function, property), *list = get(schema, "anyOf");
    bool says_itself = get(schema, "type") || get(schema, "enum") || get(schema, "const");
    if (!list) list = get(schema, "oneOf");
    if (list && list->child && !says_itself)
        write_alternatives(w, list, function, mark);
    else
        write_raw(w, schema, function, mark);
}

static void write_value_end(struct writer *w)
{
    struct slice all = slice_text(w->format->value_end), core = slice_strip(all);
    if (core.n == 0) return;
    write_bytes(w, all.bytes, (size_t)(core.bytes - all.bytes) + core.n);
    buffer_append_text(w->out, "gap ");
}

/* KEY key_end VALUE value_end, the value one of these types; 0: of any */
static void write_pair(struct writer *w, const cJSON *function, const cJSON *property, unsigned types)
{
    const struct tool_format *f = w->format;
    const cJSON any = {.type = cJSON_Object}, *schema = is_free(w, function) ? &any : property;
    bool is_text = types == 0 || (types & LITERAL_STRING);
    write_text(w, f->key_begin);
    write_bytes(w, property->string, strlen(property->string));
    write_text(w, f->key_end[is_text ? FOR_STRING : FOR_OTHER]);
    if (f->values == VALUES_RAW && is_text) {
        write_string(w, schema, function, slice_strip(slice_text(f->value_end)));
    } else if (*f->quote && is_text) {
        write_text(w, f->quote);
        write_string(w, schema, function, slice_text(f->quote));
        write_text(w, f->quote);
    } else if (types == tool_schema_types(function, property) || is_free(w, function)) {
        write_value_schema(w, schema, function);
    } else {
        write_values_of(w, schema, function, types);
    }
    write_value_end(w);
}

/* What may be a string or something else is either, where they are told from each other. */
static void write_parameter(struct writer *w, const cJSON *function, const cJSON *property, unsigned types)
{
    unsigned others = types & ~(unsigned)LITERAL_STRING;
    if (others == 0 || others == types || !tells_strings(w->format)) {
        write_pair(w, function, property, types);
        return;
    }
    buffer_append_text(w->out, "( ");
    write_pair(w, function, property, LITERAL_STRING);
    buffer_append_text(w->out, "| ");
    write_pair(w, function, property, others);
    buffer_append_text(w->out, ") ");
}

/* Two rules for each parameter: what may come from it on when none has come, and when some has. id: in the names of all. */
static void write_parameters(struct writer *w, const cJSON *function, const char *id)
{
    const cJSON *parameters = tool_parameters(function), *properties = get(parameters, "properties"),
                *property;
    struct names required = collect_names(w, get(parameters, "required"));
    int i = 0;
    cJSON_ArrayForEach(property, properties)
    {
        unsigned types = tool_schema_types(function, property);
        for (int some = 0; some < 2; some++) {
            buffer_printf(w->out, "%s-%s-%d ::= ", some ? "more" : "none", id, i);
            if (some) write_text(w, w->format->parameter_separator);
            if (some && *w->format->parameter_separator) buffer_append_text(w->out, "gap ");
            buffer_printf(w->out, "value-%s-%d more-%s-%d ", id, i, id, i + 1);
            if (!has_name(&required, property->string))
                buffer_printf(w->out, "| %s-%s-%d ", some ? "more" : "none", id, i + 1);
            buffer_append_char(w->out, '\n');
        }
        if (w->names_parameter) w->parameter = i;
        buffer_printf(w->out, "value-%s-%d ::= ", id, i++);
        write_parameter(w, function, property, types);
        buffer_append_char(w->out, '\n');
    }
    free(required.texts);
    buffer_printf(w->out, "none-%s-%d ::= \"\"\nmore-%s-%d ::= \"\"\n", id, i, id, i);
}

/* ---- alternatives of all parameters ---- */

/* How many of them a call has whose arguments are literals; 0: its schema says all of its parameters itself. */
static int num_variants(const struct writer *w, const cJSON *function)
{
    const cJSON *list = tool_variants_alternatives(function);
    if (w->format->values != VALUES_LITERAL) return 0;
    return list ? cJSON_GetArraySize(list) : get(tool_parameters(function), "allOf") != NULL;
}

static void write_variant(struct writer *w, const cJSON *function, const cJSON *alternative, const char *id)
{
    cJSON *variant = w->status ? NULL : tool_variants_make(function, alternative);
    if (!variant) {
        fail(w, STATUS_NO_MEMORY, "no memory for the schemas of parameters");
        return;
    }
    w->definitions_bytes += json_bytes(variant);
    if (w->definitions_bytes > DEFINITIONS_BYTES_MAX)
        fail(w, STATUS_LIMIT, TOO_LARGE);
    else
        write_parameters(w, variant, id);
    cJSON_Delete(variant);
}

static void write_all_parameters(struct writer *w, const cJSON *function, int tool)
{
    const cJSON *list = tool_variants_alternatives(function), *alternative = list ? list->child : NULL;
    int count = num_variants(w, function);
    char id[32];
    w->names_parameter = count == 0;
    snprintf(id, sizeof id, "%d", tool);
    if (count == 0) write_parameters(w, function, id);
    for (int i = 0; i < count; i++) {
        snprintf(id, sizeof id, "%d-%d", tool, i);
        write_variant(w, function, alternative, id);
        if (alternative) alternative = alternative->next;
    }
}

/* Where the parameters of a call begin. */
static void write_first_parameter(struct writer *w, const cJSON *function, int tool)
{
    int count = num_variants(w, function);
    if (count == 0) buffer_printf(w->out, "none-%d-0 ", tool);
    for (int i = 0; i < count; i++) buffer_printf(w->out, "%s none-%d-%d-0 ", i ? "|" : "(", tool, i);
    if (count > 0) buffer_append_text(w->out, ") ");
}

/* ---- calls ---- */

/* Whether a schema says something of the parameters together. */
static bool says_of_all(const cJSON *parameters)
{
    static const char *const keywords[] = {
        "anyOf",         "oneOf",         "allOf",       "not", "if", "dependentRequired", "dependentSchemas",
        "minProperties", "maxProperties", "dependencies"};
    for (size_t i = 0; i < array_length(keywords); i++)
        if (get(parameters, keywords[i])) return true;
    return false;
}

/* Whether arguments that have tags are written as one object, which the parser reads as well: where the schema says something of
 * all of them, or lists none and lets others in. */
static bool wants_object(const struct writer *w, const cJSON *function)
{
    const cJSON *parameters = tool_parameters(function), *others = get(parameters, "additionalProperties");
    bool lists_none = cJSON_GetArraySize(get(parameters, "properties")) == 0;
    bool has_others = cJSON_IsTrue(others) || cJSON_IsObject(others) || get(parameters, "patternProperties");
    if (w->format->notation != ARGUMENTS_TAGGED) return true;
    if (w->format->values != VALUES_RAW) return false;
    if (lists_none) return has_others || says_of_all(parameters);
    return !is_free(w, function) && says_of_all(parameters);
}

static void write_call(struct writer *w, const cJSON *function, int tool, const char *begin, const char *rule)
{
    const struct tool_format *f = w->format;
    const char *name = cJSON_GetStringValue(get(function, "name"));
    buffer_printf(w->out, "%s-%d ::= ", rule, tool);
    write_text(w, begin);
    write_bytes(w, name, strlen(name));
    write_text(w, f->name_end);
    if (f->notation == ARGUMENTS_TAGGED) buffer_append_text(w->out, "gap ");
    if (wants_object(w, function))
        write_object(w, function);
    else
        write_first_parameter(w, function, tool);
    if (f->notation == ARGUMENTS_JSON && !*f->call_end) {
        buffer_append_char(w->out, '\n');
        return;
    }
    buffer_append_text(w->out, *f->call_end == '}' || *f->call_end == ')' ? "" : "gap ");
    write_text(w, f->call_end);
    buffer_append_char(w->out, '\n');
}

static bool is_allowed(const struct writer *w, const struct tool_demand *d, const char *name)
{
    return (!d->allowed || has_name(&w->allowed, name)) && (!d->name || !strcmp(d->name, name));
}

/* The rules of every call that may be made, and in *names what they are called. */
static int write_calls(struct writer *w, const struct tool_demand *d, const char *begin, const char *rule,
                       bool with_parameters)
{
    const cJSON *tool;
    int i = 0, count = 0;
    struct buffer names;
    buffer_init(&names, EBNF_BYTES_MAX);
    cJSON_ArrayForEach(tool, d->tools)
    {
        const cJSON *function = tool_function(tool);
        const char *name = cJSON_GetStringValue(get(function, "name"));
        w->tool = i++;
        w->parameter = -1;
        if (!name || !is_allowed(w, d, name)) continue;
        write_call(w, function, i, begin, rule);
        if (with_parameters && !wants_object(w, function)) write_all_parameters(w, function, i);
        buffer_printf(&names, "%s%s-%d ", count++ ? "| " : "", rule, i);
    }
    buffer_printf(w->out, "%s ::= %s\n", rule, names.data ? names.data : "");
    buffer_deinit(&names);
    return count;
}

static const char *begin_of(const struct tool_format *f)
{
    return *f->section_begin ? f->section_begin : f->call_begin;
}

static bool has_trigger(const struct tool_format *f)
{
    return !f->is_bare || strlen(begin_of(f)) > 1;
}

const char *tool_grammar_trigger(const struct tool_format *f)
{
    return has_trigger(f) ? begin_of(f) : NULL;
}

/* Any text that does not begin as calls do. */
static void write_other_text(struct writer *w)
{
    buffer_printf(w->out, "\"\" | /^\\s*[^\\%.1s\\s][\\s\\S]*$/ | ", begin_of(w->format));
}

static void write_answer(struct writer *w, const cJSON *schema)
{
    if (!schema) return;
    write_schema(w, cJSON_Duplicate(schema, true));
    buffer_append_text(w->out, "| ");
}

int tool_grammar_write(const struct tool_format *f, const struct tool_demand *d, struct buffer *ebnf,
                       cJSON *schemas, struct error *err)
{
    bool must_call = !d->answer && !d->behind_trigger;
    struct writer w = {.format = f,
                       .out = ebnf,
                       .schemas = schemas,
                       .err = err,
                       .only_strict = !must_call,
                       .is_free = d->is_free,
                       .tool = -1};
    bool is_parallel = d->is_parallel && f->is_parallel;
    bool behind_trigger = d->behind_trigger && has_trigger(f);
    bool begins_with_call = !*f->section_begin && behind_trigger;
    w.allowed = collect_names(&w, d->allowed);
    buffer_append_text(ebnf, "root ::= ");
    write_answer(&w, d->answer);
    if (d->behind_trigger && !behind_trigger) write_other_text(&w);
    if (!behind_trigger) write_text(&w, f->section_begin);
    buffer_append_text(ebnf, begins_with_call ? "first " : "gap call ");
    if (is_parallel) {
        buffer_append_text(ebnf, "( gap ");
        write_text(&w, f->call_separator);
        buffer_append_text(ebnf, "gap call )* ");
    }
    buffer_append_text(ebnf, "gap ");
    write_text(&w, f->section_end);
    buffer_append_text(ebnf, "\ngap ::= [ \\n]{0,2}\n");
    int count = write_calls(&w, d, f->call_begin, "call", true);
    if (begins_with_call) write_calls(&w, d, "", "first", false);
    free(w.allowed.texts);
    if (count == 0) fail(&w, STATUS_INVALID, "there is no function of this name to call");
    if (buffer_failed(ebnf)) fail(&w, STATUS_NO_MEMORY, "no memory for the grammar of calls");
    return w.status;
}

const char *tool_grammar_find_field(const cJSON *tools, const char *refusal, char *path, size_t capacity)
{
    int number, tool = -1, parameter = -1;
    const char *rest = strstr(refusal, ": ");
    *path = '\0';
    if (!rest || sscanf(refusal, "schema-%d-tool-%d-%d", &number, &tool, &parameter) < 1) return refusal;
    if (tool < 0) return rest + 2;
    const cJSON *item = cJSON_GetArrayItem(tools, tool), *function = item ? tool_function(item) : NULL;
    const cJSON *property =
        parameter >= 0 ? cJSON_GetArrayItem(get(tool_parameters(function), "properties"), parameter) : NULL;
    int n = snprintf(path, capacity, "tools[%d].function.parameters", tool);
    if (property && (size_t)n < capacity)
        snprintf(path + n, capacity - (size_t)n, ".properties.%s", property->string);
    return rest + 2;
}

int tool_grammar_make(const struct tool_format *f, const struct tool_demand *demand,
                      const struct grammar_options *options, struct grammar **out, struct error *err)
{
    struct buffer text;
    cJSON *schemas = cJSON_CreateObject();
    buffer_init(&text, EBNF_BYTES_MAX);
    *out = NULL;
    int status = schemas ? tool_grammar_write(f, demand, &text, schemas, err)
                         : error_set(err, STATUS_NO_MEMORY, "no memory for the grammar of calls");
    if (status == 0)
        status = grammar_from_ebnf_with_schemas(text.data, text.num_bytes, schemas, options, out, err);
    cJSON_Delete(schemas);
    buffer_deinit(&text);
    return status;
}
