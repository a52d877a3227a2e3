/* hqq.h - a matrix as HQQ saves it in safetensors, as transformers does: codes of 1, 2, 3, 4 or 8 bits with float scales and zero points.
 *
 * "x.W_q" is bytes, or of three bits words (weight_hqq.h), "x.scale" and "x.zero" have a value of each group; numbers beside them say what it is:
 * "x.nbits", "x.group_size" and "x.axis" (0: groups lie down the table). Thread: any. */
#ifndef MODEL_HQQ_H
#define MODEL_HQQ_H

#include "model/quantisation.h"
#include "model/tensor_finder.h"

/* data NULL: it is plain. */
struct weight_view find_hqq(struct finder *f, const struct quantisation *q);

#endif
