/* safetensors.c - reads the headers of one or more safetensors files and trusts nothing in them.
 *
 *   u64 header_bytes | header: JSON, may end in spaces | data
 *   header: {"name": {"dtype": "BF16", "shape": [rows, cols], "data_offsets": [begin, end]}, ..., "__metadata__": {...}}
 *
 * Offsets count from the start of the data. A directory with several files also has an index, {"weight_map":
 * {"name": "file"}}: each tensor is taken from the file that the index names. Those of the files that it does
 * not name are there, too: programs that quantise forget some.
 *
 * Source: the format's description in the safetensors repository. */
#include "files/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "files/file_map.h"
#include "files/json_read.h"

enum {
    PREFIX_BYTES = 8,
    HEADER_BYTES_MAX = 100000000,
    INDEX_BYTES_MAX = 100000000,
    SHARDS_MAX = 9999,
    PATH_BYTES_MAX = 4096,
};

/* Bits, since some types are smaller than a byte. */
static const struct {
    const char *text;
    int bits;
    int dtype;
} element_types[] = {
    {"F32", 32, DTYPE_F32}, {"F16", 16, DTYPE_F16}, {"BF16", 16, DTYPE_BF16},
    {"F64", 64, -1},        {"BOOL", 8, -1},        {"U8", 8, -1},
    {"I8", 8, -1},          {"U16", 16, -1},        {"I16", 16, -1},
    {"U32", 32, -1},        {"I32", 32, -1},        {"U64", 64, -1},
    {"I64", 64, -1},        {"C64", 64, -1},        {"F8_E5M2", 8, -1},
    {"F8_E4M3", 8, -1},     {"F8_E5M2FNUZ", 8, -1}, {"F8_E4M3FNUZ", 8, -1},
    {"F8_E8M0", 8, -1},     {"F6_E2M3", 6, -1},     {"F6_E3M2", 6, -1},
    {"F4", 4, -1},
};

struct shard {
    char *file_name; /* inside the directory */
    struct file_map map;
    cJSON *header;
    struct safetensor *tensors; /* sorted by name */
    uint64_t num_tensors;
};

struct safetensors {
    struct shard *shards;
    int num_shards;
    struct safetensor *tensors; /* sorted by name */
    uint64_t num_tensors;
};

/* ---- one file ---- */

struct shard_reader {
    const char *path;
    struct shard *shard;
    const unsigned char *data;
    uint64_t data_bytes;
    struct error *err;
};

static int fail_tensor(const struct shard_reader *r, const char *name, const char *problem)
{
    return error_set(r->err, STATUS_INVALID, "%s: tensor %s: %s", r->path,
                     printable_from(name, strlen(name)).text, problem);
}

static int read_shape(const struct shard_reader *r, const cJSON *entry, struct safetensor *t,
                      uint64_t *num_values)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape"), *item;
    if (!cJSON_IsArray(shape)) return fail_tensor(r, t->name, "its shape is missing");
    *num_values = 1;
    cJSON_ArrayForEach(item, shape)
    {
        int64_t dim;
        if (t->num_dims == SAFETENSORS_DIMS_MAX)
            return fail_tensor(r, t->name, "it has more than 8 dimensions");
        if (!json_is_int(item, &dim) || dim < 0 || !checked_mul(*num_values, (uint64_t)dim, num_values))
            return fail_tensor(r, t->name, "its shape is no list of possible sizes");
        t->dims[t->num_dims++] = (uint64_t)dim;
    }
    return STATUS_OK;
}

static int read_offsets(const struct shard_reader *r, const cJSON *entry, struct safetensor *t)
{
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    int64_t begin, end;
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 || !json_is_int(offsets->child, &begin) ||
        !json_is_int(offsets->child->next, &end) || begin < 0 || end < begin)
        return fail_tensor(r, t->name, "its data_offsets are no two ascending numbers");
    if ((uint64_t)end > r->data_bytes)
        return error_set(r->err, STATUS_INVALID,
                         "%s: tensor %s ends at byte %" PRId64 " of the data, but the file has %" PRIu64
                         ": it is truncated or damaged",
                         r->path, printable_from(t->name, strlen(t->name)).text, end, r->data_bytes);
    t->data = r->data + begin;
    t->num_bytes = (uint64_t)(end - begin);
    return STATUS_OK;
}

static int read_dtype(const struct shard_reader *r, const cJSON *entry, struct safetensor *t, int *bits)
{
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(entry, "dtype");
    if (!cJSON_IsString(dtype)) return fail_tensor(r, t->name, "its dtype is missing");
    for (size_t i = 0; i < array_length(element_types); i++) {
        if (strcmp(element_types[i].text, dtype->valuestring) != 0) continue;
        t->dtype_text = element_types[i].text;
        t->dtype = element_types[i].dtype;
        *bits = element_types[i].bits;
        return STATUS_OK;
    }
    return fail_tensor(r, t->name, "its dtype is none that safetensors defines");
}

