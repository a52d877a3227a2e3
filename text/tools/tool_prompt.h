/* tool_prompt.h - tools and calls in the conversation that a template renders.
 *
 * What a template takes as variables is given to it; what it does not render (tool_format.h) is written into
 * the messages, in the notation that the parser reads. Thread: pure functions. */
#ifndef TEXT_TOOLS_TOOL_PROMPT_H
#define TEXT_TOOLS_TOOL_PROMPT_H

#include "base/buffer.h"
#include "text/tools/tool_format.h"

struct cJSON;

/* Adds the list of tools under the names that templates use (tools, functions, available_tools), and the day
 * (datetime), where context has them not. tools is copied. */
int tool_prompt_add_variables(const struct tool_format *f, struct cJSON *context, const struct cJSON *tools,
                              int64_t now_seconds) must_check;

/* JSON in the spacing that models see most. */
void tool_prompt_write_json(const struct cJSON *value, struct buffer *out);

/* The text of calls: an array of {"id", "function": {"name", "arguments"}}, arguments an object or JSON text.
 */
void tool_prompt_write_calls(const struct tool_format *f, const struct cJSON *calls, struct buffer *out);

/* What the system message says of the tools when the template does not: their list and an example of a call.
 */
void tool_prompt_write_tools(const struct tool_format *f, const struct cJSON *tools, struct buffer *out);

#endif
