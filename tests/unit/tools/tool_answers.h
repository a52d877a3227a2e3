/* tool_answers.h - formats of small templates, and an answer's events joined into one text.
 *
 *   T(text) R(reasoning) C(name|id) A(arguments) E(whole) or E(broken) */
#ifndef UNIT_TOOLS_TOOL_ANSWERS_H
#define UNIT_TOOLS_TOOL_ANSWERS_H

#include <cjson/cJSON.h>
#include <string.h>

#include "base/check.h"
#include "text/tools/tool_parser.h"

#define TEMPLATE(think, calls)                                                                               \
    "{%- if tools %}{{ tools | tojson }}{% endif %}{%- for m in messages %}{{ '<|' + m.role + '|>' }}" think \
    "{{ m.content or '' }}{%- if m.tool_calls %}" calls "{% endif %}{{ '<|end|>' }}{% endfor %}"             \
    "{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
#define THINK                                                                                                \
    "{%- if m.reasoning_content %}{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{% endif %}"

enum {
    FORMAT_JSON,
    FORMAT_RAW,
    FORMAT_PYTHON,
    FORMAT_BARE,
    FORMAT_STRING,
    FORMAT_NUMBERED,
    FORMAT_TYPED,
    FORMAT_LISTED,
    FORMAT_NESTED,
    FORMAT_QUOTED,
    FORMAT_CHANNELS,
    FORMAT_PYTHON_LIST,
    NUM_FORMATS
};

static const char *const format_templates[NUM_FORMATS] = {
    [FORMAT_JSON] = TEMPLATE(THINK, "{%- for c in m.tool_calls %}{{ '\n<tool_call>\n{\"name\": \"' + "
                                    "c.function.name + '\", \"arguments\": ' }}"
                                    "{{ c.function.arguments | tojson }}{{ '}\n</tool_call>' }}{% endfor %}"),
    [FORMAT_RAW] = TEMPLATE(
        THINK, "{{ '<calls>\n' }}{%- for c in m.tool_calls %}{{ '<invoke=' + c.function.name + '>\n' }}"
               "{%- for k, v in c.function.arguments.items() %}{{ '<parameter=' + k + '>\n' }}"
               "{{ v if v is string else v | tojson }}{{ '\n</parameter>\n' }}{% endfor %}{{ '</invoke>\n' "
               "}}{% endfor %}"
               "{{ '</calls>' }}"),
    [FORMAT_PYTHON] = TEMPLATE(
        "",
        "{{ '<|run|>[' }}{%- for c in m.tool_calls %}{{ ', ' if not loop.first }}{{ c.function.name + '(' }}"
        "{%- for k, v in c.function.arguments.items() %}{{ ', ' if not loop.first }}{{ k }}={{ v | tojson }}"
        "{% endfor %}{{ ')' }}{% endfor %}{{ ']' }}"),
    [FORMAT_BARE] =
        TEMPLATE("", "{{ '{\"name\": \"' + m.tool_calls[0].function.name + '\", \"parameters\": ' }}"
                     "{{ m.tool_calls[0].function.arguments | tojson }}{{ '}' }}"),
    [FORMAT_STRING] =
        TEMPLATE("", "{%- for c in m.tool_calls %}{{ '[CALL]' + c.function.name + '[ID]' + c.id + '[ARGS]' }}"
                     "{{ c.function.arguments | tojson | tojson }}{% endfor %}"),
    [FORMAT_NUMBERED] = TEMPLATE(
        THINK,
        "{{ '<begin>' }}{%- for c in m.tool_calls %}{{ '<call>' + c.function.name + ':' + (loop.index0 | "
        "string) }}"
        "{{ '<arguments>' }}{{ c.function.arguments | tojson }}{{ '</call>' }}{% endfor %}{{ '<finish>' }}"),
    [FORMAT_TYPED] = TEMPLATE(
        THINK, "{%- for c in m.tool_calls %}{{ '<|open|>call=' + c.function.name + '<|sep|>' }}"
               "{%- for k, v in c.function.arguments.items() %}{{ '<|open|>key=' + k + ':type=' }}"
               "{{ 'string' if v is string else 'boolean' if v is boolean else 'number' if v is number else "
               "'object' if v is mapping else 'null' if v is none else 'array' }}{{ '<|sep|>' }}"
               "{{ v if v is string else v | tojson }}{{ '<|close|>key<|sep|>' }}{% endfor %}"
               "{{ '<|close|>call<|sep|>' }}{% endfor %}"),
    [FORMAT_LISTED] = TEMPLATE("", "{{ '<calls>[' }}{%- for c in m.tool_calls %}{{ '{\"name\": \"' + "
                                   "c.function.name + '\", \"arguments\": ' }}"
                                   "{{ c.function.arguments | tojson }}{{ '}' }}{{ ', ' if not loop.last "
                                   "}}{% endfor %}{{ ']</calls>' }}"),
    [FORMAT_NESTED] = TEMPLATE(
        THINK, "{%- for c in m.tool_calls %}{{ '<tool_call>\n<function=' + c.function.name + '>\n' }}"
               "{%- for k, v in c.function.arguments.items() %}{{ '<parameter=' + k + '>\n' }}"
               "{{ v if v is string else v | tojson }}{{ '\n</parameter>\n' }}{% endfor %}"
               "{{ '</function>\n</tool_call>' }}{% endfor %}"),
    [FORMAT_QUOTED] = TEMPLATE(
        "",
        "{%- macro value(v) %}{%- if v is string %}{{ '<|q|>' + v + '<|q|>' }}{%- elif v is mapping %}{{ '{' "
        "}}"
        "{%- for k, w in v.items() %}{{ ',' if not loop.first }}{{ k + ':' + value(w) }}{% endfor %}{{ '}' }}"
        "{%- elif v is sequence %}{{ '[' }}{%- for w in v %}{{ ',' if not loop.first }}{{ value(w) }}{% "
        "endfor %}"
        "{{ ']' }}{%- else %}{{ v | tojson }}{% endif %}{%- endmacro %}"
        "{%- for c in m.tool_calls %}{{ '<|tool>call:' + c.function.name + value(c.function.arguments) + "
        "'<tool|>' }}"
        "{% endfor %}"),
    /* Known by its mark: gpt-oss. */
    [FORMAT_CHANNELS] = "{# <|channel|>commentary #}" TEMPLATE("", ""),
    /* Llama 3.2, whose calls lose their quotes. */
    [FORMAT_PYTHON_LIST] =
        "{# [func_name1(params_name1=params_value1, params_name2=params_value2...), func_name2(params)] "
        "#}" TEMPLATE(
            "", "{{ '[' }}{%- for c in m.tool_calls %}{{ c.function.name + '(' }}{%- for k, v in "
                "c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}{{ ')' }}{% endfor %}{{ ']' }}"),
};

