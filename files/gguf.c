/* gguf.c - reads the header of a GGUF file once, and trusts nothing in it.
 *
 *   "GGUF" u32 version, u64 num_tensors, u64 num_keys
 *   keys:     text name, u32 type, value                     text: u64 num_bytes, bytes
 *   tensors:  text name, u32 num_dims, u64 dims[], u32 type, u64 offset
 *   padding to general.alignment, then the tensors' data     dims[0] is the contiguous one
 *
 * The walk over the header checks each length against the bytes that are left before it is used, and a count
 * before memory is taken for it (an entry needs some bytes in the file, so a count cannot ask for more memory
 * than a small multiple of the file). What survives are two sorted tables that point into the mapping.
 *
 * A model may be split into NAME-00001-of-0000N.gguf; the first part has the keys. Its path opens them all.
 *
 * Source: the GGUF specification in ggml's docs/gguf.md. Versions 2 and 3 have one layout. */
#include "files/gguf_tables.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "files/weight_nvfp4.h"
#include "files/weight_ternary.h"

enum {
    DIMS_MAX = 4,
    KEY_BYTES_MIN = 8 + 4 + 1, /* of an entry in the file */
    TENSOR_BYTES_MIN = 8 + 4 + 4 + 8,
    ALIGNMENT_DEFAULT = 32,
    ALIGNMENT_MAX = 1 << 20,
    PARTS_MAX = 9999,
};

/* ---- reading ---- */

struct reader {
    const char *path;
    const unsigned char *start, *next, *end;
    struct error *err;
};

static uint64_t bytes_left(const struct reader *r)
{
    assert_debug(r->next <= r->end); /* each read has asked first */
    return (uint64_t)(r->end - r->next);
}

static int fail_truncated(const struct reader *r, const char *what)
{
    return error_set(r->err, STATUS_INVALID, "%s: truncated or damaged: the file ends inside %s at byte %zu",
                     r->path, what, (size_t)(r->next - r->start));
}

static int read_u32(struct reader *r, const char *what, uint32_t *out)
{
    if (bytes_left(r) < 4) return fail_truncated(r, what);
    *out = load_u32(r->next);
    r->next += 4;
    return STATUS_OK;
}

static int read_u64(struct reader *r, const char *what, uint64_t *out)
{
    if (bytes_left(r) < 8) return fail_truncated(r, what);
    *out = load_u64(r->next);
    r->next += 8;
    return STATUS_OK;
}

static int read_text(struct reader *r, const char *what, const char **text, size_t *num_bytes)
{
    uint64_t n = 0;
    int status = read_u64(r, what, &n);
    if (status) return status;
    if (n > bytes_left(r)) return fail_truncated(r, what);
    *text = (const char *)r->next;
    *num_bytes = (size_t)n;
    r->next += n;
    return STATUS_OK;
}

static int skip_array(struct reader *r, const char *what)
{
    uint32_t type = 0;
    uint64_t n = 0, bytes;
    int status = read_u32(r, what, &type);
    if (!status) status = read_u64(r, what, &n);
    if (status) return status;
    if (type == TYPE_TEXT) {
        const char *text;
        size_t text_bytes;
        for (uint64_t i = 0; i < n && !status; i++) status = read_text(r, what, &text, &text_bytes);
        return status;
    }
    if (type >= TYPE_COUNT || !gguf_type_bytes[type])
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: %s is an array of type %" PRIu32
                         "; arrays of numbers and of texts are supported",
                         r->path, what, type);
    if (!checked_mul(n, gguf_type_bytes[type], &bytes) || bytes > bytes_left(r))
        return fail_truncated(r, what);
    r->next += bytes;
    return STATUS_OK;
}

static int skip_value(struct reader *r, uint32_t type, const char *what)
{
    const char *text;
    size_t num_bytes;
    if (type == TYPE_TEXT) return read_text(r, what, &text, &num_bytes);
    if (type == TYPE_ARRAY) return skip_array(r, what);
    if (type >= TYPE_COUNT)
        return error_set(r->err, STATUS_INVALID, "%s: %s has type %" PRIu32 ", which GGUF does not define",
                         r->path, what, type);
    if (gguf_type_bytes[type] > bytes_left(r)) return fail_truncated(r, what);
    r->next += gguf_type_bytes[type];
    return STATUS_OK;
}

