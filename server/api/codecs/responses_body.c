/* responses_body.c - OpenAI's Responses: a body as a canonical one.
 *
 * Items of the input become messages: those of an assistant that follow each other (reasoning, text, calls) are
 * one. What previous_response_id names stands before them, the instructions before all. Tools of kinds that
 * only OpenAI's service has are skipped, and the answer's head says so. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "link/sampling.h"
#include "server/api/api.h"
#include "server/api/codecs/canonical.h"
#include "server/api/custom_tools.h"
#include "server/api/codecs/responses.h"
#include "server/api/response_store.h"
#include "text/tools/tool_prompt.h"

enum {
    ECHO_BYTES_MAX = 16 << 20,
    REFERENCES_MAX = 1024,          /* of items, each of which reads a stored response; */
    REFERENCED_BYTES_MAX = 64 << 20 /* of these: 0.1 s */
};

static char *keep_text(struct translation *t, const struct buffer *text)
{
    return buffer_failed(text) ? NULL : arena_copy(t->arena, text->data, text->num_bytes);
}

/* Before the fields are taken. */
int responses_begin(struct translation *t)
{
    struct responses_request *kept = arena_alloc(t->arena, sizeof *kept);
    struct buffer echo;
    if (responses_check_echo(t) < 0) return STATUS_INVALID;
    if (!kept) return api_error_no_memory(t->err);
    buffer_init(&echo, ECHO_BYTES_MAX);
    responses_append_echo(&echo, t->body);
    *kept = (struct responses_request){.echo = keep_text(t, &echo)};
    buffer_deinit(&echo);
    t->kept = kept;
    return kept->echo ? 0 : api_error_no_memory(t->err);
}

/* ---- input ---- */

/* One of a tool's output that is no text is kept as its type. */
static int add_part(const struct place *p, cJSON *parts, const cJSON *part, bool is_tools)
{
    static const char *const kinds[] = {"input_text", "output_text", "text", "summary_text",
                                        "reasoning_text"};
    const char *type = canonical_text(part, "type"), *text = canonical_text(part, "text");
    if (!cJSON_IsObject(part)) return canonical_refuse_type(p, part, "an object");
    if (canonical_is(part, "refusal")) text = canonical_text(part, type = "refusal");
    bool known = type && !strcmp(type, "refusal");
    for (size_t i = 0; type && i < array_length(kinds); i++) known |= !strcmp(type, kinds[i]);
    if (!known && type && is_tools) return canonical_add_unseen(p, parts, type);
    if (!known)
        return api_error_invalid(
            p->t->err, type ? "unsupported_value" : "missing_required_parameter", p->path,
            "%s.type must be input_text or output_text; this model reads text only", p->path);
    if (!text)
        return api_error_invalid(p->t->err, "invalid_type", p->path, "%s.text must be a string", p->path);
    return canonical_add_part(p, parts, text);
}

/* A string, or an array of parts. */
static int add_content(const struct place *p, cJSON *parts, const cJSON *content, bool is_tools)
{
    const cJSON *part;
    int i = 0, status = 0;
    if (!content)
        return api_error_invalid(p->t->err, "missing_required_parameter", p->path, "%s is missing", p->path);
    if (cJSON_IsString(content)) return canonical_add_part(p, parts, content->valuestring);
    if (!cJSON_IsArray(content)) return canonical_refuse_type(p, content, "a string or an array of parts");
    cJSON_ArrayForEach(part, content)
    {
        struct place at = {.t = p->t};
        snprintf(at.path, sizeof at.path, "%.60s[%d]", p->path, i++);
        if (status == 0) status = add_part(&at, parts, part, is_tools);
    }
    return status == 0 ? canonical_fill(p, parts) : status;
}

