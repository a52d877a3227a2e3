#include "server/api/chat_messages.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "server/api/chat_turns.h"
#include "server/api/json_field.h"
#include "server/api/json_gate.h"
#include "server/api/nul_text.h"
#include "server/api/unseen_parts.h"
#include "text/json_numbers.h"
#include "text/tools/tool_prompt.h"

const char *const chat_context_trusted[] = {"bos_token", "eos_token", NULL};

struct message {
    const struct server *server;
    cJSON *json;
    int idx;
    bool wants_parts;
    int *num_unseen; /* parts of tools' results; only while messages are checked */
    struct api_error *err;
};

static const char *path_of(const struct message *m, const char *rest, char path[96])
{
    snprintf(path, 96, "messages[%d]%s", m->idx, rest);
    return path;
}

/* ---- role ---- */

/* Templates know system and not its newer name. */
static const char *find_role(const char *name)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    for (size_t i = 0; i < array_length(roles); i++)
        if (!strcmp(name, roles[i])) return roles[i];
    return NULL;
}

static int check_role(const struct message *m, bool *is_assistant)
{
    char path[96];
    const cJSON *value = json_field_find(m->json, "role");
    path_of(m, ".role", path);
    if (!value) return api_error_invalid(m->err, "missing_required_parameter", path, "%s is missing", path);
    if (!cJSON_IsString(value)) return json_field_refuse_type(value, path, "a string", m->err);
    const char *role = find_role(value->valuestring);
    if (!role)
        return api_error_invalid(m->err, "invalid_value", path,
                                 "%s must be system, developer, user, assistant or tool; got `%.60s`", path,
                                 value->valuestring);
    *is_assistant = !strcmp(role, "assistant");
    if (strcmp(role, "developer") != 0) return 0;
    bool replaced = cJSON_ReplaceItemInObjectCaseSensitive(m->json, "role", cJSON_CreateString("system"));
    return replaced ? 0 : api_error_no_memory(m->err);
}

/* ---- content ---- */

static int check_part(const struct message *m, const cJSON *part, int part_idx)
{
    char rest[32], path[96];
    snprintf(rest, sizeof rest, ".content[%d]", part_idx);
    path_of(m, rest, path);
    if (!cJSON_IsObject(part)) return json_field_refuse_type(part, path, "an object", m->err);
    const cJSON *type = json_field_find(part, "type"), *text = json_field_find(part, "text");
    if (!cJSON_IsString(type))
        return api_error_invalid(m->err, type ? "invalid_type" : "missing_required_parameter", path,
                                 "%s.type must be a string, such as \"text\"", path);
    if (strcmp(type->valuestring, "text") != 0)
        return api_error_invalid(m->err, "unsupported_value", path,
                                 "%s has the type `%.40s`; this model reads parts of type \"text\" only",
                                 path, type->valuestring);
    if (!cJSON_IsString(text))
        return api_error_invalid(m->err, text ? "invalid_type" : "missing_required_parameter", path,
                                 "%s.text must be a string", path);
    return 0;
}

static int check_parts(const struct message *m, const cJSON *parts)
{
    char path[96];
    const cJSON *part;
    int i = 0, status = 0;
    path_of(m, ".content", path);
    if (!parts->child)
        return api_error_invalid(m->err, "invalid_value", path, "%s must not be an empty array", path);
    cJSON_ArrayForEach(part, parts) if (status == 0) status = check_part(m, part, i++);
    return status;
}

/* The texts of all parts, a line break between two. */
static cJSON *join_parts(const cJSON *parts)
{
    size_t n = 1;
    const cJSON *part;
    cJSON_ArrayForEach(part, parts) n +=
        strlen(cJSON_GetObjectItemCaseSensitive(part, "text")->valuestring) + 1;
    struct buffer text;
    buffer_init(&text, n);
    cJSON_ArrayForEach(part, parts)
    {
        if (part != parts->child) buffer_append_char(&text, '\n');
        buffer_append_text(&text, cJSON_GetObjectItemCaseSensitive(part, "text")->valuestring);
    }
    cJSON *joined = buffer_failed(&text) ? NULL : cJSON_CreateString(text.data ? text.data : "");
    buffer_deinit(&text);
    return joined;
}

