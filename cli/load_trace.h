/* load_trace.h - traffic as public traces have it, drawn from a seed: gamma distributed times between arrivals, log-normal
 * lengths, groups of prompts that begin alike. Thread: none of its own. */
#ifndef CLI_LOAD_TRACE_H
#define CLI_LOAD_TRACE_H

#include <stdint.h>

struct trace_shape {
    const char *name;
    double input, input_spread, output,
        output_spread;          /* medians, in tokens, and sigmas of their logarithms */
    double burst;               /* coefficient of variation of the times between arrivals; 1: Poisson */
    int64_t num_groups, prefix; /* prompts of a group begin with the same prefix tokens; 0: no groups */
};

/* After Azure's traces of conversations and of code (2023: medians and means of lengths) and after Mooncake's (long prompts, half
 * of which others have begun with). A list that ends with a name of NULL. */
extern const struct trace_shape trace_shapes[];

/* NULL: there is none of that name. */
const struct trace_shape *trace_shape_find(const char *name);

/* All draw from *state, which the caller has set to anything. */
double trace_uniform(uint64_t *state); /* [0, 1) */

/* Seconds to the next arrival, at rate a second. */
double trace_gap(uint64_t *state, double rate, double burst);

/* At least 4, at most 16 times the median. */
int trace_length(uint64_t *state, double median, double spread);

#endif
