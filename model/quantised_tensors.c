#include "model/quantised_tensors.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "files/weight_codes.h"
#include "files/weight_factors.h"
#include "model/bitsandbytes.h"
#include "model/hqq.h"
#include "model/mlx_tensors.h"
#include "model/tensor_finder.h"
#include "model/torchao.h"

enum { WORD_CODES = 8 };

enum { MODELOPT_BLOCK = 128 };

/* Scales of a byte each. */
static struct weight_side scales_of_bytes(struct finder *f, const char *suffix, enum scale_type type,
                                          int64_t rows, int64_t cols)
{
    return (struct weight_side){
        .data = finder_require(f, suffix, type == SCALE_E4M3 ? "F8_E4M3" : "U8", rows, cols),
        .type = type,
        .rows = rows,
        .cols = cols};
}

/* ---- bytes: FP8 and int8 ---- */

struct part_names {
    const char *codes, *scales, *zeros;
};

/* torchao has its own. */
static const struct part_names *names_of_bytes(const struct finder *f)
{
    static const struct part_names plain = {"weight", "weight_scale", "weight_zero_point"},
                                   divisors = {"weight", "weight_scale_inv", "weight_zero_point"},
                                   torchao = {"_weight_qdata", "_weight_scale", "_weight_zero_point"};
    if (finder_look_up(f, torchao.codes)) return &torchao;
    return finder_look_up(f, divisors.scales) ? &divisors : &plain;
}

static bool is_scale_of_all(const struct safetensor *t)
{
    return t->num_dims == 0 || (t->num_dims == 1 && t->dims[0] == 1) || tensor_has_shape(t, 1, 1);
}

/* Columns and rows that have one scale. */
static void set_scale_sides(const struct safetensor *scale, const struct quantisation *q,
                            struct weight_view *v)
{
    struct weight_codes *c = &v->codes;
    if (scale && is_scale_of_all(scale))
        c->scale_rows = v->rows;
    else if (scale && scale->num_dims == 4) /* [rows][1][cols][1] */
        c->scale_rows = c->scale_cols = MODELOPT_BLOCK;
    else if (q->group_size)
        c->scale_cols = q->group_size;
    else if (q->block_rows) {
        c->scale_rows = q->block_rows;
        c->scale_cols = q->block_cols;
    }
}

static struct weight_view find_bytes(struct finder *f, const struct quantisation *q)
{
    const struct part_names *const names = names_of_bytes(f);
    const struct safetensor *t = finder_look_up(f, names->codes), *scale;
    const char *suffix = names->scales;
    if (!t || !(tensor_is_of(t, "F8_E4M3") || tensor_is_of(t, "I8")))
        return (struct weight_view){.data = NULL};
    enum dtype dtype = tensor_is_of(t, "I8") ? DTYPE_I8 : DTYPE_F8_E4M3;
    struct weight_view v = finder_view(f, WEIGHT_SCALED, dtype,
                                       finder_require(f, names->codes, t->dtype_text, f->rows, f->cols));
    scale = finder_look_up(f, suffix);
    set_scale_sides(scale, q, &v);
    const int64_t rows = div_up(f->rows, v.codes.scale_rows), cols = div_up(f->cols, v.codes.scale_cols);
    const bool is_mx = scale && dtype == DTYPE_F8_E4M3 && tensor_is_of(scale, "U8");
    v.codes.scales =
        is_mx ? scales_of_bytes(f, suffix, SCALE_E8M0, rows, cols) : finder_scales(f, suffix, rows, cols);
    if (q->has_zeros) {
        v.codes.zeros_are_apart = true;
        v.codes.zeros = (struct weight_side){
            .data = finder_require(f, names->zeros, "I8", rows, cols), .rows = rows, .cols = cols};
    }
    return v;
}

/* ---- integers in words: compressed-tensors ---- */

static void find_groups(struct finder *f, const char *suffix, struct weight_view *v)
{
    const struct safetensor *t = finder_look_up(f, suffix);
    if (!t) return;
    if (!tensor_is_of(t, "I32") || t->num_dims != 1 || t->dims[0] != (uint64_t)f->cols) {
        finder_fail(f, suffix, "should be a number of 32 bits for each column");
        return;
    }
    v->codes.groups = t->data;
    struct error own = {0};
    if (!f->status && weight_check_groups(v, &own)) finder_fail(f, suffix, own.text);
}

