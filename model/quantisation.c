#include "model/quantisation.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "files/file_map.h"

typedef int read_scheme(struct json_reader *r, struct quantisation *q);

/* format: what compressed-tensors calls format, ModelOpt quant_algo and AutoRound packing_format; NULL: the method has one. */
struct scheme {
    const char *method, *format;
    enum quant_format is;
    const char *name;
    read_scheme *read;
};

static int refuse(struct json_reader *r, const char *key, const char *value, const char *supported)
{
    return error_set(r->err, STATUS_UNSUPPORTED,
                     "%s: quantization_config has %s \"%s\", which is not supported; %s", r->path, key,
                     printable_from(value, strlen(value)).text, supported);
}

static int check_four_bits(struct json_reader *r, int32_t bits)
{
    if (r->status || bits == 4) return r->status;
    return error_set(r->err, STATUS_UNSUPPORTED,
                     "%s: weights of %d bits are not supported in this form; 4 are", r->path, bits);
}

/* -1: a row is a group. */
static int32_t read_group_size(struct json_reader *r)
{
    const int64_t size = json_int_required(r, "group_size", -1, INT32_MAX);
    return size > 0 ? (int32_t)size : 0;
}

/* ---- methods that are one scheme ---- */

static int read_block_shape(struct json_reader *r, const cJSON *shape, struct quantisation *q)
{
    int64_t rows, cols;
    if (!shape) return STATUS_OK;
    if (cJSON_GetArraySize(shape) != 2 || !json_is_int(shape->child, &rows) ||
        !json_is_int(shape->child->next, &cols) || rows < 1 || cols < 1 || rows > INT32_MAX ||
        cols > INT32_MAX)
        return error_set(r->err, STATUS_INVALID, "%s: the shape of quantised blocks is no two numbers",
                         r->path);
    q->block_rows = (int32_t)rows;
    q->block_cols = (int32_t)cols;
    return STATUS_OK;
}

static int read_fp8(struct json_reader *r, struct quantisation *q)
{
    const char *format = json_text(r, "fmt", "e4m3");
    if (strcmp(format, "e4m3") != 0) return refuse(r, "fmt", format, "e4m3 is");
    q->wants_quantised_activations = true;
    return read_block_shape(r, json_find(r, "weight_block_size"), q);
}

static int read_awq(struct json_reader *r, struct quantisation *q)
{
    const char *version = json_text(r, "version", "gemm");
    if (strcmp(version, "gemm") != 0 && strcmp(version, "GEMM") != 0)
        return refuse(r, "version", version, "gemm is");
    q->bits = (int32_t)json_int(r, "bits", 4, 1, 32);
    q->group_size = read_group_size(r);
    q->has_zeros = json_bool(r, "zero_point", true);
    return check_four_bits(r, q->bits);
}

bool quantisation_has_gptq_bits(int64_t bits)
{
    return bits == 2 || bits == 3 || bits == 4 || bits == 8;
}

static int read_gptq_numbers(struct json_reader *r, bool zeros_less_one, struct quantisation *q)
{
    q->zeros_less_one = zeros_less_one;
    q->bits = (int32_t)json_int_required(r, "bits", 1, 32);
    q->group_size = read_group_size(r);
    q->has_zeros = true; /* also where all are the same (sym) */
    if (r->status || quantisation_has_gptq_bits(q->bits)) return r->status;
    return error_set(r->err, STATUS_UNSUPPORTED,
                     "%s: weights of %d bits are not supported in this form; 2, 3, 4 and 8 are", r->path,
                     q->bits);
}

static int read_gptq(struct json_reader *r, struct quantisation *q)
{
    const char *format = json_text(r, "checkpoint_format", "gptq");
    const bool is_first = !strcmp(format, "gptq");
    if (!is_first && strcmp(format, "gptq_v2") != 0)
        return refuse(r, "checkpoint_format", format, "gptq and gptq_v2 are");
    return read_gptq_numbers(r, is_first, q);
}