static cJSON *make_parts(const char *text)
{
    cJSON *parts = cJSON_CreateArray(), *part = cJSON_CreateObject();
    if (cJSON_AddStringToObject(part, "type", "text") && cJSON_AddStringToObject(part, "text", text) &&
        cJSON_AddItemToArray(parts, part))
        return parts;
    cJSON_Delete(part);
    cJSON_Delete(parts);
    return NULL;
}

static bool is_of_type(const cJSON *part, const char *name)
{
    const cJSON *type = json_field_find(part, "type");
    return cJSON_IsString(type) && !strcmp(type->valuestring, name);
}

/* Texts under the names of Responses, and what an assistant refused with, are text to a template. */
static int settle_texts(const struct message *m, const cJSON *parts)
{
    cJSON *part;
    cJSON_ArrayForEach(part, parts)
    {
        const char *refusal =
            is_of_type(part, "refusal") ? cJSON_GetStringValue(json_field_find(part, "refusal")) : NULL;
        bool is_text = is_of_type(part, "input_text") || is_of_type(part, "output_text");
        if (!is_text && !refusal) continue;
        if ((refusal && !cJSON_AddStringToObject(part, "text", refusal)) ||
            !cJSON_ReplaceItemInObjectCaseSensitive(part, "type", cJSON_CreateString("text")))
            return api_error_no_memory(m->err);
    }
    return 0;
}

/* A text, or Mistral's list of text parts. */
static void append_thought(struct buffer *out, const cJSON *value)
{
    const cJSON *part;
    if (cJSON_IsString(value)) buffer_append_text(out, value->valuestring);
    if (!cJSON_IsArray(value)) return;
    cJSON_ArrayForEach(part, value) append_thought(out, json_field_find(part, "text"));
}

/* Reasoning that stands among the parts of an assistant's answer (Mistral's and LangChain's form) is its reasoning. */
static int settle_thoughts(const struct message *m)
{
    static const char *const members[] = {"thinking", "reasoning", "text"};
    cJSON *parts = cJSON_GetObjectItemCaseSensitive(m->json, "content"), *next;
    struct buffer text;
    buffer_init(&text, SIZE_MAX / 2);
    for (cJSON *part = cJSON_IsArray(parts) ? parts->child : NULL; part; part = next) {
        next = part->next;
        if (!is_of_type(part, "thinking") && !is_of_type(part, "reasoning")) continue;
        for (size_t i = 0; i < array_length(members); i++)
            append_thought(&text, json_field_find(part, members[i]));
        cJSON_Delete(cJSON_DetachItemViaPointer(parts, part));
    }
    bool done = !buffer_failed(&text);
    if (done && text.num_bytes > 0 && !json_field_find(m->json, "reasoning_content")) {
        cJSON_DeleteItemFromObjectCaseSensitive(m->json, "reasoning_content"); /* null */
        done = cJSON_AddStringToObject(m->json, "reasoning_content", text.data);
    }
    buffer_deinit(&text);
    return done ? 0 : api_error_no_memory(m->err);
}

/* An assistant may say nothing, and a tool, too. Templates add it to text, or loop over it: it is empty there. */
static int settle_absent_content(const struct message *m)
{
    return chat_turns_empty(m->json, m->wants_parts) ? 0 : api_error_no_memory(m->err);
}

/* The form that the template reads: a string, or a list of text parts. */
static int settle_content(const struct message *m, const cJSON *content)
{
    cJSON *settled;
    if (cJSON_IsArray(content) == m->wants_parts) return 0;
    settled = m->wants_parts ? make_parts(content->valuestring) : join_parts(content);
    if (settled && cJSON_ReplaceItemInObjectCaseSensitive(m->json, "content", settled)) return 0;
    cJSON_Delete(settled);
    return api_error_no_memory(m->err);
}

