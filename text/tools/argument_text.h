/* argument_text.h - the JSON text of a call's arguments, followed to where it ends.
 *
 * Brackets and strings are looked at, not the grammar: what is in between is the client's to judge. JSON passes unchanged.
 * What models often write instead is mended: control characters in strings are escaped, True, False and None become
 * JSON's, and a comma in front of a closing bracket goes. Thread: pure functions. */
#ifndef TEXT_TOOLS_ARGUMENT_TEXT_H
#define TEXT_TOOLS_ARGUMENT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

enum { ARGUMENT_DEPTH_MAX = 256 };

struct argument_scan {
    char closing[ARGUMENT_DEPTH_MAX];
    int depth;
    bool in_string, is_escaped;
};

enum argument_state {
    ARGUMENT_MORE,
    ARGUMENT_WHOLE,
    ARGUMENT_BROKEN /* a bracket closes what was not opened */
};

/* Appends the text to out as far as it is known what it is, and returns how many bytes that were. Call again with what follows
 * these. The first byte of all is a bracket. */
size_t argument_scan(struct argument_scan *s, const char *text, size_t num_bytes, enum argument_state *state,
                     struct buffer *out);

/* JSON text within a JSON string, behind its opening quote: appends what it says (\u escapes stay: they are that text's, too),
 * and returns how many bytes that were, a closing quote among them (*ended). */
size_t argument_unescape(const char *text, size_t num_bytes, bool *ended, struct buffer *out);

#endif
