/* format.h - the parts of a format. Every text is NUL-terminated, never NULL, "" where there is none.
 *
 *   answer    [think_open reasoning think_close] [content_open] content [content_close] section
 *   section   section_begin call (call_separator call)* section_end
 *   call      call_begin NAME name_end ARGUMENTS call_end
 *   ARGUMENTS (tagged)  parameter (parameter_separator parameter)*
 *   parameter key_begin KEY key_end VALUE value_end
 *
 * SLOT_ID, SLOT_INDEX and SLOT_TYPE in a text stand for the id of a call, for a running number and for the name of a
 * value's type (or another word); SLOT_WORDS for whatever stands up to what follows it, on one line and without a
 * bracket or quote. White space at the ends of the texts around content and reasoning is not kept: it belongs to neither. */
#ifndef TEXT_TOOLS_FORMAT_H
#define TEXT_TOOLS_FORMAT_H

#include "base/arena.h"
#include "text/tools/tool_format.h"

#define SLOT_ID '\x01'
#define SLOT_INDEX '\x02'
#define SLOT_TYPE '\x03'
#define SLOT_WORDS '\x04'

enum argument_notation {
    ARGUMENTS_JSON,        /* an object */
    ARGUMENTS_JSON_STRING, /* an object's text, as a JSON string */
    ARGUMENTS_TAGGED,      /* each parameter by itself */
};

enum value_notation {
    VALUES_RAW,     /* strings as they are, until value_end; others as literals */
    VALUES_LITERAL, /* literals, which end by themselves; strings stand in quote */
};

enum { FOR_STRING, FOR_OTHER, NUM_VALUE_KINDS };

/* A further way in which a call may begin: call_begin, with what must stand in front of it, and name_end. */
struct other_begin {
    const char *begin, *name_end;
    bool needs_tool; /* it is one for names that a tool has */
    bool in_section; /* section_begin, or call_separator, stands in front of it */
    const char *end; /* what may stand behind such calls, for call_end too; NULL: nothing */
};
enum { OTHER_BEGINS_MAX = 8 };

struct tool_format {
    struct arena arena; /* of the texts */
    enum tool_format_origin origin;
    bool renders_calls, renders_tools, loses_results, loses_system, wants_argument_text, is_parallel;
    enum content_beside_calls content_beside_calls;
    /* The first call begins with what any text may begin with: it counts at the start of an answer only. */
    bool is_bare;
    const char *think_open, *think_close, *content_open, *content_close;
    const char *section_begin, *section_end;
    const char *call_begin, *name_end, *call_end, *call_separator;
    struct other_begin others[OTHER_BEGINS_MAX];
    int num_others;
    enum argument_notation notation;
    enum value_notation values;
    bool is_python; /* True, None */
    const char *key_begin, *key_end[NUM_VALUE_KINDS], *value_end, *parameter_separator;
    const char *quote; /* "": JSON's or Python's */
    /* What stands around an answer in a conversation, for re-rendering: behind the user's text, behind an
     * answer, behind one that ends with calls. */
    const char *header, *answer_end, *calls_end;
};

/* families.c: a format of the table for a template's source, NULL when it has none. */
const struct tool_format *tool_family_find(const char *source);
extern const struct tool_format tool_format_generic;

/* other_begins.c: adds to a format how its models begin calls, too. source: the template's. STATUS_NO_MEMORY. */
int tool_format_add_others(struct tool_format *f, const char *source) must_check;

#endif