/* The last message if it is an assistant's that can take more parts, else a new one. */
static cJSON *assistant_message(cJSON *messages, cJSON **parts)
{
    cJSON *last = messages->child ? messages->child->prev : NULL;
    const char *role = canonical_text(last, "role");
    *parts = cJSON_GetObjectItemCaseSensitive(last, "content");
    if (role && !strcmp(role, "assistant") && cJSON_IsArray(*parts)) return last;
    return canonical_add_message(messages, "assistant", parts);
}

static int add_message_item(const struct place *p, cJSON *messages, const cJSON *item)
{
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    const char *role = canonical_text(item, "role");
    struct place at = {.t = p->t};
    cJSON *parts = NULL;
    bool known = false, is_assistant = role && !strcmp(role, "assistant");
    for (size_t i = 0; role && i < array_length(roles); i++) known |= !strcmp(role, roles[i]);
    if (!known)
        return api_error_invalid(p->t->err, "invalid_value", p->path,
                                 "%s.role must be user, assistant, system or developer", p->path);
    cJSON *message =
        is_assistant ? assistant_message(messages, &parts) : canonical_add_message(messages, role, &parts);
    if (!message) return api_error_no_memory(p->t->err);
    snprintf(at.path, sizeof at.path, "%.60s.content", p->path);
    return add_content(&at, parts, json_field_find(item, "content"), false);
}

/* What the model knew the tool as that an item calls; NULL: the item has no name. */
static int read_called_name(const struct place *p, const cJSON *item, const char **name)
{
    const char *space = canonical_text(item, "namespace");
    *name = canonical_text(item, "name");
    if (!space || !*name) return 0;
    *name = response_namespaces_join(p->t->arena, space, *name);
    return *name ? 0 : api_error_no_memory(p->t->err);
}

/* Adds the call that an item is; its namespace stays beside the name, for who asks for the items again. */
static int add_call(const struct place *p, cJSON *message, const cJSON *item, const char *name,
                    cJSON *arguments)
{
    const char *space = canonical_text(item, "namespace");
    int status = canonical_add_call(p->t, message, canonical_text(item, "call_id"), name, arguments);
    if (status < 0 || !space) return status;
    const cJSON *calls = json_field_find(message, "tool_calls");
    return codec_put(p->t, calls->child->prev, "namespace", cJSON_CreateString(space));
}

static int add_call_item(const struct place *p, cJSON *messages, cJSON *item)
{
    const char *id = canonical_text(item, "call_id"), *name;
    cJSON *parts, *message;
    if (read_called_name(p, item, &name) < 0) return STATUS_INVALID;
    if (!id || !name || !canonical_text(item, "arguments"))
        return api_error_invalid(p->t->err, "invalid_value", p->path,
                                 "%s needs call_id, name and arguments (strings)", p->path);
    message = assistant_message(messages, &parts);
    if (!message) return api_error_no_memory(p->t->err);
    return add_call(p, message, item, name, cJSON_DetachItemFromObjectCaseSensitive(item, "arguments"));
}

/* A call of a custom tool: its text is the one argument of a function. */
static int add_custom_call_item(const struct place *p, cJSON *messages, const cJSON *item)
{
    const char *id = canonical_text(item, "call_id"), *input = canonical_text(item, "input"), *name;
    cJSON *parts, *message, *arguments;
    if (read_called_name(p, item, &name) < 0) return STATUS_INVALID;
    if (!id || !name || !input)
        return api_error_invalid(p->t->err, "invalid_value", p->path,
                                 "%s needs call_id, name and input (strings)", p->path);
    message = assistant_message(messages, &parts);
    char *text = custom_tools_print_input(input);
    arguments = text ? cJSON_CreateString(text) : NULL;
    cJSON_free(text);
    if (message && arguments) return add_call(p, message, item, name, arguments);
    cJSON_Delete(arguments);
    return api_error_no_memory(p->t->err);
}