static int check_content(const struct message *m, bool is_assistant)
{
    char path[96];
    if (is_assistant && settle_thoughts(m) < 0) return STATUS_NO_MEMORY;
    const cJSON *content = json_field_find(m->json, "content");
    const char *role = json_field_find(m->json, "role")->valuestring;
    bool is_result = !strcmp(role, "tool") || !strcmp(role, "function");
    bool is_empty = cJSON_IsArray(content) && !content->child;
    path_of(m, ".content", path);
    if ((!content || is_empty) && (is_assistant || is_result)) return settle_absent_content(m);
    if (!content) return api_error_invalid(m->err, "missing_required_parameter", path, "%s is missing", path);
    if (!cJSON_IsString(content) && !cJSON_IsArray(content))
        return json_field_refuse_type(content, path, "a string or an array of text parts", m->err);
    int status = cJSON_IsArray(content) ? settle_texts(m, content) : 0;
    if (is_result && !unseen_parts_settle(m->json, m->num_unseen)) status = api_error_no_memory(m->err);
    if (status == 0 && cJSON_IsArray(content)) status = check_parts(m, content);
    return status < 0 ? status : settle_content(m, content);
}

/* ---- earlier tool calls ---- */

/* What a model wrote that is no JSON, was cut off, or is no object comes back with the rest of the conversation: an object with
 * its text, so that the model sees it and can do better. */
static cJSON *wrap_arguments(const char *text)
{
    cJSON *wrapped = cJSON_CreateObject();
    if (cJSON_AddStringToObject(wrapped, "arguments", text)) return wrapped;
    cJSON_Delete(wrapped);
    return NULL;
}

/* A call without arguments has none of them, null, or an empty text. */
static bool is_nothing(const cJSON *arguments)
{
    if (!arguments || cJSON_IsNull(arguments)) return true;
    return cJSON_IsString(arguments) && !arguments->valuestring[strspn(arguments->valuestring, " \t\r\n")];
}

static cJSON *parse_arguments(char *text)
{
    static const struct json_gate_limits limits = {.max_depth = 64, .max_nodes = 100000, .max_keys = 4096};
    struct error why;
    size_t n = strlen(text);
    json_gate_mend(text, n);
    if (json_gate_check(text, n, &limits, &why) < 0 || nul_text_is_in(text, n)) return wrap_arguments(text);
    cJSON *parsed = cJSON_ParseWithLength(text, n);
    if (parsed && json_keep_numbers(parsed, text, n) == 0) {
        if (cJSON_IsObject(parsed)) return parsed;
        cJSON *object = cJSON_IsNull(parsed) ? cJSON_CreateObject() : wrap_arguments(text);
        cJSON_Delete(parsed);
        return object;
    }
    cJSON_Delete(parsed);
    return NULL;
}

/* Takes the new arguments, NULL when there was no memory for them. */
static int replace_arguments(const struct message *m, cJSON *function, cJSON *arguments)
{
    bool has_some = cJSON_GetObjectItemCaseSensitive(function, "arguments");
    if (arguments && has_some && cJSON_ReplaceItemInObjectCaseSensitive(function, "arguments", arguments))
        return 0;
    if (arguments && !has_some && cJSON_AddItemToObject(function, "arguments", arguments)) return 0;
    cJSON_Delete(arguments);
    return api_error_no_memory(m->err);
}

/* The text of arguments that are not text. */
static int print_arguments(const struct message *m, cJSON *function, const cJSON *arguments)
{
    struct buffer text;
    buffer_init(&text, SIZE_MAX / 2);
    tool_prompt_write_json(arguments, &text);
    cJSON *printed = buffer_failed(&text) ? NULL : cJSON_CreateString(text.data);
    buffer_deinit(&text);
    return replace_arguments(m, function, printed);
}

/* Most templates want the arguments of a call as an object, some as text; the API has them as JSON text. */
static int settle_arguments(const struct message *m, cJSON *function)
{
    const cJSON *arguments = cJSON_GetObjectItemCaseSensitive(function, "arguments");
    bool wants_text = m->server->tool_format && tool_format_wants_argument_text(m->server->tool_format);
    if (is_nothing(arguments))
        return replace_arguments(m, function, wants_text ? cJSON_CreateString("{}") : cJSON_CreateObject());
    if (wants_text) return cJSON_IsString(arguments) ? 0 : print_arguments(m, function, arguments);
    if (cJSON_IsObject(arguments)) return 0;
    int status = cJSON_IsString(arguments) ? 0 : print_arguments(m, function, arguments);
    arguments = cJSON_GetObjectItemCaseSensitive(function, "arguments");
    return status < 0 ? status : replace_arguments(m, function, parse_arguments(arguments->valuestring));
}

/* ---- the form before tools: an assistant's function_call, and a message of role function with its result ---- */

