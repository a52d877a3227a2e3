/* samples.h - measured values, and what is asked of them. Thread: none of its own. */
#ifndef CLI_SAMPLES_H
#define CLI_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>

struct samples {
    double *values;
    size_t count, capacity;
    bool sorted;
};

/* One for which there is no memory is left out. */
void samples_add(struct samples *s, double value);
void samples_add_all(struct samples *s, const struct samples *others);
void samples_deinit(struct samples *s);

/* NAN where there are none; p from 0 to 1, the nearest value. */
double samples_percentile(struct samples *s, double p);
double samples_mean(const struct samples *s);

#endif