/* What a function gave: a text, parts, an object (as its JSON text) or null (nothing). */
static int add_output(const struct place *p, cJSON *parts, const cJSON *output)
{
    if (cJSON_IsNull(output)) return canonical_add_part(p, parts, "");
    if (!cJSON_IsObject(output)) return add_content(p, parts, output, true);
    struct buffer text;
    buffer_init(&text, SIZE_MAX / 2);
    tool_prompt_write_json(output, &text);
    int status =
        buffer_failed(&text) ? api_error_no_memory(p->t->err) : canonical_add_part(p, parts, text.data);
    buffer_deinit(&text);
    return status;
}

static int add_output_item(const struct place *p, cJSON *messages, const cJSON *item)
{
    const char *id = canonical_text(item, "call_id");
    struct place at = {.t = p->t};
    cJSON *parts, *message = canonical_add_message(messages, "tool", &parts);
    if (!id)
        return api_error_invalid(p->t->err, "missing_required_parameter", p->path,
                                 "%s.call_id must be a string", p->path);
    if (!message || !cJSON_AddStringToObject(message, "tool_call_id", id))
        return api_error_no_memory(p->t->err);
    snprintf(at.path, sizeof at.path, "%.60s.output", p->path);
    return add_output(&at, parts, cJSON_GetObjectItemCaseSensitive(item, "output"));
}

/* What is encrypted nobody here can read. */
static int add_reasoning_item(const struct place *p, cJSON *messages, const cJSON *item)
{
    const cJSON *content = json_field_find(item, "content"), *part;
    cJSON *parts, *message = NULL;
    int status = 0;
    cJSON_ArrayForEach(part, content)
    {
        const char *text = canonical_text(part, "text");
        if (!text || status != 0) continue;
        if (!message) message = assistant_message(messages, &parts);
        status = message ? canonical_add_reasoning(p->t, message, text) : api_error_no_memory(p->t->err);
    }
    return status;
}

/* The item of that id, of a stored response, whose id it has within its own (response_item_append_id). The caller's; NULL:
 * there is none. */
static cJSON *find_stored_item(const struct translation *t, const char *id)
{
    struct responses_request *kept = t->kept;
    const char *begin = strchr(id, '_'), *end = begin ? strchr(begin + 1, '_') : NULL;
    char name[64];
    size_t n;
    if (!end || end - begin > 40) return NULL;
    snprintf(name, sizeof name, "resp%.*s", (int)(end - begin), begin);
    char *body = response_store_get(t->server->api->responses, t->api_key_idx, name, RESPONSE_BODY, &n);
    cJSON *response = body ? cJSON_ParseWithLength(body, n) : NULL, *item, *found = NULL;
    if (body) kept->referenced_bytes += n;
    cJSON *output = cJSON_GetObjectItemCaseSensitive(response, "output");
    cJSON_ArrayForEach(item, output)
    {
        const char *own = canonical_text(item, "id");
        if (own && !strcmp(own, id)) found = item;
    }
    if (found) cJSON_DetachItemViaPointer(output, found);
    cJSON_Delete(response);
    free(body);
    return found;
}

static int add_item(const struct place *p, cJSON *messages, cJSON *item);

static int add_reference(const struct place *p, cJSON *messages, const cJSON *reference)
{
    const char *id = canonical_text(reference, "id");
    if (!id)
        return api_error_invalid(p->t->err, "missing_required_parameter", p->path, "%s.id must be a string",
                                 p->path);
    const struct responses_request *kept = p->t->kept;
    if (kept->referenced_bytes > REFERENCED_BYTES_MAX)
        return api_error_invalid(
            p->t->err, "invalid_value", p->path,
            "the items that input refers to before %s are of stored responses of more than "
            "%d bytes; send some of them themselves",
            p->path, (int)REFERENCED_BYTES_MAX);
    cJSON *item = find_stored_item(p->t, id);
    if (!item)
        return api_error_invalid(
            p->t->err, "item_not_found", p->path,
            "%s: there is no item `%.60s` here; its response was not stored, or newer ones took its place "
            "(--response-store-bytes). Send the item itself",
            p->path, id);
    int status = add_item(p, messages, item);
    cJSON_Delete(item);
    return status;
}

