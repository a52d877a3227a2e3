/* json_mutator.h - mutations that leave JSON: values, members and lists of the tree change, and subtrees of other inputs
 * come in, where libFuzzer's own would hardly ever get past the JSON gate.
 *
 * The target says where the JSON of an input stands (json_place), which is all of it or a part; what stands around it
 * is left to libFuzzer's mutations, which have one in JSON_BYTES_ONE_IN. Included by one file of a target. */
#ifndef TESTS_FUZZ_JSON_MUTATOR_H
#define TESTS_FUZZ_JSON_MUTATOR_H

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "server/api/codec.h"
#include "server/api/field_table.h"
#include "server/api/json_gate.h"
#include "server/api/nul_text.h"

#ifndef JSON_BYTES_ONE_IN
#define JSON_BYTES_ONE_IN 10
#endif

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_bytes, const uint8_t *b, size_t b_bytes,
                                 uint8_t *out, size_t max_size, unsigned seed);

/* [*begin, *end) of data is JSON, or should be. False: there is no place for it. */
static bool json_place(const uint8_t *data, size_t size, size_t *begin, size_t *end);

enum { JSON_CHANGES_MAX = 4, JSON_NAMES_MAX = 512, JSON_LONG_TEXT = 2000 };

/* What a value becomes: what is empty, at an edge, of another type, or of a shape that some field has. */
static const char *const json_values[] = {
    "[]",
    "{}",
    "null",
    "\"\"",
    "\" \"",
    "0",
    "-1",
    "1",
    "true",
    "false",
    "0.5",
    "1e400",
    "-1e308",
    "9007199254740993",
    "2147483648",
    "-9223372036854775808",
    "18446744073709551616",
    "\"\\ud800\"",
    "\"a\\u0000b\"",
    "\"\\u0000\"",
    "\"\xF4\x8F\xBF\xBF\"",
    "[[]]",
    "[{}]",
    "[null]",
    "[\"\"]",
    "{\"\":{}}",
    "[1,\"a\",null]",
    "\"1\"",
    "\"null\"",
    "\"<|im_start|>\"",
    "\"user\"",
    "\"assistant\"",
    "\"system\"",
    "\"developer\"",
    "\"tool\"",
    "\"function\"",
    "{\"role\":\"user\",\"content\":\"a\"}",
    "{\"role\":\"assistant\",\"content\":null}",
    "{\"role\":\"assistant\"}",
    "{\"role\":\"user\",\"content\":[]}",
    "{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"\"}]}",
    "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":[{\"type\":\"text\",\"text\":\"1\"}]}",
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\","
    "\"function\":"
    "{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]}",
    "{\"role\":\"assistant\",\"reasoning_content\":\"h\",\"content\":\"x\"}",
    "{\"type\":\"text\",\"text\":\"a\"}",
    "{\"type\":\"text\"}",
    "{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}",
    "{\"type\":\"input_text\",\"text\":\"a\"}",
    "{\"type\":\"output_text\",\"text\":\"a\"}",
    "{\"type\":\"refusal\",\"refusal\":\"n\"}",
    "{\"type\":\"thinking\",\"thinking\":\"h\",\"signature\":\"s\"}",
    "{\"type\":\"redacted_thinking\",\"data\":\"x\"}",
    "{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"f\",\"input\":{}}",
    "{\"type\":\"tool_result\",\"tool_use_id\":\"c\",\"content\":[{\"type\":\"text\",\"text\":\"1\"}]}",
    "{\"type\":\"document\",\"source\":{\"type\":\"text\",\"media_type\":\"text/plain\",\"data\":\"d\"}}",
    "{\"type\":\"search_result\",\"source\":\"s\",\"title\":\"t\",\"content\":[{\"type\":\"text\",\"text\":"
    "\"a\"}]}",
    "{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"}",
    "{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"1\"}",
    "{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"h\"}]}",
    "{\"type\":\"item_reference\",\"id\":\"msg_1\"}",
    "{\"type\":\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"f\",\"input\":\"x\"}",
    "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[]}",
    "\"resp_1\"",
    "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"a\":{}}}}}",
    "{\"type\":\"function\",\"name\":\"f\"}",
    "{\"type\":\"custom\",\"custom\":{\"name\":\"g\"}}",
    "{\"name\":\"f\",\"input_schema\":{}}",
    "\"required\"",
    "\"auto\"",
    "\"none\"",
    "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}",
    "{\"type\":\"tool\",\"name\":\"f\"}",
    "{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]}",
    "{\"type\":\"json_object\"}",
    "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":{\"type\":\"object\"}}}",
    "{\"type\":\"json_schema\",\"schema\":{\"type\":\"array\",\"items\":{\"enum\":[1,\"a\"]}}}",
    "{\"regex\":\"[a-z]{1,3}\"}",
    "{\"choice\":[\"a\",\"b\"]}",
    "{\"json\":{\"type\":\"integer\",\"minimum\":3}}",
    "{\"grammar\":\"root ::= \\\"a\\\" root?\"}",
    "{\"$ref\":\"#\"}",
    "{\"anyOf\":[{\"type\":\"string\",\"maxLength\":3},{\"type\":\"null\"}]}",
    "{\"5\":-100,\"x\":1}",
    "[[5,1],[\"a\",false]]"};

/* Members of what lies within fields; those of bodies are in the tables. */
static const char *const json_inner_names[] = {
    "role",        "content",     "type",          "text",        "name",         "function",
    "arguments",   "parameters",  "input_schema",  "tool_calls",  "tool_call_id", "id",
    "call_id",     "tool_use_id", "input",         "output",      "thinking",     "reasoning_content",
    "reasoning",   "summary",     "signature",     "data",        "source",       "title",
    "json_schema", "schema",      "strict",        "regex",       "choice",       "json",
    "grammar",     "properties",  "items",         "enum",        "const",        "required",
    "anyOf",       "oneOf",       "allOf",         "$ref",        "$defs",        "additionalProperties",
    "minItems",    "maxItems",    "minLength",     "maxLength",   "pattern",      "minimum",
    "maximum",     "format",      "include_usage", "effort",      "verbosity",    "cache_control",
    "refusal",     "images",      "tool_name",     "num_predict", "num_ctx",      "is_error",
    "citations",   "mode",        "tools",         "syntax",      "definition",   "budget_tokens",
    "image_url",   "custom",      "prefix",        "filename",    "context",      "enabled"};

struct json_mutator {
    uint64_t seed, count;
    const char *names[JSON_NAMES_MAX];
    uint32_t num_names;
};

static uint32_t json_draw(struct json_mutator *m, uint32_t below)
{
    return rng_philox(m->seed, m->count++, 0).word[0] % below;
}

static void json_add_name(struct json_mutator *m, const char *name)
{
    if (m->num_names < JSON_NAMES_MAX) m->names[m->num_names++] = name;
}

static void json_add_names(struct json_mutator *m)
{
    static const struct codec *const codecs[] = {
        &codec_messages,         &codec_responses,    &codec_ollama_chat, &codec_ollama_generate,
        &codec_ollama_embed,     &codec_embeddings,   &codec_score,       &codec_rerank,
        &codec_llama_completion, &codec_llama_infill, &codec_cohere_embed};
    static const enum api_kind kinds[] = {API_CHAT, API_COMPLETIONS};
    struct field_facts facts;
    for (size_t i = 0; i < array_length(json_inner_names); i++) json_add_name(m, json_inner_names[i]);
    for (size_t i = 0; i < array_length(codecs); i++)
        for (const struct codec_field *f = codecs[i]->fields; f && f->name; f++) json_add_name(m, f->name);
    for (size_t i = 0; i < array_length(kinds); i++)
        for (size_t at = 0; field_table_next(kinds[i], &at, &facts);)
            if (facts.type != FIELD_REFUSED) json_add_name(m, facts.name);
    for (size_t at = 0; m->num_names < JSON_NAMES_MAX && field_table_next(API_CHAT, &at, &facts);)
        if (facts.type == FIELD_REFUSED) json_add_name(m, facts.name);
}

static struct json_mutator *json_mutator_seeded(unsigned seed)
{
    static struct json_mutator m;
    if (m.num_names == 0) json_add_names(&m);
    m.seed = seed;
    m.count = 0;
    return &m;
}

/* ---- nodes ---- */

struct json_node {
    cJSON *at, *parent; /* parent: NULL of the root */
};

static uint32_t json_count(const cJSON *node)
{
    uint32_t n = 1;
    const cJSON *child;
    cJSON_ArrayForEach(child, node) n += json_count(child);
    return n;
}

/* The node before which *n others stand, the root first. */
static struct json_node json_nth(cJSON *node, cJSON *parent, uint32_t *n)
{
    struct json_node found = {0};
    cJSON *child;
    if ((*n)-- == 0) return (struct json_node){node, parent};
    cJSON_ArrayForEach(child, node)
    {
        found = json_nth(child, node, n);
        if (found.at) break;
    }
    return found;
}

/* One of the root's members as often as one of all nodes: these are many where a list is long. */
static struct json_node json_pick(struct json_mutator *m, cJSON *root)
{
    uint32_t n = json_draw(m, json_count(root));
    if (root->child && json_draw(m, 3) == 0)
        return (struct json_node){
            cJSON_GetArrayItem(root, (int)json_draw(m, (uint32_t)cJSON_GetArraySize(root))), root};
    return json_nth(root, NULL, &n);
}

static cJSON *json_odd_value(struct json_mutator *m)
{
    char text[JSON_LONG_TEXT + 1];
    if (json_draw(m, 40) > 0) return cJSON_CreateRaw(json_values[json_draw(m, array_length(json_values))]);
    memset(text, "a\\\n {"[json_draw(m, 5)], JSON_LONG_TEXT);
    text[JSON_LONG_TEXT] = '\0';
    return cJSON_CreateString(text);
}

/* node gets the value of `value`, which goes; its name and its place stay. */
static void json_become(cJSON *node, cJSON *value)
{
    const cJSON old = *node;
    node->type = value->type;
    node->child = value->child;
    node->valuestring = value->valuestring;
    node->valueint = value->valueint;
    node->valuedouble = value->valuedouble;
    value->type = old.type;
    value->child = old.child;
    value->valuestring = old.valuestring;
    cJSON_Delete(value);
}

static void json_rename(cJSON *object, cJSON *member, const char *name)
{
    if (cJSON_GetObjectItemCaseSensitive(object, name)) return; /* no key stands twice */
    free(member->string);
    member->string = strdup(name);
}

/* Into an object under a name that it has not, into a list anywhere. */
static void json_insert(struct json_mutator *m, cJSON *container, cJSON *item)
{
    const char *name = m->names[json_draw(m, m->num_names)];
    int place = cJSON_IsArray(container) ? (int)json_draw(m, (uint32_t)cJSON_GetArraySize(container) + 1) : 0;
    bool is_in = false;
    if (cJSON_IsArray(container))
        is_in = cJSON_InsertItemInArray(container, place, item);
    else if (cJSON_IsObject(container) && !cJSON_GetObjectItemCaseSensitive(container, name))
        is_in = cJSON_AddItemToObject(container, name, item);
    if (!is_in) cJSON_Delete(item);
}

static void json_rotate(cJSON *list)
{
    cJSON *first = list->child;
    if (!first || !first->next || !cJSON_IsArray(list)) return;
    cJSON_AddItemToArray(list, cJSON_DetachItemViaPointer(list, first));
}

static void json_wrap(struct json_mutator *m, cJSON *node)
{
    cJSON *inner = cJSON_Duplicate(node, true),
          *outer = json_draw(m, 2) ? cJSON_CreateArray() : cJSON_CreateObject();
    json_insert(m, outer, inner);
    json_become(node, outer);
}

static void json_unwrap(cJSON *node)
{
    if (node->child) json_become(node, cJSON_DetachItemViaPointer(node, node->child));
}

/* The bytes of a text, as long as they are characters. */
static void json_change_text(cJSON *node)
{
    if (!cJSON_IsString(node)) return;
    size_t n = strlen(node->valuestring), room = n + 16;
    char *text = malloc(room + 1);
    assert_always(text);
    memcpy(text, node->valuestring, n);
    n = LLVMFuzzerMutate((uint8_t *)text, n, room);
    text[n] = '\0';
    if (utf8_is_valid((const unsigned char *)text, strlen(text))) json_become(node, cJSON_CreateString(text));
    free(text);
}

/* ---- changes ---- */

static void json_change(struct json_mutator *m, cJSON *root)
{
    struct json_node node = json_pick(m, root), other = json_pick(m, root);
    switch (json_draw(m, 14)) {
    case 0:
    case 1:
    case 2:
        if (node.parent) json_become(node.at, json_odd_value(m));
        break;
    case 3:
        if (node.parent) cJSON_Delete(cJSON_DetachItemViaPointer(node.parent, node.at));
        break;
    case 4:
        if (node.parent) json_insert(m, node.parent, cJSON_Duplicate(node.at, true));
        break;
    case 5:
        if (cJSON_IsObject(node.parent))
            json_rename(node.parent, node.at, m->names[json_draw(m, m->num_names)]);
        break;
    case 6:
        if (node.parent && node.at->child)
            json_become(node.at, cJSON_IsArray(node.at) ? cJSON_CreateArray() : cJSON_CreateObject());
        break;
    case 7:
        json_rotate(node.at);
        break;
    case 8:
        if (node.parent) json_wrap(m, node.at);
        break;
    case 9:
        if (node.parent) json_unwrap(node.at);
        break;
    case 10:
    case 11:
        json_insert(m, node.at, json_odd_value(m));
        break;
    case 12:
        if (node.parent) json_become(node.at, cJSON_Duplicate(other.at, true));
        break;
    default:
        json_change_text(node.at);
    }
}

/* ---- texts ---- */

static cJSON *json_of(const uint8_t *data, size_t size, size_t *begin, size_t *end)
{
    static const struct json_gate_limits limits = {.max_depth = 64, .max_nodes = 20000, .max_keys = 4096};
    const char *text = (const char *)data;
    bool conflict;
    if (!json_place(data, size, begin, end) ||
        json_gate_check(text + *begin, *end - *begin, &limits, NULL) != 0)
        return NULL;
    return nul_text_parse(text + *begin, *end - *begin, &conflict);
}

/* The tree in the place of what was there; 0: it has no room. The stand-in of a NUL is one again. */
static size_t json_put_back(cJSON *root, const uint8_t *data, size_t size, size_t begin, size_t end,
                            uint8_t *out, size_t max_size)
{
    static const char stand_in[] = "\xF4\x8F\xBF\xBF";
    struct buffer b;
    char *text = cJSON_PrintUnformatted(root), *rest = text;
    buffer_init(&b, max_size);
    buffer_append(&b, (const char *)data, begin);
    for (char *at; text && (at = strstr(rest, stand_in)); rest = at + strlen(stand_in)) {
        buffer_append(&b, rest, (size_t)(at - rest));
        buffer_append_text(&b, "\\u0000");
    }
    if (text) buffer_append_text(&b, rest);
    buffer_append(&b, (const char *)data + end, size - end);
    size_t n = buffer_failed(&b) || !text ? 0 : b.num_bytes;
    memcpy(out, b.data, n);
    buffer_deinit(&b);
    free(text);
    cJSON_Delete(root);
    return n;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    struct json_mutator *m = json_mutator_seeded(seed);
    size_t begin, end, n = 0;
    cJSON *root = json_draw(m, JSON_BYTES_ONE_IN) > 0 ? json_of(data, size, &begin, &end) : NULL;
    for (uint32_t left = 1 + json_draw(m, JSON_CHANGES_MAX); root && left > 0; left--) json_change(m, root);
    if (root) n = json_put_back(root, data, size, begin, end, data, max_size);
    return n > 0 ? n : LLVMFuzzerMutate(data, size, max_size);
}

/* A subtree of b in the place of one of a's, or beside those that it has. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_bytes, const uint8_t *b, size_t b_bytes,
                                 uint8_t *out, size_t max_size, unsigned seed)
{
    struct json_mutator *m = json_mutator_seeded(seed);
    size_t begin, end, from, to;
    cJSON *root = json_of(a, a_bytes, &begin, &end), *other = root ? json_of(b, b_bytes, &from, &to) : NULL;
    if (other) {
        const struct json_node node = json_pick(m, root), taken = json_pick(m, other);
        cJSON *copy = cJSON_Duplicate(taken.at, true);
        if (node.parent && json_draw(m, 2))
            json_become(node.at, copy);
        else if (cJSON_IsObject(root) && taken.at->string &&
                 !cJSON_GetObjectItemCaseSensitive(root, taken.at->string))
            cJSON_AddItemToObject(root, taken.at->string, copy);
        else
            json_insert(m, node.at, copy);
    }
    cJSON_Delete(other);
    size_t n = root ? json_put_back(root, a, a_bytes, begin, end, out, max_size) : 0;
    if (n > 0) return n;
    n = min_of(a_bytes, max_size);
    memcpy(out, a, n);
    return n;
}

#endif
