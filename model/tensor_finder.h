/* tensor_finder.h - finds the parts of a quantised matrix in a directory, and keeps the first thing that is wrong with them. Thread: any. */
#ifndef MODEL_TENSOR_FINDER_H
#define MODEL_TENSOR_FINDER_H

#include "files/safetensors.h"

/* A matrix that is looked for; the first problem is kept in status. */
struct finder {
    const struct safetensors *files;
    const char *path, *name;
    int64_t rows, cols;
    struct error *err;
    int status;
};

/* Of a matrix that has parts of other names. */
bool tensor_name_is_weight(const char *name);
bool tensor_is_of(const struct safetensor *t, const char *dtype);
bool tensor_has_shape(const struct safetensor *t, int64_t rows, int64_t cols);

/* In all of these suffix stands where the matrix has "weight", or behind its name. NULL: it is not there. */
const struct safetensor *finder_look_up(const struct finder *f, const char *suffix);
/* The sentence goes on behind the tensor's name. */
void finder_fail(struct finder *f, const char *suffix, const char *problem);
/* The data of a part, which must be there, of this type and shape. */
const void *finder_require(struct finder *f, const char *suffix, const char *dtype, int64_t rows,
                           int64_t cols);
/* What type of scales a tensor has, if it is one of floats that scales are of. */
bool finder_scale_type(const struct safetensor *t, enum scale_type *type);
/* Scales that are floats, rows x cols; of one column also as a vector. */
struct weight_side finder_scales(struct finder *f, const char *suffix, int64_t rows, int64_t cols);
/* A view of the matrix: codes at data, one scale a row. */
struct weight_view finder_view(const struct finder *f, enum weight_scheme scheme, enum dtype dtype,
                               const void *data);

#endif