/* What OpenAI's service has done itself in an earlier turn, or with tools that are skipped here; what came of it stands in the
 * message that follows. */
static bool is_of_service(const char *type)
{
    static const char *const types[] = {
        "web_search_call",       "file_search_call",        "code_interpreter_call",
        "image_generation_call", "mcp_list_tools",          "mcp_call",
        "mcp_approval_request",  "mcp_approval_response",   "tool_search_call",
        "tool_search_output",    "computer_call",           "computer_call_output",
        "local_shell_call",      "local_shell_call_output", "shell_call",
        "shell_call_output",     "apply_patch_call",        "apply_patch_call_output"};
    for (size_t i = 0; i < array_length(types); i++)
        if (!strcmp(type, types[i])) return true;
    return false;
}

static int add_item(const struct place *p, cJSON *messages, cJSON *item)
{
    const char *type = canonical_text(item, "type");
    if (!cJSON_IsObject(item)) return canonical_refuse_type(p, item, "an object");
    if (!type || !strcmp(type, "message")) return add_message_item(p, messages, item);
    if (!strcmp(type, "function_call")) return add_call_item(p, messages, item);
    if (!strcmp(type, "custom_tool_call")) return add_custom_call_item(p, messages, item);
    if (!strcmp(type, "custom_tool_call_output")) return add_output_item(p, messages, item);
    if (!strcmp(type, "function_call_output")) return add_output_item(p, messages, item);
    if (!strcmp(type, "reasoning")) return add_reasoning_item(p, messages, item);
    if (!strcmp(type, "item_reference")) return add_reference(p, messages, item);
    if (is_of_service(type)) {
        translation_warn(p->t, "skipped an item of type %.32s", type);
        return 0;
    }
    return api_error_invalid(p->t->err, "unsupported_value", p->path,
                             "%s has the type `%.40s`; this server reads message, function_call, "
                             "function_call_output, custom_tool_call, custom_tool_call_output, reasoning and "
                             "item_reference",
                             p->path, type);
}

static int read_input(struct translation *t, cJSON *value)
{
    struct place at = {t, "input"};
    cJSON *messages = translation_messages(t), *parts, *item;
    int i = 0, num_references = 0, status = 0;
    if (!messages) return api_error_no_memory(t->err);
    if (cJSON_IsString(value))
        return canonical_add_message(messages, "user", &parts)
                   ? canonical_add_part(&at, parts, value->valuestring)
                   : api_error_no_memory(t->err);
    if (!cJSON_IsArray(value)) return canonical_refuse_type(&at, value, "a string or an array of items");
    cJSON_ArrayForEach(item, value)
    {
        snprintf(at.path, sizeof at.path, "input[%d]", i++);
        num_references += canonical_is(item, "item_reference");
        if (num_references > REFERENCES_MAX)
            return api_error_invalid(t->err, "invalid_value", at.path,
                                     "input must have at most %d item references", (int)REFERENCES_MAX);
        if (status == 0) status = add_item(&at, messages, item);
    }
    return status;
}

/* ---- the conversation so far ---- */

static int read_previous(struct translation *t, cJSON *value)
{
    size_t n;
    if (!cJSON_IsString(value))
        return json_field_refuse_type(value, "previous_response_id", "a string", t->err);
    char *history = response_store_get(t->server->api->responses, t->api_key_idx, value->valuestring,
                                       RESPONSE_HISTORY, &n);
    if (!history)
        return api_error_invalid(
            t->err, "previous_response_not_found", "previous_response_id",
            "there is no response `%.60s` here; it was not stored, or newer ones took its "
            "place (--response-store-bytes). Send the conversation in input",
            value->valuestring);
    t->messages = cJSON_ParseWithLength(history, n);
    free(history);
    return t->messages ? 0 : api_error_no_memory(t->err);
}

