/* algorithms.h - the family in a table: who described what, what it can compute, and what it should cost. Thread: any. */
#ifndef LAB_ATTENTION_ALGORITHMS_H
#define LAB_ATTENTION_ALGORITHMS_H

#include "lab/attention/problem.h"

enum lab_id {
    LAB_STANDARD,
    LAB_ONLINE_SOFTMAX,
    LAB_FLASH1,
    LAB_FLASH2,
    LAB_FLASH2_BACKWARD,
    LAB_DEVICE_PROMPT, /* the device's own, through the kernel table */
    LAB_FLASH_MASK,
    LAB_DEVICE_DOCUMENTS,
    LAB_FLASH_DECODING,
    LAB_FLASH_DECODING_PLUS,
    LAB_DEVICE_DECODING,
    NUM_LAB_ALGORITHMS
};

/* Bits of what an algorithm can compute. */
enum {
    LAB_FULL = 1,
    LAB_CAUSAL = 2,
    LAB_INTERVALS = 4,
    LAB_DECODING = 8,
    LAB_BACKWARD = 16,
    LAB_DOCUMENTS = 32
};

/* What a device has chosen: its elements, and the tiles and splits of a kernel. */
struct geometry {
    int element_bytes;     /* of q, k, v, scores and weights */
    int accumulator_bytes; /* of outputs and gradients that are added to in slow memory */
    int32_t tile;          /* queries, and keys, of a tile */
    int32_t split;         /* keys of a split */
};

struct algorithm {
    const char *name, *title, *paper;
    unsigned supports;
    double (*bytes)(const struct problem *p, const struct geometry *g); /* from and to slow memory */
    int products; /* multiply-adds of a seen pair, in head_dims: 2 forward, 5 backward */
};

extern const struct algorithm lab_algorithms[NUM_LAB_ALGORITHMS];

/* What the problem takes at least, whatever is computed beyond it. */
double algorithm_flops(const struct algorithm *a, const struct problem *p);

static inline bool algorithm_is_servers(enum lab_id id)
{
    return id == LAB_DEVICE_PROMPT || id == LAB_DEVICE_DOCUMENTS || id == LAB_DEVICE_DECODING;
}

bool algorithm_supports(const struct algorithm *a, const struct shape *s);

#endif
