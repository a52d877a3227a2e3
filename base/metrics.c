#include "base/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"

struct metric {
    enum metric_type type;
    char *name, *help, *labels;
    double bounds[METRIC_BUCKETS_MAX];
    int num_bounds;
    double (*read)(const void *context);                    /* NULL: value is it */
    const void *context;                                    /* read's */
    _Atomic double value;                                   /* counter, gauge; a histogram's sum */
    _Atomic uint64_t bucket_counts[METRIC_BUCKETS_MAX + 1]; /* not cumulative; last is +Inf */
    struct metric *next;
};

static struct metric *first, **last = &first;

/* Nothing is served yet, so nothing is lost. */
static void *need(void *p)
{
    if (p) return p;
    fputs("flashd: no memory for the metrics\n", stderr);
    _exit(EXIT_FAILURE);
}

static void destroy(struct metric *m)
{
    free(m->name);
    free(m->help);
    free(m->labels);
    free(m);
}

/* NULL: there is no memory. */
static struct metric *create(enum metric_type type, const char *name, const char *help, const char *labels)
{
    struct metric *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->type = type;
    m->name = strdup(name);
    m->help = strdup(help);
    m->labels = strdup(labels);
    if (m->name && m->help && m->labels) return m;
    destroy(m);
    return NULL;
}

struct metric *metric_register(enum metric_type type, const char *name, const char *help, const char *labels,
                               const double *bounds, int num_bounds)
{
    assert_always(num_bounds <= METRIC_BUCKETS_MAX);
    struct metric *m = need(create(type, name, help, labels));
    m->num_bounds = num_bounds;
    if (num_bounds > 0) memcpy(m->bounds, bounds, (size_t)num_bounds * sizeof *bounds);
    *last = m;
    last = &m->next;
    return m;
}

/* Behind the last of its name, or behind all. */
static void insert(struct metric *m)
{
    struct metric *at = NULL;
    for (struct metric *other = first; other; other = other->next)
        if (!strcmp(other->name, m->name)) at = other;
    struct metric **link = at ? &at->next : last;
    m->next = *link;
    *link = m;
    if (last == link) last = &m->next;
}

struct metric *metric_add_counter(const char *name, const char *help, const char *labels)
{
    struct metric *m = create(METRIC_COUNTER, name, help, labels);
    if (m) insert(m);
    return m;
}

void metric_set_labels(struct metric *m, const char *labels)
{
    char *own = strdup(labels);
    if (!own) return;
    free(m->labels);
    m->labels = own;
}

void metric_register_read(enum metric_type type, const char *name, const char *help,
                          double (*read)(const void *context), const void *context)
{
    struct metric *m = metric_register(type, name, help, "", NULL, 0);
    m->read = read;
    m->context = context;
}

