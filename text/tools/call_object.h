/* call_object.h - a call that is an object in JSON's or Python's notation, whatever its keys' order: {"name": ..., "arguments": ...}.
 *
 *   name        "name", "tool_name", "function" (a text, or an object that has the others)
 *   arguments   "arguments", "parameters": an object, its text as a string, null, "" or none
 *   besides     "type", "id", "index"
 *
 * Thread: pure functions. */
#ifndef TEXT_TOOLS_CALL_OBJECT_H
#define TEXT_TOOLS_CALL_OBJECT_H

#include <stdbool.h>
#include <stddef.h>

#include "text/tools/slice.h"

struct call_object {
    struct slice name;      /* what stands between its quotes; no escapes */
    struct slice arguments; /* an object's text, or what stands between the quotes of a string; n 0: none */
    bool is_string;         /* arguments is such a text, with its escapes */
    bool is_python;         /* some string stands in single quotes */
    bool has_arguments;     /* its key is there */
    bool name_is_whole;
    size_t num_bytes; /* of the whole object */
};

enum call_object_state { CALL_OBJECT_NOT, CALL_OBJECT_MORE, CALL_OBJECT_WHOLE };

/* The text begins with '{' and may go on behind the object's end. MORE: nothing in it speaks against a call; out has what
 * is known so far, the name as far as it is there. */
enum call_object_state call_object_read(const char *text, size_t num_bytes, struct call_object *out);

#endif
