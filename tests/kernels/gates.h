/* gates.h - gate functions (device.h) in double precision. */
#ifndef TESTS_KERNELS_GATES_H
#define TESTS_KERNELS_GATES_H

#include <math.h>

#include "kernels/device.h"

static const float xielu_values[GATE_VALUES] = {0.8f, 1.1f, 0.5f};

static double xielu_of(double x)
{
    const double a = xielu_values[0], b = xielu_values[1], c = xielu_values[2];
    return c * x + (x > 0 ? a * x * x : b * (expm1(x) - x));
}

static double gate_of(enum gate_function gate, double x)
{
    if (gate == GATE_XIELU) return xielu_of(x);
    if (gate == GATE_RELU_SQUARED) return x > 0 ? x * x : 0;
    if (gate == GATE_RELU) return x > 0 ? x : 0;
    if (gate == GATE_GELU) return 0.5 * x * erfc(-x / sqrt(2));
    if (gate == GATE_SILU) return x / (1 + exp(-x));
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

/* How steep f is within bound of x, at most. */
static double gate_slope(enum gate_function gate, double x, double bound)
{
    if (gate == GATE_XIELU) return 2 * (fabs(x) + bound) + 2;
    return gate == GATE_RELU_SQUARED ? 2 * (fabs(x) + bound) : 1.13;
}

#endif