static void add_relaxed(_Atomic double *value, double amount)
{
    double old = atomic_load_explicit(value, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(value, &old, old + amount, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

void metric_add(struct metric *m, double amount)
{
    add_relaxed(&m->value, amount);
}

void metric_set(struct metric *m, double value)
{
    atomic_store_explicit(&m->value, value, memory_order_relaxed);
}

void metric_observe(struct metric *m, double value)
{
    int i = 0;
    while (i < m->num_bounds && value > m->bounds[i]) i++;
    atomic_fetch_add_explicit(&m->bucket_counts[i], 1, memory_order_relaxed);
    add_relaxed(&m->value, value);
}

void metric_copy_histogram(struct metric *m, const _Atomic uint64_t *counts, double sum)
{
    for (int i = 0; i <= m->num_bounds; i++)
        atomic_store_explicit(&m->bucket_counts[i], atomic_load_explicit(&counts[i], memory_order_relaxed),
                              memory_order_relaxed);
    metric_set(m, sum);
}

static uint64_t histogram_count(const struct metric *m)
{
    uint64_t count = 0;
    for (int i = 0; i <= m->num_bounds; i++)
        count += atomic_load_explicit(&m->bucket_counts[i], memory_order_relaxed);
    return count;
}

double metric_value(const struct metric *m)
{
    if (m->type == METRIC_HISTOGRAM) return (double)histogram_count(m);
    return m->read ? m->read(m->context) : atomic_load_explicit(&m->value, memory_order_relaxed);
}

/* The shortest decimal that reads back as the same double; with dot, integers get ".0". */
static void append_number(struct buffer *out, double value, int dot)
{
    if (isinf(value) || isnan(value)) {
        buffer_append_text(out, isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");
        return;
    }
    char text[40];
    bool is_count = fabs(value) < 1e15 && value == (double)(int64_t)value; /* most are, and it is quicker */
    if (is_count) snprintf(text, sizeof text, "%" PRId64, (int64_t)value);
    for (int digits = 15; !is_count && digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    buffer_append_text(out, text);
    if (dot && !strpbrk(text, ".e")) buffer_append_text(out, ".0");
}

static void append_bound(struct buffer *out, bool is_second, const char *le)
{
    if (is_second) buffer_append_char(out, ',');
    buffer_append_text(out, "le=\"");
    buffer_append_text(out, le);
    buffer_append_char(out, '"');
}

static void append_sample(struct buffer *out, const struct metric *m, const char *suffix, const char *le,
                          double value)
{
    buffer_append_text(out, m->name);
    buffer_append_text(out, suffix);
    if (m->labels[0] || le) {
        buffer_append_char(out, '{');
        buffer_append_text(out, m->labels);
        if (le) append_bound(out, m->labels[0] != '\0', le);
        buffer_append_char(out, '}');
    }
    buffer_append_char(out, ' ');
    append_number(out, value, 0);
    buffer_append_char(out, '\n');
}

static void append_histogram(struct buffer *out, const struct metric *m)
{
    uint64_t cumulative = 0;
    for (int i = 0; i <= m->num_bounds; i++) {
        struct buffer le;
        buffer_init(&le, 64);
        append_number(&le, i < m->num_bounds ? m->bounds[i] : INFINITY, 1);
        cumulative += atomic_load_explicit(&m->bucket_counts[i], memory_order_relaxed);
        append_sample(out, m, "_bucket", le.data, (double)cumulative);
        buffer_deinit(&le);
    }
    append_sample(out, m, "_sum", NULL, atomic_load_explicit(&m->value, memory_order_relaxed));
    append_sample(out, m, "_count", NULL, (double)cumulative);
}

static void append_header(struct buffer *out, const struct metric *m, int openmetrics)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    int n = (int)strlen(m->name);
    if (openmetrics && m->type == METRIC_COUNTER && n > 6 && !strcmp(m->name + n - 6, "_total")) n -= 6;
    buffer_printf(out, "# HELP %.*s %s\n# TYPE %.*s %s\n", n, m->name, m->help, n, m->name, types[m->type]);
}

void metrics_render(struct buffer *out, int openmetrics)
{
    const char *previous = "";
    for (const struct metric *m = first; m; m = m->next) {
        if (strcmp(previous, m->name) != 0) append_header(out, m, openmetrics);
        previous = m->name;
        if (m->type == METRIC_HISTOGRAM)
            append_histogram(out, m);
        else
            append_sample(out, m, "", NULL, metric_value(m));
    }
    if (openmetrics) buffer_append_text(out, "# EOF\n");
}

void metrics_escape_label(struct buffer *out, const char *value)
{
    for (; *value; value++) {
        if (*value == '\\' || *value == '"') buffer_append_char(out, '\\');
        if (*value == '\n')
            buffer_append_text(out, "\\n");
        else
            buffer_append_char(out, *value);
    }
}

void metrics_reset(void)
{
    struct metric *next;
    for (struct metric *m = first; m; m = next) {
        next = m->next;
        destroy(m);
    }
    first = NULL;
    last = &first;
}
