/* delta_kernels.h - the loops of layers with a state (delta_net.c), for each instruction set. All give the same bits: each
 * output is a sum of its own, in ascending order. */
#ifndef KERNELS_CPU_DELTA_KERNELS_H
#define KERNELS_CPU_DELTA_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/device.h"

enum { DELTA_LANES = 16 };

/* A state is [v_dim / DELTA_LANES][k_dim][DELTA_LANES]: the columns at work lie together. */
static inline int64_t delta_state_index(int32_t k_dim, int32_t row, int32_t column)
{
    return ((int64_t)(column / DELTA_LANES) * k_dim + row) * DELTA_LANES + column % DELTA_LANES;
}

/* One head and some tokens, one after the other. */
struct delta_update {
    bool corrects;        /* what the state answers to k is taken from v first: the delta rule */
    int32_t k_dim, v_dim; /* v_dim: a multiple of DELTA_LANES */
    int32_t num_tokens;
    const float *from;         /* the state that the tokens before have left */
    float *to;                 /* that behind these tokens; may be from */
    const float *q, *k;        /* [k_dim] of each token, unit_stride apart */
    const float *v;            /* [v_dim], v_stride apart */
    const float *decay, *beta; /* [num_tokens] */
    const float *
        decays; /* [k_dim] of each token, decays_stride apart: of each row of the state, in the place of decay; NULL */
    float *out; /* [v_dim], out_stride apart */
    int64_t unit_stride, v_stride, decays_stride, out_stride;
};

struct delta_kernels {
    /* out[i] = SiLU(bias[i] + sum over j of taps[j][i] * in[j][i]) */
    void (*convolve)(int32_t count, const float *const in[DELTA_TAPS], const float *taps, const float *bias,
                     float *out);
    /* Of each token: to = decay from + k (beta (v - (decay from)^T k))^T, or decay from + k (beta v)^T; out = to^T q */
    void (*update)(const struct delta_update *u);
    /* out[i] = out[i] * scale * weight[i] * SiLU(gate[i]) */
    void (*gate)(int32_t count, float *out, float scale, const float *weight, const float *gate);
    /* out[i] = (out[i] + skip * v[i]) * SiLU(gate[i]) */
    void (*skip)(int32_t count, float *out, float skip, const float *v, const float *gate);
    /* x[i] = x[i] / (1 + e^-gate[i]) */
    void (*sigmoid_mul)(int32_t count, float *x, const float *gate);
};

extern const struct delta_kernels delta_kernels_portable, delta_kernels_avx2, delta_kernels_avx512;

#endif