/* AutoRound's, which has GPTQ's two formats under names of its own. */
static int read_gptq_1(struct json_reader *r, struct quantisation *q)
{
    return read_gptq_numbers(r, true, q);
}

static int read_gptq_2(struct json_reader *r, struct quantisation *q)
{
    return read_gptq_numbers(r, false, q);
}

/* Whether 4 or 8 bits, and of which kind, is said by the tensors themselves. */
static int read_bitsandbytes(struct json_reader *r, struct quantisation *q)
{
    (void)q;
    const char *storage = json_text(r, "bnb_4bit_quant_storage", "uint8");
    return strcmp(storage, "uint8") != 0 ? refuse(r, "bnb_4bit_quant_storage", storage, "uint8 is")
                                         : r->status;
}

static int read_nothing(struct json_reader *r, struct quantisation *q)
{
    q->wants_quantised_activations = q->format != QUANT_MXFP4_BLOCKS;
    return r->status;
}

static int read_weights_alone(struct json_reader *r, struct quantisation *q)
{
    q->wants_quantised_activations = false;
    return r->status;
}

/* Activations of 8 bits are of BitNet's class of products as well, and are not wanted here of plain weights. */
static int read_bitnet(struct json_reader *r, struct quantisation *q)
{
    const char *class = json_text(r, "linear_class", "bitlinear"),
               *mode = json_text(r, "quantization_mode", "offline");
    const bool is_auto = !strcmp(class, "autobitlinear"), is_online = !strcmp(mode, "online");
    const cJSON *item;
    if (!is_auto && strcmp(class, "bitlinear") != 0)
        return refuse(r, "linear_class", class, "bitlinear and autobitlinear are");
    if (!is_online && strcmp(mode, "offline") != 0)
        return refuse(r, "quantization_mode", mode, "online and offline are");
    if (json_bool(r, "use_rms_norm", false))
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: quantization_config has use_rms_norm, which is not supported", r->path);
    q->scales_divide = !is_auto;
    q->has_floats = is_auto && is_online;
    cJSON_ArrayForEach(item, json_find(r, "modules_to_not_convert"))
    {
        if (q->has_floats && cJSON_IsString(item) && strcmp(item->valuestring, "lm_head") != 0)
            return refuse(r, "modules_to_not_convert", item->valuestring, "lm_head is");
    }
    return r->status;
}

/* Its classes of tensors that are bytes; what they are is seen where each is found. */
static int read_torchao(struct json_reader *r, struct quantisation *q)
{
    struct json_reader type = *r, of_most = *r;
    type.object = json_find(r, "quant_type");
    of_most.object = json_find(&type, "default");
    const char *name = json_text(&of_most, "_type", "");
    q->wants_quantised_activations =
        strstr(name, "Float8Dynamic") || strstr(name, "Int8DynamicActivationInt8Weight");
    return r->status;
}

/* ---- compressed-tensors ---- */

/* Changes that a model makes to its activations as it runs, or to the form of its files. */
static int check_transforms(struct json_reader *r)
{
    static const char *const keys[] = {"transform_config", "sparsity_config"};
    for (size_t i = 0; i < array_length(keys); i++) {
        const cJSON *object = json_find(r, keys[i]),
                    *format = cJSON_GetObjectItemCaseSensitive(object, "format");
        bool is_dense = cJSON_IsString(format) && !strcmp(format->valuestring, "dense");
        if (cJSON_GetArraySize(object) > 0 && !is_dense)
            return error_set(r->err, STATUS_UNSUPPORTED,
                             "%s: quantization_config has %s, which is not supported", r->path, keys[i]);
    }
    return STATUS_OK;
}

