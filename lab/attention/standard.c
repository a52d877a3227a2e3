/* standard.c - attention as it is written on a blackboard, with safe softmax.
 *
 *   S = scale Q K^T          N^2 scores to slow memory
 *   for each row of S:       three passes over it, for a row does not fit on chip
 *     m = max s              (safe: without it exp overflows)
 *     l = sum exp(s - m)
 *     P = exp(s - m) / l     N^2 weights to slow memory
 *   O = P V
 *
 * Q, K, V and O are N d elements each; S is written once and read three times, P written and read: 6 N^2 more. That,
 * not the products, is what it waits for, and why FlashAttention exists. */
#include "lab/attention/whole_matrix.h"

static void soften_row(const float *s, float *w, int32_t keys, struct traffic *t)
{
    float m = -INFINITY, l = 0;
    load(t, s, keys);
    for (int32_t j = 0; j < keys; j++) m = fmaxf(m, s[j]);
    load(t, s, keys);
    for (int32_t j = 0; j < keys; j++) l += exp_difference(s[j], m);
    float inverse = inverse_of(l);
    load(t, s, keys);
    store(t, w, keys);
    for (int32_t j = 0; j < keys; j++) w[j] = exp_difference(s[j], m) * inverse;
}

static void standard(struct problem *p, struct traffic *t)
{
    run_whole_matrix(p, t, soften_row);
}

LAB_KERNEL(standard);