/* Kept for later, without the instructions, which hold for one response. */
static int keep_history(struct translation *t)
{
    struct responses_request *kept = t->kept;
    char *printed = cJSON_PrintUnformatted(t->messages);
    if (printed) kept->history = arena_copy(t->arena, printed, strlen(printed));
    cJSON_free(printed);
    return kept->history ? 0 : api_error_no_memory(t->err);
}

/* A template knows calls by the joined names alone. */
static void forget_namespaces(const cJSON *messages)
{
    const cJSON *message;
    cJSON *call;
    cJSON_ArrayForEach(message, messages)
    {
        cJSON_ArrayForEach(call, json_field_find(message, "tool_calls"))
            cJSON_DeleteItemFromObjectCaseSensitive(call, "namespace");
    }
}

static int add_instructions(struct translation *t, const char *text)
{
    struct place at = {t, "instructions"};
    cJSON *only = cJSON_CreateArray(), *parts;
    if (!only || !canonical_add_message(only, "system", &parts)) {
        cJSON_Delete(only);
        return api_error_no_memory(t->err);
    }
    int status = canonical_add_part(&at, parts, text);
    cJSON_InsertItemInArray(t->messages, 0, cJSON_DetachItemFromArray(only, 0));
    cJSON_Delete(only);
    return status;
}

/* An assistant's message that is calls or reasoning alone: beside calls the content may be absent, else it is
 * empty. */
static int settle_contents(struct translation *t)
{
    struct place at = {t, "input"};
    cJSON *message;
    int status = 0;
    cJSON_ArrayForEach(message, t->messages)
    {
        cJSON *content = cJSON_GetObjectItemCaseSensitive(message, "content");
        if (status < 0 || !cJSON_IsArray(content) || content->child) continue;
        if (cJSON_GetObjectItemCaseSensitive(message, "tool_calls"))
            cJSON_DeleteItemFromObjectCaseSensitive(message, "content");
        else
            status = canonical_fill(&at, content);
    }
    return status;
}

/* What nobody waits for has to be there when somebody asks. */
static int leave_client(struct translation *t, bool store)
{
    t->in_background = true;
    if (cJSON_IsTrue(json_field_find(t->body, "stream")))
        return api_error_invalid(
            t->err, "unsupported_value", "stream",
            "stream must be false beside background: GET /v1/responses/ID tells how it is");
    if (store && t->server->config->response_store_bytes > 0) return 0;
    return api_error_invalid(t->err, "invalid_value", "background", "background needs store: true%s",
                             store ? ", and this server stores nothing (--response-store-bytes)" : "");
}

/* After the fields were taken. */
int responses_translate(struct translation *t)
{
    bool store = true, background = false;
    cJSON *instructions = cJSON_DetachItemFromObjectCaseSensitive(t->body, "instructions");
    int status = json_field_bool(t->body, "store", &store, t->err);
    if (status == 0) status = json_field_bool(t->body, "background", &background, t->err);
    if (status == 0 && background) status = leave_client(t, store);
    if (status == 0 && (!t->messages || !t->messages->child))
        status = api_error_invalid(t->err, "missing_required_parameter", "input",
                                   "input is missing: a string or an array of items");
    if (status == 0) status = settle_contents(t);
    if (status == 0 && store) status = keep_history(t);
    forget_namespaces(t->messages);
    if (status == 0 && instructions && !cJSON_IsNull(instructions))
        status = cJSON_IsString(instructions)
                     ? add_instructions(t, instructions->valuestring)
                     : json_field_refuse_type(instructions, "instructions", "a string", t->err);
    cJSON_Delete(instructions);
    return status;
}

static int refuse_field(struct translation *t, const char *name)
{
    return api_error_invalid(t->err, "unsupported_parameter", name,
                             "%s is not supported by this server; leave it out", name);
}

static int read_conversation(struct translation *t, cJSON *value)
{
    (void)value;
    return refuse_field(t, "conversation");
}