/* ---- tables sorted by name ---- */

static int fail_duplicate(const char *path, const char *what, const char *name, size_t name_bytes,
                          struct error *err)
{
    return error_set(err, STATUS_INVALID, "%s: two %s are called %s", path, what,
                     printable_from(name, name_bytes).text);
}

static int sort_keys(struct gguf *g, const char *path, struct error *err)
{
    if (!g->keys) return STATUS_OK;
    qsort(g->keys, g->num_keys, sizeof *g->keys, gguf_compare_keys);
    for (uint64_t i = 1; i < g->num_keys; i++)
        if (gguf_compare_keys(&g->keys[i - 1], &g->keys[i]) == 0)
            return fail_duplicate(path, "keys", g->keys[i].name, g->keys[i].name_bytes, err);
    return STATUS_OK;
}

static int sort_tensors(struct gguf *g, const char *path, struct error *err)
{
    if (!g->tensors) return STATUS_OK;
    qsort(g->tensors, g->num_tensors, sizeof *g->tensors, gguf_compare_tensors);
    for (uint64_t i = 1; i < g->num_tensors; i++)
        if (gguf_compare_tensors(&g->tensors[i - 1], &g->tensors[i]) == 0)
            return fail_duplicate(path, "tensors", g->tensors[i].name, g->tensors[i].name_bytes, err);
    return STATUS_OK;
}

/* ---- opening ---- */

static int read_magic(struct reader *r)
{
    if (bytes_left(r) < 4 || memcmp(r->next, "GGUF", 4) != 0)
        return error_set(r->err, STATUS_INVALID, "%s: not a GGUF file (it does not start with \"GGUF\")",
                         r->path);
    r->next += 4;
    uint32_t version = 0;
    int status = read_u32(r, "the version", &version);
    if (status) return status;
    if (version == 0x03000000 || version == 0x02000000)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: a big-endian GGUF file; only little-endian ones are supported", r->path);
    if (version != 2 && version != 3)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: GGUF version %" PRIu32 "; versions 2 and 3 are supported", r->path, version);
    return STATUS_OK;
}

static int read_keys(struct reader *r, uint64_t num_keys, struct gguf_key **out)
{
    if (num_keys > bytes_left(r) / KEY_BYTES_MIN) return fail_truncated(r, "the list of keys");
    struct gguf_key *keys = calloc(num_keys + 1, sizeof *keys);
    if (!keys)
        return error_set(r->err, STATUS_NO_MEMORY, "%s: no memory for %" PRIu64 " keys", r->path, num_keys);
    int status = STATUS_OK;
    for (uint64_t i = 0; i < num_keys && !status; i++) {
        status = read_text(r, "the name of a key", &keys[i].name, &keys[i].name_bytes);
        struct printable name = printable_from(keys[i].name, status ? 0 : keys[i].name_bytes);
        if (!status) status = read_u32(r, name.text, &keys[i].type);
        keys[i].value = r->next;
        if (!status) status = skip_value(r, keys[i].type, name.text);
    }
    if (status)
        free(keys);
    else
        *out = keys;
    return status;
}

/* What a type that is not read is called; "": nobody knows. */
static const char *other_type_name(uint32_t type)
{
    static const char *const names[] = {
        [4] = "Q4_2",      [5] = "Q4_3",      [9] = "Q8_1",        [15] = "Q8_K",       [24] = "I8",
        [25] = "I16",      [26] = "I32",      [27] = "I64",        [28] = "F64",        [31] = "Q4_0_4_4",
        [32] = "Q4_0_4_8", [33] = "Q4_0_8_8", [37] = "IQ4_NL_4_8", [38] = "IQ4_NL_8_8",
    };
    const char *const name = type < array_length(names) ? names[type] : NULL;
    return name ? name : "";
}

struct type_list {
    char text[256];
};

