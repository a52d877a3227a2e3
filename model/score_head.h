/* score_head.h - the head of a model that scores pairs of texts: of an encoder out . f(dense x + bias) + bias of the first token's
 * hidden state x, or of the mean, of a decoder out . x of the last token's. f is the family's score_function, and LayerNorm behind it
 * where the head has a norm.
 * One row at a time, on the host, in one order of sums, so that a score's bits depend on its row alone. Thread: the engine's. */
#ifndef MODEL_SCORE_HEAD_H
#define MODEL_SCORE_HEAD_H

#include "model/model_files.h"

struct score_head;

/* Takes its weights, which files have been checked for, as f32. STATUS_UNSUPPORTED: they are quantised. */
int score_head_create(const struct model_files *files, struct score_head **out, struct error *err) must_check;
void score_head_destroy(struct score_head *h);

/* x: [H]. Allocates nothing. */
float score_head_apply(struct score_head *h, const float *x);

#endif