static int read_tensor(const struct shard_reader *r, const cJSON *entry, struct safetensor *t)
{
    uint64_t num_values = 0, num_bits;
    int bits = 0;
    t->name = entry->string;
    int status = read_dtype(r, entry, t, &bits);
    if (!status) status = read_shape(r, entry, t, &num_values);
    if (!status) status = read_offsets(r, entry, t);
    if (status) return status;
    if (!checked_mul(num_values, (uint64_t)bits, &num_bits) || num_bits % 8 || num_bits / 8 != t->num_bytes)
        return error_set(r->err, STATUS_INVALID,
                         "%s: tensor %s has %" PRIu64 " bytes, but its %" PRIu64 " values of %s "
                         "need another number",
                         r->path, printable_from(t->name, strlen(t->name)).text, t->num_bytes, num_values,
                         t->dtype_text);
    return STATUS_OK;
}

static int compare_data(const void *a, const void *b)
{
    const struct safetensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return (x->num_bytes > y->num_bytes) - (x->num_bytes < y->num_bytes); /* empty ones first */
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct safetensor *)a)->name, ((const struct safetensor *)b)->name);
}

/* Leaves the tensors sorted by name. */
static int check_tensors_together(const struct shard_reader *r)
{
    struct safetensor *tensors = r->shard->tensors;
    uint64_t n = r->shard->num_tensors;
    const unsigned char *next = r->data;
    if (n) qsort(tensors, n, sizeof *tensors, compare_data);
    for (uint64_t i = 0; i < n; i++) {
        if (tensors[i].data != next)
            return fail_tensor(r, tensors[i].name, "a hole or an overlap lies before its data");
        next += tensors[i].num_bytes;
    }
    if (next != r->data + r->data_bytes)
        return error_set(r->err, STATUS_INVALID, "%s: %" PRIu64 " bytes of data belong to no tensor", r->path,
                         (uint64_t)(r->data + r->data_bytes - next));
    if (n) qsort(tensors, n, sizeof *tensors, compare_names);
    for (uint64_t i = 1; i < n; i++)
        if (!strcmp(tensors[i - 1].name, tensors[i].name))
            return fail_tensor(r, tensors[i].name, "it is there twice");
    return STATUS_OK;
}

static int read_header_tensors(const struct shard_reader *r)
{
    struct shard *shard = r->shard;
    uint64_t count = 0;
    const cJSON *entry;
    cJSON_ArrayForEach(entry, shard->header) count++;
    shard->tensors = calloc(count + 1, sizeof *shard->tensors);
    if (!shard->tensors) return error_set(r->err, STATUS_NO_MEMORY, "%s: no memory", r->path);
    cJSON_ArrayForEach(entry, shard->header)
    {
        if (!strcmp(entry->string, "__metadata__")) continue;
        assert_debug(shard->num_tensors < count);
        int status = read_tensor(r, entry, &shard->tensors[shard->num_tensors++]);
        if (status) return status;
    }
    return check_tensors_together(r);
}

static int read_shard(struct shard *shard, const char *path, struct error *err)
{
    const struct file_map *map = &shard->map;
    uint64_t header_bytes = 0;
    if (map->num_bytes >= PREFIX_BYTES) memcpy(&header_bytes, map->data, PREFIX_BYTES);
    if (map->num_bytes < PREFIX_BYTES || header_bytes > map->num_bytes - PREFIX_BYTES)
        return error_set(err, STATUS_INVALID,
                         "%s: the file ends inside its header: truncated or not safetensors", path);
    if (header_bytes > HEADER_BYTES_MAX)
        return error_set(err, STATUS_LIMIT, "%s: a header of %" PRIu64 " bytes, where at most %d are allowed",
                         path, header_bytes, HEADER_BYTES_MAX);
    const char *text = (const char *)map->data + PREFIX_BYTES, *end = NULL;
    if (header_bytes && text[0] == '{')
        shard->header = cJSON_ParseWithLengthOpts(text, header_bytes, &end, false);
    while (end && end < text + header_bytes && *end == ' ') end++;
    if (!shard->header || end != text + header_bytes)
        return error_set(err, STATUS_INVALID, "%s: its header is no JSON object", path);
    struct shard_reader r = {.path = path,
                             .shard = shard,
                             .data = map->data + PREFIX_BYTES + header_bytes,
                             .data_bytes = map->num_bytes - PREFIX_BYTES - header_bytes,
                             .err = err};
    return read_header_tensors(&r);
}