/* Its id is made of its place, in a form that every template takes. */
static cJSON *make_old_call(const struct message *m, cJSON *function)
{
    char id[16];
    snprintf(id, sizeof id, "call%05d", m->idx);
    cJSON *calls = cJSON_CreateArray(), *call = cJSON_CreateObject();
    if (function && cJSON_AddStringToObject(call, "id", id) &&
        cJSON_AddStringToObject(call, "type", "function") && cJSON_AddItemToArray(calls, call)) {
        if (cJSON_AddItemToObject(call, "function", function)) return calls;
        call = NULL;
    }
    cJSON_Delete(function);
    cJSON_Delete(call);
    cJSON_Delete(calls);
    return NULL;
}

static int settle_old_call(const struct message *m)
{
    char path[96];
    cJSON *function = cJSON_DetachItemFromObjectCaseSensitive(m->json, "function_call");
    bool is_told = !function || cJSON_IsNull(function) || json_field_find(m->json, "tool_calls");
    int status =
        is_told || cJSON_IsObject(function)
            ? 0
            : json_field_refuse_type(function, path_of(m, ".function_call", path), "an object", m->err);
    if (is_told || status) {
        cJSON_Delete(function);
        return status;
    }
    cJSON *calls = make_old_call(m, function);
    cJSON_DeleteItemFromObjectCaseSensitive(m->json, "tool_calls"); /* null */
    if (calls && cJSON_AddItemToObject(m->json, "tool_calls", calls)) return 0;
    cJSON_Delete(calls);
    return api_error_no_memory(m->err);
}

/* It is a tool's, of the call before it. */
static int settle_old_result(const struct message *m)
{
    const cJSON *calls = m->idx > 0 ? json_field_find(m->json->prev, "tool_calls") : NULL;
    const char *id = calls ? cJSON_GetStringValue(json_field_find(calls->child, "id")) : NULL;
    bool done = cJSON_ReplaceItemInObjectCaseSensitive(m->json, "role", cJSON_CreateString("tool"));
    if (done && id && !json_field_find(m->json, "tool_call_id")) {
        cJSON_DeleteItemFromObjectCaseSensitive(m->json, "tool_call_id");
        done = cJSON_AddStringToObject(m->json, "tool_call_id", id);
    }
    return done ? 0 : api_error_no_memory(m->err);
}

static int settle_old_form(const struct message *m, bool is_assistant)
{
    if (is_assistant) return settle_old_call(m);
    return strcmp(json_field_find(m->json, "role")->valuestring, "function") ? 0 : settle_old_result(m);
}

static int check_tool_calls(const struct message *m)
{
    char path[96];
    cJSON *calls = cJSON_GetObjectItemCaseSensitive(m->json, "tool_calls"), *call;
    int status = 0;
    path_of(m, ".tool_calls", path);
    if (!calls || cJSON_IsNull(calls) || (cJSON_IsArray(calls) && !calls->child)) {
        cJSON_DeleteItemFromObjectCaseSensitive(m->json, "tool_calls");
        return 0;
    }
    if (!cJSON_IsArray(calls)) return json_field_refuse_type(calls, path, "an array", m->err);
    cJSON_ArrayForEach(call, calls)
    {
        cJSON *function = cJSON_GetObjectItemCaseSensitive(call, "function");
        const cJSON *type = json_field_find(call, "type");
        if (!cJSON_IsObject(call)) return json_field_refuse_type(call, path, "an array of objects", m->err);
        if (cJSON_IsString(type) && !strcmp(type->valuestring, "custom"))
            return api_error_invalid(m->err, "unsupported_value", path,
                                     "%s holds a call of type custom; it needs custom.name and custom.input "
                                     "(strings), and an endpoint of OpenAI's",
                                     path);
        if (status == 0 && cJSON_IsObject(function)) status = settle_arguments(m, function);
    }
    return status;
}

/* ---- what templates lose ---- */

static int append_content(const struct message *m, cJSON *message, const char *more)
{
    return chat_turns_append(message, more) ? 0 : api_error_no_memory(m->err);
}

