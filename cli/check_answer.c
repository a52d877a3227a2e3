#include "cli/check_answer.h"

#include <stdio.h>
#include <string.h>

enum { ANSWER_BYTES_MAX = 16 << 20 };

static void append_member(struct buffer *to, const cJSON *object, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    if (text) buffer_append_text(to, text);
}

/* A stream brings the arguments in parts, each with the call's index. */
static void take_call(struct check_answer *a, const cJSON *call, int position)
{
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(call, "index");
    const cJSON *function = cJSON_GetObjectItemCaseSensitive(call, "function");
    int index = cJSON_IsNumber(number) ? number->valueint : position;
    if (index >= a->call.count) a->call.count = index + 1;
    if (index != 0) return;
    const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(call, "id"));
    a->call.has_id |= id && id[0];
    append_member(&a->call.name, function, "name");
    append_member(&a->call.arguments, function, "arguments");
}

static void take_calls(struct check_answer *a, const cJSON *calls)
{
    const cJSON *call;
    int position = 0;
    cJSON_ArrayForEach(call, calls) take_call(a, call, position++);
}

/* Of completions the choice itself holds the text; of chats its message, or a stream's delta. */
static void take_choice(struct check_answer *a, const cJSON *choice)
{
    const cJSON *index = cJSON_GetObjectItemCaseSensitive(choice, "index");
    int i = cJSON_IsNumber(index) ? index->valueint : -1;
    if (i < 0 || i >= CHECK_CHOICES_MAX) return;
    const cJSON *message = cJSON_GetObjectItemCaseSensitive(choice, "message");
    const cJSON *part = message ? message : cJSON_GetObjectItemCaseSensitive(choice, "delta");
    append_member(&a->choices[i].text, part, "reasoning_content");
    if (cJSON_HasObjectItem(part, "reasoning_content"))
        a->choices[i].num_reasoning_bytes = a->choices[i].text.num_bytes;
    append_member(&a->choices[i].text, part, "content");
    append_member(&a->choices[i].text, choice, "text");
    const char *reason = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(choice, "finish_reason"));
    if (reason) snprintf(a->choices[i].finish_reason, sizeof a->choices[i].finish_reason, "%s", reason);
    if (i == 0) take_calls(a, cJSON_GetObjectItemCaseSensitive(part, "tool_calls"));
    if (i >= a->num_choices) a->num_choices = i + 1;
}

static void take_count(const cJSON *usage, const char *name, int64_t *to)
{
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(usage, name);
    if (cJSON_IsNumber(number)) *to = (int64_t)number->valuedouble;
}

static void take(struct check_answer *a, const cJSON *json)
{
    const cJSON *choice, *usage = cJSON_GetObjectItemCaseSensitive(json, "usage");
    cJSON_ArrayForEach(choice, cJSON_GetObjectItemCaseSensitive(json, "choices")) take_choice(a, choice);
    take_count(usage, "prompt_tokens", &a->prompt_tokens);
    take_count(usage, "completion_tokens", &a->completion_tokens);
    take_count(usage, "total_tokens", &a->total_tokens);
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(json, "error");
    const char *message = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(error, "message"));
    if (message) snprintf(a->problem, sizeof a->problem, "%s", message);
}

static void take_line(struct check_answer *a, const char *line)
{
    static const char field[] = "data:";
    if (strncmp(line, field, strlen(field)) != 0) return;
    line += strlen(field) + (line[strlen(field)] == ' ');
    a->done = !a->done && !strcmp(line, "[DONE]");
    cJSON *event = cJSON_Parse(line);
    take(a, event);
    cJSON_Delete(event);
}

static void take_stream(struct check_answer *a)
{
    char *rest, *line = strtok_r(a->raw.data, "\r\n", &rest);
    for (; line; line = strtok_r(NULL, "\r\n", &rest)) take_line(a, line);
}

static bool append_bytes(void *context, const char *bytes, size_t n)
{
    buffer_append(context, bytes, n);
    return true;
}

void check_ask(const struct http_client *client, const char *path, const char *body, struct check_answer *a)
{
    struct error err = {0};
    *a = (struct check_answer){.prompt_tokens = -1, .completion_tokens = -1, .total_tokens = -1};
    buffer_init(&a->raw, ANSWER_BYTES_MAX);
    buffer_init(&a->call.name, ANSWER_BYTES_MAX);
    buffer_init(&a->call.arguments, ANSWER_BYTES_MAX);
    for (int i = 0; i < CHECK_CHOICES_MAX; i++) buffer_init(&a->choices[i].text, ANSWER_BYTES_MAX);
    if (http_client_ask(client, path, body, append_bytes, &a->raw, &a->http_status, &err)) {
        a->http_status = 0;
        snprintf(a->problem, sizeof a->problem, "%.255s", err.text);
    } else if (a->raw.data && !(a->json = cJSON_Parse(a->raw.data))) {
        take_stream(a);
    } else {
        take(a, a->json);
    }
}

void check_answer_deinit(struct check_answer *a)
{
    for (int i = 0; i < CHECK_CHOICES_MAX; i++) buffer_deinit(&a->choices[i].text);
    buffer_deinit(&a->call.name);
    buffer_deinit(&a->call.arguments);
    cJSON_Delete(a->json);
    buffer_deinit(&a->raw);
}

const char *check_text(const struct check_answer *a, int choice)
{
    const char *text = a->choices[choice].text.data;
    return text ? text : "";
}

const char *check_content(const struct check_answer *a)
{
    return check_text(a, 0) + a->choices[0].num_reasoning_bytes;
}
