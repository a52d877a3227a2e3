/* messages_body.c - Anthropic's Messages: a body as a canonical one.
 *
 * System blocks become a system message, blocks of text and documents the parts of a message, tool_use a call of an
 * assistant's message, and each tool_result a message of its own. What betas add beside the fields below is
 * accepted: it steers Anthropic's service and says nothing to a model. */
#include <string.h>

#include "server/api/codecs/canonical.h"
#include "server/api/codecs/messages.h"
#include "server/api/json_field.h"

/* ---- text ---- */

static int add_text_block(const struct place *p, cJSON *parts, const cJSON *block)
{
    const char *text = canonical_text(block, "text");
    if (!text)
        return api_error_invalid(p->t->err, "invalid_type", p->path, "%s.text must be a string", p->path);
    return canonical_add_part(p, parts, text);
}

static int refuse_block(const struct place *p, const cJSON *block)
{
    const char *type = cJSON_IsObject(block) ? canonical_text(block, "type") : NULL;
    if (!cJSON_IsObject(block)) return canonical_refuse_type(p, block, "an object");
    if (!type)
        return api_error_invalid(p->t->err, "missing_required_parameter", p->path,
                                 "%s.type must be a string, such as \"text\"", p->path);
    return api_error_invalid(p->t->err, "unsupported_value", p->path,
                             "%s has the type `%.40s`; this model reads text, documents of text, "
                             "search_result, tool_use, tool_result and thinking here",
                             p->path, type);
}

/* One of a tool's that is no text is kept as its type. */
static int add_other_block(const struct place *p, cJSON *parts, const cJSON *block, bool is_tools)
{
    const char *type = canonical_text(block, "type");
    return is_tools && type ? canonical_add_unseen(p, parts, type) : refuse_block(p, block);
}

/* A string, or an array of text blocks; appends parts. */
static int add_texts(const struct place *p, cJSON *parts, const cJSON *content, bool is_tools)
{
    const cJSON *block;
    int i = 0, status = 0;
    if (cJSON_IsString(content)) return canonical_add_part(p, parts, content->valuestring);
    if (!cJSON_IsArray(content)) return canonical_refuse_type(p, content, "a string or an array of blocks");
    cJSON_ArrayForEach(block, content)
    {
        struct place at = {.t = p->t};
        snprintf(at.path, sizeof at.path, "%.60s[%d]", p->path, i++);
        if (status < 0) break;
        const char *tool = canonical_is(block, "tool_reference") ? canonical_text(block, "tool_name") : NULL;
        if (tool) /* what a search for tools has found */
            status = canonical_add_part(&at, parts, tool);
        else if (messages_is_document(block))
            status = messages_add_document(&at, parts, block, is_tools);
        else if (canonical_is(block, "text"))
            status = add_text_block(&at, parts, block);
        else
            status = add_other_block(&at, parts, block, is_tools);
    }
    return status;
}

/* ---- messages ---- */

static int add_tool_result(const struct place *p, cJSON *out, const cJSON *block)
{
    const cJSON *content = json_field_find(block, "content");
    const char *id = canonical_text(block, "tool_use_id");
    cJSON *parts, *message = canonical_add_message(out, "tool", &parts);
    if (!id)
        return api_error_invalid(p->t->err, "missing_required_parameter", p->path,
                                 "%s.tool_use_id must be a string", p->path);
    if (!message || !cJSON_AddStringToObject(message, "tool_call_id", id))
        return api_error_no_memory(p->t->err);
    struct place at = {.t = p->t};
    snprintf(at.path, sizeof at.path, "%.60s.content", p->path);
    int status = content ? add_texts(&at, parts, content, true) : 0;
    return status == 0 ? canonical_fill(p, parts) : status;
}

static int add_tool_use(const struct place *p, cJSON *message, cJSON *block)
{
    const char *id = canonical_text(block, "id"), *name = canonical_text(block, "name");
    const cJSON *input = json_field_find(block, "input"); /* a call without arguments has null or none */
    if (!id || !name || (input && !cJSON_IsObject(input)))
        return api_error_invalid(p->t->err, "invalid_value", p->path,
                                 "%s needs id and name (strings) and input (an object)", p->path);
    return canonical_add_call(p->t, message, id, name,
                              input ? cJSON_DetachItemFromObjectCaseSensitive(block, "input")
                                    : cJSON_CreateObject());
}