/* Calls that the template does not show become a part of the content. */
static int write_calls(const struct message *m, const cJSON *calls)
{
    struct buffer text;
    buffer_init(&text, SIZE_MAX / 2);
    tool_prompt_write_calls(m->server->tool_format, calls, &text);
    int status = buffer_failed(&text) ? api_error_no_memory(m->err) : append_content(m, m->json, text.data);
    buffer_deinit(&text);
    cJSON_DeleteItemFromObjectCaseSensitive(m->json, "tool_calls");
    return status;
}

/* Content that the template would lose its calls over. */
static int clear_content(const struct message *m, bool to_null)
{
    if (!to_null) return settle_absent_content(m);
    bool replaced = cJSON_ReplaceItemInObjectCaseSensitive(m->json, "content", cJSON_CreateNull());
    return replaced ? 0 : api_error_no_memory(m->err);
}

static int settle_calls(const struct message *m)
{
    const struct tool_format *f = m->server->tool_format;
    const cJSON *calls = cJSON_GetObjectItemCaseSensitive(m->json, "tool_calls");
    if (!f || !calls || !calls->child) return 0;
    enum content_beside_calls kept = tool_format_content_beside_calls(f);
    int status = kept == CONTENT_KEPT ? 0 : clear_content(m, kept == CONTENT_NULL);
    return status < 0 || tool_format_renders_calls(f) ? status : write_calls(m, calls);
}

/* Each family has its own name for the reasoning of an earlier answer. */
static int settle_reasoning(const struct message *m)
{
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    const cJSON *given = NULL;
    for (size_t i = 0; i < array_length(names) && !given; i++) {
        const cJSON *value = json_field_find(m->json, names[i]);
        if (cJSON_IsString(value) && value->valuestring[0]) given = value;
    }
    for (size_t i = 0; i < array_length(names) && given; i++) {
        if (json_field_find(m->json, names[i])) continue;
        cJSON_DeleteItemFromObjectCaseSensitive(m->json, names[i]);
        if (!cJSON_AddStringToObject(m->json, names[i], given->valuestring))
            return api_error_no_memory(m->err);
    }
    return 0;
}

static int check_message(const struct message *m)
{
    char path[96];
    bool is_assistant = false;
    if (!cJSON_IsObject(m->json))
        return json_field_refuse_type(m->json, path_of(m, "", path), "an object", m->err);
    int status = check_role(m, &is_assistant);
    if (status == 0) status = check_content(m, is_assistant);
    if (status == 0) status = settle_old_form(m, is_assistant);
    if (status == 0) status = check_tool_calls(m);
    if (status == 0 && is_assistant) status = settle_calls(m);
    if (status == 0 && is_assistant) status = settle_reasoning(m);
    return status;
}

/* ---- the whole context ---- */

static bool has_more_system(const cJSON *messages)
{
    for (const cJSON *m = messages->child->next; m; m = m->next)
        if (!strcmp(json_field_find(m, "role")->valuestring, "system")) return true;
    return false;
}

/* A template that shows one call would refuse several, or lose all but one of them. Some show no results, some one system message
 * of several. */
static int settle_turns(const struct message *m, cJSON *messages)
{
    const struct tool_format *f = m->server->tool_format;
    bool changed;
    if (f && tool_format_loses_system(f) && has_more_system(messages))
        (void)chat_turns_change(messages, TURNS_JOINED, m->wants_parts);
    if (f && tool_format_loses_results(f))
        return chat_turns_give_results_to_user(messages, &changed) ? 0 : api_error_no_memory(m->err);
    if (!f || !tool_format_renders_calls(f) || tool_format_is_parallel(f)) return 0;
    bool is_null = tool_format_content_beside_calls(f) == CONTENT_NULL;
    return chat_turns_split(messages, m->wants_parts, is_null) ? 0 : api_error_no_memory(m->err);
}

static int check_messages(const struct server *server, cJSON *messages, int *num_unseen,
                          struct api_error *err)
{
    if (!messages || cJSON_IsNull(messages))
        return api_error_invalid(err, "missing_required_parameter", "messages",
                                 "messages is missing: an array of messages");
    if (!cJSON_IsArray(messages))
        return json_field_refuse_type(messages, "messages", "an array of messages", err);
    if (!messages->child)
        return api_error_invalid(err, "invalid_value", "messages", "messages must hold at least one message");
    struct message m = {.server = server,
                        .json = messages->child,
                        .wants_parts = chat_template_wants_parts(server->chat_template),
                        .num_unseen = num_unseen,
                        .err = err};
    int status = 0;
    for (; m.json && status == 0; m.json = m.json->next, m.idx++) status = check_message(&m);
    return status < 0 ? status : settle_turns(&m, messages);
}