static struct type_list known_types(void)
{
    struct type_list list = {""};
    size_t at = (size_t)snprintf(list.text, sizeof list.text, "NVFP4, I2_S");
    for (int i = 0; i < DTYPE_COUNT && at < sizeof list.text; i++)
        if (!dtype_is_code((enum dtype)i))
            at += (size_t)snprintf(list.text + at, sizeof list.text - at, ", %s", dtype_infos[i].text);
    assert_debug(at < sizeof list.text);
    return list;
}

/* The view, without data yet, and its bytes; false: no such size is possible. */
static bool size_tensor(struct gguf_tensor *t, uint64_t rows, uint64_t cols, uint32_t type, int dtype)
{
    const bool is_nvfp4 = type == NVFP4_GGUF_ID;
    if (type == TERNARY_GGUF_ID) {
        t->view = weight_ternary_gguf_view((int64_t)rows, (int64_t)cols);
        t->num_bytes = weight_ternary_gguf_bytes(rows, cols);
        return t->num_bytes > 0;
    }
    t->view = is_nvfp4 ? weight_nvfp4_view(NULL, (int64_t)rows, (int64_t)cols)
                       : weight_view_plain(NULL, (enum dtype)dtype, (int64_t)rows, (int64_t)cols);
    const uint64_t row_bytes =
        is_nvfp4 ? weight_nvfp4_row_bytes(cols) : dtype_row_bytes((enum dtype)dtype, cols);
    return row_bytes && checked_mul(rows, row_bytes, &t->num_bytes);
}

/* Fills in rows, cols and num_bytes from the file's dims. */
static int shape_tensor(const struct reader *r, struct gguf_tensor *t, const uint64_t *dims,
                        uint32_t num_dims, uint32_t type)
{
    struct printable name = printable_from(t->name, t->name_bytes);
    const char *const other = other_type_name(type);
    int dtype = dtype_from_gguf(type);
    const bool is_nvfp4 = type == NVFP4_GGUF_ID, is_ternary = type == TERNARY_GGUF_ID;
    if (dtype < 0 && !is_nvfp4 && !is_ternary)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: tensor %s has GGUF type %" PRIu32 "%s%s, which is not supported (%s are)",
                         r->path, name.text, type, *other ? ", " : "", other, known_types().text);
    uint64_t rows = 1, values;
    bool fits = true;
    for (uint32_t i = 1; i < num_dims; i++) fits = fits && checked_mul(rows, dims[i], &rows);
    fits = fits && rows && dims[0] && checked_mul(rows, dims[0], &values) && values <= INT64_MAX;
    if (!fits || !size_tensor(t, rows, dims[0], type, dtype))
        return error_set(r->err, STATUS_INVALID,
                         "%s: tensor %s has %" PRIu64 " rows of %" PRIu64
                         " values, which is no possible size for %s (blocks of %d values)",
                         r->path, name.text, rows, dims[0],
                         is_nvfp4     ? "NVFP4"
                         : is_ternary ? "I2_S"
                                      : dtype_infos[dtype].text,
                         is_nvfp4     ? NVFP4_COLS
                         : is_ternary ? TERNARY_GGUF_COLS
                                      : dtype_infos[dtype].block_values);
    return STATUS_OK;
}

static int read_tensor(struct reader *r, struct gguf_tensor *t)
{
    static const char what[] = "the description of a tensor";
    uint64_t dims[DIMS_MAX] = {1};
    uint32_t num_dims = 0, type = 0;
    int status = read_text(r, what, &t->name, &t->name_bytes);
    if (!status) status = read_u32(r, what, &num_dims);
    if (!status && (num_dims < 1 || num_dims > DIMS_MAX))
        return error_set(r->err, STATUS_INVALID,
                         "%s: tensor %s has %" PRIu32 " dimensions; 1 to %d are possible", r->path,
                         printable_from(t->name, t->name_bytes).text, num_dims, DIMS_MAX);
    for (uint32_t i = 0; i < num_dims && !status; i++) status = read_u64(r, what, &dims[i]);
    if (!status) status = read_u32(r, what, &type);
    if (!status) status = read_u64(r, what, &t->offset);
    return status ? status : shape_tensor(r, t, dims, num_dims, type);
}

