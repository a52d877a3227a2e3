/* torchao.h - a matrix of four bits as torchao packs it, whose groups have a scale and a zero point that are floats.
 *
 * "x._weight_qdata" of its plain form has rows of bytes, in each the first of two signed codes in the low half, and beside it lie
 * "x._weight_scale" and "x._weight_zero_point", [groups][rows]. Of its tiles (weight_bits.h) it is words of 32 bits, and beside it lies
 * "x._weight_scale_and_zero". Thread: any. */
#ifndef MODEL_TORCHAO_H
#define MODEL_TORCHAO_H

#include "model/tensor_finder.h"

/* data NULL: it is of neither form. */
struct weight_view find_torchao_int4(struct finder *f);

#endif