static int add_thinking(const struct place *p, cJSON *message, const cJSON *block)
{
    const char *thinking = canonical_text(block, "thinking");
    if (!thinking)
        return api_error_invalid(p->t->err, "invalid_type", p->path, "%s.thinking must be a string", p->path);
    return canonical_add_reasoning(p->t, message, thinking);
}

/* Results stand before the message that brings them. */
static int add_results(const struct place *p, cJSON *out, const cJSON *blocks)
{
    const cJSON *block;
    int i = 0, status = 0;
    cJSON_ArrayForEach(block, blocks)
    {
        struct place at = {.t = p->t};
        snprintf(at.path, sizeof at.path, "%.60s[%d]", p->path, i++);
        if (status == 0 && canonical_is(block, "tool_result")) status = add_tool_result(&at, out, block);
    }
    return status;
}

/* What Anthropic's service has asked itself and been told, in a turn that was answered there. */
static bool is_of_service(const cJSON *block)
{
    static const char end[] = "_tool_result";
    const char *type = canonical_text(block, "type");
    size_t n = type ? strlen(type) : 0;
    return canonical_is(block, "server_tool_use") || canonical_is(block, "mcp_tool_use") ||
           (n > sizeof end && !strcmp(type + n - (sizeof end - 1), end));
}

static int skip_block(const struct place *p, const cJSON *block)
{
    translation_warn(p->t, "skipped a block of type %.32s", canonical_text(block, "type"));
    return 0;
}

/* What the service has made of the turns before. */
static int add_compaction(const struct place *p, cJSON *parts, const cJSON *block)
{
    const char *text = canonical_text(block, "content");
    return text ? canonical_add_part(p, parts, text) : 0;
}

static int add_block(const struct place *p, cJSON *message, cJSON *parts, cJSON *block, bool is_assistant)
{
    if (canonical_is(block, "text")) return add_text_block(p, parts, block);
    if (is_assistant && canonical_is(block, "tool_use")) return add_tool_use(p, message, block);
    if (is_assistant && canonical_is(block, "thinking")) return add_thinking(p, message, block);
    if (is_assistant && canonical_is(block, "redacted_thinking")) return 0; /* nobody can read it */
    if (!is_assistant && canonical_is(block, "tool_result")) return 0;      /* add_results */
    if (!is_assistant && messages_is_document(block)) return messages_add_document(p, parts, block, false);
    if (is_assistant && canonical_is(block, "compaction")) return add_compaction(p, parts, block);
    if (is_assistant && is_of_service(block)) return skip_block(p, block);
    return refuse_block(p, block);
}

static bool has_only_results(const cJSON *blocks)
{
    const cJSON *block;
    bool only = blocks->child != NULL;
    cJSON_ArrayForEach(block, blocks) only &= canonical_is(block, "tool_result");
    return only;
}

static int add_blocks(const struct place *p, cJSON *out, const char *role, cJSON *blocks)
{
    bool is_assistant = !strcmp(role, "assistant");
    cJSON *block, *parts, *message;
    int i = 0, status = is_assistant ? 0 : add_results(p, out, blocks);
    if (status < 0 || (!is_assistant && has_only_results(blocks))) return status;
    message = canonical_add_message(out, role, &parts);
    if (!message) return api_error_no_memory(p->t->err);
    cJSON_ArrayForEach(block, blocks)
    {
        struct place at = {.t = p->t};
        snprintf(at.path, sizeof at.path, "%.60s[%d]", p->path, i++);
        if (status == 0) status = add_block(&at, message, parts, block, is_assistant);
    }
    return status == 0 ? canonical_fill(p, parts) : status;
}

