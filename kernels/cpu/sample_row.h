/* sample_row.h - from a row of logits to a token. These are the semantics of every device.
 *
 * In this order:
 *
 *   1. Raw logits x. A row with a NaN, a +infinity, or nothing but -infinity fails.
 *      Log probabilities are log softmax of x, whatever follows.
 *   2. x[id] += bias, for each entry of logit_bias; then tokens that are banned, not allowed, or forbidden to all
 *      rows get -infinity. A row fails of which nothing else is left.
 *   3. Penalties. repetition r, for tokens of prompt and output: x = x > 0 ? x / r : x * r; then, for
 *      tokens of the output, x -= frequency * (times it occurs) + presence.
 *   4. temperature < SAMPLING_GREEDY_BELOW: the highest x, the lowest id among equals. Done.
 *   5. Weights w = exp((x - max x) / temperature), in f32.
 *   6. min_p: tokens with w < min_p leave.
 *   7. top_k: the k first in rank stay; rank is by x, highest first, then by lower id.
 *   8. top_p: of what is left, the fewest tokens in order of rank whose weights reach top_p of the sum stay.
 *   9. The token at u of some tokens is the lowest id whose cumulative weight, over them in order of id, exceeds u times
 *      their sum. With u_i = rng_uniform(seed, position, i): of the tokens at u_0 to u_3 of what step 7 has left, the
 *      first that step 8 has left; where it has left none of the four, the token at u_4 of what step 8 has left.
 *
 * So who is drawn has the odds of step 8, and a device need not know where top_p cuts a row of which much is left, only
 * whether one token is above the cut: the weights of those before it in rank are below top_p of the sum.
 *
 * The order of 2, 3, 5-8 is vLLM's; repetition follows Hugging Face. Sums run in double over segments of
 * ROW_SEGMENT ids whose weights are summed in f32 in an order that depends on V only, so a result depends on
 * the row, its parameters and its history alone. */
#ifndef KERNELS_CPU_SAMPLE_ROW_H
#define KERNELS_CPU_SAMPLE_ROW_H

#include "kernels/cpu/history.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/step.h"

/* One thread's scratch. */
struct sampling_scratch {
    float *values;        /* [V] the row after step 3, then weights */
    int32_t *ids;         /* [V] candidates */
    int32_t *counts;      /* [V] zero between calls */
    double *segment_sums; /* [sampling_num_segments(V)] */
};

static inline int32_t sampling_num_segments(int32_t vocab_size)
{
    return (vocab_size + ROW_SEGMENT - 1) / ROW_SEGMENT;
}

/* Fills result from logits[vocab_size]; reads the history of p->batch_slot, does not add to it. drafted: [p->num_drafted] its
 * last tokens. forbidden: a bit_set; NULL: none. A row that is withheld is not looked at. */
void sampling_row(const struct row_kernels *kernels, struct sampling_scratch *scratch,
                  const struct history *history, const int32_t *drafted, const float *logits,
                  int32_t vocab_size, const uint64_t *forbidden, const struct sample_params *p,
                  struct sample_result *result);

/* Whether all that p wants is the token of step 4, of the raw logits of what is not forbidden. */
bool sampling_is_plain_greedy(const struct sample_params *p);

/* Whether p's penalties look at the history at all. */
bool sampling_has_penalties(const struct sample_params *p);

#endif
