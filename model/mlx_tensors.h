/* mlx_tensors.h - a matrix as MLX packs it, which is quantised where "x.scales" is beside it.
 *
 * "x.weight" has rows of words, also of several matrices one below the other in three dimensions. Beside scales that are floats lie
 * "x.biases", or as transformers' metal has them "x.qbiases": codes of 2, 3, 4, 5, 6 or 8 bits, one stream a row (weight_bits.h). Scales that are bytes are those of MXFP4, MXFP8 or NVFP4,
 * which may have "x.global_scale". How many bits and columns a group has is seen from the shapes: matrices may differ. Thread: any. */
#ifndef MODEL_MLX_TENSORS_H
#define MODEL_MLX_TENSORS_H

#include "model/quantisation.h"
#include "model/tensor_finder.h"

/* data NULL: it is plain. */
struct weight_view find_mlx(struct finder *f, const struct quantisation *q);

#endif
