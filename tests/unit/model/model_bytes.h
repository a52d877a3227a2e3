/* model_bytes.h - builds small model files for tests: GGUF and safetensors byte by byte, directories with a
 * config.json.
 *
 * Values of tensors come from fill_values, a function of a seed that a Python script can repeat. */
#ifndef TESTS_UNIT_MODEL_MODEL_BYTES_H
#define TESTS_UNIT_MODEL_MODEL_BYTES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/buffer.h"
#include "base/check.h"
#include "files/dtype.h"

enum { TEST_FILE_BYTES_MAX = 64 << 20, TEST_PATH_BYTES = 512 };

/* ---- files ---- */

static inline void make_directory(char path[TEST_PATH_BYTES])
{
    strcpy(path, "/tmp/flashd-model-XXXXXX");
    assert_non_null(mkdtemp(path));
}

static inline void remove_directory(const char *path)
{
    char command[TEST_PATH_BYTES + 16];
    snprintf(command, sizeof command, "rm -r '%s'", path);
    assert_int_equal(system(command), 0);
}

static inline const char *join_path(char out[TEST_PATH_BYTES], const char *directory, const char *name)
{
    assert_true(snprintf(out, TEST_PATH_BYTES, "%s/%s", directory, name) < TEST_PATH_BYTES);
    return out;
}

static inline void write_file(const char *directory, const char *name, const void *bytes, size_t num_bytes)
{
    char path[TEST_PATH_BYTES];
    FILE *file = fopen(join_path(path, directory, name), "wb");
    assert_non_null(file);
    if (num_bytes) assert_int_equal(fwrite(bytes, 1, num_bytes, file), num_bytes);
    assert_int_equal(fclose(file), 0);
}

static inline void write_text(const char *directory, const char *name, const char *text)
{
    write_file(directory, name, text, strlen(text));
}

/* ---- values ---- */

/* n values of BF16 in [-scale, scale) around center, from 32-bit steps of a linear congruential generator. */
static inline void fill_values(uint16_t *out, size_t n, uint64_t seed, float center, float scale)
{
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        float unit = (float)((int32_t)(state >> 40) - (1 << 23)) * 0x1p-23f;
        out[i] = dtype_f32_to_bf16(center + unit * scale);
    }
}

/* ---- GGUF ---- */

struct gguf_builder {
    struct buffer keys, tensors, data;
    uint64_t num_keys, num_tensors;
    uint32_t alignment;
};

static inline void put_u32(struct buffer *b, uint32_t n)
{
    buffer_append(b, &n, sizeof n);
}

static inline void put_u64(struct buffer *b, uint64_t n)
{
    buffer_append(b, &n, sizeof n);
}

static inline void put_text(struct buffer *b, const char *text)
{
    put_u64(b, strlen(text));
    buffer_append_text(b, text);
}

static inline void gguf_builder_init(struct gguf_builder *g)
{
    *g = (struct gguf_builder){.alignment = 32};
    buffer_init(&g->keys, TEST_FILE_BYTES_MAX);
    buffer_init(&g->tensors, TEST_FILE_BYTES_MAX);
    buffer_init(&g->data, TEST_FILE_BYTES_MAX);
}

static inline void gguf_builder_deinit(struct gguf_builder *g)
{
    buffer_deinit(&g->keys);
    buffer_deinit(&g->tensors);
    buffer_deinit(&g->data);
}

/* The caller appends the value to g->keys. */
static inline void gguf_put_key(struct gguf_builder *g, const char *key, uint32_t type)
{
    put_text(&g->keys, key);
    put_u32(&g->keys, type);
    g->num_keys++;
}

static inline void gguf_put_u32(struct gguf_builder *g, const char *key, uint32_t value)
{
    gguf_put_key(g, key, 4);
    put_u32(&g->keys, value);
}

static inline void gguf_put_f32(struct gguf_builder *g, const char *key, float value)
{
    gguf_put_key(g, key, 6);
    buffer_append(&g->keys, &value, sizeof value);
}

static inline void gguf_put_text(struct gguf_builder *g, const char *key, const char *text)
{
    gguf_put_key(g, key, 8);
    put_text(&g->keys, text);
}

static inline void gguf_put_texts(struct gguf_builder *g, const char *key, const char *const *texts, size_t n)
{
    gguf_put_key(g, key, 9);
    put_u32(&g->keys, 8);
    put_u64(&g->keys, n);
    for (size_t i = 0; i < n; i++) put_text(&g->keys, texts[i]);
}

/* list: decimal numbers, a blank between them. */
static inline void gguf_put_integers(struct gguf_builder *g, const char *key, const char *list)
{
    uint64_t num = 1;
    for (const char *c = list; *c; c++) num += *c == ' ';
    gguf_put_key(g, key, 9);
    put_u32(&g->keys, 4);
    put_u64(&g->keys, num);
    for (char *end; num > 0; num--, list = end) put_u32(&g->keys, (uint32_t)strtoul(list, &end, 10));
}

