#include "text/tools/probe.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "text/tools/tool_prompt.h"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"fn_alpha\",\"description\":\"does\",\"parameters\":"
    "{\"type\":\"object\",\"properties\":{\"key_one\":{\"type\":\"string\",\"description\":\"one\"},"
    "\"key_two\":{\"description\":\"two\"}},\"required\":[\"key_one\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"fn_beta\",\"description\":\"does\",\"parameters\":"
    "{\"type\":\"object\",\"properties\":{\"key_one\":{\"type\":\"string\",\"description\":\"one\"},"
    "\"key_two\":{\"description\":\"two\"}},\"required\":[]}}}]";

static const char *const trusted[] = {"bos_token", "eos_token", NULL};

int probe_init(struct probe *p, const struct chat_template *t, const cJSON *variables)
{
    *p = (struct probe){.template = t, .variables = variables, .tools = cJSON_Parse(tools_text)};
    return p->tools ? 0 : STATUS_NO_MEMORY;
}

void probe_deinit(struct probe *p)
{
    cJSON_Delete(p->tools);
}

cJSON *probe_calls(const struct probe *p, const struct probe_answer *answer)
{
    static const char *const names[] = {PROBE_NAME_1, PROBE_NAME_2, PROBE_NAME_1};
    static const char *const ids[] = {PROBE_ID_1, PROBE_ID_2, "idCCCCCC3"};
    cJSON *calls = cJSON_CreateArray();
    for (int i = 0; i < 3 && answer->arguments[i]; i++) {
        cJSON *call = cJSON_CreateObject(), *function = cJSON_CreateObject();
        cJSON_AddStringToObject(call, "id", ids[i]);
        cJSON_AddStringToObject(call, "type", "function");
        cJSON_AddStringToObject(function, "name", names[i]);
        cJSON_AddItemToObject(function, "arguments",
                              p->arguments_are_text ? cJSON_CreateString(answer->arguments[i])
                                                    : cJSON_Parse(answer->arguments[i]));
        cJSON_AddItemToObject(call, "function", function);
        cJSON_AddItemToArray(calls, call);
    }
    return calls;
}

static void add_text(cJSON *object, const char *name, const char *text)
{
    cJSON_AddItemToObject(object, name, text ? cJSON_CreateString(text) : cJSON_CreateNull());
}

static cJSON *answer_message(const struct probe *p, const struct probe_answer *answer)
{
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    cJSON *message = cJSON_CreateObject();
    cJSON_AddStringToObject(message, "role", "assistant");
    add_text(message, "content", answer->content);
    for (size_t i = 0; answer->reasoning && i < sizeof names / sizeof *names; i++)
        cJSON_AddStringToObject(message, names[i], answer->reasoning);
    if (answer->arguments[0]) cJSON_AddItemToObject(message, "tool_calls", probe_calls(p, answer));
    return message;
}

static void add_thinking(const struct probe *p, cJSON *context)
{
    if (!p->thinks) return;
    cJSON_AddTrueToObject(context, "enable_thinking");
    cJSON_AddTrueToObject(context, "thinking");
    cJSON_AddStringToObject(context, "thinking_mode", "enabled");
    cJSON_AddStringToObject(context, "reasoning_effort", "high");
}

static cJSON *make_message(const char *role, const char *content)
{
    cJSON *message = cJSON_CreateObject();
    cJSON_AddStringToObject(message, "role", role);
    cJSON_AddStringToObject(message, "content", content);
    return message;
}

static cJSON *context_of(const struct probe *p, const struct probe_answer *answer)
{
    cJSON *context = p->variables ? cJSON_Duplicate(p->variables, true) : cJSON_CreateObject();
    cJSON *messages = cJSON_AddArrayToObject(context, "messages");
    cJSON_AddItemToArray(messages, make_message("user", PROBE_USER));
    if (answer) cJSON_AddItemToArray(messages, answer_message(p, answer));
    if (!p->hides_tools) (void)!tool_prompt_add_variables(NULL, context, p->tools, 0);
    cJSON_AddBoolToObject(context, "add_generation_prompt", !answer);
    add_thinking(p, context);
    return context;
}