static int read_prompt(struct translation *t, cJSON *value)
{
    (void)value;
    return refuse_field(t, "prompt");
}

/* ---- tools ---- */

static int refuse_member(const struct place *p, const char *name, const char *hint)
{
    char path[96];
    snprintf(path, sizeof path, "%.60s.%s", p->path, name);
    return api_error_invalid(p->t->err, "missing_required_parameter", path, "%s must be a string%s", path,
                             hint);
}

/* As a chat has it: name, description and format within, and a grammar within its format. */
static int add_custom_tool(const struct place *p, cJSON *out, const cJSON *tool)
{
    const cJSON *format = json_field_find(tool, "format");
    const char *description = canonical_text(tool, "description");
    cJSON *outer = cJSON_CreateObject(), *inner = cJSON_AddObjectToObject(outer, "custom"), *own = NULL;
    bool made = inner && cJSON_AddStringToObject(outer, "type", "custom") &&
                cJSON_AddStringToObject(inner, "name", canonical_text(tool, "name")) &&
                (!description || cJSON_AddStringToObject(inner, "description", description));
    if (made && format) {
        own = cJSON_Duplicate(format, true);
        made = own && cJSON_AddItemToObject(inner, "format", own);
    }
    if (made && canonical_is(own, "grammar") && !json_field_find(own, "grammar"))
        made = cJSON_AddItemToObject(own, "grammar", cJSON_Duplicate(format, true));
    if (made && cJSON_AddItemToArray(out, outer)) return 0;
    cJSON_Delete(outer);
    return api_error_no_memory(p->t->err);
}

static int read_own_tool(const struct place *p, cJSON *out, cJSON *tool)
{
    const char *type = canonical_text(tool, "type");
    bool is_custom = type && !strcmp(type, "custom");
    if (is_custom && canonical_text(tool, "name")) return add_custom_tool(p, out, tool);
    if (!type) return refuse_member(p, "type", ", such as \"function\"");
    if (strcmp(type, "function") != 0 && !is_custom) {
        translation_warn(p->t, "skipped a tool of type %.32s", type);
        return 0;
    }
    if (!canonical_text(tool, "name"))
        return refuse_member(p, "name", "; unlike a chat's, a function here has its name beside its type");
    return canonical_add_tool(p->t, out, tool, cJSON_DetachItemFromObjectCaseSensitive(tool, "parameters"));
}

/* What a namespace says of itself, in front of what its first tool does. */
static int tell_namespace(const struct place *p, const cJSON *namespace, cJSON *tool)
{
    const char *said = canonical_text(namespace, "description"), *own = canonical_text(tool, "description");
    struct buffer text;
    if (!said || !said[0]) return 0;
    buffer_init(&text, SIZE_MAX / 2);
    buffer_append_text(&text, said);
    if (own) buffer_append_text(&text, "\n\n");
    if (own) buffer_append_text(&text, own);
    cJSON *whole = buffer_failed(&text) ? NULL : cJSON_CreateString(text.data);
    buffer_deinit(&text);
    return whole ? codec_put(p->t, tool, "description", whole) : api_error_no_memory(p->t->err);
}

static int read_namespace(const struct place *p, cJSON *out, cJSON *namespace)
{
    struct responses_request *kept = p->t->kept;
    const char *space = canonical_text(namespace, "name");
    cJSON *tools = cJSON_GetObjectItemCaseSensitive(namespace, "tools"), *tool;
    struct place at = {.t = p->t};
    int i = 0, status = 0;
    if (!space) return refuse_member(p, "name", "");
    snprintf(at.path, sizeof at.path, "%.60s.tools", p->path);
    if (!cJSON_IsArray(tools)) return canonical_refuse_type(&at, tools, "an array of tools");
    cJSON_ArrayForEach(tool, tools)
    {
        snprintf(at.path, sizeof at.path, "%.60s.tools[%d]", p->path, i++);
        if (status == 0 && !cJSON_IsObject(tool)) status = canonical_refuse_type(&at, tool, "an object");
        if (status == 0 && i == 1) status = tell_namespace(p, namespace, tool);
        if (status == 0) status = response_namespaces_add(p->t, &kept->namespaced, space, tool);
        if (status == 0) status = read_own_tool(&at, out, tool);
        if (status == 0) status = canonical_keep_place(&at, out);
    }
    return status;
}

