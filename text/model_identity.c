#include "text/model_identity.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "files/file_map.h"
#include "files/gguf.h"

enum { PATH_BYTES_MAX = 4096, HEAD_BYTES = 1 << 20, NUM_PLACES = 1024, PLACE_BYTES = 4096 };

/* ---- weights ---- */

static void add_samples(struct sha256_ctx *hash, const struct file_map *map)
{
    digest_add_int(hash, (int64_t)map->num_bytes);
    digest_add_bytes(hash, map->data, min_of(map->num_bytes, (size_t)HEAD_BYTES));
    for (size_t i = 0; i < NUM_PLACES && map->num_bytes > 0; i++) {
        size_t at = (size_t)((double)map->num_bytes * (double)i / NUM_PLACES);
        digest_add_bytes(hash, map->data + at, min_of(map->num_bytes - at, (size_t)PLACE_BYTES));
    }
}

static int add_file(struct sha256_ctx *hash, const char *path, bool whole, struct error *err)
{
    struct file_map map;
    int status = file_map_open(path, &map, err);
    if (status) return status;
    if (whole)
        digest_add_bytes(hash, map.data, map.num_bytes);
    else
        add_samples(hash, &map);
    file_map_close(&map);
    return STATUS_OK;
}

/* With its name, which says what it is among the others. */
static int add_member(struct sha256_ctx *hash, const char *directory, const char *name, bool whole,
                      struct error *err)
{
    char path[PATH_BYTES_MAX];
    struct stat st;
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path)
        return error_set(err, STATUS_LIMIT, "%s: the path is too long", directory);
    if (stat(path, &st)) return STATUS_OK; /* whoever needs it says so */
    digest_add_text(hash, name);
    return add_file(hash, path, whole, err);
}

static int is_safetensors(const struct dirent *entry)
{
    static const char ending[] = ".safetensors";
    size_t n = strlen(entry->d_name);
    return n >= strlen(ending) && !strcmp(entry->d_name + n - strlen(ending), ending);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int add_directory(struct sha256_ctx *hash, const char *path, const char *config, struct error *err)
{
    struct dirent **entries;
    int count = scandir(path, &entries, is_safetensors, by_name);
    if (count < 0) return error_set(err, STATUS_IO, "%s: %s", path, strerror(errno));
    int status = add_member(hash, path, config, true, err);
    for (int i = 0; i < count; i++) {
        if (!status) status = add_member(hash, path, entries[i]->d_name, false, err);
        free(entries[i]);
    }
    free(entries);
    return status;
}

/* ---- tokenizer ---- */

static void add_gguf_text(struct sha256_ctx *hash, const struct gguf *g, const char *key)
{
    const char *text = NULL;
    size_t n = 0;
    if (!gguf_find_text(g, key, &text, &n)) return;
    digest_add_text(hash, key);
    digest_add_bytes(hash, text, n);
}

static void add_gguf_number(struct sha256_ctx *hash, const struct gguf *g, const char *key)
{
    int64_t number;
    bool truth;
    if (gguf_find_bool(g, key, &truth))
        number = truth;
    else if (!gguf_find_int(g, key, &number))
        return;
    digest_add_text(hash, key);
    digest_add_int(hash, number);
}

static void add_gguf_array(struct sha256_ctx *hash, const struct gguf *g, const char *key)
{
    struct gguf_array array;
    const char *text;
    size_t n;
    int64_t number;
    double real;
    if (!gguf_find_array(g, key, &array)) return;
    digest_add_text(hash, key);
    digest_add_int(hash, (int64_t)array.num_items);
    while (gguf_array_next_text(&array, &text, &n)) digest_add_bytes(hash, text, n);
    while (gguf_array_next_int(&array, &number)) digest_add_int(hash, number);
    while (gguf_array_next_real(&array, &real)) digest_add_real(hash, real);
}

static int add_gguf_tokenizer(struct sha256_ctx *hash, const char *path, struct error *err)
{
    static const char *const texts[] = {"tokenizer.ggml.model", "tokenizer.ggml.pre"};
    static const char *const arrays[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
                                         "tokenizer.ggml.scores", "tokenizer.ggml.merges"};
    static const char *const numbers[] = {
        "tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.padding_token_id",
        "tokenizer.ggml.add_bos_token",    "tokenizer.ggml.add_eos_token",
        "tokenizer.ggml.eot_token_id",     "tokenizer.ggml.add_space_prefix"};
    struct gguf *g;
    int status = gguf_open(path, &g, err);
    if (status) return status;
    for (size_t i = 0; i < array_length(texts); i++) add_gguf_text(hash, g, texts[i]);
    for (size_t i = 0; i < array_length(numbers); i++) add_gguf_number(hash, g, numbers[i]);
    for (size_t i = 0; i < array_length(arrays); i++) add_gguf_array(hash, g, arrays[i]);
    gguf_close(g);
    return STATUS_OK;
}

/* ---- both ---- */

int model_identity_read(const char *path, struct model_identity *out, struct error *err)
{
    struct sha256_ctx weights, tokenizer;
    struct stat st;
    int status;
    sha256_init(&weights);
    sha256_init(&tokenizer);
    if (stat(path, &st)) return error_set(err, STATUS_IO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) {
        status = add_directory(&weights, path, "config.json", err);
        if (!status) status = add_member(&tokenizer, path, "tokenizer.json", true, err);
        if (!status) status = add_member(&tokenizer, path, "tokenizer_config.json", true, err);
    } else {
        status = add_file(&weights, path, false, err);
        if (!status) status = add_gguf_tokenizer(&tokenizer, path, err);
    }
    out->weights = digest_end(&weights);
    out->tokenizer = digest_end(&tokenizer);
    return status;
}

int model_identity_read_lora(const char *path, const struct digest_text *weights, struct digest_text *out,
                             struct error *err)
{
    struct sha256_ctx hash;
    sha256_init(&hash);
    digest_add_text(&hash, weights->text);
    int status = add_directory(&hash, path, "adapter_config.json", err);
    *out = digest_end(&hash);
    return status;
}
