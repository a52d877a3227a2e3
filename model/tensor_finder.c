#include "model/tensor_finder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

enum { NAME_BYTES_MAX = 192 };

struct part_name {
    char text[NAME_BYTES_MAX];
};

bool tensor_name_is_weight(const char *name)
{
    const size_t length = strlen(name);
    return length > 7 && !strcmp(name + length - 7, ".weight");
}

/* suffix stands where the matrix has "weight", or behind its name. */
static struct part_name name_of(const struct finder *f, const char *suffix)
{
    struct part_name name;
    const size_t base = strlen(f->name) - (tensor_name_is_weight(f->name) ? strlen("weight") : 0);
    snprintf(name.text, sizeof name.text, "%.*s%s", (int)base, f->name, suffix);
    return name;
}

const struct safetensor *finder_look_up(const struct finder *f, const char *suffix)
{
    return safetensors_find(f->files, name_of(f, suffix).text);
}

bool tensor_is_of(const struct safetensor *t, const char *dtype)
{
    return !strcmp(t->dtype_text, dtype);
}

void finder_fail(struct finder *f, const char *suffix, const char *problem)
{
    if (!f->status)
        f->status =
            error_set(f->err, STATUS_INVALID, "%s: tensor %s %s", f->path, name_of(f, suffix).text, problem);
}

bool tensor_has_shape(const struct safetensor *t, int64_t rows, int64_t cols)
{
    const bool is_of_blocks =
        t->num_dims == 4 && t->dims[1] == 1 && t->dims[3] == 1; /* as ModelOpt has them */
    return (t->num_dims == 2 || is_of_blocks) && t->dims[0] == (uint64_t)rows &&
           t->dims[is_of_blocks ? 2 : 1] == (uint64_t)cols;
}

const void *finder_require(struct finder *f, const char *suffix, const char *dtype, int64_t rows,
                           int64_t cols)
{
    const struct safetensor *t = finder_look_up(f, suffix);
    char problem[128];
    if (t && tensor_is_of(t, dtype) && tensor_has_shape(t, rows, cols)) return t->data;
    snprintf(problem, sizeof problem, "is %s; %" PRId64 " x %" PRId64 " of %s are expected",
             t ? "of another type or shape" : "missing", rows, cols, dtype);
    finder_fail(f, suffix, problem);
    return NULL;
}

bool finder_scale_type(const struct safetensor *t, enum scale_type *type)
{
    static const struct {
        const char *dtype;
        enum scale_type type;
    } types[] = {{"F32", SCALE_F32}, {"F16", SCALE_F16}, {"BF16", SCALE_BF16}, {"F8_E8M0", SCALE_E8M0}};
    for (size_t i = 0; i < array_length(types); i++) {
        if (!tensor_is_of(t, types[i].dtype)) continue;
        *type = types[i].type;
        return true;
    }
    return false;
}

struct weight_side finder_scales(struct finder *f, const char *suffix, int64_t rows, int64_t cols)
{
    const struct safetensor *t = finder_look_up(f, suffix);
    struct weight_side side = {.rows = rows, .cols = cols};
    bool is_vector = t && cols == 1 && t->num_dims == 1 && t->dims[0] == (uint64_t)rows,
         is_scalar = t && rows == 1 && cols == 1 && t->num_dims == 0;
    if (t && finder_scale_type(t, &side.type) && (is_vector || is_scalar || tensor_has_shape(t, rows, cols)))
        side.data = t->data;
    else
        finder_fail(f, suffix, t ? "has a type or shape that does not fit its weight" : "is missing");
    return side;
}

struct weight_view finder_view(const struct finder *f, enum weight_scheme scheme, enum dtype dtype,
                               const void *data)
{
    struct weight_view v = weight_view_plain(data, dtype, f->rows, f->cols);
    v.scheme = scheme;
    v.codes =
        (struct weight_codes){.scale_rows = 1, .scale_cols = f->cols, .scale_factor = 1, .scale_divisor = 1};
    return v;
}
