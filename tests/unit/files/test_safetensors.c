/* safetensors files: one, several with an index, and ones that are cut short, damaged or lie about
 * themselves. */
#include "unit/model/in_directory.h"

#include "files/safetensors.h"

/* header: with its quotes as ' for reading. */
static void write_tensors(const char *name, const char *header, const void *data, size_t data_bytes)
{
    struct buffer file;
    buffer_init(&file, TEST_FILE_BYTES_MAX);
    put_u64(&file, strlen(header));
    for (const char *p = header; *p; p++) buffer_append_char(&file, *p == '\'' ? '"' : *p);
    buffer_append(&file, data, data_bytes);
    write_file(directory, name, file.data, file.num_bytes);
    buffer_deinit(&file);
}

static struct safetensors *open_good(void)
{
    struct safetensors *s = NULL;
    struct error err = {0};
    if (safetensors_open(directory, &s, &err)) fail_msg("%s", err.text);
    return s;
}

static void expect_refusal(int status, const char *part_of_sentence)
{
    struct safetensors *s = NULL;
    struct error err = {0};
    int got = safetensors_open(directory, &s, &err);
    if (got != status || !strstr(err.text, part_of_sentence))
        fail_msg("expected %d and \"%s\", got %d and \"%s\"", status, part_of_sentence, got, err.text);
}

static void finds_tensors(void **state)
{
    (void)state;
    static const uint8_t data[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    write_tensors(
        "model.safetensors",
        "{'b':{'dtype':'F8_E4M3','shape':[2,2],'data_offsets':[12,16]},'__metadata__':{'format':'pt'},"
        "'a':{'dtype':'BF16','shape':[2,3],'data_offsets':[0,12]},"
        "'none':{'dtype':'F32','shape':[0,7],'data_offsets':[12,12]}}   ",
        data, sizeof data);
    struct safetensors *s = open_good();
    const struct safetensor *a = safetensors_find(s, "a"), *b = safetensors_find(s, "b"),
                            *none = safetensors_find(s, "none");
    assert_true(a->dtype == DTYPE_BF16 && a->num_dims == 2 && a->dims[0] == 2 && a->dims[1] == 3 &&
                a->num_bytes == 12);
    assert_memory_equal(a->data, data, 12);
    assert_true(b->dtype == -1 && !strcmp(b->dtype_text, "F8_E4M3") && b->num_bytes == 4);
    assert_memory_equal(b->data, data + 12, 4);
    assert_true(none->num_bytes == 0 && none->num_dims == 2);
    assert_null(safetensors_find(s, "__metadata__"));
    assert_null(safetensors_find(s, "c"));
    safetensors_close(s);
}

static void takes_scalars_and_empty_files(void **state)
{
    (void)state;
    write_tensors("model.safetensors", "{'x':{'dtype':'F32','shape':[],'data_offsets':[0,4]}}",
                  "\0\0\x80\x3f", 4);
    struct safetensors *s = open_good();
    assert_true(safetensors_find(s, "x")->num_dims == 0 && safetensors_find(s, "x")->num_bytes == 4);
    safetensors_close(s);
    write_tensors("model.safetensors", "{}", "", 0);
    s = open_good();
    assert_null(safetensors_find(s, "x"));
    safetensors_close(s);
}

static void refuses_headers_that_lie(void **state)
{
    (void)state;
    static const struct {
        const char *header, *sentence;
    } cases[] = {
        {"{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,4]},'b':{'dtype':'F32','shape':[1],'data_offsets'"
         ":[4,8]}}",
         "need another number"},
        {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,4]}}", "belong to no tensor"},
        {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[4,8]}}", "a hole or an overlap"},
        {"{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,8]},'b':{'dtype':'F32','shape':[1],'data_offsets'"
         ":[4,8]}}",
         "a hole or an overlap"},
        {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,4]},'a':{'dtype':'F32','shape':[1],'data_offsets'"
         ":[4,8]}}",
         "there twice"},
        {"{'a':{'dtype':'F32','shape':[3],'data_offsets':[0,12]}}", "truncated"},
        {"{'a':{'dtype':'F32','shape':[2],'data_offsets':[8,0]}}", "ascending"},
        {"{'a':{'dtype':'F32','shape':[2],'data_offsets':[-8,0]}}", "ascending"},
        {"{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,8.5]}}", "ascending"},
        {"{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,1e400]}}", "ascending"},
        {"{'a':{'dtype':'F32','shape':[2],'data_offsets':[0]}}", "ascending"},
        {"{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,8,8]}}", "ascending"},
        {"{'a':{'dtype':'F32','shape':[2]}}", "data_offsets"},
        {"{'a':{'dtype':'F32','data_offsets':[0,8]}}", "shape is missing"},
        {"{'a':{'dtype':'F32','shape':[-2],'data_offsets':[0,8]}}", "shape"},
        {"{'a':{'dtype':'F32','shape':[1.5],'data_offsets':[0,8]}}", "shape"},
        {"{'a':{'dtype':'F32','shape':['2'],'data_offsets':[0,8]}}", "shape"},
        {"{'a':{'dtype':'F32','shape':[9007199254740992,9007199254740992],'data_offsets':[0,8]}}", "shape"},
        {"{'a':{'dtype':'F32','shape':[4503599627370496,1024],'data_offsets':[0,8]}}", "need another number"},
        {"{'a':{'dtype':'F32','shape':[1,1,1,1,1,1,1,1,2],'data_offsets':[0,8]}}", "8 dimensions"},
        {"{'a':{'dtype':'F33','shape':[2],'data_offsets':[0,8]}}", "none that safetensors defines"},
        {"{'a':{'dtype':4,'shape':[2],'data_offsets':[0,8]}}", "dtype is missing"},
        {"{'a':{'dtype':'F4','shape':[15],'data_offsets':[0,8]}}", "need another number"},
        {"{'a':[]}", "dtype is missing"},
        {"{'a':null}", "dtype is missing"},
        {"[]", "no JSON object"},
        {" {}", "no JSON object"},
        {"{} x", "no JSON object"},
        {"{", "no JSON object"},
        {"", "no JSON object"},
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        write_tensors("model.safetensors", cases[i].header, "12345678", 8);
        expect_refusal(STATUS_INVALID, cases[i].sentence);
    }
}