static inline void gguf_put_reals(struct gguf_builder *g, const char *key, const char *list)
{
    uint64_t num = 1;
    for (const char *c = list; *c; c++) num += *c == ' ';
    gguf_put_key(g, key, 9);
    put_u32(&g->keys, 6);
    put_u64(&g->keys, num);
    for (char *end; num > 0; num--, list = end) {
        const float value = strtof(list, &end);
        buffer_append(&g->keys, &value, sizeof value);
    }
}

static inline void gguf_put_booleans(struct gguf_builder *g, const char *key, const char *list)
{
    uint64_t num = 1;
    for (const char *c = list; *c; c++) num += *c == ' ';
    gguf_put_key(g, key, 9);
    put_u32(&g->keys, 7);
    put_u64(&g->keys, num);
    for (char *end; num > 0; num--, list = end)
        buffer_append_char(&g->keys, (char)(strtoul(list, &end, 10) != 0));
}

static inline void gguf_pad(struct buffer *b, size_t alignment)
{
    while (b->num_bytes % alignment) buffer_append_char(b, 0);
}

/* Where the tensor's bytes go: the caller appends them to g->data next. rows 0: one dimension. */
static inline void gguf_put_tensor_of(struct gguf_builder *g, const char *name, int gguf_id, uint64_t cols,
                                      uint64_t rows)
{
    put_text(&g->tensors, name);
    put_u32(&g->tensors, rows ? 2 : 1);
    put_u64(&g->tensors, cols);
    if (rows) put_u64(&g->tensors, rows);
    put_u32(&g->tensors, (uint32_t)gguf_id);
    gguf_pad(&g->data, g->alignment);
    put_u64(&g->tensors, g->data.num_bytes);
    g->num_tensors++;
}

static inline void gguf_put_tensor_info(struct gguf_builder *g, const char *name, enum dtype dtype,
                                        uint64_t cols, uint64_t rows)
{
    gguf_put_tensor_of(g, name, dtype_infos[dtype].gguf_id, cols, rows);
}

/* Of bytes that count up from the tensor's number. */
static inline void gguf_put_tensor(struct gguf_builder *g, const char *name, enum dtype dtype, uint64_t cols,
                                   uint64_t rows)
{
    uint64_t bytes = dtype_row_bytes(dtype, cols) * max_of(rows, (uint64_t)1), first = g->num_tensors;
    gguf_put_tensor_info(g, name, dtype, cols, rows);
    for (uint64_t i = 0; i < bytes; i++) buffer_append_char(&g->data, (char)(i + first));
}

/* Appends the whole file to out; returns where its data start. */
static inline size_t gguf_finish(const struct gguf_builder *g, struct buffer *out)
{
    buffer_append(out, "GGUF", 4);
    put_u32(out, 3);
    put_u64(out, g->num_tensors);
    put_u64(out, g->num_keys);
    buffer_append(out, g->keys.data, g->keys.num_bytes);
    if (g->num_tensors) buffer_append(out, g->tensors.data, g->tensors.num_bytes);
    gguf_pad(out, g->alignment);
    size_t data_start = out->num_bytes;
    if (g->num_tensors) buffer_append(out, g->data.data, g->data.num_bytes);
    assert_false(buffer_failed(out));
    return data_start;
}

/* ---- safetensors ---- */

struct safetensors_builder {
    struct buffer header, data;
};

static inline void safetensors_builder_init(struct safetensors_builder *s)
{
    buffer_init(&s->header, TEST_FILE_BYTES_MAX);
    buffer_init(&s->data, TEST_FILE_BYTES_MAX);
    buffer_append_text(&s->header, "{\"__metadata__\":{\"format\":\"pt\"}");
}

static inline void safetensors_builder_deinit(struct safetensors_builder *s)
{
    buffer_deinit(&s->header);
    buffer_deinit(&s->data);
}

/* BF16 values of fill_values; rows 0: one dimension. */
static inline void safetensors_put(struct safetensors_builder *s, const char *name, uint64_t rows,
                                   uint64_t cols, uint64_t seed, float center, float scale)
{
    size_t n = max_of(rows, (uint64_t)1) * cols, begin = s->data.num_bytes;
    uint16_t *values = (uint16_t *)malloc(n * sizeof *values);
    assert_non_null(values);
    fill_values(values, n, seed, center, scale);
    buffer_append(&s->data, values, n * sizeof *values);
    free(values);
    buffer_printf(&s->header, ",\"%s\":{\"dtype\":\"BF16\",\"shape\":[", name);
    if (rows) buffer_printf(&s->header, "%llu,", (unsigned long long)rows);
    buffer_printf(&s->header, "%llu],\"data_offsets\":[%zu,%zu]}", (unsigned long long)cols, begin,
                  s->data.num_bytes);
}

/* padding: spaces after the header (an odd header leaves the data unaligned). */
static inline void safetensors_finish(struct safetensors_builder *s, int padding, struct buffer *out)
{
    buffer_append_char(&s->header, '}');
    for (int i = 0; i < padding; i++) buffer_append_char(&s->header, ' ');
    put_u64(out, s->header.num_bytes);
    buffer_append(out, s->header.data, s->header.num_bytes);
    if (s->data.num_bytes) buffer_append(out, s->data.data, s->data.num_bytes);
    assert_false(buffer_failed(out));
}

#endif
