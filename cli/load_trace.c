#include "cli/load_trace.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

const struct trace_shape trace_shapes[] = {
    {"conversation", 1020, 0.5, 129, 1.0, 2, 0, 0},
    {"code", 1500, 0.8, 13, 1.2, 2, 0, 0},
    {"mooncake", 4500, 1.1, 100, 1.1, 1.5, 20, 3000},
    {.name = NULL},
};

const struct trace_shape *trace_shape_find(const char *name)
{
    for (const struct trace_shape *shape = trace_shapes; shape->name; shape++)
        if (!strcmp(shape->name, name)) return shape;
    return NULL;
}

double trace_uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53;
}

static double draw_normal(uint64_t *state)
{
    double radius = sqrt(-2 * log(1 - trace_uniform(state)));
    return radius * cos(2 * M_PI * trace_uniform(state));
}

/* Of mean 1 (Marsaglia and Tsang). */
static double draw_gamma(uint64_t *state, double shape)
{
    double boost = shape < 1 ? pow(1 - trace_uniform(state), 1 / shape) : 1,
           k = shape < 1 ? shape + 1 : shape;
    double d = k - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = draw_normal(state), v = pow(fmax(1 + c * x, 0), 3);
        if (v > 0 && log(1 - trace_uniform(state)) < 0.5 * x * x + d - d * v + d * log(v))
            return d * v * boost / shape;
    }
}

double trace_gap(uint64_t *state, double rate, double burst)
{
    return draw_gamma(state, 1 / (burst * burst)) / rate;
}

int trace_length(uint64_t *state, double median, double spread)
{
    return (int)fmin(fmax(median * exp(spread * draw_normal(state)), 4), 16.0 * median);
}
