#include "model/torchao.h"

#include "base/check.h"
#include "files/weight_bits.h"

#define CODES "_weight_qdata"
#define SCALES "_weight_scale"
#define OFFSETS "_weight_zero_point"
#define BOTH "_weight_scale_and_zero"

enum { MIDDLE = 8, TILE_ROWS = 8 };

static struct weight_view view_of(const struct finder *f, const void *data, int64_t group)
{
    struct weight_view v = finder_view(f, WEIGHT_BITS, DTYPE_I8, data);
    v.codes.bits = 4;
    v.codes.rows_lead = true;
    v.codes.zero = MIDDLE;
    v.codes.scale_cols = group;
    return v;
}

/* Columns that have one scale, of cols in num groups; 0: these are none. */
static int64_t group_of(struct finder *f, const char *suffix, const struct safetensor *t, int num_dims,
                        int64_t cols)
{
    const uint64_t num = t && t->num_dims == num_dims ? t->dims[0] : 0;
    if (num > 0 && (uint64_t)cols % num == 0) return (int64_t)((uint64_t)cols / num);
    finder_fail(f, suffix, t ? "has groups that do not divide the columns" : "is missing");
    return cols;
}

static struct weight_view find_plain(struct finder *f, const struct safetensor *t)
{
    const int64_t group = group_of(f, SCALES, finder_look_up(f, SCALES), 2, f->cols),
                  num = div_up(f->cols, group);
    struct weight_view v = view_of(f, finder_require(f, CODES, t->dtype_text, f->rows, f->cols / 2), group);
    v.codes.flip = MIDDLE; /* signed */
    v.codes.sides_turned = true;
    v.codes.scales = finder_scales(f, SCALES, num, f->rows);
    v.codes.offsets = finder_scales(f, OFFSETS, num, f->rows);
    if (f->cols % 8) finder_fail(f, CODES, "has rows that are no whole words");
    return v;
}

static bool has_tiles(const struct finder *f, const struct safetensor *t)
{
    return tensor_is_of(t, "I32") && t->dims[0] == (uint64_t)div_up(f->rows, (int64_t)TILE_ROWS) &&
           t->dims[1] == (uint64_t)weight_bits_tiles_of_row(f->cols) && t->dims[2] == 32 && t->dims[3] == 4;
}

static struct weight_view find_tiles(struct finder *f, const struct safetensor *t)
{
    const struct safetensor *both = finder_look_up(f, BOTH);
    const int64_t rows = div_up(f->rows, (int64_t)TILE_ROWS) * TILE_ROWS,
                  group = group_of(f, BOTH, both, 3, weight_bits_tiles_of_row(f->cols) * 128);
    struct weight_view v = view_of(f, t->data, group);
    if (!has_tiles(f, t)) finder_fail(f, CODES, "has a type or shape that does not fit the config");
    v.codes.is_tiled = true;
    if (f->status) return v;
    v.codes.scales =
        (struct weight_side){.data = both->data, .rows = (int64_t)both->dims[0], .cols = 2 * rows};
    if (both->dims[1] != (uint64_t)rows || both->dims[2] != 2 ||
        !finder_scale_type(both, &v.codes.scales.type))
        finder_fail(f, BOTH, "has a type or shape that does not fit its weight");
    v.codes.offsets = v.codes.scales;
    v.codes.offsets.data = (const uint8_t *)both->data + weight_scale_bytes(v.codes.scales.type);
    return v;
}

struct weight_view find_torchao_int4(struct finder *f)
{
    const struct safetensor *t = finder_look_up(f, CODES);
    const bool is_tiled = t && t->num_dims == 4, is_plain = t && t->num_dims == 2 &&
                                                            t->dims[1] * 2 == (uint64_t)f->cols &&
                                                            (tensor_is_of(t, "I8") || tensor_is_of(t, "U8"));
    if (!is_tiled && !is_plain) return (struct weight_view){.data = NULL};
    if (finder_look_up(f, "_weight_act_pre_scale"))
        finder_fail(f, "_weight_act_pre_scale",
                    "is to multiply activations, which is not supported with a matrix of its form");
    return is_tiled ? find_tiles(f, t) : find_plain(f, t);
}
