/* quantised_tensors.h - finds a quantised matrix in a directory under the names that its scheme gives its parts, and
 * checks that each has the shape which the matrix asks for. Thread: any. */
#ifndef MODEL_QUANTISED_TENSORS_H
#define MODEL_QUANTISED_TENSORS_H

#include "files/safetensors.h"
#include "model/quantisation.h"

/* A matrix of rows x cols, whose name ends in ".weight". out->data stays NULL when the file does not have it in q's form:
 * it may be there as it was. path: for sentences. */
int quantised_find(const struct quantisation *q, const struct safetensors *files, const char *path,
                   const char *name, int64_t rows, int64_t cols, struct weight_view *out,
                   struct error *err) must_check;

#endif
