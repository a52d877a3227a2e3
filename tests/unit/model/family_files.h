/* family_files.h - writes the small models of family_goldens.h as Hugging Face directories and as GGUF files, from
 * their lists of tensors: a tensor's values are a function of its place in the list (make_model.py has the same). */
#ifndef TESTS_UNIT_MODEL_FAMILY_FILES_H
#define TESTS_UNIT_MODEL_FAMILY_FILES_H

#include "model_bytes.h"

enum { FAMILY_VOCAB = 96, FAMILY_TOKENS = 208, FAMILY_WHOLE = 3 };

struct family_tensor {
    const char *name, *gguf_name; /* NULL: only the other kind of file has it */
    uint64_t rows, cols;          /* rows 0: a vector */
    float center, scale;
    uint64_t heads; /* whose rows GGUF's converter reorders, for a rotation in pairs; 0: none */
    const char *
        dtype; /* NULL: BF16. Bytes are low up to low + count; count 0: groups of low columns, in no order, below:
                          in order; low -1: the number count. Of GGUF files NULL: BF16, vectors F32; F32, or MXFP4, whose scales are low up to
                          low + count. TEXT: bytes, those of shape, then zeros */
    int low, count;
    const char *shape; /* in a directory; NULL: rows, cols */
};

/* Of a GGUF file: a text, an integer, a real, a boolean or a list of integers, reals or booleans, one behind the other, whichever is not 0. */
struct family_key {
    const char *name, *text, *list;
    uint32_t integer;
    double real;
    bool boolean, is_false;
};

struct family_golden {
    const char *name, *config; /* config.json */
    const struct family_tensor *tensors;
    size_t num_tensors;
    const struct family_key *keys; /* NULL: there is no such GGUF file */
    size_t num_keys;
    float norm_offset;                        /* what GGUF's converter adds to norm weights */
    float picked[FAMILY_TOKENS];              /* of each position one logit: that of id position * 29 % V */
    float whole[FAMILY_WHOLE * FAMILY_VOCAB]; /* all, of some positions */
};

/* The tensors of quantised matrices; as make_model.py's quantised_values. */
static inline void family_put_bytes(struct buffer *out, const struct family_tensor *t, uint64_t num,
                                    uint64_t seed)
{
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    for (uint64_t i = 0; i < num; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint8_t byte = (uint8_t)((uint64_t)t->low + (state >> 40) % (uint64_t)t->count);
        if (!strcmp(t->dtype, "F8_E4M3") && (byte & 127) == 127) byte ^= 1; /* no NaN */
        buffer_append(out, &byte, 1);
    }
}

static inline void family_put_floats(struct buffer *out, const struct family_tensor *t, uint64_t num,
                                     uint64_t seed)
{
    uint16_t *values = (uint16_t *)malloc(num * sizeof *values);
    fill_values(values, num, seed, t->center, t->scale);
    for (uint64_t i = 0; i < num; i++) {
        const float value = dtype_bf16_to_f32(values[i]);
        const uint16_t half = dtype_f32_to_f16(value);
        if (!strcmp(t->dtype, "F32"))
            buffer_append(out, &value, sizeof value);
        else
            buffer_append(out, !strcmp(t->dtype, "F16") ? &half : &values[i], sizeof half);
    }
    free(values);
}

static inline void family_put_text(struct buffer *out, const struct family_tensor *t)
{
    for (uint64_t i = 0; i < t->cols; i++) buffer_append_char(out, i < strlen(t->shape) ? t->shape[i] : '\0');
}

static inline void family_put_quantised(struct safetensors_builder *s, const struct family_tensor *t,
                                        uint64_t seed)
{
    uint64_t num = max_of(t->rows, (uint64_t)1) * t->cols, begin = s->data.num_bytes;
    const bool is_text = !strcmp(t->dtype, "TEXT");
    if (is_text)
        family_put_text(&s->data, t);
    else if (t->dtype[0] == 'B' || !strcmp(t->dtype, "F32") || !strcmp(t->dtype, "F16"))
        family_put_floats(&s->data, t, num, seed);
    else if (t->low < 0)
        put_u32(&s->data, (uint32_t)t->count);
    else if (t->count > 0)
        family_put_bytes(&s->data, t, num * (strstr(t->dtype, "32") ? 4 : 1), seed);
    for (uint64_t k = 0; k < num && t->low > 0 && t->count <= 0; k++)
        put_u32(&s->data, (uint32_t)(k * (t->count ? 1 : 7) % num / (uint64_t)t->low));
    buffer_printf(&s->header, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, is_text ? "U8" : t->dtype);
    if (t->shape && !is_text)
        buffer_printf(&s->header, "%s", t->shape);
    else if (t->rows)
        buffer_printf(&s->header, "%llu,%llu", (unsigned long long)t->rows, (unsigned long long)t->cols);
    else
        buffer_printf(&s->header, "%llu", (unsigned long long)t->cols);
    buffer_printf(&s->header, "],\"data_offsets\":[%llu,%zu]}", (unsigned long long)begin, s->data.num_bytes);
}