static int read_alignment(const struct reader *r, const struct gguf *g, uint64_t *alignment)
{
    int64_t value = ALIGNMENT_DEFAULT;
    if (gguf_has_key(g, "general.alignment") && !gguf_find_int(g, "general.alignment", &value)) value = 0;
    if (value < 1 || value > ALIGNMENT_MAX || (value & (value - 1)))
        return error_set(r->err, STATUS_INVALID,
                         "%s: general.alignment is %" PRId64 "; a power of two up to %d is possible", r->path,
                         value, ALIGNMENT_MAX);
    *alignment = (uint64_t)value;
    return STATUS_OK;
}

/* Turns offsets into pointers. The data start where the header ended, rounded up. */
static int place_tensors(const struct reader *r, struct gguf_tensor *tensors, uint64_t num_tensors,
                         uint64_t alignment)
{
    uint64_t file_bytes = (uint64_t)(r->end - r->start), begin, end;
    uint64_t data_start = align_up((size_t)(r->next - r->start), alignment);
    for (uint64_t i = 0; i < num_tensors; i++) {
        struct gguf_tensor *t = &tensors[i];
        if (t->offset % alignment)
            return error_set(r->err, STATUS_INVALID,
                             "%s: tensor %s starts at %" PRIu64 ", no multiple of the alignment %" PRIu64,
                             r->path, printable_from(t->name, t->name_bytes).text, t->offset, alignment);
        if (!checked_add(data_start, t->offset, &begin) || !checked_add(begin, t->num_bytes, &end) ||
            end > file_bytes)
            return error_set(
                r->err, STATUS_INVALID,
                "%s: tensor %s needs %" PRIu64 " bytes at offset %" PRIu64
                " of the data, but the file has only %" PRIu64 " bytes in all: it is truncated or damaged",
                r->path, printable_from(t->name, t->name_bytes).text, t->num_bytes, t->offset, file_bytes);
        t->view.data = r->start + begin;
        if (t->view.scheme == WEIGHT_TERNARY && !weight_ternary_gguf_take_scale(&t->view))
            return error_set(r->err, STATUS_INVALID, "%s: tensor %s has a scale that is 0, or no number",
                             r->path, printable_from(t->name, t->name_bytes).text);
    }
    return STATUS_OK;
}

/* Appends the part's tensors to those of the parts before. */
static int read_tensors(struct reader *r, struct gguf *g, uint64_t count, uint64_t alignment)
{
    if (count > bytes_left(r) / TENSOR_BYTES_MIN) return fail_truncated(r, "the list of tensors");
    struct gguf_tensor *tensors = realloc(g->tensors, (g->num_tensors + count + 1) * sizeof *tensors);
    if (!tensors)
        return error_set(r->err, STATUS_NO_MEMORY, "%s: no memory for %" PRIu64 " tensors", r->path, count);
    g->tensors = tensors;
    struct gguf_tensor *added = tensors + g->num_tensors;
    int status = STATUS_OK;
    for (uint64_t i = 0; i < count && !status; i++) status = read_tensor(r, &added[i]);
    if (!status) status = place_tensors(r, added, count, alignment);
    if (!status) g->num_tensors += count;
    return status;
}

/* into: where the keys go; g itself for the first part, a scratch table for the others. */
static int read_part(struct gguf *g, struct gguf *into, const struct file_map *file, const char *path,
                     struct error *err)
{
    struct reader r = {.path = path, .start = file->data, .next = file->data, .end = file->data, .err = err};
    if (file->data) r.end += file->num_bytes;
    uint64_t num_tensors = 0, num_keys = 0, alignment = 0;
    int status = read_magic(&r);
    if (!status) status = read_u64(&r, "the number of tensors", &num_tensors);
    if (!status) status = read_u64(&r, "the number of keys", &num_keys);
    if (!status) status = read_keys(&r, num_keys, &into->keys);
    if (status) return status;
    into->num_keys = num_keys;
    status = sort_keys(into, path, err);
    if (!status) status = read_alignment(&r, into, &alignment);
    return status ? status : read_tensors(&r, g, num_tensors, alignment);
}