/* Of other than 4 and 8 bits: codes go on in the next word. */
static struct weight_view find_packed_bits(struct finder *f, const struct quantisation *q)
{
    const int64_t bits = q->bits, num_words = div_up(f->cols * bits, 32);
    struct weight_view v =
        finder_view(f, WEIGHT_BITS, DTYPE_I8, finder_require(f, "weight_packed", "I32", f->rows, num_words));
    struct weight_codes *c = &v.codes;
    c->bits = (uint8_t)bits;
    c->rows_lead = true;
    if (q->group_size) c->scale_cols = q->group_size;
    const int64_t num_groups = div_up(f->cols, c->scale_cols);
    c->zero = q->has_zeros ? 0 : (uint8_t)(1 << (bits - 1));
    c->scales = finder_scales(f, "weight_scale", f->rows, num_groups);
    if (q->has_zeros)
        c->zeros = (struct weight_side){
            .data = finder_require(f, "weight_zero_point", "I32", div_up(f->rows * bits, 32), num_groups),
            .rows = f->rows,
            .cols = num_groups};
    find_groups(f, "weight_g_idx", &v);
    return v;
}

static struct weight_view find_packed(struct finder *f, const struct quantisation *q)
{
    if (!finder_look_up(f, "weight_packed")) return (struct weight_view){.data = NULL};
    if (q->bits != 4 && q->bits != 8) return find_packed_bits(f, q);
    const int64_t per_word = 32 / q->bits;
    if (f->cols % per_word) finder_fail(f, "weight_packed", "has rows that are no whole words");
    const void *data = finder_require(f, "weight_packed", "I32", f->rows, f->cols / per_word);
    struct weight_view v = finder_view(f, WEIGHT_SCALED, q->bits == 8 ? DTYPE_I8 : DTYPE_U4, data);
    struct weight_codes *c = &v.codes;
    if (q->group_size) c->scale_cols = q->group_size;
    const int64_t num_groups = div_up(f->cols, c->scale_cols);
    c->flip = q->bits == 8 ? 0x80 : 0; /* stored plus 128 */
    c->zero = q->bits == 8 || q->has_zeros ? 0 : 8;
    c->scales = finder_scales(f, "weight_scale", f->rows, num_groups);
    if (q->has_zeros)
        c->zeros = (struct weight_side){
            .data = finder_require(f, "weight_zero_point", "I32", div_up(f->rows, per_word), num_groups),
            .rows = f->rows,
            .cols = num_groups};
    find_groups(f, "weight_g_idx", &v);
    return v;
}

/* ---- floats of four bits ---- */

static struct weight_view find_fp4(struct finder *f, const struct quantisation *q)
{
    const bool is_nv = q->format == QUANT_NVFP4;
    const char *suffix = finder_look_up(f, "weight_packed") ? "weight_packed" : "weight";
    const struct safetensor *t = finder_look_up(f, suffix);
    if (!t || !tensor_is_of(t, "U8")) return (struct weight_view){.data = NULL};
    const int64_t group = is_nv ? 16 : 32;
    if (f->cols % group) finder_fail(f, suffix, "has rows that are no whole groups");
    struct weight_view v = finder_view(f, WEIGHT_SCALED, is_nv ? DTYPE_F4_E2M1 : DTYPE_MXFP4,
                                       finder_require(f, suffix, "U8", f->rows, f->cols / 2));
    v.codes.scale_cols = group;
    v.codes.scales =
        scales_of_bytes(f, "weight_scale", is_nv ? SCALE_E4M3 : SCALE_E8M0, f->rows, f->cols / group);
    if (!is_nv || f->status) return v;
    /* one more scale of all: compressed-tensors divides by it, ModelOpt multiplies */
    const bool divides = finder_look_up(f, "weight_global_scale") != NULL;
    const struct weight_side all = finder_scales(f, divides ? "weight_global_scale" : "weight_scale_2", 1, 1);
    if (!all.data) return v;
    *(divides ? &v.codes.scale_divisor : &v.codes.scale_factor) = weight_scale_at(&all, 0, 0);
    return v;
}

