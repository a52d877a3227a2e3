/* families.c - formats that cannot be read off a template, known by what stands in it. */
#include <string.h>

#include "text/tools/format.h"

/* Hermes' notation: what most models have seen. */
#define HERMES                                                                                               \
    .call_begin = "<tool_call>\n{\"name\": \"",                                                              \
    .name_end = "\", \"arguments\": ", .call_end = "}\n</tool_call>"
#define NOTHING                                                                                              \
    .think_open = "", .think_close = "", .content_open = "", .content_close = "", .section_begin = "",       \
    .section_end = "", .call_begin = "", .name_end = "", .call_end = "", .call_separator = "",               \
    .key_begin = "", .key_end = {"", ""}, .value_end = "", .parameter_separator = "", .quote = "",           \
    .header = "", .answer_end = "", .calls_end = ""

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"

const struct tool_format tool_format_generic = {
    NOTHING,
    HERMES,
    .origin = TOOLS_GENERIC,
    .is_parallel = true,
};

/* Calls in Python's notation as Llama 3.2 and 4 are asked for them; with marks and fences that these and Gemma 3 put around. */
#define PYTHON_CALLS                                                                                         \
    .section_begin = "[", .section_end = "]", .call_separator = ", ", .name_end = "(", .call_end = ")",      \
    .key_end = {"=", "="}, .parameter_separator = ", ", .notation = ARGUMENTS_TAGGED,                        \
    .values = VALUES_LITERAL, .is_python = true, .is_bare = true, .content_beside_calls = CONTENT_EMPTY

static const struct {
    const char *mark;
    struct tool_format format;
} families[] = {
    /* LFM2 and LFM2.5: calls in Python's notation, which the template leaves in the content. */
    {"List of tools: ",
     {NOTHING, .origin = TOOLS_FAMILY, .is_parallel = true, .section_begin = "<|tool_call_start|>[",
      .section_end = "]<|tool_call_end|>", .call_separator = ", ", .name_end = "(", .call_end = ")",
      .others = {{"{\"name\": \"", "\", \"arguments\": ", .needs_tool = true, .in_section = true}},
      .num_others = 1, .notation = ARGUMENTS_TAGGED, .values = VALUES_LITERAL, .is_python = true,
      .key_end = {"=", "="}, .parameter_separator = ", "}},
    /* The example in the instructions of Llama 3.2 and 4, ToolACE and Gemma 3, whose templates write calls without quotes. */
    {"[func_name1(param",
     {NOTHING, PYTHON_CALLS, .origin = TOOLS_FAMILY, .is_parallel = true,
      .others = {{"<|python_start|>[", "(", .needs_tool = true, .end = "<|python_end|>"},
                 {"<|python_tag|>[", "(", .needs_tool = true},
                 {"```tool_code\n[", "(", .needs_tool = true, .end = "```"},
                 {"```python\n[", "(", .needs_tool = true, .end = "```"}},
      .num_others = 4}},
    /* Granite 3.x. */
    {"<|start_of_role|>available_tools",
     {NOTHING, .origin = TOOLS_FAMILY, .is_parallel = true, .section_begin = "<|tool_call|>[",
      .section_end = "]", .call_separator = ", ", .call_begin = "{\"name\": \"",
      .name_end = "\", \"arguments\": ", .call_end = "}",
      .others = {{"<tool_call>{\"name\": \"", "\", \"arguments\": ", .needs_tool = true}}, .num_others = 1}},
    /* gpt-oss writes the recipient behind the channel, renders it in front of it. What it says in front of calls has
     * the channel commentary, too. */
    {"<|channel|>commentary",
     {NOTHING, .origin = TOOLS_FAMILY, .renders_calls = true, .content_beside_calls = CONTENT_EMPTY,
      .think_open = "<|channel|>analysis<|message|>", .think_close = "<|end|>",
      .content_open = "<|channel|>\x03\x04<|message|>", .content_close = "<|start|>assistant",
      .call_begin = " to=functions.", .name_end = "<|channel|>commentary json<|message|>",
      .others = {{"<|channel|>\x03 to=functions.", " <|constrain|>json<|message|>", .needs_tool = false},
                 {"<|channel|>\x03 to=functions.", "\x04<|message|>", .needs_tool = false},
                 {" to=functions.", "\x04<|message|>", .needs_tool = false},
                 {"<|channel|>\x03 to=", "\x04<|message|>", .needs_tool = true},
                 {" to=", "\x04<|message|>", .needs_tool = true}},
      .num_others = 5, .calls_end = "<|call|>"}},
};

#pragma GCC diagnostic pop

const struct tool_format *tool_family_find(const char *source)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strstr(source, families[i].mark)) return &families[i].format;
    return NULL;
}