/* Of one of config_groups. */
static int read_group(struct json_reader *group, struct quantisation *q)
{
    struct json_reader w = *group;
    w.object = json_find(group, "weights");
    const char *strategy = json_text(&w, "strategy", "tensor"), *type = json_text(&w, "type", "int");
    q->bits = (int32_t)json_int(&w, "num_bits", 8, 1, 32);
    q->has_zeros = !json_bool(&w, "symmetric", true);
    struct json_reader x = *group;
    x.object = json_find(group, "input_activations");
    q->wants_quantised_activations = x.object && json_bool(&x, "symmetric", true);
    const bool is_group = strstr(strategy, "group") != NULL, is_float = !strcmp(type, "float");
    q->has_integers = !is_float;
    q->group_size = is_group ? (int32_t)json_int_required(&w, "group_size", 1, INT32_MAX) : 0;
    if (w.status || x.status) return w.status ? w.status : x.status;
    if (q->format == QUANT_BYTES && (q->bits > 8 || (is_float && (q->bits != 8 || q->has_zeros))))
        return error_set(
            w.err, STATUS_UNSUPPORTED,
            "%s: %s weights of %d bits%s in this form are not supported; floats of 8 bits, without zero "
            "points, and integers of up to 8 are",
            w.path, is_float ? "float" : "integer", q->bits, q->has_zeros ? " with zero points" : "");
    if (q->format == QUANT_PACKED && (q->bits < 2 || q->bits > 8))
        return error_set(w.err, STATUS_UNSUPPORTED,
                         "%s: weights of %d bits are not supported in this form; 2 to 8 are", w.path,
                         q->bits);
    return q->format == QUANT_BYTES ? read_block_shape(&w, json_find(&w, "block_structure"), q) : STATUS_OK;
}

static bool are_alike(const struct quantisation *a, const struct quantisation *b)
{
    return a->format == b->format && a->bits == b->bits && a->group_size == b->group_size &&
           a->block_rows == b->block_rows && a->block_cols == b->block_cols && a->has_zeros == b->has_zeros;
}

/* The form of a group's matrices, which a mixed checkpoint's groups name themselves. */
static enum quant_format format_of_group(struct json_reader *group, enum quant_format otherwise);

/* q is to be of both: what matrices are is seen then where each is found. */
static void add_group(struct quantisation *q, const struct quantisation *own, bool is_first)
{
    if (is_first) {
        *q = *own;
        return;
    }
    if (!are_alike(own, q)) q->format = QUANT_MIXED;
    q->wants_quantised_activations |= own->wants_quantised_activations;
    if (q->block_rows) return;
    q->block_rows = own->block_rows;
    q->block_cols = own->block_cols;
}

static int read_config_groups(struct json_reader *r, struct quantisation *q)
{
    const cJSON *groups = json_find(r, "config_groups"), *item;
    const enum quant_format format = q->format;
    int status = check_transforms(r), num = 0;
    if (!status && cJSON_GetArraySize(groups) == 0)
        status = error_set(r->err, STATUS_INVALID, "%s: quantization_config has no config_groups", r->path);
    cJSON_ArrayForEach(item, groups)
    {
        struct json_reader group = *r;
        struct quantisation own = {.name = q->name};
        group.object = item;
        own.format = format_of_group(&group, format);
        if (!status) status = read_group(&group, &own);
        if (!status) add_group(q, &own, num++ == 0);
    }
    return status ? status : r->status;
}

/* ---- the table ---- */