/* The data of a part of bytes, rows in as many dimensions as there are, then tail. */
static const void *require_rows(struct finder *f, const char *suffix, const uint64_t *tail, int num_tail)
{
    const struct safetensor *t = finder_look_up(f, suffix);
    uint64_t rows = 1;
    for (int i = 0; t && i < t->num_dims - num_tail; i++)
        rows *= t->dims[i]; /* as bytes they are in the file */
    if (t && tensor_is_of(t, "U8") && t->num_dims > num_tail && rows == (uint64_t)f->rows &&
        !memcmp(t->dims + t->num_dims - num_tail, tail, (size_t)num_tail * sizeof *tail))
        return t->data;
    finder_fail(f, suffix, t ? "has a type or shape that does not fit the config" : "is missing");
    return NULL;
}

/* Blocks of 32 columns: [...][cols / 32][16] bytes and [...][cols / 32] scales. */
static struct weight_view find_blocks(struct finder *f, const struct quantisation *q)
{
    (void)q;
    if (!finder_look_up(f, "_blocks")) return (struct weight_view){.data = NULL};
    if (f->cols % 32) finder_fail(f, "_blocks", "has rows that are no whole blocks");
    const uint64_t shape[] = {(uint64_t)f->cols / 32, 16};
    struct weight_view v = finder_view(f, WEIGHT_SCALED, DTYPE_MXFP4, require_rows(f, "_blocks", shape, 2));
    v.codes.scale_cols = 32;
    v.codes.scales = (struct weight_side){.data = require_rows(f, "_scales", shape, 1),
                                          .type = SCALE_E8M0,
                                          .rows = f->rows,
                                          .cols = f->cols / 32};
    return v;
}

/* ---- GPTQ and AWQ ---- */

/* Scales, zero points and groups. */
static void find_sides(struct finder *f, const struct quantisation *q, struct weight_view *v)
{
    struct weight_codes *c = &v->codes;
    if (q->group_size) c->scale_cols = q->group_size;
    const int64_t num_groups = div_up(f->cols, c->scale_cols);
    c->zero = q->has_zeros ? q->zeros_less_one : 8;
    c->scales = finder_scales(f, "scales", num_groups, f->rows);
    if (q->has_zeros)
        c->zeros = (struct weight_side){
            .data = finder_require(f, "qzeros", "I32", num_groups, f->rows * q->bits / 32),
            .rows = num_groups,
            .cols = f->rows};
    if (q->format == QUANT_GPTQ) find_groups(f, "g_idx", v);
}

/* GPTQ's of other than four bits: rows and columns are whole words, of three bits 32 codes in three. */
static struct weight_view find_bits(struct finder *f, const struct quantisation *q)
{
    const int64_t bits = q->bits;
    if (f->rows * bits % 32 || f->cols * bits % 32)
        finder_fail(f, "qweight", "is of a matrix whose sides are no whole words");
    struct weight_view v = finder_view(f, WEIGHT_BITS, DTYPE_I8,
                                       finder_require(f, "qweight", "I32", f->cols * bits / 32, f->rows));
    v.codes.bits = (uint8_t)bits;
    find_sides(f, q, &v);
    return v;
}

/* GPTQ's matrices may differ in bits and in what a group is (GPTQModel's dynamic, AutoRound's extra_config): what tensors' shapes say
 * goes before what the config says of most. */
static struct quantisation own_numbers(struct finder *f, const struct quantisation *q)
{
    const struct safetensor *codes = finder_look_up(f, "qweight"), *scales = finder_look_up(f, "scales");
    const uint64_t cols = (uint64_t)f->cols, num_words = codes->num_dims == 2 ? codes->dims[0] : 0,
                   num_groups = scales && scales->num_dims == 2 ? scales->dims[0] : 0;
    const uint64_t said = q->group_size ? div_up(cols, (uint64_t)q->group_size) : 1;
    struct quantisation own = *q;
    const int64_t bits = (int64_t)(num_words * 32 / cols);
    if (num_words * 32 % cols == 0 && quantisation_has_gptq_bits(bits)) own.bits = (int32_t)bits;
    if (num_groups > 0 && num_groups != said && cols % num_groups == 0)
        own.group_size = (int32_t)(cols / num_groups);
    return own;
}