static bool keep_final_text(struct chat_context *c, const cJSON *messages)
{
    /* cJSON: the first element's prev is the last element */
    const char *text = chat_turns_text(messages->child->prev);
    c->final_text = strdup(text ? text : "");
    return c->final_text != NULL;
}

static bool add_token_text(cJSON *context, const char *name, const struct tokenizer *t, int32_t id)
{
    size_t n;
    if (id < 0) return true;
    const char *bytes = tokenizer_token_bytes(t, id, &n);
    char *text = strndup(bytes, n);
    bool added = text && cJSON_AddStringToObject(context, name, text);
    free(text);
    return added;
}

static bool has(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name) != NULL;
}

/* Variables that the server sets; a trusted one is its own even when this model has no such token. */
static bool is_taken(const cJSON *context, const char *name)
{
    for (int i = 0; chat_context_trusted[i]; i++)
        if (!strcmp(name, chat_context_trusted[i])) return true;
    return has(context, name);
}

/* The template's own arguments, never over a variable that is already there. */
static int add_kwargs(cJSON *context, cJSON *body, struct api_error *err)
{
    cJSON *kwargs = cJSON_DetachItemFromObjectCaseSensitive(body, "chat_template_kwargs"), *item;
    int status = 0;
    if (kwargs && !cJSON_IsNull(kwargs) && !cJSON_IsObject(kwargs))
        status = json_field_refuse_type(kwargs, "chat_template_kwargs", "an object", err);
    while (status == 0 && kwargs && cJSON_IsObject(kwargs) && (item = kwargs->child)) {
        char path[96];
        snprintf(path, sizeof path, "chat_template_kwargs.%.48s", item->string);
        if (is_taken(context, item->string)) {
            status = api_error_invalid(err, "invalid_value", path, "%s is set by the server", path);
        } else {
            cJSON_DetachItemViaPointer(kwargs, item);
            if (!cJSON_AddItemToObject(context, item->string, item)) {
                cJSON_Delete(item);
                status = api_error_no_memory(err);
            }
        }
    }
    cJSON_Delete(kwargs);
    return status;
}

/* Whether the model thinks, as a variable where nothing has said so. */
static int set_thinking(cJSON *context, bool thinks, struct api_error *err)
{
    if (has(context, "enable_thinking")) return 0;
    return cJSON_AddBoolToObject(context, "enable_thinking", thinks) ? 0 : api_error_no_memory(err);
}

/* What hosts of open models call it: enable_thinking (Qwen's), thinking with a type (GLM's, DeepSeek's), reasoning that is enabled
 * or not (OpenRouter's). */
static int add_thinking(cJSON *context, const cJSON *body, struct api_error *err)
{
    const cJSON *plain = json_field_find(body, "enable_thinking"), *typed = json_field_find(body, "thinking"),
                *reasoning = json_field_find(body, "reasoning"),
                *enabled = json_field_find(reasoning, "enabled");
    int status = 0;
    if (plain && !cJSON_IsBool(plain))
        return json_field_refuse_type(plain, "enable_thinking", "a boolean", err);
    if (typed && !cJSON_IsObject(typed) && !cJSON_IsBool(typed))
        return json_field_refuse_type(typed, "thinking", "an object with a type", err);
    if (reasoning && !cJSON_IsObject(reasoning))
        return json_field_refuse_type(reasoning, "reasoning", "an object", err);
    if (plain) status = set_thinking(context, cJSON_IsTrue(plain), err);
    if (typed && status == 0)
        status = set_thinking(context, !cJSON_IsFalse(typed) && !is_of_type(typed, "disabled"), err);
    return status == 0 && cJSON_IsBool(enabled) ? set_thinking(context, cJSON_IsTrue(enabled), err) : status;
}

/* Templates know it by one of two names. */
static int settle_thinking(cJSON *context, struct api_error *err)
{
    static const char *const names[] = {"enable_thinking", "thinking"};
    for (int i = 0; i < 2; i++) {
        const cJSON *set = cJSON_GetObjectItemCaseSensitive(context, names[i]);
        if (cJSON_IsBool(set) && !has(context, names[!i]) &&
            !cJSON_AddBoolToObject(context, names[!i], cJSON_IsTrue(set)))
            return api_error_no_memory(err);
    }
    return 0;
}