static int open_part(struct gguf *g, const char *path, int64_t part_idx, struct error *err)
{
    struct gguf scratch = {0};
    int status = file_map_open(path, &g->parts[g->num_parts], err);
    if (status) return status;
    const struct file_map *file = &g->parts[g->num_parts++];
    status = read_part(g, part_idx ? &scratch : g, file, path, err);
    int64_t number = 0;
    const struct gguf *keys = part_idx ? &scratch : g;
    if (!status && gguf_find_int(keys, "split.no", &number) && number != part_idx)
        status = error_set(err, STATUS_INVALID,
                           "%s: this is part %" PRId64 " of a split model where part %" PRId64
                           " is expected; give the path of the first part",
                           path, number + 1, part_idx + 1);
    free(scratch.keys);
    return status;
}

/* path is that of the first part: NAME-00001-of-0000N.gguf. */
static int open_further_parts(struct gguf *g, const char *path, int64_t num_parts, struct error *err)
{
    char suffix[40];
    size_t n = strlen(path);
    int suffix_bytes = snprintf(suffix, sizeof suffix, "-00001-of-%05d.gguf", (int)num_parts);
    if (n < (size_t)suffix_bytes || strcmp(path + n - (size_t)suffix_bytes, suffix) != 0)
        return error_set(err, STATUS_INVALID,
                         "%s: the first of %d parts of a split model, whose name should end in %s", path,
                         (int)num_parts, suffix);
    char *part_path = malloc(n + 1);
    if (!part_path) return error_set(err, STATUS_NO_MEMORY, "%s: no memory", path);
    int status = STATUS_OK;
    for (int64_t i = 1; i < num_parts && !status; i++) {
        snprintf(part_path, n + 1, "%.*s-%05d-of-%05d.gguf", (int)(n - (size_t)suffix_bytes), path,
                 (int)i + 1, (int)num_parts);
        status = open_part(g, part_path, i, err);
    }
    free(part_path);
    return status;
}

static int open_all(struct gguf *g, const char *path, struct error *err)
{
    int64_t num_parts = 1, num_tensors;
    g->parts = calloc(1, sizeof *g->parts);
    if (!g->parts) return error_set(err, STATUS_NO_MEMORY, "%s: no memory", path);
    int status = open_part(g, path, 0, err);
    if (status) return status;
    if (gguf_find_int(g, "split.count", &num_parts) && (num_parts < 0 || num_parts > PARTS_MAX))
        return error_set(err, STATUS_INVALID, "%s: split.count is %" PRId64 "; at most %d parts are possible",
                         path, num_parts, PARTS_MAX);
    if (num_parts > 1) {
        struct file_map *parts = realloc(g->parts, (size_t)num_parts * sizeof *parts);
        if (!parts) return error_set(err, STATUS_NO_MEMORY, "%s: no memory", path);
        g->parts = parts;
        status = open_further_parts(g, path, num_parts, err);
        if (!status && gguf_find_int(g, "split.tensors.count", &num_tensors) &&
            (uint64_t)num_tensors != g->num_tensors)
            status =
                error_set(err, STATUS_INVALID,
                          "%s: the %" PRId64 " parts hold %" PRIu64 " tensors, but %" PRId64 " are announced",
                          path, num_parts, g->num_tensors, num_tensors);
    }
    return status ? status : sort_tensors(g, path, err);
}

int gguf_open(const char *path, struct gguf **out, struct error *err)
{
    struct gguf *g = calloc(1, sizeof *g);
    if (!g) return error_set(err, STATUS_NO_MEMORY, "%s: no memory", path);
    int status = open_all(g, path, err);
    if (status)
        gguf_close(g);
    else
        *out = g;
    return status;
}

void gguf_close(struct gguf *g)
{
    if (!g) return;
    for (int i = 0; i < g->num_parts; i++) file_map_close(&g->parts[i]);
    free(g->parts);
    free(g->keys);
    free(g->tensors);
    free(g);
}

void gguf_drop_pages(const struct gguf *g)
{
    for (int i = 0; i < g->num_parts; i++) file_map_drop_pages(&g->parts[i]);
}