static struct weight_view find_transposed(struct finder *f, const struct quantisation *quantisation)
{
    const bool is_awq = quantisation->format == QUANT_AWQ;
    if (!finder_look_up(f, "qweight")) return (struct weight_view){.data = NULL};
    const struct quantisation own = is_awq ? *quantisation : own_numbers(f, quantisation), *q = &own;
    if (q->bits != 4) return find_bits(f, q);
    if ((is_awq ? f->rows : f->cols) % WORD_CODES || f->rows % WORD_CODES)
        finder_fail(f, "qweight", "is of a matrix whose sides are no multiples of 8");
    const void *data = is_awq ? finder_require(f, "qweight", "I32", f->cols, f->rows / WORD_CODES)
                              : finder_require(f, "qweight", "I32", f->cols / WORD_CODES, f->rows);
    struct weight_view v = finder_view(f, is_awq ? WEIGHT_AWQ : WEIGHT_GPTQ, DTYPE_U4, data);
    find_sides(f, q, &v);
    return v;
}

/* ---- BitNet ---- */

/* Whether a part of the name between dots is a number. */
static bool is_of_layer(const char *name)
{
    for (; (name = strchr(name, '.')); name++)
        if (name[1 + strspn(name + 1, "0123456789")] == '.' && name[1] != '.') return true;
    return false;
}

static struct weight_view find_ternary_floats(struct finder *f)
{
    const struct safetensor *t = finder_look_up(f, "weight");
    if (!t || !is_of_layer(f->name)) return (struct weight_view){.data = NULL};
    if (!tensor_is_of(t, "BF16") && !tensor_is_of(t, "F16") && !tensor_is_of(t, "F32"))
        finder_fail(f, "weight", "is not of BF16, F16 or F32");
    return finder_view(f, WEIGHT_TERNARY_FLOATS, t->dtype < 0 ? DTYPE_F32 : (enum dtype)t->dtype,
                       finder_require(f, "weight", t->dtype_text, f->rows, f->cols));
}

static struct weight_view find_ternary(struct finder *f, const struct quantisation *q)
{
    const struct safetensor *t = finder_look_up(f, "weight");
    if (q->has_floats) return find_ternary_floats(f);
    if (!t && !finder_look_up(f, "weight_scale")) return (struct weight_view){.data = NULL};
    if (t && !tensor_is_of(t, "U8") && !finder_look_up(f, "weight_scale"))
        return (struct weight_view){.data = NULL};
    if (f->rows % 4) finder_fail(f, "weight", "is of a matrix whose rows are no multiple of 4");
    struct weight_view v =
        finder_view(f, WEIGHT_TERNARY, DTYPE_I8, finder_require(f, "weight", "U8", f->rows / 4, f->cols));
    const struct weight_side scale = finder_scales(f, "weight_scale", 1, 1);
    if (!scale.data) return v;
    const float own = weight_scale_at(&scale, 0, 0);
    if (!isfinite(own) || own == 0) finder_fail(f, "weight_scale", "is 0, or no number");
    *(q->scales_divide ? &v.codes.scale_divisor : &v.codes.scale_factor) = own;
    return v;
}

/* ---- checkpoints whose matrices differ in form ---- */

/* Columns that have one scale. */
static int32_t own_group_size(struct finder *f, const char *suffix)
{
    const struct safetensor *scales = finder_look_up(f, suffix);
    const uint64_t num = scales && scales->num_dims == 2 ? scales->dims[1] : 0;
    if (num > 0 && (uint64_t)f->cols % num == 0) return (int32_t)((uint64_t)f->cols / num);
    finder_fail(f, suffix, "is missing, or has groups that do not divide the columns");
    return 0;
}

/* Of few columns as many words may be of several numbers of bits: four and eight come first. */
static int32_t own_bits(const struct finder *f, const struct safetensor *packed)
{
    static const int32_t likely[] = {4, 8, 2, 3, 5, 6, 7};
    for (size_t i = 0; i < array_length(likely); i++)
        if (packed->num_dims == 2 && (uint64_t)div_up(f->cols * likely[i], 32) == packed->dims[1])
            return likely[i];
    return likely[0];
}

/* What words say: how many codes there are in one, and how many columns have a scale. */
static struct weight_view find_own_packed(struct finder *f, const struct quantisation *q)
{
    const struct safetensor *packed = finder_look_up(f, "weight_packed");
    struct quantisation own = *q;
    own.bits = own_bits(f, packed);
    own.has_zeros = finder_look_up(f, "weight_zero_point") != NULL;
    own.group_size = own_group_size(f, "weight_scale");
    return find_packed(f, &own);
}