static const char tools_of_answers[] __attribute__((unused)) =
    "[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"note\":{},\"page[size]\":{\"type\":"
    "\"string\"},"
    "\"a:b=\\\"\":{}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"refer\",\"parameters\":{\"$ref\":\"#/$defs/a~1b\","
    "\"$defs\":{\"a/b\":{\"type\":\"object\",\"properties\":{\"code\":{\"$ref\":\"#/$defs/code\"},"
    "\"same\":{\"$ref\":\"#/$defs/a~1b/properties/code\"},\"maybe\":{\"anyOf\":[{\"$ref\":\"#/$defs/code\"},"
    "{\"type\":\"null\"}]},\"all\":{\"allOf\":[{\"$ref\":\"#/$defs/code\"}]},\"any\":{\"$ref\":\"#/$defs/"
    "none\"},"
    "\"back\":{\"$ref\":\"#/$defs/back\"},\"second\":{\"$ref\":\"#/$defs/either/anyOf/1\"}}},"
    "\"code\":{\"type\":\"string\"},\"either\":{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"string\"}]},"
    "\"back\":{\"anyOf\":[{\"$ref\":\"#/$defs/back\"},{\"$ref\":\"#/$defs/back\"}]}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"look_up\",\"parameters\":{}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"need\",\"parameters\":{\"properties\":{\"city\":{}},"
    "\"required\":[\"city\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"either\",\"parameters\":{\"anyOf\":[{\"properties\":{"
    "\"id\":{\"type\":"
    "\"string\"},\"at\":{\"type\":\"string\"}}},{\"$ref\":\"#/$defs/"
    "other\"}],\"$defs\":{\"other\":{\"properties\":{\"at\":"
    "{\"type\":\"integer\"},\"of\":{},\"both\":{\"allOf\":[{\"maxLength\":9},{\"type\":\"string\"},{\"type\":"
    "[\"string\","
    "\"null\"]}]}}}}}}}]";

static struct tool_format *format_of(const char *source)
{
    struct chat_template *t = NULL;
    struct tool_format *f = NULL;
    struct error err = {0};
    assert_always(chat_template_parse(source, &t, &err) == 0);
    assert_always(tool_format_derive(t, NULL, &f, &err) == 0);
    chat_template_free(t);
    return f;
}

struct joined {
    struct buffer out;
    int last; /* kind of the last event; -1: none */
};

static inline void join(void *context, const struct tool_event *e)
{
    static const char *const names[] = {[TOOL_TEXT] = "T(",
                                        [TOOL_REASONING] = "R(",
                                        [TOOL_CALL_BEGIN] = "C(",
                                        [TOOL_ARGUMENTS] = "A(",
                                        [TOOL_CALL_END] = "E("};
    struct joined *j = context;
    bool goes_on = j->last == (int)e->kind && e->kind != TOOL_CALL_BEGIN && e->kind != TOOL_CALL_END;
    if (!goes_on && j->last >= 0) buffer_append_char(&j->out, ')');
    if (!goes_on) buffer_append_text(&j->out, names[e->kind]);
    buffer_append(&j->out, e->bytes, e->num_bytes);
    if (e->kind == TOOL_CALL_BEGIN && *e->id) buffer_printf(&j->out, "|%s", e->id);
    if (e->kind == TOOL_CALL_END) buffer_append_text(&j->out, e->is_complete ? "whole" : "broken");
    j->last = (int)e->kind;
}

static inline void joined_init(struct joined *j)
{
    buffer_init(&j->out, SIZE_MAX / 2);
    j->last = -1;
}

/* The whole answer, in pieces of at most step bytes (0: at once); the caller deinits out. */
static bool answers_are_cut;

static inline void parse_joined(const struct tool_format *f, bool in_reasoning, const char *text, size_t n,
                                size_t step, struct buffer *out)
{
    struct joined j;
    struct tool_parser *p = NULL;
    cJSON *tools = cJSON_Parse(tools_of_answers);
    joined_init(&j);
    assert_always(tool_parser_new(f, tools, in_reasoning, join, &j, &p) == 0);
    for (size_t at = 0; at < n; at += step ? step : n)
        assert_always(tool_parser_push(p, text + at, step && step < n - at ? step : n - at) == 0);
    assert_always(tool_parser_finish(p, answers_are_cut) == 0);
    tool_parser_free(p);
    cJSON_Delete(tools);
    if (j.last >= 0) buffer_append_char(&j.out, ')');
    buffer_append(&j.out, "", 1);
    *out = j.out;
}

#endif
