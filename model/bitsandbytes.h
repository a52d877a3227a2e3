/* bitsandbytes.h - a matrix as bitsandbytes writes it: NF4 or FP4 with scales that may be quantised as well, or int8 with one a row.
 *
 * "x.weight" of 4 bits is bytes, and beside it lie "x.weight.absmax" (scales), "x.weight.quant_map" (what codes stand for),
 * "x.weight.quant_state.bitsandbytes__nf4" or "__fp4", which is JSON, and of quantised scales "x.weight.nested_absmax" and
 * "x.weight.nested_quant_map". Of 8 bits it is rows of int8, and beside it lies "x.SCB", each row's largest magnitude. Thread: any. */
#ifndef MODEL_BITSANDBYTES_H
#define MODEL_BITSANDBYTES_H

#include "model/quantisation.h"
#include "model/tensor_finder.h"

/* data NULL: it is in neither form, and may be plain. */
struct weight_view find_bitsandbytes(struct finder *f, const struct quantisation *q);

#endif