/* reasoning_effort is the template's to read; none also switches thinking off where a template knows that. */
static int add_reasoning_effort(cJSON *context, const cJSON *body, struct api_error *err)
{
    const cJSON *effort = json_field_find(body, "reasoning_effort");
    if (!effort) effort = json_field_find(json_field_find(body, "reasoning"), "effort");
    if (!effort || has(context, "reasoning_effort")) return 0;
    if (!cJSON_IsString(effort)) return json_field_refuse_type(effort, "reasoning_effort", "a string", err);
    if (!cJSON_AddStringToObject(context, "reasoning_effort", effort->valuestring))
        return api_error_no_memory(err);
    return strcmp(effort->valuestring, "none") ? 0 : set_thinking(context, false, err);
}

static int add_verbosity(cJSON *context, const cJSON *body, struct api_error *err)
{
    const cJSON *verbosity = json_field_find(body, "verbosity");
    if (!verbosity || has(context, "verbosity")) return 0;
    if (!cJSON_IsString(verbosity)) return json_field_refuse_type(verbosity, "verbosity", "a string", err);
    return cJSON_AddStringToObject(context, "verbosity", verbosity->valuestring) ? 0
                                                                                 : api_error_no_memory(err);
}

/* The first message says which tools there are, a system message where there is none yet. */
static int write_tools(const struct message *m, cJSON *messages, const cJSON *tools)
{
    struct buffer text;
    cJSON *first = messages->child;
    const cJSON *role = json_field_find(first, "role");
    if (!cJSON_IsString(role) || strcmp(role->valuestring, "system") != 0) {
        first = cJSON_CreateObject();
        if (!cJSON_AddStringToObject(first, "role", "system") ||
            !cJSON_InsertItemInArray(messages, 0, first)) {
            cJSON_Delete(first);
            return api_error_no_memory(m->err);
        }
        if (m->wants_parts && !cJSON_AddArrayToObject(first, "content")) return api_error_no_memory(m->err);
    }
    buffer_init(&text, SIZE_MAX / 2);
    tool_prompt_write_tools(m->server->tool_format, tools, &text);
    int status = buffer_failed(&text) ? api_error_no_memory(m->err) : append_content(m, first, text.data);
    buffer_deinit(&text);
    return status;
}

/* As the template takes them, or in words. */
static int add_tools(struct chat_context *c, const struct server *server, const cJSON *tools,
                     int64_t now_seconds, struct api_error *err)
{
    const struct message m = {
        .server = server, .wants_parts = chat_template_wants_parts(server->chat_template), .err = err};
    if (!tool_format_renders_tools(server->tool_format))
        return write_tools(&m, cJSON_GetObjectItemCaseSensitive(c->json, "messages"), tools);
    return tool_prompt_add_variables(server->tool_format, c->json, tools, now_seconds) == 0
               ? 0
               : api_error_no_memory(err);
}

/* Whatever they hold is the template's to read. */
static int add_documents(cJSON *context, cJSON *body, struct api_error *err)
{
    cJSON *documents = cJSON_DetachItemFromObjectCaseSensitive(body, "documents");
    if (documents && !cJSON_IsNull(documents) && !cJSON_IsArray(documents)) {
        int status = json_field_refuse_type(documents, "documents", "an array of objects", err);
        cJSON_Delete(documents);
        return status;
    }
    if (!documents) documents = cJSON_CreateNull();
    if (documents && cJSON_AddItemToObject(context, "documents", documents)) return 0;
    cJSON_Delete(documents);
    return api_error_no_memory(err);
}

