/* trace.h - traffic as public traces have it, drawn from a seed: gamma distributed times between arrivals, log-normal lengths,
 * groups of prompts that begin alike.
 *
 * Shapes after Azure's traces of conversations and of code (2023: medians and means of lengths) and after Mooncake's (long
 * prompts, half of which others have begun with); burst is the coefficient of variation of the times between arrivals. */
#ifndef TESTS_BENCH_TRACE_H
#define TESTS_BENCH_TRACE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

struct trace_shape {
    const char *name;
    double input, input_spread, output,
        output_spread; /* medians, in tokens, and sigmas of their logarithms */
    double burst;
    int num_groups, prefix; /* prompts of a group begin with the same prefix tokens; 0: no groups */
};

static const struct trace_shape trace_shapes[] = {
    {"conversation", 1020, 0.5, 129, 1.0, 2, 0, 0},
    {"code", 1500, 0.8, 13, 1.2, 2, 0, 0},
    {"mooncake", 4500, 1.1, 100, 1.1, 1.5, 20, 3000},
};

static inline const struct trace_shape *trace_shape_find(const char *name)
{
    for (size_t i = 0; i < sizeof trace_shapes / sizeof trace_shapes[0]; i++)
        if (!strcmp(trace_shapes[i].name, name)) return &trace_shapes[i];
    return NULL;
}

static inline double trace_uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53;
}

static inline double trace_normal(uint64_t *state)
{
    double radius = sqrt(-2 * log(1 - trace_uniform(state)));
    return radius * cos(2 * M_PI * trace_uniform(state));
}

/* Of mean 1 (Marsaglia and Tsang). */
static inline double trace_gamma(uint64_t *state, double shape)
{
    double boost = shape < 1 ? pow(1 - trace_uniform(state), 1 / shape) : 1,
           k = shape < 1 ? shape + 1 : shape;
    double d = k - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = trace_normal(state), v = pow(fmax(1 + c * x, 0), 3);
        if (v > 0 && log(1 - trace_uniform(state)) < 0.5 * x * x + d - d * v + d * log(v))
            return d * v * boost / shape;
    }
}

/* Seconds to the next arrival, at rate a second. */
static inline double trace_gap(uint64_t *state, double rate, double burst)
{
    return trace_gamma(state, 1 / (burst * burst)) / rate;
}

/* At least 4, at most 16 times the median. */
static inline int trace_length(uint64_t *state, double median, double spread)
{
    return (int)fmin(fmax(median * exp(spread * trace_normal(state)), 4), 16.0 * median);
}

#endif
