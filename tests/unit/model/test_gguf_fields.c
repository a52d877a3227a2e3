/* Every field of a GGUF header gets every value that a field can do harm with, one at a time, and the file is
 * cut at every field's edge: each time a sentence or a model whose every weight, token and template can be
 * used, by the loader, the tokenizer, the template's parser and `flashd inspect`. Files are heap blocks of
 * exactly their size (fuzz/memory_files.h), so that the sanitized build sees a read beyond the end. */
#define LLVMFuzzerTestOneInput use_gguf_file /* the fuzzer's own oracle */
#include "fuzz/fuzz_gguf.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "quiet_inspect.h"

enum { FIELDS_MAX = 4096, FILE_BYTES_MAX = 1 << 20, ALIGNMENT = 32 };

enum field_kind {
    FIELD_VALUE,     /* of a key, or a tensor's offset: some others are fine, too */
    FIELD_STRUCTURE, /* counts, lengths, types: all ones is never right */
};

struct field {
    size_t at, num_bytes;
    enum field_kind kind;
};

static struct {
    uint8_t bytes[FILE_BYTES_MAX];
    size_t num_bytes;
} file;
static struct field fields[FIELDS_MAX];
static int num_fields;
static int num_opened, num_refused;

/* ---- the fields of a valid file ---- */

static uint64_t read_number(size_t at, size_t num_bytes)
{
    uint64_t n = 0;
    memcpy(&n, file.bytes + at, num_bytes);
    return n;
}

static uint64_t take_number(size_t *at, size_t num_bytes, enum field_kind kind)
{
    assert_true(num_fields < FIELDS_MAX && *at + num_bytes <= file.num_bytes);
    fields[num_fields++] = (struct field){*at, num_bytes, kind};
    *at += num_bytes;
    return read_number(*at - num_bytes, num_bytes);
}

static void take_text(size_t *at)
{
    *at += take_number(at, 8, FIELD_STRUCTURE);
}

static void take_value(size_t *at, uint64_t type)
{
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    assert_true(type < array_length(sizes));
    if (type == 8) {
        take_text(at);
    } else if (type == 9) {
        uint64_t item_type = take_number(at, 4, FIELD_STRUCTURE), count = take_number(at, 8, FIELD_STRUCTURE);
        for (uint64_t i = 0; i < count; i++) take_value(at, item_type);
    } else {
        take_number(at, sizes[type], FIELD_VALUE);
    }
}

static void take_tensor(size_t *at)
{
    take_text(at);
    uint64_t num_dims = take_number(at, 4, FIELD_STRUCTURE);
    for (uint64_t i = 0; i < num_dims; i++) take_number(at, 8, FIELD_STRUCTURE);
    take_number(at, 4, FIELD_STRUCTURE); /* type */
    take_number(at, 8, FIELD_STRUCTURE); /* offset */
}

/* Returns where the header ends. */
static size_t find_fields(void)
{
    size_t at = 0;
    num_fields = 0;
    take_number(&at, 4, FIELD_STRUCTURE); /* magic */
    take_number(&at, 4, FIELD_STRUCTURE); /* version */
    uint64_t num_tensors = take_number(&at, 8, FIELD_STRUCTURE),
             num_keys = take_number(&at, 8, FIELD_STRUCTURE);
    for (uint64_t i = 0; i < num_keys; i++) {
        take_text(&at);
        take_value(&at, take_number(&at, 4, FIELD_STRUCTURE));
    }
    for (uint64_t i = 0; i < num_tensors; i++) take_tensor(&at);
    return at;
}

/* ---- one damaged file ---- */

/* Returns whether it is a model. */
static bool try_file(size_t num_bytes)
{
    use_gguf_file(file.bytes, num_bytes);
    memory_files_add("model.gguf", file.bytes, num_bytes, 0);
    bool opened = inspect_opens(PATH);
    memory_files_clear();
    num_opened += opened;
    num_refused += !opened;
    return opened;
}

static void try_value(const struct field *f, uint64_t value)
{
    uint8_t before[8];
    uint64_t ones = f->num_bytes == 8 ? UINT64_MAX : (1ull << 8 * f->num_bytes) - 1;
    memcpy(before, file.bytes + f->at, f->num_bytes);
    memcpy(file.bytes + f->at, &value, f->num_bytes);
    bool opened = try_file(file.num_bytes);
    memcpy(file.bytes + f->at, before, f->num_bytes);
    if (opened && f->kind == FIELD_STRUCTURE && (value & ones) == ones)
        fail_msg("the field of %zu bytes at %zu is all ones, and it opens", f->num_bytes, f->at);
}

static void try_field(const struct field *f)
{
    uint64_t n = read_number(f->at, f->num_bytes);
    const uint64_t values[] = {
        0, 1, n + 1, n - 1, 2 * n, n / 2, n ^ 1ull << (8 * f->num_bytes - 1), UINT64_MAX, UINT64_MAX - 1,
        INT64_MAX, INT32_MAX, UINT32_MAX, 1ull << 32, 1ull << 61, file.num_bytes - f->at, file.num_bytes,
        /* multiples of the alignment that wrap around */
        (uint64_t)-32, (uint64_t)-64, (uint64_t)-4096, (uint64_t) - (int64_t)file.num_bytes / 32 * 32};
    for (size_t i = 0; i < array_length(values); i++) try_value(f, values[i]);
}

