/* delta_loops.h - delta_kernels.h in vectors of the compiler's, which each instruction set includes behind its
 * DELTA_VECTOR_LANES: vectors that are wider than its registers are slower than none. */
#ifndef KERNELS_CPU_DELTA_LOOPS_H
#define KERNELS_CPU_DELTA_LOOPS_H

#include "kernels/cpu/delta_kernels.h"
#include "kernels/cpu/gate.h"

typedef float delta_lanes
    __attribute__((vector_size(DELTA_VECTOR_LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

/* Columns of a state that are in registers at once, in vectors. */
enum { DELTA_VECTORS = 4, DELTA_COLUMNS = DELTA_VECTORS * DELTA_VECTOR_LANES };

/* What the loops are made for. */
enum delta_loop { DELTA_LOOP_ADDS, DELTA_LOOP_CORRECTS, DELTA_LOOP_CHANNELS };

static inline __attribute__((always_inline)) void
delta_token(const struct delta_update *u, int32_t token, int32_t first, int num_vectors, enum delta_loop loop)
{
    const bool corrects = loop != DELTA_LOOP_ADDS, by_channel = loop == DELTA_LOOP_CHANNELS;
    const float *q = u->q + token * u->unit_stride, *k = u->k + token * u->unit_stride,
                *decays = by_channel ? u->decays + token * u->decays_stride : NULL;
    const float decay = u->decay[token], beta = u->beta[token];
    delta_lanes change[DELTA_VECTORS] = {{0}}, out[DELTA_VECTORS] = {{0}};
    const float *from[DELTA_VECTORS];
    float *to[DELTA_VECTORS];
    for (int j = 0; j < num_vectors; j++) {
        int64_t at = delta_state_index(u->k_dim, 0, first + j * DELTA_VECTOR_LANES);
        from[j] = (token == 0 ? u->from : u->to) + at;
        to[j] = u->to + at;
    }
    for (int32_t i = 0; i < u->k_dim && corrects; i++) {
        const float key = by_channel ? k[i] * decays[i] : k[i];
        for (int j = 0; j < num_vectors; j++)
            change[j] += *(const delta_lanes *)(const void *)(from[j] + i * DELTA_LANES) * key;
    }
    for (int j = 0; j < num_vectors; j++) {
        const float *v = u->v + token * u->v_stride + first + j * DELTA_VECTOR_LANES;
        const delta_lanes value = *(const delta_lanes *)(const void *)v;
        if (corrects && !by_channel) change[j] = change[j] * decay;
        change[j] = corrects ? (value - change[j]) * beta : value * beta;
    }
    for (int32_t i = 0; i < u->k_dim; i++) {
        const float own = by_channel ? decays[i] : decay;
        for (int j = 0; j < num_vectors; j++) {
            const delta_lanes old = *(const delta_lanes *)(const void *)(from[j] + i * DELTA_LANES),
                              value = old * own + change[j] * k[i];
            *(delta_lanes *)(void *)(to[j] + i * DELTA_LANES) = value;
            out[j] += value * q[i];
        }
    }
    for (int j = 0; j < num_vectors; j++)
        *(delta_lanes *)(void *)(u->out + token * u->out_stride + first + j * DELTA_VECTOR_LANES) = out[j];
}

/* All tokens on some columns before the next ones: these stay in the nearest cache. */
static inline __attribute__((always_inline)) void delta_columns(const struct delta_update *u,
                                                                enum delta_loop loop)
{
    int32_t i = 0;
    for (; i + DELTA_COLUMNS <= u->v_dim; i += DELTA_COLUMNS)
        for (int32_t token = 0; token < u->num_tokens; token++) delta_token(u, token, i, DELTA_VECTORS, loop);
    for (; i < u->v_dim; i += DELTA_VECTOR_LANES)
        for (int32_t token = 0; token < u->num_tokens; token++) delta_token(u, token, i, 1, loop);
}

static void delta_update(const struct delta_update *u)
{
    if (u->decays)
        delta_columns(u, DELTA_LOOP_CHANNELS);
    else if (u->corrects)
        delta_columns(u, DELTA_LOOP_CORRECTS);
    else
        delta_columns(u, DELTA_LOOP_ADDS);
}

static void delta_convolve(int32_t count, const float *const in[DELTA_TAPS], const float *taps,
                           const float *bias, float *out)
{
    for (int32_t i = 0; i < count; i++) {
        float sum = bias[i];
        for (int j = 0; j < DELTA_TAPS; j++) sum += taps[j * count + i] * in[j][i];
        out[i] = gate_value(sum, sum);
    }
}

static void delta_gate(int32_t count, float *restrict out, float scale, const float *restrict weight,
                       const float *restrict gate)
{
    for (int32_t i = 0; i < count; i++) out[i] = out[i] * scale * weight[i] * gate_value(gate[i], gate[i]);
}

static void delta_skip(int32_t count, float *restrict out, float skip, const float *restrict v,
                       const float *restrict gate)
{
    for (int32_t i = 0; i < count; i++) out[i] = (out[i] + skip * v[i]) * gate_value(gate[i], gate[i]);
}

static void delta_sigmoid_mul(int32_t count, float *restrict x, const float *restrict gate)
{
    for (int32_t i = 0; i < count; i++) x[i] = gate_value(x[i], gate[i]);
}

#define DELTA_KERNELS                                                                                        \
    {                                                                                                        \
        .convolve = delta_convolve, .update = delta_update, .gate = delta_gate, .skip = delta_skip,          \
        .sigmoid_mul = delta_sigmoid_mul                                                                     \
    }

#endif