static int read_tool(const struct place *p, cJSON *out, cJSON *tool)
{
    return canonical_is(tool, "namespace") ? read_namespace(p, out, tool) : read_own_tool(p, out, tool);
}

static int read_tools(struct translation *t, cJSON *value)
{
    return canonical_read_tools(t, value, read_tool);
}

static bool has_tool(const cJSON *tools, const char *name)
{
    const cJSON *tool;
    cJSON_ArrayForEach(tool, tools)
    {
        const cJSON *function = json_field_find(tool, "function");
        const char *own = canonical_text(function ? function : json_field_find(tool, "custom"), "name");
        if (own && !strcmp(own, name)) return true;
    }
    return false;
}

/* What the model knows a tool as that a choice names as a call does, or by its own name where no other tool has that. NULL: no
 * memory. */
static const char *chosen_name(const struct translation *t, const cJSON *choice)
{
    const struct responses_request *kept = t->kept;
    const char *name = canonical_text(choice, "name"), *space = canonical_text(choice, "namespace");
    if (space) return response_namespaces_join(t->arena, space, name);
    const struct namespaced_tool *own = response_namespaces_find_own(kept->namespaced, name);
    return own && !has_tool(json_field_find(t->body, "tools"), name) ? own->joined : name;
}

static int name_allowed_tools(struct translation *t, cJSON *choice)
{
    cJSON *tool;
    cJSON_ArrayForEach(tool, json_field_find(choice, "tools"))
    {
        if (!canonical_text(tool, "name")) continue;
        const char *name = chosen_name(t, tool);
        if (!name) return api_error_no_memory(t->err);
        int status = codec_put(t, tool, "name", cJSON_CreateString(name));
        if (status < 0) return status;
    }
    return codec_put(t, t->body, "tool_choice", cJSON_Duplicate(choice, true));
}

static int read_tool_choice(struct translation *t, cJSON *value)
{
    const char *name = canonical_text(value, "name");
    if (name && !(name = chosen_name(t, value))) return api_error_no_memory(t->err);
    if (canonical_is(value, "allowed_tools")) return name_allowed_tools(t, value);
    if ((canonical_is(value, "function") || canonical_is(value, "custom")) && name)
        return codec_put(t, t->body, "tool_choice", canonical_named_choice(name));
    if (cJSON_IsObject(value) && !json_field_find(value, "function"))
        return api_error_invalid(t->err, "invalid_value", "tool_choice",
                                 "tool_choice must be \"none\", \"auto\", \"required\", {\"type\": "
                                 "\"function\", \"name\": ...} or {\"type\": \"allowed_tools\", ...}");
    return codec_put(t, t->body, "tool_choice", cJSON_Duplicate(value, true));
}

/* ---- the form of the answer ---- */

static int read_text(struct translation *t, cJSON *value)
{
    if (!cJSON_IsObject(value)) return json_field_refuse_type(value, "text", "an object", t->err);
    cJSON *format = cJSON_DetachItemFromObjectCaseSensitive(value, "format");
    cJSON *verbosity = cJSON_DetachItemFromObjectCaseSensitive(value, "verbosity");
    const char *name = canonical_text(format, "name");
    int status = verbosity ? codec_put(t, t->body, "verbosity", verbosity) : 0;
    if (status < 0 || !format || cJSON_IsNull(format) || canonical_is(format, "text")) {
        cJSON_Delete(format);
        return status;
    }
    if (!canonical_is(format, "json_schema")) return codec_put(t, t->body, "response_format", format);
    status = canonical_put_schema(t, name ? name : "answer",
                                  cJSON_DetachItemFromObjectCaseSensitive(format, "schema"));
    cJSON_Delete(format);
    return status;
}

