/* custom_input.h - what a custom tool's call says, out of its arguments while they come. Thread: pure functions. */
#ifndef SERVER_API_CUSTOM_INPUT_H
#define SERVER_API_CUSTOM_INPUT_H

#include <stddef.h>

#include "base/buffer.h"

/* From {"input": "TEXT"}. */
struct custom_input {
    enum { INPUT_BEGINS, INPUT_TEXT, INPUT_ENDED, INPUT_OTHER } state;
    size_t num_matched; /* bytes of what stands before the text */
    char held[16];      /* an escape that is not whole, or half of a pair */
    size_t num_held;
};

/* Appends what of the text is certain. Arguments of another form come out as they are, an escape without its digits
 * too; half of a pair without the other comes out as U+FFFD. */
void custom_input_take(struct custom_input *in, const char *bytes, size_t num_bytes, struct buffer *out);

#endif