static int add_turn(struct translation *t, cJSON *out, const cJSON *turn, int idx)
{
    struct place at = {.t = t};
    snprintf(at.path, sizeof at.path, "messages[%d]", idx);
    if (!cJSON_IsObject(turn)) return canonical_refuse_type(&at, turn, "an object");
    const char *role = canonical_text(turn, "role");
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0 && strcmp(role, "system") != 0))
        return api_error_invalid(t->err, role ? "invalid_value" : "missing_required_parameter", at.path,
                                 "%s.role must be user, assistant or system", at.path);
    cJSON *content = cJSON_GetObjectItemCaseSensitive(turn, "content"), *parts;
    snprintf(at.path, sizeof at.path, "messages[%d].content", idx);
    if (!content)
        return api_error_invalid(t->err, "missing_required_parameter", at.path, "%s is missing", at.path);
    if (cJSON_IsArray(content)) return add_blocks(&at, out, role, content);
    if (!cJSON_IsString(content))
        return canonical_refuse_type(&at, content, "a string or an array of blocks");
    return canonical_add_message(out, role, &parts) ? canonical_add_part(&at, parts, content->valuestring)
                                                    : api_error_no_memory(t->err);
}

/* Some clients begin with a block for billing that differs from call to call: it is nothing to the model, and
 * would spoil the prefix cache. */
static bool is_for_billing(const cJSON *block)
{
    static const char mark[] = "x-anthropic-billing-header:";
    const char *text = canonical_text(block, "text");
    return text && !strncmp(text, mark, sizeof mark - 1);
}

static int read_system(struct translation *t, cJSON *value)
{
    struct place at = {t, "system"};
    cJSON *parts;
    if (cJSON_IsArray(value) && is_for_billing(value->child)) cJSON_DeleteItemFromArray(value, 0);
    if (cJSON_IsArray(value) && !value->child) return 0;
    cJSON *messages = translation_messages(t);
    if (!messages || !canonical_add_message(messages, "system", &parts)) return api_error_no_memory(t->err);
    return add_texts(&at, parts, value, false);
}

static int read_messages(struct translation *t, cJSON *value)
{
    struct place at = {t, "messages"};
    cJSON *messages = translation_messages(t);
    const cJSON *turn;
    int idx = 0, status = messages ? 0 : api_error_no_memory(t->err);
    if (!cJSON_IsArray(value)) return canonical_refuse_type(&at, value, "an array of messages");
    if (!value->child)
        return api_error_invalid(t->err, "invalid_value", "messages",
                                 "messages must hold at least one message");
    cJSON_ArrayForEach(turn, value)
    {
        if (status == 0) status = add_turn(t, messages, turn, idx++);
    }
    return status;
}

/* An assistant's last turn without calls is the beginning of the answer. max_tokens may be more than there is room for, as for
 * the service's newer models: clients send what those can. */
int messages_translate(struct translation *t)
{
    t->ends_with_context = true;
    const cJSON *last = t->messages ? t->messages->child->prev : NULL;
    const char *role = canonical_text(last, "role");
    if (!role || strcmp(role, "assistant") != 0 || json_field_find(last, "tool_calls")) return 0;
    const char *text = canonical_text(json_field_find(last, "content")->child->prev, "text");
    if (!text[strspn(text, " \t\r\n")]) return 0;
    int status = codec_put(t, t->body, "continue_final_message", cJSON_CreateTrue());
    return status == 0 ? codec_put(t, t->body, "add_generation_prompt", cJSON_CreateFalse()) : status;
}

/* ---- tools ---- */

/* What the service itself would do (its types have a date) is left out; a tool of the client's has a schema. */
static int read_tool(const struct place *p, cJSON *out, cJSON *tool)
{
    const char *name = canonical_text(tool, "name"), *type = canonical_text(tool, "type");
    cJSON *schema = cJSON_DetachItemFromObjectCaseSensitive(tool, "input_schema");
    if (schema && name) return canonical_add_tool(p->t, out, tool, schema);
    cJSON_Delete(schema);
    if (!type || !strcmp(type, "custom"))
        return api_error_invalid(p->t->err, "missing_required_parameter", p->path,
                                 "%s: a tool needs a name (a string) and an input_schema (an object)",
                                 p->path);
    translation_warn(p->t, "skipped a tool of type %.32s", type);
    return 0;
}

/* They would be asked by Anthropic's service. */
static int skip_mcp_servers(struct translation *t, cJSON *value)
{
    if (!cJSON_IsArray(value))
        return json_field_refuse_type(value, "mcp_servers", "an array of servers", t->err);
    if (value->child) translation_warn(t, "mcp_servers are not asked");
    return 0;
}

static int read_tools(struct translation *t, cJSON *value)
{
    return canonical_read_tools(t, value, read_tool);
}