static int read_reasoning(struct translation *t, cJSON *value)
{
    if (!cJSON_IsObject(value)) return json_field_refuse_type(value, "reasoning", "an object", t->err);
    const cJSON *summary = json_field_find(value, "summary");
    if (summary && !cJSON_IsString(summary))
        return json_field_refuse_type(summary, "reasoning.summary", "a string", t->err);
    cJSON *effort = cJSON_DetachItemFromObjectCaseSensitive(value, "effort");
    return effort ? codec_put(t, t->body, "reasoning_effort", effort) : 0;
}

static int read_include(struct translation *t, cJSON *value)
{
    const cJSON *item;
    bool wanted = false;
    if (!cJSON_IsArray(value)) return json_field_refuse_type(value, "include", "an array of strings", t->err);
    cJSON_ArrayForEach(item, value)
    {
        if (!cJSON_IsString(item))
            return json_field_refuse_type(item, "include", "an array of strings", t->err);
        wanted |= !strcmp(item->valuestring, "message.output_text.logprobs");
    }
    return wanted ? codec_put(t, t->body, "logprobs", cJSON_CreateTrue()) : 0;
}

/* Its alternatives are told where include asks for log probabilities. */
static int read_top_logprobs(struct translation *t, cJSON *value)
{
    int64_t number;
    if (!json_field_as_int(value, 0, TOP_LOGPROBS_MAX, &number))
        return api_error_invalid(t->err, "invalid_value", "top_logprobs",
                                 "top_logprobs must be an integer from 0 to %d", TOP_LOGPROBS_MAX);
    if (!cJSON_IsTrue(json_field_find(t->body, "logprobs"))) return 0;
    return codec_put(t, t->body, "top_logprobs", cJSON_Duplicate(value, false));
}

static int read_truncation(struct translation *t, cJSON *value)
{
    const char *name = cJSON_GetStringValue(value);
    t->drops_turns = name && !strcmp(name, "auto");
    if (t->drops_turns || (name && !strcmp(name, "disabled"))) return 0;
    return api_error_invalid(t->err, "invalid_value", "truncation",
                             "truncation must be \"auto\" or \"disabled\"");
}

const struct codec_field responses_fields[] = {
    {.name = "conversation", .read = read_conversation},
    {.name = "prompt", .read = read_prompt},
    {.name = "previous_response_id", .read = read_previous},
    {.name = "input", .read = read_input},
    {.name = "max_output_tokens", .canonical = "max_tokens"},
    {.name = "tools", .read = read_tools},
    {.name = "tool_choice", .read = read_tool_choice},
    {.name = "text", .read = read_text},
    {.name = "reasoning", .read = read_reasoning},
    {.name = "include", .read = read_include},
    {.name = "top_logprobs", .read = read_top_logprobs},
    {.name = "truncation", .read = read_truncation},
    {.name = "stream_options"}, /* of usage, which every response has */
    {.name = "messages"},       /* the input becomes them */
    {.name = "n", .read = canonical_read_n},
    {.name = NULL},
};

const struct codec_name responses_names[] = {
    {.name = "text.format.schema", .canonical = "response_format.json_schema.schema"},
    {.name = "text.format.name", .canonical = "response_format.json_schema.name"},
    {.name = "text.format", .canonical = "response_format"},
    {.name = "text.verbosity", .canonical = "verbosity"},
    {.name = "reasoning.effort", .canonical = "reasoning_effort"},
    {.name = "tools[]", .canonical = "tools[].function"},
    {.name = "tools[]", .canonical = "tools[].custom"},
    {.name = "input", .canonical = "messages"},
    {.name = NULL},
};