/* ---- the directory ---- */

static struct shard *find_shard(const struct safetensors *s, const char *file_name)
{
    for (int i = 0; i < s->num_shards; i++)
        if (!strcmp(s->shards[i].file_name, file_name)) return &s->shards[i];
    return NULL;
}

/* *out lives until the next shard is opened (the list may move). When the file cannot be opened nothing was
 * added. */
static int open_shard(struct safetensors *s, const char *directory, const char *file_name, struct shard **out,
                      struct error *err)
{
    char path[PATH_BYTES_MAX];
    struct file_map map = {0};
    if (snprintf(path, sizeof path, "%s/%s", directory, file_name) >= (int)sizeof path)
        return error_set(err, STATUS_INVALID, "%s: the path is too long", directory);
    int status = file_map_open(path, &map, err);
    if (status) return status;
    struct shard *shards = realloc(s->shards, ((size_t)s->num_shards + 1) * sizeof *shards);
    if (shards) s->shards = shards;
    char *name = shards ? strdup(file_name) : NULL;
    if (!name) {
        file_map_close(&map);
        return error_set(err, STATUS_NO_MEMORY, "%s: no memory", path);
    }
    assert_debug(s->num_shards < SHARDS_MAX);
    *out = &shards[s->num_shards++];
    **out = (struct shard){.file_name = name, .map = map};
    return read_shard(*out, path, err);
}

static const struct safetensor *find_tensor(const struct shard *shard, const char *name)
{
    struct safetensor wanted = {.name = name};
    if (!shard || !shard->num_tensors) return NULL;
    return bsearch(&wanted, shard->tensors, shard->num_tensors, sizeof wanted, compare_names);
}

static int allocate_list(struct safetensors *s, uint64_t count, const char *directory, struct error *err)
{
    s->tensors = calloc(count + 1, sizeof *s->tensors);
    return s->tensors ? STATUS_OK : error_set(err, STATUS_NO_MEMORY, "%s: no memory", directory);
}

static int list_shard(struct safetensors *s, const struct shard *shard, const char *directory,
                      struct error *err)
{
    int status = allocate_list(s, shard->num_tensors, directory, err);
    if (status) return status;
    for (; s->num_tensors < shard->num_tensors; s->num_tensors++)
        s->tensors[s->num_tensors] = shard->tensors[s->num_tensors];
    return STATUS_OK;
}

/* A name from the index must not lead out of the directory. */
static bool file_name_is_plain(const char *name)
{
    return name[0] && name[0] != '.' && !strchr(name, '/');
}

static int open_indexed_shards(struct safetensors *s, const char *directory, const cJSON *weight_map,
                               struct error *err)
{
    const cJSON *entry;
    cJSON_ArrayForEach(entry, weight_map)
    {
        struct shard *shard;
        if (!cJSON_IsString(entry) || !file_name_is_plain(entry->valuestring))
            return error_set(err, STATUS_INVALID,
                             "%s: the index gives tensor %s a file that is no plain name", directory,
                             printable_from(entry->string, strlen(entry->string)).text);
        if (find_shard(s, entry->valuestring)) continue;
        if (s->num_shards == SHARDS_MAX)
            return error_set(err, STATUS_LIMIT, "%s: the index names more than %d files", directory,
                             SHARDS_MAX);
        int status = open_shard(s, directory, entry->valuestring, &shard, err);
        if (status) return status;
    }
    return STATUS_OK;
}

static int sort_list(struct safetensors *s, const char *directory, struct error *err)
{
    qsort(s->tensors, s->num_tensors, sizeof *s->tensors, compare_names);
    for (uint64_t i = 1; i < s->num_tensors; i++)
        if (!strcmp(s->tensors[i - 1].name, s->tensors[i].name))
            return error_set(err, STATUS_INVALID, "%s: tensor %s is in the index, or beside it, twice",
                             directory, printable_from(s->tensors[i].name, strlen(s->tensors[i].name)).text);
    return STATUS_OK;
}

static int list_named(struct safetensors *s, const char *directory, const cJSON *weight_map,
                      struct error *err)
{
    const cJSON *entry;
    cJSON_ArrayForEach(entry, weight_map)
    {
        const struct safetensor *t = find_tensor(find_shard(s, entry->valuestring), entry->string);
        if (!t)
            return error_set(err, STATUS_INVALID,
                             "%s: the index promises tensor %s in %s, which has none such", directory,
                             printable_from(entry->string, strlen(entry->string)).text,
                             printable_from(entry->valuestring, strlen(entry->valuestring)).text);
        s->tensors[s->num_tensors++] = *t;
    }
    return sort_list(s, directory, err);
}

