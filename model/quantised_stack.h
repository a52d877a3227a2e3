/* quantised_stack.h - finds an expert's matrix in a tensor that has those of a layer, quantised: FP8 and NVFP4, whose scales stand beside
 * the tensor's name. Thread: any. */
#ifndef MODEL_QUANTISED_STACK_H
#define MODEL_QUANTISED_STACK_H

#include "files/safetensors.h"
#include "model/quantisation.h"

/* The tensor is [num][rows][cols] or, if it is transposed, [num][cols][rows]; of four bits two columns are one. */
struct expert_place {
    int32_t num, idx;
    int64_t rows, cols;
    bool is_transposed;
};

bool quantised_is_stack(const struct quantisation *q, const struct safetensors *files, const char *name);
/* STATUS_INVALID, and a sentence that begins with path and names the tensor, where parts are missing or do not fit. */
int quantised_find_in_stack(const struct quantisation *q, const struct safetensors *files, const char *path,
                            const char *name, const struct expert_place *place, struct weight_view *out,
                            struct error *err) must_check;

#endif
