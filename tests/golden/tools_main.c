/* tools_main.c - formats of tool calls, for test_tools.py.
 *
 * Each line of standard input is a JSON object {"template": source, "variables": object} for a format, or
 * {"prompt": context, "list": tools}, {"write": calls} and {"parse": text, "tools": [...], "in_reasoning": bool,
 * "cuts": [bytes, ...]}, which use the last format. Each line of output is the format, {"text"}, or {"content",
 * "reasoning", "calls": [{"name", "arguments", "id", "is_complete"}]}. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/json_numbers.h"
#include "text/tools/tool_parser.h"
#include "text/tools/tool_prompt.h"

struct model {
    struct chat_template *template;
    struct tool_format *format;
};

struct parsed {
    struct buffer content, reasoning, arguments, calls;
    int num_calls;
};

static void on_event(void *context, const struct tool_event *e)
{
    struct parsed *p = context;
    if (e->kind == TOOL_TEXT) buffer_append(&p->content, e->bytes, e->num_bytes);
    if (e->kind == TOOL_REASONING) buffer_append(&p->reasoning, e->bytes, e->num_bytes);
    if (e->kind == TOOL_ARGUMENTS) buffer_append(&p->arguments, e->bytes, e->num_bytes);
    if (e->kind == TOOL_CALL_BEGIN) {
        buffer_append_text(&p->calls, p->num_calls++ ? ",{\"name\":" : "{\"name\":");
        buffer_append_json(&p->calls, e->bytes, e->num_bytes);
        buffer_append_text(&p->calls, ",\"id\":");
        buffer_append_json_text(&p->calls, e->id);
        buffer_clear(&p->arguments);
    }
    if (e->kind == TOOL_CALL_END) {
        buffer_append_text(&p->calls, ",\"arguments\":");
        buffer_append_json(&p->calls, p->arguments.data, p->arguments.num_bytes);
        buffer_printf(&p->calls, ",\"is_complete\":%s}", e->is_complete ? "true" : "false");
    }
}

static void fail(const char *what)
{
    fprintf(stderr, "tools_main: %s\n", what);
    exit(1);
}

static const cJSON *get(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static void load(struct model *m, const cJSON *job, struct buffer *out)
{
    struct error err = {0};
    tool_format_free(m->format);
    chat_template_free(m->template);
    m->format = NULL;
    m->template = NULL;
    if (chat_template_parse(get(job, "template")->valuestring, &m->template, &err) != 0) fail(err.text);
    if (tool_format_derive(m->template, get(job, "variables"), &m->format, &err) != 0) fail(err.text);
    tool_format_describe(m->format, out);
}

static void render(const struct model *m, const cJSON *job, struct buffer *out)
{
    static const char *const trusted[] = {"bos_token", "eos_token", NULL};
    struct error err = {0};
    struct buffer text;
    struct text_range *untrusted;
    int num_untrusted;
    buffer_init(&text, 64 << 20);
    if (cJSON_IsArray(get(job, "list")) &&
        tool_prompt_add_variables(m->format, cJSON_GetObjectItem(job, "prompt"), get(job, "list"), 0) != 0)
        fail("no memory");
    int status = chat_template_render(m->template, get(job, "prompt"), trusted, 0,
                                      &chat_template_limits_default, &text, &untrusted, &num_untrusted, &err);
    buffer_append_text(out, status ? "{\"error\":" : "{\"text\":");
    if (status)
        buffer_append_json_text(out, err.text);
    else
        buffer_append_json(out, text.data, text.num_bytes);
    buffer_append_text(out, "}");
    free(untrusted);
    buffer_deinit(&text);
}

static void write_calls(const struct model *m, const cJSON *job, struct buffer *out)
{
    struct buffer text;
    buffer_init(&text, 64 << 20);
    tool_prompt_write_calls(m->format, get(job, "write"), &text);
    buffer_append_text(out, "{\"text\":");
    buffer_append_json(out, text.data, text.num_bytes);
    buffer_append_text(out, "}");
    buffer_deinit(&text);
}

static void push(struct tool_parser *p, const char *text, const cJSON *cuts)
{
    size_t n = strlen(text), at = 0;
    const cJSON *cut;
    cJSON_ArrayForEach(cut, cuts)
    {
        size_t end = (size_t)cut->valueint < n ? (size_t)cut->valueint : n;
        if (end <= at) continue;
        if (tool_parser_push(p, text + at, end - at) != 0) fail("no memory");
        at = end;
    }
    if (tool_parser_push(p, text + at, n - at) != 0 || tool_parser_finish(p, false) != 0) fail("no memory");
}

static void append_field(struct buffer *out, const char *name, const struct buffer *text)
{
    buffer_printf(out, "\"%s\":", name);
    buffer_append_json(out, text->data, text->num_bytes);
    buffer_append_char(out, ',');
}

static void parse(const struct model *m, const cJSON *job, struct buffer *out)
{
    struct parsed parsed = {.num_calls = 0};
    struct tool_parser *p;
    buffer_init(&parsed.content, 64 << 20);
    buffer_init(&parsed.reasoning, 64 << 20);
    buffer_init(&parsed.arguments, 64 << 20);
    buffer_init(&parsed.calls, 64 << 20);
    if (tool_parser_new(m->format, get(job, "tools"), cJSON_IsTrue(get(job, "in_reasoning")), on_event,
                        &parsed, &p) != 0)
        fail("no memory");
    push(p, get(job, "parse")->valuestring, get(job, "cuts"));
    tool_parser_free(p);
    buffer_append_char(out, '{');
    append_field(out, "content", &parsed.content);
    append_field(out, "reasoning", &parsed.reasoning);
    buffer_printf(out, "\"calls\":[%s]}", parsed.calls.data ? parsed.calls.data : "");
    buffer_deinit(&parsed.content);
    buffer_deinit(&parsed.reasoning);
    buffer_deinit(&parsed.arguments);
    buffer_deinit(&parsed.calls);
}

int main(void)
{
    struct model model = {NULL, NULL};
    struct buffer out;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    buffer_init(&out, 256 << 20);
    while ((n = getline(&line, &capacity, stdin)) > 0) {
        cJSON *job = cJSON_ParseWithLength(line, (size_t)n);
        if (!job || json_keep_numbers(job, line, (size_t)n) != 0) fail("the line is not JSON");
        buffer_clear(&out);
        if (get(job, "template"))
            load(&model, job, &out);
        else if (get(job, "prompt"))
            render(&model, job, &out);
        else if (get(job, "write"))
            write_calls(&model, job, &out);
        else
            parse(&model, job, &out);
        puts(out.data);
        cJSON_Delete(job);
    }
    tool_format_free(model.format);
    chat_template_free(model.template);
    buffer_deinit(&out);
    free(line);
    return 0;
}
