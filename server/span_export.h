/* span_export.h - spans on their way to an OpenTelemetry collector (--otlp-endpoint): OTLP over HTTP, as JSON.
 *
 * A thread of its own sends what waits, at most once a second, and waits for the collector. The loop only hangs a span
 * into a queue; one that does not fit, or that the collector did not take, is dropped and counted. Thread: the loop's;
 * the counts any. */
#ifndef SERVER_SPAN_EXPORT_H
#define SERVER_SPAN_EXPORT_H

#include <stdint.h>

#include "base/status.h"

struct span_export;

enum { SPANS_WAITING_MAX = 2048 };

/* endpoint: http://host[:port][/path]; without a port 4318, without a path /v1/traces. */
int span_export_create(const char *endpoint, struct span_export **out, struct error *err) must_check;
/* Sends what waits, in requests that are begun within two seconds, and tells how many spans are left. NULL: nothing. */
void span_export_destroy(struct span_export *e);

/* span: a JSON object of OTLP's Span, from malloc, taken over; NULL (there was no memory): counts as dropped. */
void span_export_put(struct span_export *e, char *span);

uint64_t span_export_num_sent(const struct span_export *e);
uint64_t span_export_num_dropped(const struct span_export *e);

#endif