static const struct scheme schemes[] = {
    {"fp8", NULL, QUANT_BYTES, "FP8", read_fp8},
    {"fbgemm_fp8", NULL, QUANT_BYTES, "FP8", read_fp8},
    {"modelopt", "FP8", QUANT_BYTES, "FP8", read_nothing},
    {"modelopt", "FP8_PER_CHANNEL_PER_TOKEN", QUANT_BYTES, "FP8", read_nothing},
    {"modelopt", "FP8_PB_WO", QUANT_BYTES, "FP8", read_weights_alone},
    {"modelopt", "fp8_pb_wo", QUANT_BYTES, "FP8", read_weights_alone},
    {"modelopt", "MXFP8", QUANT_MIXED, "MXFP8", read_nothing},
    {"modelopt", "W8A16", QUANT_BYTES, "int8", read_weights_alone},
    {"modelopt", "W8A8_SQ_PER_CHANNEL", QUANT_BYTES, "int8", read_nothing},
    {"modelopt", "W4A16_AWQ", QUANT_MIXED, "int4", read_weights_alone},
    {"modelopt", "W4A8_AWQ", QUANT_MIXED, "int4", read_weights_alone},
    {"modelopt", "NVFP4", QUANT_NVFP4, "NVFP4", read_nothing},
    {"modelopt", "NVFP4_AWQ", QUANT_NVFP4, "NVFP4", read_nothing},
    {"modelopt", "W4A16_NVFP4", QUANT_NVFP4, "NVFP4", read_weights_alone},
    {"modelopt", "W4A8_MXFP4_FP8", QUANT_MXFP4, "MXFP4", read_nothing},
    {"modelopt", "mxfp4", QUANT_MXFP4, "MXFP4", read_nothing},
    {"modelopt", "MIXED_PRECISION", QUANT_MIXED, "FP8 and NVFP4", read_nothing},
    {"modelopt_fp4", NULL, QUANT_NVFP4, "NVFP4", read_nothing},
    {"mxfp4", NULL, QUANT_MXFP4_BLOCKS, "MXFP4", read_nothing},
    {"awq", NULL, QUANT_AWQ, "AWQ", read_awq},
    {"gptq", NULL, QUANT_GPTQ, "GPTQ", read_gptq},
    {"auto-round", "auto_round:auto_gptq", QUANT_GPTQ, "GPTQ", read_gptq_1},
    {"auto-round", "auto_round:gptq", QUANT_GPTQ, "GPTQ", read_gptq_1},
    {"auto-round", "auto_round:gptqmodel", QUANT_GPTQ, "GPTQ", read_gptq_2},
    {"auto-round", "auto_round", QUANT_GPTQ, "GPTQ", read_gptq_2},
    {"auto-round", "auto_round:auto_awq", QUANT_AWQ, "AWQ", read_awq},
    {"auto-round", "auto_round:awq", QUANT_AWQ, "AWQ", read_awq},
    {"auto-round", "auto_round:fp8", QUANT_BYTES, "FP8", read_fp8},
    {"auto-round", "auto_round:fp8_static", QUANT_BYTES, "FP8", read_fp8},
    {"auto-round", "auto_round:llm_compressor", QUANT_MIXED, "NVFP4 or MXFP4", read_nothing},
    {"quark", NULL, QUANT_MIXED, "FP8 or MXFP4", read_nothing},
    {"torchao", NULL, QUANT_MIXED, "torchao", read_torchao},
    {"hqq", NULL, QUANT_HQQ, "HQQ", read_weights_alone},
    {"metal", NULL, QUANT_MLX, "MLX", read_weights_alone},
    {"bitnet", NULL, QUANT_TERNARY, "BitNet", read_bitnet},
    {"bitsandbytes", NULL, QUANT_BITSANDBYTES, "bitsandbytes", read_bitsandbytes},
    {"compressed-tensors", "float-quantized", QUANT_BYTES, "FP8", read_config_groups},
    {"compressed-tensors", "int-quantized", QUANT_BYTES, "int8", read_config_groups},
    {"compressed-tensors", "pack-quantized", QUANT_PACKED, "compressed-tensors", read_config_groups},
    {"compressed-tensors", "nvfp4-pack-quantized", QUANT_NVFP4, "NVFP4", read_config_groups},
    {"compressed-tensors", "mxfp4-pack-quantized", QUANT_MXFP4, "MXFP4", read_config_groups},
    {"compressed-tensors", "mxfp8-quantized", QUANT_BYTES, "MXFP8", read_config_groups},
    {"compressed-tensors", "naive-quantized", QUANT_BYTES, "compressed-tensors", read_config_groups},
    {"compressed-tensors", "mixed-precision", QUANT_MIXED, "compressed-tensors", read_config_groups},
};

