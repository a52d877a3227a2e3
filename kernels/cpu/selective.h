/* selective.h - what a layer of the kind DELTA_SELECTIVE (device.h: delta_desc) has of its own: products of what the convolution gives, by which
 * each channel's state changes. Part of delta_net.c. Owner: the device. */
#ifndef KERNELS_CPU_SELECTIVE_H
#define KERNELS_CPU_SELECTIVE_H

#include "kernels/cpu/device.h"

struct selective;

/* For all layers of a model: of T tokens. */
struct selective_scratch {
    float *chosen; /* [T][R + 2 Dk] narrow steps, k and q */
    float *narrow; /* [T][R] */
    float *steps;  /* [T][channels] */
};

int selective_create(struct cpu_device *c, const struct delta_desc *desc, struct selective **out,
                     struct error *err) must_check;
bool selective_alloc_scratch(struct cpu_device *c, const struct selective *s, uint64_t num_tokens,
                             struct selective_scratch *out);

/* mixed: [num_tokens][channels]. */
void selective_project(struct cpu_device *c, const struct selective *s, const float *mixed,
                       int32_t num_tokens, const struct selective_scratch *scratch);

/* Tokens of scratch and mixed from token on go through the states of DELTA_LANES channels, the head-th; from and to as delta_kernels.h has a
 * state. out: [num_tokens] rows of all channels, each q's answer and skip v. */
struct selective_run {
    int32_t token, num_tokens, head;
    const float *mixed, *from;
    float *to, *out;
};
void selective_update(const struct selective *s, const struct selective_scratch *scratch,
                      const struct selective_run *run);

#endif
