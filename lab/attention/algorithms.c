#include "lab/attention/algorithms.h"

#include <math.h>

#include "base/check.h"

enum { STATISTIC_BYTES = 4, BOUNDS = 8 };

/* ---- how often what is visited ---- */

static double tiles_of(double count, const struct geometry *g)
{
    return ceil(count / g->tile);
}

/* Keys that all tiles of queries together read, of one sequence of n tokens. */
static double keys_read(double n, bool causal, const struct geometry *g)
{
    double tiles = tiles_of(n, g);
    return causal ? g->tile * tiles * (tiles - 1) / 2 + n : tiles * n;
}

/* Rows that all tiles of keys together visit. */
static double rows_visited(double n, bool causal, const struct geometry *g)
{
    double tiles = tiles_of(n, g);
    return causal ? tiles * n - g->tile * tiles * (tiles - 1) / 2 : tiles * n;
}

/* ---- bytes of one head, but for FlashMask's ---- */

static double whole_matrix_bytes(const struct problem *p, const struct geometry *g, int passes)
{
    double n = p->shape.num_keys, d = p->shape.head_dim;
    return g->element_bytes * (2 * n * d + 2 * tiles_of(n, g) * n * d + passes * n * n) * p->shape.num_heads;
}

static double standard_bytes(const struct problem *p, const struct geometry *g)
{
    return whole_matrix_bytes(p, g, 6);
}

static double online_softmax_bytes(const struct problem *p, const struct geometry *g)
{
    return whole_matrix_bytes(p, g, 5);
}

static double flash1_bytes(const struct problem *p, const struct geometry *g)
{
    double n = p->shape.num_keys, d = p->shape.head_dim;
    double state = g->accumulator_bytes * d + 2 * STATISTIC_BYTES; /* O, l and m of a row */
    double visited = rows_visited(n, p->shape.mask == MASK_CAUSAL, g);
    return (g->element_bytes * 2 * n * d + n * state + visited * (g->element_bytes * d + 2 * state)) *
           p->shape.num_heads;
}

static double forward_bytes(const struct problem *p, double keys, const struct geometry *g)
{
    double n = p->shape.num_keys, d = p->shape.head_dim;
    return g->element_bytes * (2 * n * d + 2 * d * keys) * p->shape.num_heads;
}

static double flash2_bytes(const struct problem *p, const struct geometry *g)
{
    double n = p->shape.num_keys, lse = STATISTIC_BYTES * n * p->shape.num_heads;
    return forward_bytes(p, keys_read(n, p->shape.mask == MASK_CAUSAL, g), g) + lse;
}

static double device_prompt_bytes(const struct problem *p, const struct geometry *g)
{
    return forward_bytes(p, keys_read(p->shape.num_keys, true, g), g);
}

static double device_documents_bytes(const struct problem *p, const struct geometry *g)
{
    double document = p->shape.document;
    return forward_bytes(p, p->shape.num_keys / document * keys_read(document, true, g), g);
}

static double flash2_backward_bytes(const struct problem *p, const struct geometry *g)
{
    double n = p->shape.num_keys, d = p->shape.head_dim;
    double row_dots = g->element_bytes * 2 * n * d + STATISTIC_BYTES * n;
    double keys_and_gradients = g->element_bytes * 4 * n * d, clear = g->accumulator_bytes * n * d;
    double row = 2 * g->element_bytes * d + 2 * g->accumulator_bytes * d + 2 * STATISTIC_BYTES;
    double visited = rows_visited(n, p->shape.mask == MASK_CAUSAL, g);
    return (row_dots + keys_and_gradients + clear + visited * row) * p->shape.num_heads;
}

/* The four numbers of all keys and their bounds once; for a head the bounds at every tile, and the numbers of keys on the
 * diagonal. No closed form for other intervals. */