static enum quant_format format_of_group(struct json_reader *group, enum quant_format otherwise)
{
    const char *format = json_text(group, "format", "");
    for (size_t i = 0; i < array_length(schemes); i++)
        if (!strcmp(schemes[i].method, "compressed-tensors") && !strcmp(schemes[i].format, format))
            return schemes[i].is;
    return otherwise;
}

struct name_list {
    char text[256];
};

/* Methods, each once; or the formats of one. */
static struct name_list names_of(const char *method)
{
    struct name_list list = {""};
    size_t at = 0;
    const char *last = "";
    for (size_t i = 0; i < array_length(schemes) && at < sizeof list.text; i++) {
        const char *name = method ? schemes[i].format : schemes[i].method;
        if (method ? strcmp(method, schemes[i].method) != 0 : !strcmp(last, name)) continue;
        at += (size_t)snprintf(list.text + at, sizeof list.text - at, "%s%s", at ? ", " : "", name);
        last = name;
    }
    assert_debug(at < sizeof list.text);
    return list;
}

static int find_scheme(struct json_reader *r, const char *method, const struct scheme **out)
{
    const bool is_auto_round = strstr(method, "auto-round") != NULL, /* "intel/auto-round" too */
        is_float = !strcmp(json_text(r, "data_type", "int"), "fp");
    const char *key = is_auto_round                 ? "packing_format"
                      : !strcmp(method, "modelopt") ? "quant_algo"
                                                    : "format",
               *format = json_text(r, key,
                                   !is_auto_round ? ""
                                   : is_float     ? "auto_round:fp8"
                                                  : "auto_round:auto_gptq");
    bool is_method = false;
    if (is_auto_round) method = "auto-round";
    for (size_t i = 0; i < array_length(schemes); i++) {
        const struct scheme *s = &schemes[i];
        if (strcmp(s->method, method) != 0) continue;
        is_method = true;
        *out = s;
        if (!s->format || !strcmp(s->format, format)) return r->status;
    }
    char supported[sizeof(struct name_list) + 16];
    snprintf(supported, sizeof supported, "known are %s", names_of(is_method ? method : NULL).text);
    return is_method ? refuse(r, key, format, supported) : refuse(r, "quant_method", method, supported);
}

static int read_object(struct json_reader *r, const char *method, struct quantisation *q)
{
    const struct scheme *scheme = NULL;
    int status = find_scheme(r, method, &scheme);
    if (status) return status;
    q->format = scheme->is;
    q->name = scheme->name;
    status = scheme->read(r, q);
    return status ? status : r->status;
}

/* The object of this key, if there is one. */
static int read_under(struct json_reader *r, const char *key, const char *method, struct quantisation *q)
{
    struct json_reader inner = *r;
    *q = (struct quantisation){.format = QUANT_NONE};
    inner.object = json_find(r, key);
    if (!inner.object) return STATUS_OK;
    if (!cJSON_IsObject(inner.object))
        return error_set(r->err, STATUS_INVALID, "%s: %s should be an object", r->path, key);
    return read_object(&inner, method ? method : json_text(&inner, "quant_method", ""), q);
}

/* MLX names no method. Its programs write the object twice, under both keys; where it is of a checkpoint that was quantised before, its own
 * one counts. */
static bool is_mlx(const struct json_reader *r, const char *key)
{
    struct json_reader inner = *r;
    inner.object = json_find(r, key);
    return cJSON_IsObject(inner.object) && !json_find(&inner, "quant_method") && json_find(&inner, "bits") &&
           json_find(&inner, "group_size");
}

int quantisation_read(struct json_reader *r, struct quantisation *q)
{
    if (!is_mlx(r, "quantization") && !is_mlx(r, "quantization_config"))
        return read_under(r, "quantization_config", NULL, q);
    *q = (struct quantisation){.format = QUANT_MLX, .name = "MLX"};
    return r->status;
}

int quantisation_read_modelopt(struct json_reader *r, struct quantisation *q)
{
    return read_under(r, "quantization", "modelopt", q);
}
