/* trace_context.h - which trace a request belongs to (W3C Trace Context): of its traceparent header, or a new one.
 * Pure functions. */
#ifndef SERVER_TRACE_CONTEXT_H
#define SERVER_TRACE_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

struct trace_context {
    char trace_id[33], span_id[17]; /* small hexadecimal digits; span_id is this request's */
    char parent_id[17];             /* ""; nobody's */
    bool sampled;                   /* whoever began the trace wants its spans */
};

/* header: as it came, NULL for none. One that is no traceparent counts as none (then a trace begins here, sampled).
 * random: 24 bytes that no other request has. Returns whether the header was taken. */
bool trace_context_read(const char *header, const uint8_t random[24], struct trace_context *out);

#endif