static double flash_mask_bytes(const struct problem *p, const struct geometry *g)
{
    const struct shape *s = &p->shape;
    double n = s->num_keys, tiles = tiles_of(n, g), document = s->mask == MASK_DOCUMENTS ? s->document : n;
    bool diagonal = s->mask != MASK_NONE;
    if (s->mask == MASK_INTERVALS) return NAN;
    double mask = STATISTIC_BYTES * (4 * n + BOUNDS * tiles);
    double checks = STATISTIC_BYTES * (BOUNDS * tiles * tiles + (diagonal ? 4 * n : 0)) * s->num_heads;
    return mask + checks + forward_bytes(p, n / document * keys_read(document, diagonal, g), g);
}

static double decoding_bytes(const struct problem *p, const struct geometry *g)
{
    double n = p->shape.num_keys, d = p->shape.head_dim, splits = ceil(n / g->split);
    double partials = 2 * STATISTIC_BYTES * splits * (d + 1);
    return (g->element_bytes * (2 * n * d + splits * d + d) + partials) * p->shape.num_heads;
}

static double device_decoding_bytes(const struct problem *p, const struct geometry *g)
{
    double n = p->shape.num_keys, d = p->shape.head_dim;
    return g->element_bytes * (2 * n * d + 2 * d) * p->shape.num_heads;
}

/* ---- the table ---- */

const struct algorithm lab_algorithms[NUM_LAB_ALGORITHMS] = {
    [LAB_STANDARD] = {"standard", "standard, safe softmax", "the blackboard",
                      LAB_FULL | LAB_CAUSAL | LAB_INTERVALS, standard_bytes, 2},
    [LAB_ONLINE_SOFTMAX] = {"online-softmax", "online softmax", "arXiv:1805.02867",
                            LAB_FULL | LAB_CAUSAL | LAB_INTERVALS, online_softmax_bytes, 2},
    [LAB_FLASH1] = {"flash1", "FlashAttention", "arXiv:2205.14135", LAB_FULL | LAB_CAUSAL, flash1_bytes, 2},
    [LAB_FLASH2] = {"flash2", "FlashAttention-2", "arXiv:2307.08691", LAB_FULL | LAB_CAUSAL, flash2_bytes, 2},
    [LAB_FLASH2_BACKWARD] = {"flash2-backward", "FlashAttention-2, backward", "arXiv:2307.08691",
                             LAB_FULL | LAB_CAUSAL | LAB_BACKWARD, flash2_backward_bytes, 5},
    [LAB_FLASH_MASK] = {"flash-mask", "FlashMask", "arXiv:2410.01359", LAB_FULL | LAB_CAUSAL | LAB_INTERVALS,
                        flash_mask_bytes, 2},
    [LAB_DEVICE_PROMPT] = {"device-prompt", "the server's, prompts", "kernels/device.h", LAB_CAUSAL,
                           device_prompt_bytes, 2},
    [LAB_DEVICE_DOCUMENTS] = {"device-documents", "the server's, documents", "kernels/mask.h", LAB_DOCUMENTS,
                              device_documents_bytes, 2},
    [LAB_FLASH_DECODING] = {"flash-decoding", "Flash-Decoding", "pytorch.org/blog/flash-decoding",
                            LAB_DECODING, decoding_bytes, 2},
    [LAB_FLASH_DECODING_PLUS] = {"flash-decoding++", "FlashDecoding++", "arXiv:2311.01282", LAB_DECODING,
                                 decoding_bytes, 2},
    [LAB_DEVICE_DECODING] = {"device-decoding", "the server's, decoding", "kernels/device.h", LAB_DECODING,
                             device_decoding_bytes, 2},
};

double algorithm_flops(const struct algorithm *a, const struct problem *p)
{
    return 2.0 * a->products * p->shape.head_dim * problem_pairs(p);
}

bool algorithm_supports(const struct algorithm *a, const struct shape *s)
{
    static const unsigned bits[] = {[MASK_NONE] = LAB_FULL,
                                    [MASK_CAUSAL] = LAB_CAUSAL,
                                    [MASK_DOCUMENTS] = LAB_INTERVALS | LAB_DOCUMENTS,
                                    [MASK_INTERVALS] = LAB_INTERVALS};
    if (s->num_queries != s->num_keys) return a->supports & LAB_DECODING;
    return a->supports & bits[s->mask];
}
