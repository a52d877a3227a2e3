/* gguf_scales.h - what a GGUF file keeps beside a matrix that all of it is multiplied by: NAME.scale, or NAME.weight.scale, of NVFP4 as
 * NVIDIA's checkpoints have it. Thread: any. */
#ifndef MODEL_GGUF_SCALES_H
#define MODEL_GGUF_SCALES_H

#include "files/gguf.h"

/* view: of the tensor of this name (it ends in ".weight"), or of one expert of num of it; num is 1 where there are none. No scale is a scale
 * of 1; another one is supported of WEIGHT_NVFP4 alone, and else STATUS_UNSUPPORTED. path: for sentences. */
int gguf_scales_apply(const struct gguf *g, const char *path, const char *name, int32_t expert, int32_t num,
                      struct weight_view *view, struct error *err) must_check;

#endif