static void refuses_impossible_header_sizes(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {3, 100, 100000001, UINT64_C(1) << 63, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < array_length(sizes); i++) {
        struct buffer file;
        buffer_init(&file, TEST_FILE_BYTES_MAX);
        put_u64(&file, sizes[i]);
        buffer_append_text(&file, "{}");
        write_file(directory, "model.safetensors", file.data, file.num_bytes);
        buffer_deinit(&file);
        expect_refusal(STATUS_INVALID, "the file ends inside its header");
    }
}

/* A sparse file whose header really is longer than allowed. */
static void refuses_headers_over_100_megabytes(void **state)
{
    (void)state;
    char path[TEST_PATH_BYTES];
    write_file(directory, "model.safetensors", &(uint64_t){100000001}, 8);
    assert_int_equal(truncate(join_path(path, directory, "model.safetensors"), 100000100), 0);
    expect_refusal(STATUS_LIMIT, "at most 100000000");
}

static void build_small(struct buffer *file)
{
    struct safetensors_builder b;
    safetensors_builder_init(&b);
    safetensors_put(&b, "one", 3, 5, 1, 0, 1);
    safetensors_put(&b, "two", 0, 7, 2, 0, 1);
    buffer_init(file, TEST_FILE_BYTES_MAX);
    safetensors_finish(&b, 3, file);
    safetensors_builder_deinit(&b);
}

static void refuses_every_truncation(void **state)
{
    (void)state;
    char path[TEST_PATH_BYTES];
    struct buffer file;
    build_small(&file);
    write_file(directory, "model.safetensors", file.data, file.num_bytes);
    safetensors_close(open_good());
    for (size_t n = file.num_bytes; n-- > 0;) {
        struct safetensors *s;
        struct error err = {0};
        assert_int_equal(truncate(join_path(path, directory, "model.safetensors"), (off_t)n), 0);
        assert_int_equal(safetensors_open(directory, &s, &err), STATUS_INVALID);
        assert_true(err.text[0] != '\0');
    }
    buffer_deinit(&file);
}

static void survives_every_damaged_byte(void **state)
{
    (void)state;
    static const uint8_t flips[] = {0x01, 0x02, 0x10, 0x80, 0xFF};
    struct buffer file;
    build_small(&file);
    size_t header_end = file.num_bytes - (3 * 5 + 7) * sizeof(uint16_t);
    for (size_t at = 0; at < header_end; at++)
        for (size_t i = 0; i < array_length(flips); i++) {
            struct safetensors *s;
            struct error err = {0};
            file.data[at] = (char)(file.data[at] ^ (char)flips[i]);
            write_file(directory, "model.safetensors", file.data, file.num_bytes);
            file.data[at] = (char)(file.data[at] ^ (char)flips[i]);
            if (safetensors_open(directory, &s, &err)) continue;
            const struct safetensor *t = safetensors_find(s, "one");
            volatile uint8_t touched = 0;
            for (uint64_t j = 0; t && j < t->num_bytes; j++)
                touched = (uint8_t)(touched + ((const uint8_t *)t->data)[j]);
            safetensors_close(s);
        }
    buffer_deinit(&file);
}