static int read_tool_choice(struct translation *t, cJSON *value)
{
    const char *name = canonical_text(value, "name");
    if (cJSON_IsTrue(json_field_find(value, "disable_parallel_tool_use")) &&
        codec_put(t, t->body, "parallel_tool_calls", cJSON_CreateFalse()) < 0)
        return STATUS_NO_MEMORY;
    if (canonical_is(value, "auto") || canonical_is(value, "none"))
        return codec_put(t, t->body, "tool_choice", cJSON_CreateString(canonical_text(value, "type")));
    if (canonical_is(value, "any"))
        return codec_put(t, t->body, "tool_choice", cJSON_CreateString("required"));
    if (canonical_is(value, "tool") && name)
        return codec_put(t, t->body, "tool_choice", canonical_named_choice(name));
    return api_error_invalid(t->err, "invalid_value", "tool_choice",
                             "tool_choice.type must be auto, any, none, or tool with a name");
}

/* ---- thinking, and the form of the answer ---- */

static int read_thinking(struct translation *t, cJSON *value)
{
    if (!cJSON_IsObject(value)) return json_field_refuse_type(value, "thinking", "an object", t->err);
    cJSON *kwargs = cJSON_GetObjectItemCaseSensitive(t->body, "chat_template_kwargs");
    if (!kwargs) kwargs = cJSON_AddObjectToObject(t->body, "chat_template_kwargs");
    if (kwargs && !cJSON_IsObject(kwargs)) return 0; /* refused later */
    return codec_put(t, kwargs, "enable_thinking", cJSON_CreateBool(!canonical_is(value, "disabled")));
}

/* {"type":"json_schema","schema":{}} as a canonical response_format. */
static int read_format(struct translation *t, cJSON *value, const char *path)
{
    if (!cJSON_IsObject(value)) return json_field_refuse_type(value, path, "an object", t->err);
    if (!canonical_is(value, "json_schema"))
        return api_error_invalid(t->err, "invalid_value", path, "%s.type must be \"json_schema\"", path);
    return canonical_put_schema(t, "answer", cJSON_DetachItemFromObjectCaseSensitive(value, "schema"));
}

static int read_output_format(struct translation *t, cJSON *value)
{
    return read_format(t, value, "output_format");
}

static int read_output_config(struct translation *t, cJSON *value)
{
    if (!cJSON_IsObject(value)) return json_field_refuse_type(value, "output_config", "an object", t->err);
    cJSON *effort = cJSON_DetachItemFromObjectCaseSensitive(value, "effort");
    cJSON *format = cJSON_DetachItemFromObjectCaseSensitive(value, "format");
    int status = 0;
    if (cJSON_IsString(effort))
        status = codec_put(t, t->body, "reasoning_effort", effort);
    else
        cJSON_Delete(effort);
    if (status == 0 && format && !cJSON_IsNull(format))
        status = read_format(t, format, "output_config.format");
    cJSON_Delete(format);
    return status;
}

const struct codec_field messages_fields[] = {
    {.name = "system", .read = read_system},
    {.name = "messages", .read = read_messages},
    {.name = "stop_sequences", .canonical = "stop"},
    {.name = "tools", .read = read_tools},
    {.name = "tool_choice", .read = read_tool_choice},
    {.name = "thinking", .read = read_thinking},
    {.name = "output_format", .read = read_output_format},
    {.name = "output_config", .read = read_output_config},
    {.name = "mcp_servers", .read = skip_mcp_servers},
    {.name = "speed"}, /* how the service shall run it */
    {.name = "n", .read = canonical_read_n},
    {.name = NULL},
};

const struct codec_name messages_names[] = {
    {.name = "output_format.schema", .canonical = "response_format.json_schema.schema", .if_sent = true},
    {.name = "output_format", .canonical = "response_format", .if_sent = true},
    {.name = "output_config.format.schema", .canonical = "response_format.json_schema.schema"},
    {.name = "output_config.format", .canonical = "response_format"},
    {.name = "output_config.effort", .canonical = "reasoning_effort"},
    {.name = "tools[].input_schema", .canonical = "tools[].function.parameters"},
    {.name = "tools[]", .canonical = "tools[].function"},
    {.name = NULL},
};