static int list_unnamed(struct safetensors *s, const char *directory, struct error *err)
{
    const uint64_t num_named = s->num_tensors;
    for (const struct shard *shard = s->shards; shard < s->shards + s->num_shards; shard++)
        for (uint64_t i = 0; i < shard->num_tensors; i++)
            if (!bsearch(&shard->tensors[i], s->tensors, num_named, sizeof *s->tensors, compare_names))
                s->tensors[s->num_tensors++] = shard->tensors[i];
    return s->num_tensors == num_named ? STATUS_OK : sort_list(s, directory, err);
}

static int list_indexed(struct safetensors *s, const char *directory, const cJSON *weight_map,
                        struct error *err)
{
    uint64_t count = (uint64_t)cJSON_GetArraySize(weight_map);
    for (int i = 0; i < s->num_shards; i++) count += s->shards[i].num_tensors;
    int status = allocate_list(s, count, directory, err);
    if (!status) status = list_named(s, directory, weight_map, err);
    return status ? status : list_unnamed(s, directory, err);
}

static int open_index(struct safetensors *s, const char *directory, struct error *err)
{
    char path[PATH_BYTES_MAX];
    cJSON *index = NULL;
    if (snprintf(path, sizeof path, "%s/model.safetensors.index.json", directory) >= (int)sizeof path)
        return error_set(err, STATUS_INVALID, "%s: the path is too long", directory);
    int status = json_file_read(path, INDEX_BYTES_MAX, &index, err);
    if (status == STATUS_NOT_FOUND)
        return error_set(err, status,
                         "%s: has neither model.safetensors nor model.safetensors.index.json; other files of "
                         "weights (pytorch_model.bin, consolidated.safetensors, adapters) are not read",
                         directory);
    if (status) return status;
    const cJSON *weight_map = cJSON_GetObjectItemCaseSensitive(index, "weight_map");
    if (!cJSON_IsObject(weight_map))
        status = error_set(err, STATUS_INVALID, "%s: its weight_map is missing", path);
    if (!status) status = open_indexed_shards(s, directory, weight_map, err);
    if (!status) status = list_indexed(s, directory, weight_map, err);
    cJSON_Delete(index);
    return status;
}

/* STATUS_NOT_FOUND, and nothing opened, when the file is not there. */
static int open_single(struct safetensors *s, const char *directory, const char *file_name, struct error *err)
{
    struct shard *shard = NULL;
    int status = open_shard(s, directory, file_name, &shard, err);
    return status || !shard ? status : list_shard(s, shard, directory, err);
}

/* file_name NULL: those of a model. */
static int open_any(const char *directory, const char *file_name, struct safetensors **out, struct error *err)
{
    struct safetensors *s = calloc(1, sizeof *s);
    if (!s) return error_set(err, STATUS_NO_MEMORY, "%s: no memory", directory);
    int status = open_single(s, directory, file_name ? file_name : "model.safetensors", err);
    if (status == STATUS_NOT_FOUND && !file_name) status = open_index(s, directory, err);
    if (status)
        safetensors_close(s);
    else
        *out = s;
    return status;
}

int safetensors_open(const char *directory, struct safetensors **out, struct error *err)
{
    return open_any(directory, NULL, out, err);
}

int safetensors_open_file(const char *directory, const char *file_name, struct safetensors **out,
                          struct error *err)
{
    return open_any(directory, file_name, out, err);
}

void safetensors_close(struct safetensors *s)
{
    if (!s) return;
    for (int i = 0; i < s->num_shards; i++) {
        struct shard *shard = &s->shards[i];
        file_map_close(&shard->map);
        cJSON_Delete(shard->header);
        free(shard->tensors);
        free(shard->file_name);
    }
    free(s->shards);
    free(s->tensors);
    free(s);
}

void safetensors_drop_pages(const struct safetensors *s)
{
    for (int i = 0; i < s->num_shards; i++) file_map_drop_pages(&s->shards[i].map);
}

const struct safetensor *safetensors_find(const struct safetensors *s, const char *name)
{
    struct safetensor wanted = {.name = name};
    if (!s->num_tensors) return NULL;
    return bsearch(&wanted, s->tensors, s->num_tensors, sizeof wanted, compare_names);
}

uint64_t safetensors_num_tensors(const struct safetensors *s)
{
    return s->num_tensors;
}

const struct safetensor *safetensors_tensor(const struct safetensors *s, uint64_t i)
{
    assert_debug(i < s->num_tensors);
    return &s->tensors[i];
}