/* A directory's model.safetensors and config.json. */
static inline void family_write_directory(const struct family_golden *g, const char *directory)
{
    struct safetensors_builder s;
    struct buffer file;
    safetensors_builder_init(&s);
    for (size_t i = 0; i < g->num_tensors; i++) {
        const struct family_tensor *t = &g->tensors[i];
        if (!t->name) continue; /* of a GGUF file alone */
        if (t->dtype)
            family_put_quantised(&s, t, i + 1);
        else
            safetensors_put(&s, t->name, t->rows, t->cols, i + 1, t->center, t->scale);
    }
    buffer_init(&file, TEST_FILE_BYTES_MAX);
    safetensors_finish(&s, 0, &file);
    write_file(directory, "model.safetensors", file.data, file.num_bytes);
    write_text(directory, "config.json", g->config);
    buffer_deinit(&file);
    safetensors_builder_deinit(&s);
}

static inline void family_put_gguf_key(struct gguf_builder *g, const struct family_key *key)
{
    if (key->list && strstr(key->name, "_pattern")) /* of windows */
        gguf_put_booleans(g, key->name, key->list);
    else if (key->list && (strstr(key->name, "_scale") || strstr(key->name, "xielu")))
        gguf_put_reals(g, key->name, key->list);
    else if (key->list)
        gguf_put_integers(g, key->name, key->list);
    else if (key->text)
        gguf_put_text(g, key->name, key->text);
    else if (key->boolean || key->is_false) {
        gguf_put_key(g, key->name, 7);
        buffer_append_char(&g->keys, key->boolean);
    } else if (key->real != 0)
        gguf_put_f32(g, key->name, (float)key->real);
    else
        gguf_put_u32(g, key->name, key->integer);
}

static inline enum dtype family_gguf_dtype(const struct family_tensor *t)
{
    if (t->dtype && !strcmp(t->dtype, "MXFP4")) return DTYPE_MXFP4;
    return t->rows && !t->dtype ? DTYPE_BF16 : DTYPE_F32;
}

/* Blocks of a scale and 16 bytes. */
static inline void family_put_mxfp4(struct gguf_builder *g, const struct family_tensor *t, uint64_t seed)
{
    const uint64_t num_bytes = t->rows * dtype_row_bytes(DTYPE_MXFP4, t->cols);
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    for (uint64_t i = 0; i < num_bytes; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint64_t random = state >> 40;
        buffer_append_char(&g->data,
                           (char)(i % 17 ? random : (uint64_t)t->low + random % (uint64_t)t->count));
    }
}

/* Row 2i + h of a head is row h * D/2 + i of the directory's. */
static inline void family_put_gguf_values(struct gguf_builder *g, const struct family_tensor *t,
                                          uint64_t seed, float offset)
{
    uint64_t num_rows = max_of(t->rows, (uint64_t)1);
    const enum dtype dtype = family_gguf_dtype(t);
    if (dtype == DTYPE_MXFP4) {
        family_put_mxfp4(g, t, seed);
        return;
    }
    uint16_t *values = (uint16_t *)malloc(num_rows * t->cols * sizeof *values);
    fill_values(values, num_rows * t->cols, seed, t->center, t->scale);
    if (strstr(t->gguf_name, ".bias")) offset = 0; /* it is of norms' weights */
    for (uint64_t i = 0; dtype == DTYPE_F32 && i < num_rows * t->cols; i++) {
        float value = dtype_bf16_to_f32(values[i]) + offset;
        buffer_append(&g->data, &value, sizeof value);
    }
    for (uint64_t row = 0; dtype == DTYPE_BF16 && row < t->rows; row++) {
        uint64_t head_dim = t->heads ? t->rows / t->heads : 1, in_head = row % head_dim;
        uint64_t from = t->heads ? row - in_head + in_head % 2 * (head_dim / 2) + in_head / 2 : row;
        buffer_append(&g->data, values + from * t->cols, t->cols * sizeof *values);
    }
    free(values);
}

static inline bool family_is_of_name(const struct family_tensor *t, const char *gguf_name)
{
    return t->gguf_name && !strcmp(t->gguf_name, gguf_name);
}

/* All experts, or heads, of one name follow one another in one tensor, at the place of the first. */
static inline void family_put_gguf_tensor(struct gguf_builder *g, const struct family_golden *golden,
                                          size_t first)
{
    const struct family_tensor *t = &golden->tensors[first];
    uint64_t num = 0;
    if (!t->gguf_name) return; /* among the keys */
    for (size_t i = 0; i < golden->num_tensors; i++) {
        if (!family_is_of_name(&golden->tensors[i], t->gguf_name)) continue;
        if (i < first) return;
        num++;
    }
    const uint64_t rows = t->rows > 0 ? t->rows * num : num > 1 ? num : 0;
    gguf_put_tensor_info(g, t->gguf_name, family_gguf_dtype(t), t->cols, rows);
    for (size_t i = first; i < golden->num_tensors; i++)
        if (family_is_of_name(&golden->tensors[i], t->gguf_name))
            family_put_gguf_values(g, &golden->tensors[i], i + 1, golden->norm_offset);
}

static inline void family_write_gguf(const struct family_golden *golden, const char *directory)
{
    struct gguf_builder g;
    struct buffer file;
    gguf_builder_init(&g);
    for (size_t i = 0; i < golden->num_keys; i++) family_put_gguf_key(&g, &golden->keys[i]);
    for (size_t i = 0; i < golden->num_tensors; i++) family_put_gguf_tensor(&g, golden, i);
    buffer_init(&file, TEST_FILE_BYTES_MAX);
    gguf_finish(&g, &file);
    write_file(directory, "m.gguf", file.data, file.num_bytes);
    buffer_deinit(&file);
    gguf_builder_deinit(&g);
}

#endif
