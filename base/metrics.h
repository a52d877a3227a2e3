/* metrics.h - counters, gauges and histograms, and the Prometheus text page made of them.
 *
 * Registered once at start, before other threads use them; afterwards each metric may be updated
 * from any thread (relaxed atomics) and the page is rendered by the loop thread. Labels are fixed
 * at registration, so no client can make a new series. Units are the base ones: seconds, bytes,
 * tokens, ratios. Series of one name must be registered one after another. */
#ifndef BASE_METRICS_H
#define BASE_METRICS_H

#include <stdint.h>

#include "base/buffer.h"

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };
enum { METRIC_BUCKETS_MAX = 48 };

struct metric;

/* name, help and labels are copied. labels is the inside of the braces, already escaped, e.g.
 * `model_name="m",engine="0"`, or "" for none. bounds are ascending upper bounds without +Inf
 * (histograms only; copied). Ends the process when out of memory: it runs at start only. */
struct metric *metric_register(enum metric_type type, const char *name, const char *help, const char *labels,
                               const double *bounds, int num_bounds);

/* One more counter of a name, behind those of it that there are, while the server runs: for the thread that renders the page.
 * NULL: there is no memory. */
struct metric *metric_add_counter(const char *name, const char *help, const char *labels);

/* It is a series with other labels from now on, for the thread that renders the page. Without memory it stays what it is. */
void metric_set_labels(struct metric *m, const char *labels);

/* A value that somebody else keeps: read is called with context for each page. Counters and gauges. */
void metric_register_read(enum metric_type type, const char *name, const char *help,
                          double (*read)(const void *context), const void *context);

void metric_add(struct metric *m, double amount);    /* counters (amount >= 0) and gauges */
void metric_set(struct metric *m, double value);     /* gauges */
void metric_observe(struct metric *m, double value); /* histograms */
/* A histogram that somebody else counts: counts[num_bounds + 1], not cumulative; relaxed. */
void metric_copy_histogram(struct metric *m, const _Atomic uint64_t *counts, double sum);
double metric_value(const struct metric *m); /* counter or gauge value; a histogram's count */

/* Appends every registered metric in text format 0.0.4, or OpenMetrics 1.0.0 with its # EOF. */
void metrics_render(struct buffer *out, int openmetrics);

/* Appends value escaped for the inside of a label's quotes. */
void metrics_escape_label(struct buffer *out, const char *value);

void metrics_reset(void); /* frees every metric; for tests and for the end of the process */

#endif
