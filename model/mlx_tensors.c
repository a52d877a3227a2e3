#include "model/mlx_tensors.h"

#include "files/weight_codes.h"

#define METAL_OFFSETS "qbiases" /* transformers' name */
#define E4M3_LARGEST 448.0f
#define E2M1_LARGEST 6.0f

enum { NVFP4_GROUP = 16, MX_GROUP = 32 };

/* Rows in as many dimensions as there are. */
static bool has_rows(const struct finder *f, const struct safetensor *t)
{
    uint64_t rows = 1;
    for (int i = 0; i < t->num_dims - 1; i++) rows *= t->dims[i]; /* as bytes they are in the file */
    return t->num_dims > 1 && rows == (uint64_t)f->rows && t->dims[t->num_dims - 1] > 0;
}

/* A part that must be there; NULL: it is not. */
static const struct safetensor *require_rows(struct finder *f, const char *suffix)
{
    const struct safetensor *t = finder_look_up(f, suffix);
    if (t && has_rows(f, t)) return t;
    finder_fail(f, suffix, t ? "has a shape that does not fit the config" : "is missing");
    return NULL;
}

/* Values of a row for each of the last dimension of t, num of which make a row; 0: they do not. */
static int64_t part_of_row(const struct safetensor *t, int64_t num)
{
    const uint64_t last = t->dims[t->num_dims - 1];
    return (uint64_t)num % last == 0 ? (int64_t)((uint64_t)num / last) : 0;
}

/* Of each code; 0: words are none of such. */
static int64_t bits_of(const struct finder *f, const struct safetensor *t)
{
    const uint64_t bits = t->dims[t->num_dims - 1] * 32;
    return bits % (uint64_t)f->cols == 0 && bits / (uint64_t)f->cols <= 8
               ? (int64_t)(bits / (uint64_t)f->cols)
               : 0;
}

static struct weight_side side_of(struct finder *f, const char *suffix, int64_t group)
{
    const struct safetensor *t = require_rows(f, suffix);
    struct weight_side side = {.rows = f->rows, .cols = f->cols / group};
    if (!t) return side;
    if (part_of_row(t, f->cols) != group || !finder_scale_type(t, &side.type) || side.type == SCALE_E8M0)
        finder_fail(f, suffix, "has a type or shape that does not fit its scales");
    else
        side.data = t->data;
    return side;
}

static struct weight_view find_affine(struct finder *f, const struct safetensor *t, int64_t bits,
                                      int64_t group)
{
    struct weight_view v = finder_view(f, WEIGHT_BITS, DTYPE_I8, t->data);
    v.codes.bits = (uint8_t)bits;
    v.codes.rows_lead = true;
    v.codes.scale_cols = group;
    v.codes.scales = side_of(f, "scales", group);
    v.codes.offsets = side_of(f, finder_look_up(f, METAL_OFFSETS) ? METAL_OFFSETS : "biases", group);
    return v;
}

/* The largest magnitude, which is the product of the largest code, scale and what all are multiplied by. */
static void take_global_scale(struct finder *f, struct weight_view *v)
{
    static const char suffix[] = "global_scale";
    if (!finder_look_up(f, suffix)) return;
    const struct weight_side one = finder_scales(f, suffix, 1, 1);
    if (one.data) v->codes.scale_factor = weight_scale_at(&one, 0, 0) / (E4M3_LARGEST * E2M1_LARGEST);
}

static struct weight_view find_floats(struct finder *f, const struct safetensor *t,
                                      const struct safetensor *scales, int64_t bits, int64_t group)
{
    const bool is_nv = bits == 4 && group == NVFP4_GROUP, is_mx = group == MX_GROUP;
    if (!is_nv && !(is_mx && (bits == 4 || bits == 8)))
        finder_fail(f, "scales", "are bytes of none of MXFP4, MXFP8 and NVFP4");
    const enum dtype dtype = is_nv ? DTYPE_F4_E2M1 : bits == 4 ? DTYPE_MXFP4 : DTYPE_F8_E4M3;
    struct weight_view v = finder_view(f, WEIGHT_SCALED, dtype, t->data);
    v.codes.scale_cols = group;
    v.codes.scales = (struct weight_side){.data = scales->data,
                                          .type = is_nv ? SCALE_E4M3 : SCALE_E8M0,
                                          .rows = f->rows,
                                          .cols = f->cols / group};
    if (is_nv) take_global_scale(f, &v);
    return v;
}

struct weight_view find_mlx(struct finder *f, const struct quantisation *q)
{
    const struct weight_view none = {.data = NULL};
    const struct safetensor *plain = finder_look_up(f, "weight");
    (void)q;
    if (plain && !tensor_is_of(plain, "U32") && !finder_look_up(f, "scales")) return none;
    if (!plain && !finder_look_up(f, "scales")) return none;
    const struct safetensor *t = require_rows(f, "weight"), *scales = require_rows(f, "scales");
    if (f->status) return none;
    const int64_t bits = bits_of(f, t), group = part_of_row(scales, f->cols);
    if (!tensor_is_of(t, "U32") || bits < 2 || bits == 7)
        finder_fail(f, "weight", "is no words of codes of 2, 3, 4, 5, 6 or 8 bits");
    else if (group < NVFP4_GROUP)
        finder_fail(f, "scales", "has groups that do not divide the columns");
    if (f->status || group < NVFP4_GROUP) return none;
    return tensor_is_of(scales, "U8") ? find_floats(f, t, scales, bits, group)
                                      : find_affine(f, t, bits, group);
}
