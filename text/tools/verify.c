#include "text/tools/verify.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "text/tools/slice.h"
#include "text/tools/tool_parser.h"

/* What was parsed: texts, and calls as the message would have them. */
struct parsed {
    struct buffer text, reasoning, arguments;
    cJSON *calls;
    bool failed;
};

static void on_event(void *context, const struct tool_event *e)
{
    struct parsed *p = context;
    cJSON *call;
    switch (e->kind) {
    case TOOL_TEXT:
        buffer_append(&p->text, e->bytes, e->num_bytes);
        break;
    case TOOL_REASONING:
        buffer_append(&p->reasoning, e->bytes, e->num_bytes);
        break;
    case TOOL_CALL_BEGIN: {
        char name[TOOL_NAME_MAX + 1] = "";
        memcpy(name, e->bytes, e->num_bytes);
        call = cJSON_CreateObject();
        cJSON_AddStringToObject(call, "name", name);
        cJSON_AddItemToArray(p->calls, call);
        buffer_clear(&p->arguments);
        break;
    }
    case TOOL_ARGUMENTS:
        buffer_append(&p->arguments, e->bytes, e->num_bytes);
        break;
    case TOOL_CALL_END:
        call = cJSON_GetArrayItem(p->calls, cJSON_GetArraySize(p->calls) - 1);
        cJSON_AddItemToObject(call, "arguments", cJSON_Parse(p->arguments.data ? p->arguments.data : ""));
        p->failed |= !e->is_complete;
        break;
    }
}

static cJSON *expected_calls(const struct probe_answer *answer)
{
    static const char *const names[] = {PROBE_NAME_1, PROBE_NAME_2, PROBE_NAME_1};
    cJSON *calls = cJSON_CreateArray();
    for (int i = 0; i < 3 && answer->arguments[i]; i++) {
        cJSON *call = cJSON_CreateObject();
        cJSON_AddStringToObject(call, "name", names[i]);
        cJSON_AddItemToObject(call, "arguments", cJSON_Parse(answer->arguments[i]));
        cJSON_AddItemToArray(calls, call);
    }
    return calls;
}

static bool holds(const struct buffer *b, const char *text)
{
    return b->num_bytes == strlen(text) && (b->num_bytes == 0 || !memcmp(b->data, text, b->num_bytes));
}

static bool compare(const struct parsed *p, const struct probe_answer *answer)
{
    cJSON *expected = expected_calls(answer);
    bool same = !p->failed && cJSON_Compare(expected, p->calls, true);
    if (answer->content) same = same && holds(&p->text, answer->content);
    cJSON_Delete(expected);
    return same;
}

/* The answer alone: without the turn around it. */
static struct slice answer_of(const struct tool_format *f, const struct buffer *rendered, bool has_calls)
{
    struct slice s = {rendered->data, rendered->num_bytes};
    struct slice header = slice_text(f->header), end = slice_text(has_calls ? f->calls_end : f->answer_end);
    size_t of_header;
    s = slice_from(s, slice_common_begin_loosely(s, header, &of_header));
    return slice_ends(s, end) ? slice_without_end(s, end.n) : s;
}

static bool parses_back(const struct tool_format *f, const struct probe *p, const struct probe_answer *answer)
{
    struct tool_parser *parser;
    struct buffer rendered;
    struct parsed parsed = {.calls = cJSON_CreateArray()};
    bool same = true;
    buffer_init(&rendered, chat_template_limits_default.output_bytes);
    buffer_init(&parsed.text, SIZE_MAX / 2);
    buffer_init(&parsed.reasoning, SIZE_MAX / 2);
    buffer_init(&parsed.arguments, SIZE_MAX / 2);
    if (probe_render(p, answer, &rendered) &&
        tool_parser_new(f, p->tools, false, on_event, &parsed, &parser) == 0) {
        struct slice s = answer_of(f, &rendered, answer->arguments[0]);
        same = tool_parser_push(parser, s.bytes, s.n) == 0 && tool_parser_finish(parser, false) == 0 &&
               compare(&parsed, answer);
        tool_parser_free(parser);
    }
    buffer_deinit(&rendered);
    buffer_deinit(&parsed.text);
    buffer_deinit(&parsed.reasoning);
    buffer_deinit(&parsed.arguments);
    cJSON_Delete(parsed.calls);
    return same;
}

bool tool_format_verify(const struct tool_format *f, const struct probe *p)
{
#define NESTED                                                                                               \
    "{\"key_one\": \"a \\\"b\\\" <c> \xC3\xA9, (d)\", \"key_two\": {\"a\": [1, 2.5, null, true, \"x'y\"]}}"
    static const char *const contents[] = {
        [CONTENT_KEPT] = PROBE_CONTENT, [CONTENT_EMPTY] = "", [CONTENT_NULL] = NULL};
    const char *content = contents[f->content_beside_calls];
    const struct probe_answer answers[] = {
        {.content = PROBE_CONTENT},
        {.content = content, .arguments = {"{}"}},
        {.content = content, .arguments = {"{\"key_one\": \"17\", \"key_two\": 17}"}},
        {.content = content, .arguments = {NESTED}},
        {.content = content ? "" : NULL, .arguments = {NESTED}},
        {.content = content, .arguments = {"{}", NESTED}},
        {.content = content, .arguments = {NESTED, "{\"key_two\": false}"}},
    };
    int count = sizeof answers / sizeof *answers;
    for (int i = 0; i < count; i++) {
        if (answers[i].arguments[1] && !f->is_parallel) continue;
        if (!parses_back(f, p, &answers[i])) return false;
    }
    return true;
}