/* ---- tests ---- */

static void read_seed(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "tests/fuzz/seeds/gguf/%s", name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s: run in the project's folder", path);
    file.num_bytes = fread(file.bytes, 1, sizeof file.bytes, f);
    fclose(f);
    assert_in_range(file.num_bytes, 1, sizeof file.bytes - 1);
}

static void every_field(const char *name)
{
    read_seed(name);
    size_t header_bytes = find_fields();
    num_opened = num_refused = 0;
    assert_true(try_file(file.num_bytes));
    for (int i = 0; i < num_fields; i++) try_field(&fields[i]);
    for (int i = 0; i < num_fields; i++) {
        assert_false(try_file(fields[i].at));
        assert_false(try_file(fields[i].at + fields[i].num_bytes / 2));
    }
    for (size_t n = 1; n <= 2 * ALIGNMENT; n++)
        try_file(file.num_bytes - n); /* into the last tensor's data */
    for (size_t at = 0; at < header_bytes; at++) {
        file.bytes[at] ^= 0xFF;
        try_file(file.num_bytes);
        file.bytes[at] ^= 0xFF;
    }
    print_message("%s: %d fields, %d files opened, %d refused\n", name, num_fields, num_opened, num_refused);
    assert_true(num_fields > 150 && num_opened > 100 && num_refused > 2 * num_fields);
}

static void every_field_of_a_bpe_model(void **state)
{
    (void)state;
    every_field("bpe");
}

static void every_field_of_a_qwen_model(void **state)
{
    (void)state;
    every_field("qwen");
}

static void every_field_of_a_gemma_4_model(void **state)
{
    (void)state;
    every_field("gemma4");
}

static void every_field_of_a_gemma_3n_model(void **state)
{
    (void)state;
    every_field("gemma3n");
}

static void every_field_of_a_spm_model(void **state)
{
    (void)state;
    every_field("spm");
}

static void every_field_of_encoders(void **state)
{
    (void)state;
    every_field("jina");
    every_field("mixture");
    every_field("roberta");
}

/* Whether two dimensions begin behind this field, and a type and an offset follow. */
static bool is_before_two_dimensions(int i)
{
    static const size_t sizes[] = {4, 8, 8, 4, 8};
    for (int k = 0; k < 5; k++)
        if (i + k >= num_fields || fields[i + k].num_bytes != sizes[k] ||
            (k > 0 && fields[i + k].at != fields[i + k - 1].at + sizes[k - 1]))
            return false;
    return read_number(fields[i].at, 4) == 2;
}

static const uint64_t large[] = {1ull << 31, 1ull << 32, 1ull << 33, 1ull << 60, UINT64_MAX / 34, 1ull << 63};

/* Products that overflow need two. */
static void pairs_of_dimensions(void **state)
{
    (void)state;
    read_seed("bpe");
    find_fields();
    for (int i = 0; i < num_fields; i++) {
        if (!is_before_two_dimensions(i)) continue;
        uint8_t *dims = file.bytes + fields[i + 1].at;
        uint64_t before[2];
        memcpy(before, dims, sizeof before);
        for (size_t a = 0; a < array_length(large); a++)
            for (size_t b = 0; b < array_length(large); b++) {
                memcpy(dims, (const uint64_t[]){large[a], large[b]}, sizeof before);
                assert_false(try_file(file.num_bytes));
            }
        memcpy(dims, before, sizeof before);
    }
}

/* A third one, in place of the file's own two: its rows alone overflow, to 0 and to what would fit. */
static void three_dimensions(void **state)
{
    (void)state;
    read_seed("bpe");
    find_fields();
    int i = 0;
    while (!is_before_two_dimensions(i)) i++;
    size_t at = fields[i].at, rest = at + 4 + 16;
    uint64_t cols = read_number(at + 4, 8), rows = read_number(at + 12, 8);
    memmove(file.bytes + rest + 8, file.bytes + rest, file.num_bytes - rest);
    file.num_bytes += 8 + ALIGNMENT; /* the data may begin later now */
    file.bytes[at] = 3;
    for (size_t a = 0; a < array_length(large); a++)
        for (size_t b = 0; b < array_length(large); b++) {
            memcpy(file.bytes + at + 4, (const uint64_t[]){cols, large[a], large[b]}, 24);
            assert_false(try_file(file.num_bytes));
        }
    for (int shift = 1; shift < 64; shift++) { /* rows modulo 2^64 */
        memcpy(file.bytes + at + 4,
               (const uint64_t[]){cols, (1ull << (64 - shift)) + (rows >> shift), 1ull << shift}, 24);
        assert_false(try_file(file.num_bytes));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_of_a_bpe_model),
        cmocka_unit_test(every_field_of_a_qwen_model),
        cmocka_unit_test(every_field_of_a_gemma_4_model),
        cmocka_unit_test(every_field_of_a_gemma_3n_model),
        cmocka_unit_test(every_field_of_a_spm_model),
        cmocka_unit_test(every_field_of_encoders),
        cmocka_unit_test(pairs_of_dimensions),
        cmocka_unit_test(three_dimensions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