/* ---- several files ---- */

static void write_shards(void)
{
    remove_directory(directory);
    make_directory(directory);
    write_tensors("s1.safetensors",
                  "{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,4]},'spare':{'dtype':'U8','shape':[1],'"
                  "data_offsets':[4,5]}}",
                  "aaaax", 5);
    write_tensors("s2.safetensors", "{'b':{'dtype':'F16','shape':[2],'data_offsets':[0,4]}}", "bbbb", 4);
}

static void write_index(const char *text)
{
    write_text(directory, "model.safetensors.index.json", text);
}

static void opens_indexed_shards(void **state)
{
    (void)state;
    write_shards();
    write_index("{\"metadata\":{\"total_size\":8},\"weight_map\":{\"b\":\"s2.safetensors\",\"a\":\"s1."
                "safetensors\"}}");
    struct safetensors *s = open_good();
    assert_memory_equal(safetensors_find(s, "a")->data, "aaaa", 4);
    assert_memory_equal(safetensors_find(s, "b")->data, "bbbb", 4);
    assert_memory_equal(safetensors_find(s, "spare")->data, "x", 1); /* not in the index */
    safetensors_close(s);
}

static void the_index_chooses_among_files(void **state)
{
    (void)state;
    write_shards();
    write_tensors("s2.safetensors",
                  "{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,4]},'b':{'dtype':'F16','shape':[2],"
                  "'data_offsets':[4,8]}}",
                  "AAAAbbbb", 8);
    write_index("{\"weight_map\":{\"b\":\"s2.safetensors\",\"a\":\"s2.safetensors\",\"spare\":\"s1."
                "safetensors\"}}");
    struct safetensors *s = open_good();
    assert_memory_equal(safetensors_find(s, "a")->data, "AAAA", 4);
    safetensors_close(s);
    write_index("{\"weight_map\":{\"b\":\"s2.safetensors\",\"spare\":\"s1.safetensors\"}}");
    expect_refusal(STATUS_INVALID, "tensor a is in the index, or beside it, twice");
}

static void refuses_indexes_that_lie(void **state)
{
    (void)state;
    static const struct {
        const char *index;
        int status;
        const char *sentence;
    } cases[] = {
        {"{\"weight_map\":{\"b\":\"s1.safetensors\"}}", STATUS_INVALID,
         "promises tensor b in s1.safetensors"},
        {"{\"weight_map\":{\"a\":\"s3.safetensors\"}}", STATUS_NOT_FOUND, "s3.safetensors"},
        {"{\"weight_map\":{\"a\":\"../s1.safetensors\"}}", STATUS_INVALID, "plain name"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", STATUS_INVALID, "plain name"},
        {"{\"weight_map\":{\"a\":\"..\"}}", STATUS_INVALID, "plain name"},
        {"{\"weight_map\":{\"a\":\"\"}}", STATUS_INVALID, "plain name"},
        {"{\"weight_map\":{\"a\":7}}", STATUS_INVALID, "plain name"},
        {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"a\":\"s1.safetensors\"}}", STATUS_INVALID, "twice"},
        {"{\"weight_map\":[]}", STATUS_INVALID, "weight_map is missing"},
        {"{}", STATUS_INVALID, "weight_map is missing"},
        {"{\"weight_map\":", STATUS_INVALID, "not JSON"},
    };
    write_shards();
    expect_refusal(STATUS_NOT_FOUND, "neither model.safetensors nor");
    for (size_t i = 0; i < array_length(cases); i++) {
        write_index(cases[i].index);
        expect_refusal(cases[i].status, cases[i].sentence);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(finds_tensors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(takes_scalars_and_empty_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_headers_that_lie, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_impossible_header_sizes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_headers_over_100_megabytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_every_truncation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(survives_every_damaged_byte, set_up, tear_down),
        cmocka_unit_test_setup_teardown(opens_indexed_shards, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_index_chooses_among_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_indexes_that_lie, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
