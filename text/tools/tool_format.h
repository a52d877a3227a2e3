/* tool_format.h - how a model writes tool calls and reasoning, read off its chat template.
 *
 * At load a few conversations full of marked words are rendered through the template; what stands between the
 * words is the format. It is checked by parsing what was rendered before it is believed. Families whose
 * template does not show their calls stand in a table (families.c); a template without any of it gets the
 * generic format, whose instructions and calls are put into the messages (tool_prompt.h).
 *
 * A format is immutable: any thread. Nothing in a template is trusted: rendering has the limits of
 * chat_template.h, every text of a format is at most TOOL_LITERAL_MAX bytes. */
#ifndef TEXT_TOOLS_TOOL_FORMAT_H
#define TEXT_TOOLS_TOOL_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"
#include "text/chat_template.h"

enum { TOOL_NAME_MAX = 128, TOOL_ID_MAX = 64, TOOL_LITERAL_MAX = 512 };

enum tool_format_origin {
    TOOLS_DERIVED, /* the template's own rendering */
    TOOLS_FAMILY,  /* the table's */
    TOOLS_GENERIC, /* the template knows nothing of tools */
};

/* What a template does with the content of an answer that has calls: when it loses it, or loses the calls
 * over it, the content must be empty or null. */
enum content_beside_calls { CONTENT_KEPT, CONTENT_EMPTY, CONTENT_NULL };

struct tool_format;
struct cJSON;

/* variables: what a rendering has beside messages and tools (bos_token, eos_token, ...), an object.
 * STATUS_NO_MEMORY alone: any template has a format. */
int tool_format_derive(const struct chat_template *t, const struct cJSON *variables, struct tool_format **out,
                       struct error *err) must_check;
void tool_format_free(struct tool_format *f);

enum tool_format_origin tool_format_origin(const struct tool_format *f);
/* Whether calls, and the list of tools, are rendered by the template; what it does not render is put into
 * the messages by the caller. */
bool tool_format_renders_calls(const struct tool_format *f);
bool tool_format_renders_tools(const struct tool_format *f);
/* Whether the template shows nothing of a tool's result, behind a call that it does not render. */
bool tool_format_loses_results(const struct tool_format *f);
/* Whether the template shows one system message of several, or none behind others, and says nothing of it. */
bool tool_format_loses_system(const struct tool_format *f);
/* Whether the template wants a call's arguments as JSON text; otherwise as the object. */
bool tool_format_wants_argument_text(const struct tool_format *f);
enum content_beside_calls tool_format_content_beside_calls(const struct tool_format *f);
/* Whether one answer may hold several calls. */
bool tool_format_is_parallel(const struct tool_format *f);
bool tool_format_has_reasoning(const struct tool_format *f);
/* What ends a block of reasoning; "" where there is none. */
const char *tool_format_reasoning_end(const struct tool_format *f);
/* Whether a prompt leaves the model within a block of reasoning. */
bool tool_format_opens_reasoning(const struct tool_format *f, const char *prompt, size_t num_bytes);
/* Whether this text (of a control token) belongs to the notation, so that the parser must see it. */
bool tool_format_mentions(const struct tool_format *f, const char *text, size_t num_bytes);

/* The format in words, a JSON object, for logs and tests. */
void tool_format_describe(const struct tool_format *f, struct buffer *out);

#endif
