#include "text/tools/tool_format.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "text/tools/format.h"
#include "text/tools/slice.h"

enum tool_format_origin tool_format_origin(const struct tool_format *f)
{
    return f->origin;
}

bool tool_format_renders_calls(const struct tool_format *f)
{
    return f->renders_calls;
}

bool tool_format_loses_results(const struct tool_format *f)
{
    return f->loses_results;
}

bool tool_format_loses_system(const struct tool_format *f)
{
    return f->loses_system;
}

bool tool_format_renders_tools(const struct tool_format *f)
{
    return f->renders_tools;
}

bool tool_format_wants_argument_text(const struct tool_format *f)
{
    return f->wants_argument_text;
}

enum content_beside_calls tool_format_content_beside_calls(const struct tool_format *f)
{
    return f->content_beside_calls;
}

bool tool_format_is_parallel(const struct tool_format *f)
{
    return f->is_parallel;
}

bool tool_format_has_reasoning(const struct tool_format *f)
{
    return *f->think_close;
}

const char *tool_format_reasoning_end(const struct tool_format *f)
{
    return f->think_close;
}

bool tool_format_opens_reasoning(const struct tool_format *f, const char *prompt, size_t num_bytes)
{
    struct slice s = slice_strip((struct slice){prompt, num_bytes});
    return *f->think_open && *f->think_close && slice_ends(s, slice_text(f->think_open));
}

/* The texts that an answer may hold, for whoever looks through all. */
enum { NUM_TEXTS = 16 };
struct named_text {
    const char *name, *text;
};

static void list_texts(const struct tool_format *f, struct named_text out[NUM_TEXTS])
{
    const struct named_text texts[NUM_TEXTS] = {
        {"think_open", f->think_open},
        {"think_close", f->think_close},
        {"content_open", f->content_open},
        {"content_close", f->content_close},
        {"section_begin", f->section_begin},
        {"section_end", f->section_end},
        {"call_separator", f->call_separator},
        {"call_begin", f->call_begin},
        {"name_end", f->name_end},
        {"call_end", f->call_end},
        {"key_begin", f->key_begin},
        {"key_end", f->key_end[FOR_STRING]},
        {"key_end_other", f->key_end[FOR_OTHER]},
        {"value_end", f->value_end},
        {"parameter_separator", f->parameter_separator},
        {"quote", f->quote},
    };
    memcpy(out, texts, sizeof texts);
}

bool tool_format_mentions(const struct tool_format *f, const char *text, size_t num_bytes)
{
    struct named_text texts[NUM_TEXTS];
    list_texts(f, texts);
    for (int i = 0; i < NUM_TEXTS && num_bytes > 0; i++)
        if (memmem(texts[i].text, strlen(texts[i].text), text, num_bytes)) return true;
    for (int i = 0; i < f->num_others && num_bytes > 0; i++) {
        const struct other_begin *o = &f->others[i];
        if (memmem(o->begin, strlen(o->begin), text, num_bytes) ||
            memmem(o->name_end, strlen(o->name_end), text, num_bytes) ||
            (o->end && memmem(o->end, strlen(o->end), text, num_bytes)))
            return true;
    }
    return false;
}

void tool_format_describe(const struct tool_format *f, struct buffer *out)
{
    static const char *const origins[] = {
        [TOOLS_DERIVED] = "derived", [TOOLS_FAMILY] = "family", [TOOLS_GENERIC] = "generic"};
    static const char *const notations[] = {
        [ARGUMENTS_JSON] = "json", [ARGUMENTS_JSON_STRING] = "json string", [ARGUMENTS_TAGGED] = "tagged"};
    static const char *const contents[] = {
        [CONTENT_KEPT] = "kept", [CONTENT_EMPTY] = "empty", [CONTENT_NULL] = "null"};
    struct named_text texts[NUM_TEXTS];
    list_texts(f, texts);
    buffer_printf(out, "{\"origin\": \"%s\", \"arguments\": \"%s\"", origins[f->origin],
                  notations[f->notation]);
    if (f->notation == ARGUMENTS_TAGGED)
        buffer_printf(out, ", \"values\": \"%s\"", f->values == VALUES_RAW ? "raw" : "literal");
    for (int i = 0; i < NUM_TEXTS; i++) {
        if (!*texts[i].text) continue;
        buffer_printf(out, ", \"%s\": ", texts[i].name);
        buffer_append_json_text(out, texts[i].text);
    }
    buffer_append_text(out, ", \"others\": [");
    for (int i = 0; i < f->num_others; i++) {
        buffer_append_text(out, i ? ", [" : "[");
        buffer_append_json_text(out, f->others[i].begin);
        buffer_append_text(out, ", ");
        buffer_append_json_text(out, f->others[i].name_end);
        buffer_append_text(out, "]");
    }
    buffer_printf(out, "], \"renders_calls\": %s, \"renders_tools\": %s, \"content_beside_calls\": \"%s\"",
                  f->renders_calls ? "true" : "false", f->renders_tools ? "true" : "false",
                  contents[f->content_beside_calls]);
    buffer_printf(out, ", \"wants_argument_text\": %s, \"is_parallel\": %s, \"is_bare\": %s",
                  f->wants_argument_text ? "true" : "false", f->is_parallel ? "true" : "false",
                  f->is_bare ? "true" : "false");
    const struct named_text turn[] = {
        {"header", f->header}, {"answer_end", f->answer_end}, {"calls_end", f->calls_end}};
    for (int i = 0; i < 3; i++) {
        buffer_printf(out, ", \"%s\": ", turn[i].name);
        buffer_append_json_text(out, turn[i].text);
    }
    buffer_append_text(out, "}");
}
