/* call_head.h - whether a call begins at a place of an answer, in any of the ways in which models begin them.
 *
 * call_begin NAME name_end and what arguments begin with, one of the format's other beginnings, or an object that is a call
 * (call_object.h). The result for a beginning is never taken back by more bytes. Thread: pure functions. */
#ifndef TEXT_TOOLS_CALL_HEAD_H
#define TEXT_TOOLS_CALL_HEAD_H

#include "text/tools/call_object.h"
#include "text/tools/format.h"
#include "text/tools/match.h"

struct cJSON;

struct answer_view {
    const struct tool_format *format;
    const struct cJSON *tools; /* NULL: none, and no calls */
    struct span held;          /* of the answer, what has not been taken */
};

struct call_head {
    size_t name_at, name_bytes; /* in what is held */
    struct match_id id;
    bool is_object;   /* the call was read whole */
    bool has_bracket; /* its begin has that of the object in which its arguments stand */
    bool is_fenced;   /* a Markdown fence stands in front of its object, or of the arguments' */
    bool is_listed;   /* so does the bracket of a list that the format does not have */
    const char *end;  /* as other_begin has it */
    struct call_object object;
};

/* The bytes up to the arguments, or of a whole object, or a MATCH_. first: what must stand in front of call_begin. may_be_bare: a
 * call may begin here that has no mark. */
ssize_t call_head_match(const struct answer_view *v, size_t at, const char *first, bool may_be_bare,
                        struct call_head *head);
/* The same of an answer that begins here and is nothing but objects that are calls of tools, in a fence or a list or none: it is
 * one whatever the format's marks are. */
ssize_t call_head_match_alone(const struct answer_view *v, size_t at, struct call_head *head);

bool call_name_byte(char c);
/* Whether an object that is a call of a tool stands here, without any mark: the bytes up to its end, or a MATCH_. */
ssize_t call_head_match_next(const struct answer_view *v, size_t at, struct call_head *head);

/* A mark that ends a call behind its arguments, without the brackets in front of it. */
const char *call_end_mark(const struct tool_format *f);

#endif