int chat_context_init(struct chat_context *c, const struct server *server, const struct params *params,
                      cJSON *body, int64_t now_seconds, struct api_error *err)
{
    *c = (struct chat_context){.json = cJSON_CreateObject(),
                               .wants_parts = chat_template_wants_parts(server->chat_template)};
    cJSON *messages = cJSON_DetachItemFromObjectCaseSensitive(body, "messages");
    int status = check_messages(server, messages, &c->num_unseen, err);
    if (status < 0) {
        cJSON_Delete(messages);
        return status;
    }
    if (params->continue_final_message && !keep_final_text(c, messages)) {
        cJSON_Delete(messages);
        return api_error_no_memory(err);
    }
    if (!cJSON_AddItemToObject(c->json, "messages", messages)) {
        cJSON_Delete(messages);
        return api_error_no_memory(err);
    }
    status = add_documents(c->json, body, err);
    if (status < 0) return status;
    if (!cJSON_AddNullToObject(c->json, "tools") ||
        !cJSON_AddBoolToObject(c->json, "add_generation_prompt", params->add_generation_prompt) ||
        !add_token_text(c->json, "bos_token", server->tokenizer, tokenizer_bos_id(server->tokenizer)) ||
        !add_token_text(c->json, "eos_token", server->tokenizer, tokenizer_eos_id(server->tokenizer)))
        return api_error_no_memory(err);
    if (params->uses_tools && server->tool_format)
        status = add_tools(c, server, json_field_find(body, "tools"), now_seconds, err);
    if (status == 0) status = add_kwargs(c->json, body, err);
    if (status == 0) status = add_thinking(c->json, body, err);
    if (status == 0) status = add_reasoning_effort(c->json, body, err);
    if (status == 0) status = settle_thinking(c->json, err);
    return status < 0 ? status : add_verbosity(c->json, body, err);
}

/* Takes the list. */
static bool set_tools(cJSON *context, const char *name, cJSON *tools)
{
    bool set = tools && cJSON_ReplaceItemInObjectCaseSensitive(context, name, tools);
    if (!set) cJSON_Delete(tools);
    return set;
}

/* Templates for tools loop over them where a chat has none, too; others say that there are some where the list is empty, so that
 * this is taken back as well. */
static bool add_no_tools(cJSON *context, int64_t now_seconds)
{
    cJSON *none = cJSON_CreateArray();
    bool added = none && tool_prompt_add_variables(NULL, context, none, now_seconds) == 0;
    cJSON_Delete(none);
    return added;
}

static bool change_tools(struct chat_context *c, enum chat_tools_change change, int64_t now_seconds)
{
    cJSON *tools = cJSON_GetObjectItemCaseSensitive(c->json, "tools");
    if (!tools || !tools->child) return change == TOOLS_WHOLE && add_no_tools(c->json, now_seconds);
    if (!c->given_tools && !(c->given_tools = cJSON_Duplicate(tools, true))) return false;
    return chat_tools_change(tools, change) &&
           set_tools(c->json, "available_tools", cJSON_Duplicate(tools, true));
}

static void take_tools_back(struct chat_context *c)
{
    const cJSON *tools = cJSON_GetObjectItemCaseSensitive(c->json, "tools");
    if (c->given_tools) {
        set_tools(c->json, "available_tools", cJSON_Duplicate(c->given_tools, true));
        set_tools(c->json, "tools", c->given_tools);
        c->given_tools = NULL;
    } else if (tools && !tools->child) {
        set_tools(c->json, "tools", cJSON_CreateNull());
    }
}

bool chat_context_change(struct chat_context *c, enum context_change change, int64_t now_seconds)
{
    cJSON *messages = cJSON_GetObjectItemCaseSensitive(c->json, "messages");
    switch (change) {
    case CONTEXT_IDS:
        return chat_turns_change(messages, TURNS_NUMBERED, c->wants_parts);
    case CONTEXT_TOOLS_WHOLE:
    case CONTEXT_BOTH_WHOLE:
        return change_tools(c, TOOLS_WHOLE, now_seconds);
    case CONTEXT_TOOLS_PLAIN:
    case CONTEXT_BOTH_PLAIN:
        return change_tools(c, TOOLS_PLAIN, now_seconds);
    default:
        if (change == CONTEXT_TURNS) take_tools_back(c);
        return chat_turns_change(
            messages, (enum chat_turns_change)(TURNS_JOINED + (int)change - CONTEXT_TURNS), c->wants_parts);
    }
}

int chat_context_drop(struct chat_context *c, double share)
{
    return chat_turns_drop(cJSON_GetObjectItemCaseSensitive(c->json, "messages"), share);
}

void chat_context_deinit(struct chat_context *c)
{
    cJSON_Delete(c->json);
    cJSON_Delete(c->given_tools);
    free(c->final_text);
}
