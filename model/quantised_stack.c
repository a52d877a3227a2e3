#include "model/quantised_stack.h"

#include "base/check.h"
#include "files/weight_codes.h"
#include "model/tensor_finder.h"

enum { NVFP4_GROUP = 16 };

static bool is_nvfp4(const struct safetensor *t)
{
    return tensor_is_of(t, "U8");
}

bool quantised_is_stack(const struct quantisation *q, const struct safetensors *files, const char *name)
{
    const struct safetensor *t = safetensors_find(files, name);
    if (!t || tensor_name_is_weight(name)) return false;
    if (is_nvfp4(t)) return q->format == QUANT_NVFP4 || q->format == QUANT_MIXED;
    return tensor_is_of(t, "F8_E4M3") && (q->format == QUANT_BYTES || q->format == QUANT_MIXED);
}

static bool has_dims(const struct safetensor *t, int64_t first, int64_t second, int64_t third)
{
    return t->num_dims == 3 && t->dims[0] == (uint64_t)first && t->dims[1] == (uint64_t)second &&
           t->dims[2] == (uint64_t)third;
}

static const uint8_t *part_of_expert(const struct safetensor *t, const struct expert_place *p)
{
    return (const uint8_t *)t->data + t->num_bytes / (uint64_t)p->num * (uint64_t)p->idx;
}

static const char *name_of_scales(const struct finder *f)
{
    static const char *const suffixes[] = {"_scale_inv", "_weight_scale_inv", "_weight_scale", "_scale"};
    for (size_t i = 0; i < array_length(suffixes); i++)
        if (finder_look_up(f, suffixes[i])) return suffixes[i];
    return suffixes[0];
}

/* One scale of all experts, or one each: [], [1], [num], [num][1][1]. */
static bool is_scalar(const struct safetensor *t, const struct expert_place *p)
{
    if (t->num_dims == 0) return true;
    if (t->num_dims == 1) return t->dims[0] == 1 || t->dims[0] == (uint64_t)p->num;
    return has_dims(t, p->num, 1, 1);
}

static void set_scales(const struct safetensor *t, const struct expert_place *p, int64_t rows, int64_t cols,
                       struct weight_view *v)
{
    struct weight_side *const side = &v->codes.scales;
    const bool is_of_all = t->num_dims == 0 || (t->num_dims == 1 && t->dims[0] == 1);
    side->data = is_of_all ? t->data : part_of_expert(t, p);
    side->rows = rows;
    side->cols = cols;
}

/* Of rows and columns num has one scale each. */
static bool take_scales(const struct safetensor *t, const struct expert_place *p, int64_t scale_rows,
                        int64_t scale_cols, struct weight_view *v)
{
    const int64_t rows = div_up(p->rows, scale_rows), cols = div_up(p->cols, scale_cols);
    const bool fits = p->is_transposed ? has_dims(t, p->num, cols, rows) : has_dims(t, p->num, rows, cols);
    if (!fits && !(cols == 1 && has_dims(t, p->num, rows, 1))) return false;
    v->codes.scale_rows = scale_rows;
    v->codes.scale_cols = scale_cols;
    set_scales(t, p, rows, cols, v);
    return true;
}

static void find_scales_of_bytes(struct finder *f, const struct quantisation *q, const struct expert_place *p,
                                 struct weight_view *v)
{
    const char *suffix = name_of_scales(f);
    const struct safetensor *t = finder_look_up(f, suffix);
    if (!t || !finder_scale_type(t, &v->codes.scales.type)) {
        finder_fail(f, suffix, t ? "is no floats" : "is missing");
        return;
    }
    if (is_scalar(t, p)) {
        v->codes.scale_rows = p->rows;
        set_scales(t, p, 1, 1, v);
        return;
    }
    if (q->block_rows && take_scales(t, p, q->block_rows, q->block_cols, v)) return;
    if (take_scales(t, p, 1, p->cols, v)) return;
    /* one of gate's rows, one of up's */
    if (p->rows % 2 == 0 && take_scales(t, p, p->rows / 2, p->cols, v)) return;
    finder_fail(f, suffix, "has a shape that does not fit its weight");
}

static void find_scales_of_nvfp4(struct finder *f, const struct expert_place *p, struct weight_view *v)
{
    const struct safetensor *t = finder_look_up(f, "_weight_scale"),
                            *all = finder_look_up(f, "_weight_scale_2");
    struct weight_side one = {.rows = 1, .cols = 1};
    v->codes.scales.type = SCALE_E4M3;
    if (p->cols % NVFP4_GROUP != 0 || !t || !tensor_is_of(t, "F8_E4M3") ||
        !take_scales(t, p, 1, NVFP4_GROUP, v))
        finder_fail(f, "_weight_scale",
                    t ? "has a type or shape that does not fit its weight" : "is missing");
    if (!all || !finder_scale_type(all, &one.type) || !is_scalar(all, p)) {
        finder_fail(f, "_weight_scale_2", all ? "is no scale of all, or of each expert" : "is missing");
        return;
    }
    one.data = all->num_bytes / weight_scale_bytes(one.type) == 1 ? all->data : part_of_expert(all, p);
    v->codes.scale_factor = weight_scale_at(&one, 0, 0);
}

int quantised_find_in_stack(const struct quantisation *q, const struct safetensors *files, const char *path,
                            const char *name, const struct expert_place *place, struct weight_view *out,
                            struct error *err)
{
    struct finder f = {
        .files = files, .path = path, .name = name, .rows = place->rows, .cols = place->cols, .err = err};
    const struct safetensor *t = safetensors_find(files, name);
    const bool is_nv = is_nvfp4(t);
    const int64_t width = is_nv ? place->cols / 2 : place->cols;
    const bool fits = place->is_transposed ? has_dims(t, place->num, width, place->rows)
                                           : has_dims(t, place->num, place->rows, width);
    *out = (struct weight_view){.data = NULL};
    if (!fits)
        return error_set(err, STATUS_INVALID, "%s: tensor %s has a shape that does not fit the config", path,
                         name);
    struct weight_view v = finder_view(&f, place->is_transposed ? WEIGHT_TURNED : WEIGHT_SCALED,
                                       is_nv ? DTYPE_F4_E2M1 : DTYPE_F8_E4M3, part_of_expert(t, place));
    if (is_nv)
        find_scales_of_nvfp4(&f, place, &v);
    else
        find_scales_of_bytes(&f, q, place, &v);
    if (!f.status) *out = v;
    return f.status;
}