/* Bytes with a scale for each row, or for groups of its columns; else what the config says of most. */
static struct weight_view find_own_bytes(struct finder *f, const struct quantisation *q)
{
    const struct part_names *const names = names_of_bytes(f);
    const struct safetensor *scale = finder_look_up(f, names->scales);
    struct quantisation own = *q;
    own.group_size = 0;
    own.has_zeros = finder_look_up(f, names->zeros) != NULL;
    if (scale && scale->num_dims == 2 && scale->dims[0] == (uint64_t)f->rows) {
        own.block_rows = 0;
        if (scale->dims[1] > 1) own.group_size = own_group_size(f, names->scales);
    }
    return find_bytes(f, &own);
}

/* ModelOpt's integers of four bits, two rows' in a byte. What else it says of all (weight_scale_2) is of the FP8 that a GPU makes of them. */
static struct weight_view find_paired(struct finder *f)
{
    const struct safetensor *t = finder_look_up(f, "weight");
    if (!t || !tensor_is_of(t, "U8") || t->num_dims != 2 || t->dims[0] * 2 != (uint64_t)f->rows)
        return (struct weight_view){.data = NULL};
    struct weight_view v =
        finder_view(f, WEIGHT_BITS, DTYPE_I8, finder_require(f, "weight", "U8", f->rows / 2, f->cols));
    struct weight_codes *c = &v.codes;
    const int32_t group = own_group_size(f, "weight_scale");
    if (group > 0) c->scale_cols = group;
    c->bits = 4;
    c->zero = c->flip = 8; /* signed */
    c->rows_lead = c->is_paired = true;
    c->scales = finder_scales(f, "weight_scale", f->rows, f->cols / c->scale_cols);
    return v;
}

static struct weight_view find_mixed(struct finder *f, const struct quantisation *q)
{
    const struct safetensor *packed = finder_look_up(f, "weight_packed"),
                            *plain = finder_look_up(f, "weight");
    struct quantisation own = *q;
    const struct weight_view torchao = find_torchao_int4(f);
    if (torchao.data || f->status) return torchao;
    const struct weight_view paired = find_paired(f);
    if (paired.data || f->status) return paired;
    if (packed && tensor_is_of(packed, "I32")) return find_own_packed(f, q);
    if (!packed && !(plain && tensor_is_of(plain, "U8"))) return find_own_bytes(f, q);
    own.format = finder_look_up(f, "weight_global_scale") || finder_look_up(f, "weight_scale_2")
                     ? QUANT_NVFP4
                     : QUANT_MXFP4;
    return find_fp4(f, &own);
}

/* What activations are to be multiplied by: the product is the same with the matrix's columns multiplied. */
static void find_factors(struct finder *f, struct weight_view *v)
{
    static const char suffix[] = "pre_quant_scale";
    if (!finder_look_up(f, suffix)) return;
    if (!weight_takes_factors(v) || f->cols % 2)
        finder_fail(f, suffix,
                    "is to multiply activations, which is not supported with a matrix of its form");
    else
        v->codes.factors = finder_scales(f, suffix, f->cols, 1);
}

int quantised_find(const struct quantisation *q, const struct safetensors *files, const char *path,
                   const char *name, int64_t rows, int64_t cols, struct weight_view *out, struct error *err)
{
    static struct weight_view (*const find[])(struct finder * f, const struct quantisation *q) = {
        [QUANT_BYTES] = find_bytes,
        [QUANT_PACKED] = find_packed,
        [QUANT_NVFP4] = find_fp4,
        [QUANT_MXFP4] = find_fp4,
        [QUANT_MXFP4_BLOCKS] = find_blocks,
        [QUANT_GPTQ] = find_transposed,
        [QUANT_AWQ] = find_transposed,
        [QUANT_BITSANDBYTES] = find_bitsandbytes,
        [QUANT_HQQ] = find_hqq,
        [QUANT_MLX] = find_mlx,
        [QUANT_TERNARY] = find_ternary,
        [QUANT_MIXED] = find_mixed};
    struct finder f = {.files = files, .path = path, .name = name, .rows = rows, .cols = cols, .err = err};
    *out = (struct weight_view){.data = NULL};
    if (q->format == QUANT_NONE || tensor_name_is_weight(name) == (q->format == QUANT_MXFP4_BLOCKS))
        return STATUS_OK;
    *out = find[q->format](&f, q);
    if (out->data) find_factors(&f, out);
    return f.status;
}
