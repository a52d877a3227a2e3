#include "cli/samples.h"

#include <math.h>
#include <stdlib.h>

void samples_add(struct samples *s, double value)
{
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 16;
        double *values = realloc(s->values, capacity * sizeof *values);
        if (!values) return;
        s->values = values;
        s->capacity = capacity;
    }
    s->values[s->count++] = value;
    s->sorted = false;
}

void samples_add_all(struct samples *s, const struct samples *others)
{
    for (size_t i = 0; i < others->count; i++) samples_add(s, others->values[i]);
}

void samples_deinit(struct samples *s)
{
    free(s->values);
    *s = (struct samples){.values = NULL};
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double samples_percentile(struct samples *s, double p)
{
    if (s->count == 0) return NAN;
    if (!s->sorted) qsort(s->values, s->count, sizeof *s->values, compare);
    s->sorted = true;
    return s->values[(size_t)(p * (double)(s->count - 1) + 0.5)];
}

double samples_mean(const struct samples *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->count; i++) sum += s->values[i];
    return s->count ? sum / (double)s->count : NAN;
}
