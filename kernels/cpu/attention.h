/* attention.h - FlashAttention-2 and Flash-Decoding on the CPU: how a step is cut into items for the threads.
 *
 *   item    some tokens of one sequence, one K/V head (with all query heads of its group), some splits
 *   split   KV_SPLIT token positions of the context, starting at a multiple of KV_SPLIT; tiles are inside it
 *
 * See attention.c for the algorithm and why its bits do not depend on the cutting. */
#ifndef KERNELS_CPU_ATTENTION_H
#define KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/device_memory.h"
#include "kernels/device.h"

enum { KV_SPLIT = 256 };

/* For all K/V heads. */
struct attention_item {
    int32_t seq_idx, first_token, num_tokens;
    int32_t first_split, end_split;
    int32_t partial_idx;  /* where this item leaves its one split's sums; -1: it does the whole context */
    int32_t num_partials; /* of the sequence; partial_idx - first_split is the first of them */
};

struct attention_plan {
    struct attention_item *items;
    int32_t num_items;
    int64_t work; /* query-key pairs, roughly */
};

/* Everything that attention needs beside its operands, for the largest step. Where layers differ, of each number the largest. */
struct attention_workspace {
    int num_threads;
    int32_t num_heads, num_kv_heads, dim, group; /* group: query heads of a K/V head */
    int32_t tokens_per_item;                     /* query rows of an item = tokens x heads of a group */
    struct attention_rows *rows;                 /* [num_threads] */
    struct softmax_sums *totals;                 /* [num_threads] */
    struct softmax_sums partials;                /* [num_partials][num_heads] */
    int32_t num_partials;
    _Atomic int32_t
        *num_pending; /* [num_partials][num_kv_heads] splits still running, at the sequence's first */
    struct attention_item *items;
    int32_t num_items_max;
};

/* The token's place in its sequence (mask.h). */
static inline int32_t attention_place(const struct step *step, int32_t seq_idx, int32_t token)
{
    return step->seqlens_k[seq_idx] - step->cu_seqlens_q[seq_idx + 1] + token;
}

/* NULL: it is causal. */
static inline const struct sequence_mask *attention_mask(const struct step *step, int32_t seq_idx)
{
    return step->masks && step->masks[seq_idx].keys ? &step->masks[seq_idx] : NULL;
}

/* All that the token may see lie before it. */
static inline int32_t attention_num_keys(const struct step *step, int32_t seq_idx, int32_t token)
{
    return attention_mask(step, seq_idx) ? step->seqlens_k[seq_idx]
                                         : attention_place(step, seq_idx, token) + 1;
}

int attention_workspace_create(struct attention_workspace *w, struct device_memory *memory, int num_threads,
                               const struct step_limits *limits, const struct attention_args *layers,
                               int32_t num_layers, struct error *err) must_check;

/* Once for a step; all layers use it. */
void attention_plan(struct attention_workspace *w, const struct step *step, struct attention_plan *plan);

#endif
