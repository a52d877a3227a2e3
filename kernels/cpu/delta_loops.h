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

static inline __attribute__((always_inline)) void delta_token(const struct delta_update *u, int32_t token,
                                                              int32_t first, int num_vectors, bool corrects)
{
    const float *q = u->q + token * u->unit_stride, *k = u->k + token * u->unit_stride;
    const float decay = u->decay[token], beta = u->beta[token];
    delta_lanes change[DELTA_VECTORS] = {{0}}, out[DELTA_VECTORS] = {{0}};
    const float *from[DELTA_VECTORS];
    float *to[DELTA_VECTORS];
    for (int j = 0; j < num_vectors; j++) {
        int64_t at = delta_state_index(u->k_dim, 0, first + j * DELTA_VECTOR_LANES);
        from[j] = (token == 0 ? u->from : u->to) + at;
        to[j] = u->to + at;
    }
    for (int32_t i = 0; i < u->k_dim && corrects; i++)
        for (int j = 0; j < num_vectors; j++)
            change[j] += *(const delta_lanes *)(const void *)(from[j] + i * DELTA_LANES) * k[i];
    for (int j = 0; j < num_vectors; j++) {
        const float *v = u->v + token * u->v_stride + first + j * DELTA_VECTOR_LANES;
        change[j] = corrects ? (*(const delta_lanes *)(const void *)v - change[j] * decay) * beta
                             : *(const delta_lanes *)(const void *)v * beta;
    }
    for (int32_t i = 0; i < u->k_dim; i++)
        for (int j = 0; j < num_vectors; j++) {
            const delta_lanes old = *(const delta_lanes *)(const void *)(from[j] + i * DELTA_LANES),
                              value = old * decay + change[j] * k[i];
            *(delta_lanes *)(void *)(to[j] + i * DELTA_LANES) = value;
            out[j] += value * q[i];
        }
    for (int j = 0; j < num_vectors; j++)
        *(delta_lanes *)(void *)(u->out + token * u->out_stride + first + j * DELTA_VECTOR_LANES) = out[j];
}

/* All tokens on some columns before the next ones: these stay in the nearest cache. */
static inline __attribute__((always_inline)) void delta_columns(const struct delta_update *u, bool corrects)
{
    int32_t i = 0;
    for (; i + DELTA_COLUMNS <= u->v_dim; i += DELTA_COLUMNS)
        for (int32_t token = 0; token < u->num_tokens; token++)
            delta_token(u, token, i, DELTA_VECTORS, corrects);
    for (; i < u->v_dim; i += DELTA_VECTOR_LANES)
        for (int32_t token = 0; token < u->num_tokens; token++) delta_token(u, token, i, 1, corrects);
}

static void delta_update(const struct delta_update *u)
{
    if (u->corrects)
        delta_columns(u, true);
    else
        delta_columns(u, false);
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
