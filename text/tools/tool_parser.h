/* tool_parser.h - an answer as text, reasoning and calls, while it is written.
 *
 * Bytes in, events out. However the bytes are cut, the joined events are the same. No byte that may be text
 * is lost: what only begins like a call comes out as text as soon as that shows, at most
 * TOOL_LITERAL_MAX bytes behind. A call is announced when its name and what follows the name are whole; if it
 * breaks off later, what there was of its arguments stays, its end says so, and what follows is text.
 *
 * Memory: what is held back, at most TOOL_VALUE_MAX bytes (a parameter that is no string is looked at whole).
 * Owner: one answer; refers to the format and the tools, which must live longer. Thread: one user. */
#ifndef TEXT_TOOLS_TOOL_PARSER_H
#define TEXT_TOOLS_TOOL_PARSER_H

#include "text/tools/tool_format.h"

enum { TOOL_VALUE_MAX = 1 << 20 };

enum tool_event_kind {
    TOOL_TEXT,
    TOOL_REASONING,
    TOOL_CALL_BEGIN, /* bytes: the name; id: the model's own, "" when it gave none */
    TOOL_ARGUMENTS,  /* more of the JSON text of the arguments */
    TOOL_CALL_END,   /* is_complete: whether the arguments are whole */
};

struct tool_event {
    enum tool_event_kind kind;
    const char *bytes; /* valid during the call */
    size_t num_bytes;
    const char *id;
    bool is_complete;
};

typedef void tool_sink(void *context, const struct tool_event *event);

struct tool_parser;

/* What becomes of reasoning. */
enum tool_reasoning {
    TOOL_REASONING_SPLIT,
    TOOL_REASONING_OPEN,    /* likewise; the prompt opened the block */
    TOOL_REASONING_IN_TEXT, /* it stays in the text, with its marks */
};

/* tools: the request's list (an array of {"type": "function", "function": {...}}), NULL for none: then no
 * call is looked for. */
int tool_parser_new(const struct tool_format *f, const struct cJSON *tools, enum tool_reasoning reasoning,
                    tool_sink *sink, void *context, struct tool_parser **out) must_check;
void tool_parser_free(struct tool_parser *p);

/* STATUS_NO_MEMORY: the answer is over. */
int tool_parser_push(struct tool_parser *p, const char *bytes, size_t num_bytes) must_check;
/* The answer is over: what was held comes out. is_cut: it was cut off, so that what a call begins with is the beginning of one, and
 * no text. */
int tool_parser_finish(struct tool_parser *p, bool is_cut) must_check;

/* Whether the next byte belongs to reasoning; to a call. */
bool tool_parser_in_reasoning(const struct tool_parser *p);
bool tool_parser_in_call(const struct tool_parser *p);

#endif
