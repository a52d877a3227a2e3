#include "model/bitsandbytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

enum { NUM_CODES = 16, NUM_SCALE_CODES = 256, BLOCK_MAX = 1 << 20, INT8_LARGEST = 127 };

#define STATE "weight.quant_state.bitsandbytes__"

/* What a quant_state says. */
struct state {
    int64_t block, nested_block;
    double nested_offset;
};

/* The data of a part of so many values in any shape, which must be there, of this type. */
static const void *require_values(struct finder *f, const char *suffix, const char *dtype, int64_t num)
{
    const struct safetensor *t = finder_look_up(f, suffix);
    char problem[128];
    uint64_t values = 1;
    for (int i = 0; t && i < t->num_dims; i++) values *= t->dims[i]; /* all bytes are in the file */
    if (t && tensor_is_of(t, dtype) && values == (uint64_t)num) return t->data;
    snprintf(problem, sizeof problem, "is %s; %" PRId64 " values of %s are expected",
             t ? "of another type or shape" : "missing", num, dtype);
    finder_fail(f, suffix, problem);
    return NULL;
}

static bool is_shape(const struct finder *f, const cJSON *shape)
{
    int64_t rows, cols;
    return cJSON_GetArraySize(shape) == 2 && json_is_int(shape->child, &rows) &&
           json_is_int(shape->child->next, &cols) && rows == f->rows && cols == f->cols;
}

static void read_state(struct finder *f, const char *suffix, const cJSON *object, struct state *state)
{
    struct error own = {0};
    struct json_reader r = {.object = object, .path = "it", .err = &own};
    state->block = json_int_required(&r, "blocksize", 1, BLOCK_MAX);
    state->nested_block = json_int(&r, "nested_blocksize", 1, 1, BLOCK_MAX);
    state->nested_offset = json_real(&r, "nested_offset", 0, -1e30, 1e30);
    if (r.status)
        finder_fail(f, suffix, own.text);
    else if (!is_shape(f, json_find(&r, "shape")))
        finder_fail(f, suffix, "has another shape than the config asks for");
}

/* The bytes as one JSON object, and nothing behind it; NULL: they are none. */
static cJSON *parse_state(const struct safetensor *t)
{
    const char *end = NULL;
    cJSON *object =
        tensor_is_of(t, "U8") ? cJSON_ParseWithLengthOpts(t->data, t->num_bytes, &end, false) : NULL;
    if (cJSON_IsObject(object) && end == (const char *)t->data + t->num_bytes) return object;
    cJSON_Delete(object);
    return NULL;
}

static struct state find_state(struct finder *f)
{
    const char *const suffix = finder_look_up(f, STATE "fp4") ? STATE "fp4" : STATE "nf4";
    const struct safetensor *t = finder_look_up(f, suffix);
    struct state state = {.block = 1, .nested_block = 1};
    cJSON *object = t ? parse_state(t) : NULL;
    if (object)
        read_state(f, suffix, object, &state);
    else
        finder_fail(f, suffix, t ? "is no JSON object in bytes" : "is missing");
    cJSON_Delete(object);
    return state;
}

/* Scales that are codes themselves. */
static void find_nested(struct finder *f, const struct state *state, int64_t num_scales,
                        struct weight_table *t)
{
    t->scale_values = require_values(f, "weight.nested_quant_map", "F32", NUM_SCALE_CODES);
    t->scale_units =
        require_values(f, "weight.nested_absmax", "F32", div_up(num_scales, state->nested_block));
    t->scale_block = state->nested_block;
    t->scale_offset = (float)state->nested_offset;
}

static struct weight_view find_four_bits(struct finder *f)
{
    const int64_t num_values = f->rows * f->cols;
    const struct state state = find_state(f);
    const int64_t num_scales = div_up(num_values, state.block);
    const bool is_nested = finder_look_up(f, "weight.nested_absmax") != NULL;
    struct weight_view v =
        finder_view(f, WEIGHT_TABLE, DTYPE_U4, require_values(f, "weight", "U8", div_up(num_values, 2)));
    struct weight_codes *c = &v.codes;
    c->scale_cols = state.block;
    c->scales =
        (struct weight_side){.data = require_values(f, "weight.absmax", is_nested ? "U8" : "F32", num_scales),
                             .type = is_nested ? SCALE_E8M0 : SCALE_F32, /* as large */
                             .rows = 1,
                             .cols = num_scales};
    c->table.values = require_values(f, "weight.quant_map", "F32", NUM_CODES);
    if (is_nested) find_nested(f, &state, num_scales, &c->table);
    return v;
}

/* Kernels of old had orders of columns of their own, and some files are in one. */
static void check_order(struct finder *f)
{
    const struct safetensor *t = finder_look_up(f, "weight_format");
    const uint8_t *const order = t ? require_values(f, "weight_format", "U8", 1) : NULL;
    if (order && *order != 0)
        finder_fail(f, "weight_format",
                    "says that columns are in the order of a kernel, which is not supported; 0 is");
}

/* Each row's integers are its values in 127ths of its largest magnitude. */
static struct weight_view find_int8(struct finder *f)
{
    struct weight_view v =
        finder_view(f, WEIGHT_SCALED, DTYPE_I8, finder_require(f, "weight", "I8", f->rows, f->cols));
    check_order(f);
    v.codes.scales = finder_scales(f, "SCB", f->rows, 1);
    v.codes.scale_divisor = INT8_LARGEST;
    return v;
}

struct weight_view find_bitsandbytes(struct finder *f, const struct quantisation *q)
{
    const struct safetensor *t = finder_look_up(f, "weight");
    (void)q;
    if (t && tensor_is_of(t, "I8")) return find_int8(f);
    return t && tensor_is_of(t, "U8") ? find_four_bits(f) : (struct weight_view){.data = NULL};
}
