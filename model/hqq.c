#include "model/hqq.h"

#include <string.h>

#include "files/weight_hqq.h"

static uint64_t num_values(const struct safetensor *t)
{
    uint64_t num = 1;
    for (int i = 0; i < t->num_dims; i++) num *= t->dims[i]; /* all bytes are in the file */
    return num;
}

/* A number of 32 bits that lies beside the codes; -1: it does not. */
static int64_t read_number(struct finder *f, const char *suffix)
{
    const struct safetensor *t = finder_look_up(f, suffix);
    int32_t number;
    if (!t || !tensor_is_of(t, "I32") || num_values(t) != 1) {
        finder_fail(f, suffix, t ? "is no number of 32 bits" : "is missing");
        return -1;
    }
    memcpy(&number, t->data, sizeof number);
    return number;
}

static struct weight_side side_of(struct finder *f, const char *suffix, int64_t num_groups)
{
    const struct safetensor *t = finder_look_up(f, suffix);
    struct weight_side side = {.rows = 1, .cols = num_groups};
    if (t && finder_scale_type(t, &side.type) && num_values(t) == (uint64_t)num_groups)
        side.data = t->data;
    else
        finder_fail(f, suffix, t ? "has a type or shape that does not fit its weight" : "is missing");
    return side;
}

/* Whether the codes are a table of whole groups whose lines can be cut. */
static bool is_table(int64_t bits, int64_t num, int64_t group, int64_t axis)
{
    const bool is_known = bits == 1 || bits == 2 || bits == 3 || bits == 4 || bits == 8;
    if (!is_known || group < 1 || num % group != 0 || (axis != 0 && axis != 1)) return false;
    return bits == 3 || (axis == 1 ? num / group : group) % (8 / bits) == 0;
}

struct weight_view find_hqq(struct finder *f, const struct quantisation *q)
{
    const struct safetensor *t = finder_look_up(f, "W_q");
    (void)q;
    if (!t) return (struct weight_view){.data = NULL};
    const int64_t num = f->rows * f->cols, bits = read_number(f, "nbits"),
                  group = read_number(f, "group_size"), axis = read_number(f, "axis");
    struct weight_view v = finder_view(f, WEIGHT_HQQ, DTYPE_I8, t->data);
    if (!f->status && !is_table(bits, num, group, axis))
        finder_fail(f, "W_q", "is of codes that are no 1, 2, 3, 4 or 8 bits in whole groups");
    if (f->status) return v;
    if (!tensor_is_of(t, bits == 3 ? "I32" : "U8") ||
        t->num_bytes != weight_hqq_bytes((int)bits, num, group, axis == 0))
        finder_fail(f, "W_q", "has a type or shape that does not fit the config");
    v.codes.bits = (uint8_t)bits;
    v.codes.groups_lie_down = axis == 0;
    v.codes.scale_cols = group;
    v.codes.scales = side_of(f, "scale", num / group);
    v.codes.offsets = side_of(f, "zero", num / group);
    return v;
}