static bool render(const struct probe *p, const cJSON *context, struct buffer *out)
{
    struct text_range *untrusted = NULL;
    int num_untrusted;
    struct error why = {0};
    buffer_clear(out);
    int status = chat_template_render(p->template, context, trusted, 0, &chat_template_limits_default, out,
                                      &untrusted, &num_untrusted, &why);
    free(untrusted);
    return status == 0 && out->data;
}

static const char *find_last(const char *text, const char *word)
{
    const char *found = NULL;
    for (const char *at = text; (at = strstr(at, word)); at++) found = at;
    return found;
}

bool probe_render(const struct probe *p, const struct probe_answer *answer, struct buffer *out)
{
    cJSON *context = context_of(p, answer);
    bool rendered = render(p, context, out);
    cJSON_Delete(context);
    const char *user = rendered ? find_last(out->data, PROBE_USER) : NULL;
    if (user) buffer_consume(out, (size_t)(user - out->data) + strlen(PROBE_USER));
    return user;
}

bool probe_loses_results(const struct probe *p)
{
    struct buffer out;
    const struct probe_answer answer = {.content = PROBE_CONTENT};
    cJSON *context = context_of(p, &answer), *result = cJSON_CreateObject();
    cJSON_AddStringToObject(result, "role", "tool");
    cJSON_AddStringToObject(result, "tool_call_id", PROBE_ID_1);
    cJSON_AddStringToObject(result, "name", PROBE_NAME_1);
    cJSON_AddStringToObject(result, "content", PROBE_RESULT);
    cJSON_AddItemToArray(cJSON_GetObjectItemCaseSensitive(context, "messages"), result);
    buffer_init(&out, chat_template_limits_default.output_bytes);
    bool lost = render(p, context, &out) && strstr(out.data, PROBE_USER) && !strstr(out.data, PROBE_RESULT);
    cJSON_Delete(context);
    buffer_deinit(&out);
    return lost;
}

/* Of two system messages, the second one right behind the first or in front of a later question. */
static bool loses_system(const struct probe *p, bool is_late)
{
    struct buffer out;
    const struct probe_answer answer = {.content = PROBE_CONTENT};
    cJSON *context = context_of(p, &answer),
          *messages = cJSON_GetObjectItemCaseSensitive(context, "messages");
    /* in front alone: cJSON 1.7.15 as Debian has it inserts nowhere else */
    if (is_late)
        cJSON_AddItemToArray(messages, make_message("system", PROBE_SYSTEM_2));
    else
        cJSON_InsertItemInArray(messages, 0, make_message("system", PROBE_SYSTEM_2));
    cJSON_InsertItemInArray(messages, 0, make_message("system", PROBE_SYSTEM_1));
    cJSON_AddItemToArray(messages, make_message("user", PROBE_USER));
    buffer_init(&out, chat_template_limits_default.output_bytes);
    bool lost = render(p, context, &out) && strstr(out.data, PROBE_USER) &&
                !(strstr(out.data, PROBE_SYSTEM_1) && strstr(out.data, PROBE_SYSTEM_2));
    cJSON_Delete(context);
    buffer_deinit(&out);
    return lost;
}

bool probe_loses_system(const struct probe *p)
{
    return loses_system(p, false) || loses_system(p, true);
}

bool probe_shows_tools(const struct probe *p)
{
    struct buffer out;
    buffer_init(&out, chat_template_limits_default.output_bytes);
    cJSON *context = context_of(p, NULL);
    bool shown = render(p, context, &out) && strstr(out.data, PROBE_NAME_1) && strstr(out.data, PROBE_KEY_1);
    cJSON_Delete(context);
    buffer_deinit(&out);
    return shown;
}
