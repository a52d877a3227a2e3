/* log_line.h - one event as one line of text or JSON, composed in place: no allocation.
 *
 * Whatever comes in, the line is printable UTF-8 that moves no cursor and reorders no text: control and
 * format characters of Unicode (ESC, C1, U+2028, U+202E, ...) come out as \uXXXX, bytes that are no UTF-8 as
 * \xXX. A text that does not fit is cut and ends with "..."; a field that does not fit is left out. A line is
 * never longer than what a pipe takes in one piece, so that lines of several processes do not mix. Thread:
 * any; the format is chosen once, at the start. */
#ifndef BASE_LOG_LINE_H
#define BASE_LOG_LINE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/log.h"

enum { LOG_LINE_BYTES_MAX = PIPE_BUF };

struct log_line {
    bool json;
    size_t num_bytes;
    char bytes[LOG_LINE_BYTES_MAX];
};

void log_line_choose_format(bool json);
void log_line_begin(struct log_line *line, enum log_level level, const char *message, size_t n);
void log_line_add(struct log_line *line, const struct log_field *field);
void log_line_end(struct log_line *line); /* with its newline */

#endif
