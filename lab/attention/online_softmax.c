/* online_softmax.c - standard attention with the online softmax: maximum and sum in one pass over a row.
 *
 *   for each score s of a row, in order:
 *     m' = max(m, s)
 *     l  = l exp(m - m') + exp(s - m')      what was summed under the old maximum shrinks to the new one
 *     m  = m'
 *   P = exp(s - m) / l
 *
 * A row is read twice instead of three times: 5 N^2 elements beside the products' instead of 6. The pair (m, l) is the
 * state that FlashAttention carries from tile to tile, with an output beside it.
 *
 * Source: Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018. */
#include "lab/attention/whole_matrix.h"

static void soften_row(const float *s, float *w, int32_t keys, struct traffic *t)
{
    float m = -INFINITY, l = 0;
    load(t, s, keys);
    for (int32_t j = 0; j < keys; j++) {
        if (s[j] > m) {
            l *= exp_difference(m, s[j]);
            m = s[j];
        }
        l += exp_difference(s[j], m);
    }
    float inverse = inverse_of(l);
    load(t, s, keys);
    store(t, w, keys);
    for (int32_t j = 0; j < keys; j++) w[j] = exp_difference(s[j], m) * inverse;
}

static void online_softmax(struct problem *p, struct traffic *t)
{
    run_whole_matrix(p, t, soften_row);
}

LAB_KERNEL(online_softmax);
