/* delta_loops.h - delta_kernels.h in vectors of the compiler's, which each instruction set includes. */
#ifndef KERNELS_CPU_DELTA_LOOPS_H
#define KERNELS_CPU_DELTA_LOOPS_H

#include "kernels/cpu/delta_kernels.h"
#include "kernels/cpu/gate.h"

typedef float delta_lanes
    __attribute__((vector_size(DELTA_LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

static inline void delta_columns(const struct delta_update *u, int32_t first, int num_vectors)
{
    delta_lanes memory[2] = {{0}, {0}}, change[2], out[2] = {{0}, {0}};
    for (int32_t i = 0; i < u->k_dim; i++) {
        const delta_lanes *from = (const void *)(u->from + (int64_t)i * u->v_dim + first);
        for (int j = 0; j < num_vectors; j++) memory[j] += from[j] * u->k[i];
    }
    for (int j = 0; j < num_vectors; j++) {
        const delta_lanes *v = (const void *)(u->v + first);
        change[j] = (v[j] - memory[j] * u->decay) * u->beta;
    }
    for (int32_t i = 0; i < u->k_dim; i++) {
        const delta_lanes *from = (const void *)(u->from + (int64_t)i * u->v_dim + first);
        delta_lanes *to = (void *)(u->to + (int64_t)i * u->v_dim + first);
        for (int j = 0; j < num_vectors; j++) {
            const delta_lanes value = from[j] * u->decay + change[j] * u->k[i];
            to[j] = value;
            out[j] += value * u->q[i];
        }
    }
    for (int j = 0; j < num_vectors; j++) ((delta_lanes *)(void *)(u->out + first))[j] = out[j];
}

static void delta_update(const struct delta_update *u)
{
    int32_t i = 0;
    for (; i + 2 * DELTA_LANES <= u->v_dim; i += 2 * DELTA_LANES) delta_columns(u, i, 2);
    if (i < u->v_dim) delta_columns(u, i, 1);
}

static void delta_convolve(int32_t count, const float *const in[DELTA_TAPS], const float *taps, float *out)
{
    for (int32_t i = 0; i < count; i++) {
        float sum = 0;
        for (int j = 0; j < DELTA_TAPS; j++) sum += taps[j * count + i] * in[j][i];
        out[i] = gate_value(sum, sum);
    }
}

static void delta_gate(int32_t count, float *restrict out, float scale, const float *restrict weight,
                       const float *restrict gate)
{
    for (int32_t i = 0; i < count; i++) out[i] = out[i] * scale * weight[i] * gate_value(gate[i], gate[i]);
}

static void delta_sigmoid_mul(int32_t count, float *restrict x, const float *restrict gate)
{
    for (int32_t i = 0; i < count; i++) x[i] = gate_value(x[i], gate[i]);
}

#define DELTA_KERNELS                                                                                        \
    {                                                                                                        \
        .convolve = delta_convolve, .update = delta_update, .gate = delta_gate,                              \
        .sigmoid_mul = delta_sigmoid_mul                                                                     \
    }

#endif
