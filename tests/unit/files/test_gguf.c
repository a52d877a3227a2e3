/* GGUF files: values, tensors, split files, and files that are cut short or damaged anywhere. */
#include "unit/model/model_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "files/gguf.h"
#include "model/model_files.h"

/* A file in memory that has a path, so that thousands of damaged copies need no disk. */
struct memory_file {
    int fd;
    char path[64];
};

static struct memory_file memory_file_create(const void *bytes, size_t num_bytes)
{
    struct memory_file m = {.fd = memfd_create("model", 0)};
    assert_true(m.fd >= 0);
    assert_int_equal(pwrite(m.fd, bytes, num_bytes, 0), num_bytes);
    snprintf(m.path, sizeof m.path, "/proc/self/fd/%d", m.fd);
    return m;
}

static int open_bytes(const struct buffer *file, struct gguf **g, struct error *err)
{
    struct memory_file m = memory_file_create(file->data, file->num_bytes);
    int status = gguf_open(m.path, g, err);
    close(m.fd);
    return status;
}

/* All kinds of values, and two tensors. */
static void build_values(struct gguf_builder *g)
{
    gguf_builder_init(g);
    gguf_put_text(g, "a.text", "hello");
    gguf_put_text(g, "a.empty", "");
    gguf_put_u32(g, "a.u32", 4000000000u);
    gguf_put_f32(g, "a.f32", 0.5f);
    gguf_put_key(g, "a.i8", 1);
    buffer_append_char(&g->keys, -3);
    gguf_put_key(g, "a.i16", 3);
    buffer_append(&g->keys, &(int16_t){-300}, 2);
    gguf_put_key(g, "a.i32", 5);
    put_u32(&g->keys, (uint32_t)-70000);
    gguf_put_key(g, "a.bool", 7);
    buffer_append_char(&g->keys, 1);
    gguf_put_key(g, "a.u64", 10);
    put_u64(&g->keys, UINT64_MAX);
    gguf_put_key(g, "a.i64", 11);
    put_u64(&g->keys, (uint64_t)-5000000000);
    gguf_put_key(g, "a.f64", 12);
    buffer_append(&g->keys, &(double){0.1}, 8);
    gguf_put_texts(g, "a.texts", (const char *const[]){"x", "", "long one"}, 3);
    gguf_put_key(g, "a.ints", 9);
    put_u32(&g->keys, 5);
    put_u64(&g->keys, 2);
    put_u32(&g->keys, 7);
    put_u32(&g->keys, (uint32_t)-7);
    gguf_put_booleans(g, "a.bools", "1 0");
    gguf_put_tensor(g, "matrix", DTYPE_Q4_1, 64, 3);
    gguf_put_tensor(g, "vector", DTYPE_F32, 5, 0);
}

static struct gguf *open_values(void)
{
    struct gguf_builder b;
    struct buffer file;
    struct gguf *g = NULL;
    struct error err = {0};
    build_values(&b);
    buffer_init(&file, TEST_FILE_BYTES_MAX);
    gguf_finish(&b, &file);
    if (open_bytes(&file, &g, &err)) fail_msg("%s", err.text);
    buffer_deinit(&file);
    gguf_builder_deinit(&b);
    return g;
}

static void finds_single_values(void **state)
{
    (void)state;
    struct gguf *g = open_values();
    const char *text;
    size_t n;
    int64_t i;
    double real;
    bool yes;
    assert_true(gguf_find_text(g, "a.text", &text, &n) && n == 5 && !memcmp(text, "hello", 5));
    assert_true(gguf_find_text(g, "a.empty", &text, &n) && n == 0);
    assert_true(gguf_find_int(g, "a.u32", &i) && i == 4000000000);
    assert_true(gguf_find_int(g, "a.i8", &i) && i == -3);
    assert_true(gguf_find_int(g, "a.i16", &i) && i == -300);
    assert_true(gguf_find_int(g, "a.i32", &i) && i == -70000);
    assert_true(gguf_find_int(g, "a.i64", &i) && i == -5000000000);
    assert_false(gguf_find_int(g, "a.u64", &i)); /* does not fit */
    assert_true(gguf_find_real(g, "a.f32", &real) && real == 0.5);
    assert_true(gguf_find_real(g, "a.f64", &real) && real == 0.1);
    assert_true(gguf_find_bool(g, "a.bool", &yes) && yes);
    assert_false(gguf_find_text(g, "a.f32", &text, &n));
    assert_false(gguf_find_int(g, "a.text", &i));
    assert_false(gguf_find_int(g, "a.f32", &i));
    assert_false(gguf_find_real(g, "a.bool", &real));
    assert_false(gguf_find_bool(g, "a.u32", &yes));
    assert_false(gguf_find_int(g, "a", &i));
    assert_false(gguf_find_int(g, "a.i16x", &i));
    gguf_close(g);
}

static void walks_arrays(void **state)
{
    (void)state;
    struct gguf *g = open_values();
    struct gguf_array array;
    const char *text;
    size_t n;
    int64_t i;
    double real;
    assert_true(gguf_find_array(g, "a.texts", &array));
    assert_int_equal(array.num_items, 3);
    assert_int_equal(array.item_type, 8);
    assert_false(gguf_array_next_int(&array, &i));
    assert_true(gguf_array_next_text(&array, &text, &n) && n == 1 && text[0] == 'x');
    assert_true(gguf_array_next_text(&array, &text, &n) && n == 0);
    assert_true(gguf_array_next_text(&array, &text, &n) && n == 8 && !memcmp(text, "long one", 8));
    assert_false(gguf_array_next_text(&array, &text, &n));
    assert_true(gguf_find_array(g, "a.ints", &array));
    assert_false(gguf_array_next_text(&array, &text, &n));
    assert_true(gguf_array_next_int(&array, &i) && i == 7);
    assert_true(gguf_array_next_real(&array, &real) && real == -7);
    assert_false(gguf_array_next_int(&array, &i));
    assert_true(gguf_find_array(g, "a.bools", &array));
    assert_true(gguf_array_next_int(&array, &i) && i == 1);
    assert_true(gguf_array_next_int(&array, &i) && i == 0);
    assert_false(gguf_array_next_int(&array, &i));
    assert_false(gguf_find_array(g, "a.text", &array));
    gguf_close(g);
}

static void finds_tensors(void **state)
{
    (void)state;
    struct gguf *g = open_values();
    struct weight_view matrix = gguf_find_tensor(g, "matrix"), vector = gguf_find_tensor(g, "vector");
    assert_int_equal(gguf_num_tensors(g), 2);
    assert_int_equal(gguf_tensor_bytes(g), 3 * 40 + 20);
    assert_true(matrix.dtype == DTYPE_Q4_1 && matrix.rows == 3 && matrix.cols == 64);
    assert_true(vector.dtype == DTYPE_F32 && vector.rows == 1 && vector.cols == 5);
    for (int i = 0; i < 3 * 40; i++) assert_int_equal(((const uint8_t *)matrix.data)[i], i);
    for (int i = 0; i < 20; i++) assert_int_equal(((const uint8_t *)vector.data)[i], i + 1);
    assert_null(gguf_find_tensor(g, "matri").data);
    assert_null(gguf_find_tensor(g, "vectors").data);
    gguf_close(g);
}

static void expect_refusal(struct gguf_builder *b, int status, const char *part_of_sentence)
{
    struct buffer file;
    struct gguf *g = NULL;
    struct error err = {0};
    buffer_init(&file, TEST_FILE_BYTES_MAX);
    gguf_finish(b, &file);
    assert_int_equal(open_bytes(&file, &g, &err), status);
    if (!strstr(err.text, part_of_sentence))
        fail_msg("\"%s\" does not say \"%s\"", err.text, part_of_sentence);
    buffer_deinit(&file);
    gguf_builder_deinit(b);
}

static void put_raw_tensor(struct gguf_builder *g, const char *name, uint32_t num_dims, const uint64_t *dims,
                           uint32_t type, uint64_t offset)
{
    put_text(&g->tensors, name);
    put_u32(&g->tensors, num_dims);
    for (uint32_t i = 0; i < num_dims; i++) put_u64(&g->tensors, dims[i]);
    put_u32(&g->tensors, type);
    put_u64(&g->tensors, offset);
    g->num_tensors++;
}

static void refuses_impossible_tensors(void **state)
{
    (void)state;
    static const struct {
        uint32_t num_dims;
        uint64_t dims[5];
        uint32_t type;
        uint64_t offset;
        int status;
        const char *sentence;
    } cases[] = {
        {5, {1, 1, 1, 1, 1}, 0, 0, STATUS_INVALID, "dimensions"},
        {0, {0}, 0, 0, STATUS_INVALID, "dimensions"},
        {2, {32, 0}, 0, 0, STATUS_INVALID, "no possible size"},
        {1, {0}, 0, 0, STATUS_INVALID, "no possible size"},
        {1, {33}, 8, 0, STATUS_INVALID, "no possible size"},
        {2, {UINT64_C(1) << 40, UINT64_C(1) << 40}, 0, 0, STATUS_INVALID, "no possible size"},
        {3, {UINT64_C(1) << 32, UINT64_C(1) << 32, 2}, 0, 0, STATUS_INVALID, "no possible size"},
        {1, {UINT64_C(1) << 63}, 0, 0, STATUS_INVALID, "no possible size"},
        {1, {64}, 0, 0, STATUS_INVALID, "truncated"},
        {1, {8}, 0, UINT64_MAX - 31, STATUS_INVALID, "truncated"},
        {1, {8}, 0, 8, STATUS_INVALID, "alignment"},
        {1, {32}, 99, 0, STATUS_UNSUPPORTED, "type 99, which is not supported (NVFP4, I2_S, F32, "},
        {1, {32}, 4, 0, STATUS_UNSUPPORTED, "type 4, Q4_2, which"},
        {1, {96}, 40, 0, STATUS_INVALID, "for NVFP4 (blocks of 64 values)"},
        {1, {64}, 40, 0, STATUS_INVALID, "needs 36 bytes"},
        {1, {128}, 18, 0, STATUS_INVALID, "for IQ3_XXS (blocks of 256 values)"},
        {1, {256}, 18, 0, STATUS_INVALID, "needs 98 bytes"},
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        struct gguf_builder b;
        gguf_builder_init(&b);
        gguf_put_tensor(&b, "good", DTYPE_F32, 8, 0);
        put_raw_tensor(&b, "bad\x1b\xff", cases[i].num_dims, cases[i].dims, cases[i].type, cases[i].offset);
        expect_refusal(&b, cases[i].status, cases[i].sentence);
    }
}

static void refuses_double_names(void **state)
{
    (void)state;
    struct gguf_builder b;
    gguf_builder_init(&b);
    gguf_put_u32(&b, "twice", 1);
    gguf_put_u32(&b, "other", 1);
    gguf_put_text(&b, "twice", "x");
    expect_refusal(&b, STATUS_INVALID, "two keys are called twice");
    gguf_builder_init(&b);
    gguf_put_u32(&b, "key", 1);
    gguf_put_tensor(&b, "t", DTYPE_F32, 8, 0);
    gguf_put_tensor(&b, "t", DTYPE_F32, 8, 0);
    expect_refusal(&b, STATUS_INVALID, "two tensors are called t");
}

static void honours_alignment(void **state)
{
    (void)state;
    struct gguf_builder b;
    struct buffer file;
    struct gguf *g = NULL;
    struct error err = {0};
    gguf_builder_init(&b);
    b.alignment = 256;
    gguf_put_u32(&b, "general.alignment", 256);
    gguf_put_tensor(&b, "one", DTYPE_F32, 1, 0);
    gguf_put_tensor(&b, "two", DTYPE_F32, 1, 0);
    buffer_init(&file, TEST_FILE_BYTES_MAX);
    gguf_finish(&b, &file);
    if (open_bytes(&file, &g, &err)) fail_msg("%s", err.text);
    const uint8_t *one = gguf_find_tensor(g, "one").data, *two = gguf_find_tensor(g, "two").data;
    assert_int_equal(two - one, 256);
    assert_true(one[0] == 0 && two[0] == 1);
    gguf_close(g);
    buffer_deinit(&file);
    gguf_builder_deinit(&b);
    for (uint32_t wrong = 0; wrong < 2; wrong++) {
        gguf_builder_init(&b);
        gguf_put_u32(&b, "general.alignment", wrong * 24);
        gguf_put_tensor(&b, "one", DTYPE_F32, 1, 0);
        expect_refusal(&b, STATUS_INVALID, "alignment");
    }
}

static void refuses_other_files(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t num_bytes;
        const char *sentence;
    } cases[] = {
        {"", 0, "not a GGUF file"},
        {"GGU", 3, "not a GGUF file"},
        {"PK\3\4........................", 28, "not a GGUF file"},
        {"GGUF\1\0\0\0................", 24, "version 1"},
        {"GGUF\4\0\0\0................", 24, "version 4"},
        {"GGUF\0\0\0\3................", 24, "big-endian"},
        {"GGUF\3\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 24, "truncated"},
        {"GGUF\3\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0", 24, "truncated"},
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        struct gguf *g = NULL;
        struct error err = {0};
        struct memory_file m = memory_file_create(cases[i].bytes, cases[i].num_bytes);
        assert_true(gguf_open(m.path, &g, &err) < 0);
        assert_non_null(strstr(err.text, cases[i].sentence));
        close(m.fd);
    }
    struct gguf *g = NULL;
    assert_int_equal(gguf_open("/nonexistent/x.gguf", &g, NULL), STATUS_NOT_FOUND);
    assert_int_equal(gguf_open("/tmp", &g, NULL), STATUS_INVALID);
}

static void write_part(const char *directory, const char *name, uint16_t number, uint16_t count,
                       const char *tensor)
{
    struct gguf_builder b;
    struct buffer file;
    gguf_builder_init(&b);
    gguf_put_key(&b, "split.no", 2);
    buffer_append(&b.keys, &number, 2);
    gguf_put_key(&b, "split.count", 2);
    buffer_append(&b.keys, &count, 2);
    gguf_put_key(&b, "split.tensors.count", 5);
    put_u32(&b.keys, 2);
    gguf_put_text(&b, "general.name", name);
    gguf_put_tensor(&b, tensor, DTYPE_F32, 4, 0);
    buffer_init(&file, TEST_FILE_BYTES_MAX);
    gguf_finish(&b, &file);
    write_file(directory, name, file.data, file.num_bytes);
    buffer_deinit(&file);
    gguf_builder_deinit(&b);
}

static void opens_split_files(void **state)
{
    (void)state;
    char directory[TEST_PATH_BYTES], first[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
    struct gguf *g = NULL;
    struct error err = {0};
    const char *text;
    size_t n;
    make_directory(directory);
    join_path(first, directory, "m-00001-of-00002.gguf");
    write_part(directory, "m-00001-of-00002.gguf", 0, 2, "a");
    assert_int_equal(gguf_open(first, &g, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "m-00002-of-00002.gguf"));
    write_part(directory, "m-00002-of-00002.gguf", 1, 2, "b");
    if (gguf_open(first, &g, &err)) fail_msg("%s", err.text);
    assert_non_null(gguf_find_tensor(g, "a").data);
    assert_non_null(gguf_find_tensor(g, "b").data);
    assert_true(gguf_find_text(g, "general.name", &text, &n) && !memcmp(text, "m-00001", 7));
    gguf_close(g);
    assert_int_equal(gguf_open(join_path(path, directory, "m-00002-of-00002.gguf"), &g, &err),
                     STATUS_INVALID);
    write_part(directory, "m-00002-of-00002.gguf", 1, 2, "a");
    assert_int_equal(gguf_open(first, &g, &err), STATUS_INVALID);
    write_part(directory, "m-00002-of-00002.gguf", 0, 2, "b");
    assert_int_equal(gguf_open(first, &g, &err), STATUS_INVALID);
    write_part(directory, "renamed.gguf", 0, 2, "a");
    assert_int_equal(gguf_open(join_path(path, directory, "renamed.gguf"), &g, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "-00001-of-00002.gguf"));
    remove_directory(directory);
}

/* ---- damage ---- */

static void build_llama(struct gguf_builder *g)
{
    static const char *const tokens[] = {"a", "<|im_end|>", "<unused>"};
    static const struct {
        const char *name;
        uint64_t cols, rows;
    } tensors[] = {{"token_embd.weight", 32, 4},         {"output_norm.weight", 32, 0},
                   {"blk.0.attn_norm.weight", 32, 0},    {"blk.0.attn_q.weight", 32, 32},
                   {"blk.0.attn_k.weight", 32, 16},      {"blk.0.attn_v.weight", 32, 16},
                   {"blk.0.attn_output.weight", 32, 32}, {"blk.0.ffn_norm.weight", 32, 0},
                   {"blk.0.ffn_gate.weight", 32, 32},    {"blk.0.ffn_up.weight", 32, 32},
                   {"blk.0.ffn_down.weight", 32, 32}};
    gguf_builder_init(g);
    gguf_put_text(g, "general.architecture", "llama");
    gguf_put_u32(g, "llama.embedding_length", 32);
    gguf_put_u32(g, "llama.block_count", 1);
    gguf_put_u32(g, "llama.feed_forward_length", 32);
    gguf_put_u32(g, "llama.attention.head_count", 2);
    gguf_put_u32(g, "llama.attention.head_count_kv", 1);
    gguf_put_u32(g, "llama.context_length", 64);
    gguf_put_f32(g, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_put_u32(g, "general.alignment", 32);
    gguf_put_texts(g, "tokenizer.ggml.tokens", tokens, 3);
    gguf_put_text(g, "tokenizer.chat_template", "{{ x }}");
    for (size_t i = 0; i < array_length(tensors); i++)
        gguf_put_tensor(g, tensors[i].name, DTYPE_Q8_0, tensors[i].cols, tensors[i].rows);
}

/* Opens as a model; when that works, every weight must be readable to its last byte. */
static bool open_and_touch(const char *path)
{
    struct model_files *f = NULL;
    struct error err = {0};
    volatile uint8_t touched = 0;
    int status = model_files_open(path, "auto", &f, &err);
    if (status) {
        assert_true(status < 0 && err.text[0] && err.status == status);
        return false;
    }
    for (int32_t layer = 0; layer < model_files_config(f)->num_layers; layer++)
        for (int role = 0; role < WEIGHT_ROLE_COUNT; role++) {
            struct weight_view view = model_files_weight(f, (enum weight_role)role, layer);
            uint64_t bytes = (uint64_t)view.rows * dtype_row_bytes(view.dtype, (uint64_t)view.cols);
            for (uint64_t i = 0; view.data && i < bytes; i++)
                touched = (uint8_t)(touched + ((const uint8_t *)view.data)[i]);
        }
    model_files_close(f);
    return true;
}

static void refuses_every_truncation(void **state)
{
    (void)state;
    struct gguf_builder b;
    struct buffer file;
    build_llama(&b);
    buffer_init(&file, TEST_FILE_BYTES_MAX);
    gguf_finish(&b, &file);
    struct memory_file m = memory_file_create(file.data, file.num_bytes);
    assert_true(open_and_touch(m.path));
    for (size_t n = file.num_bytes; n-- > 0;) {
        assert_int_equal(ftruncate(m.fd, (off_t)n), 0);
        if (open_and_touch(m.path))
            fail_msg("%zu of %zu bytes were taken for a whole file", n, file.num_bytes);
    }
    close(m.fd);
    buffer_deinit(&file);
    gguf_builder_deinit(&b);
}

/* Each byte of the header in turn gets other values: the answer is a sentence or a model that can be read. */
static void survives_every_damaged_byte(void **state)
{
    (void)state;
    static const uint8_t flips[] = {0x01, 0x80, 0xFF, 0x20};
    struct gguf_builder b;
    struct buffer file;
    int num_refused = 0;
    build_llama(&b);
    buffer_init(&file, TEST_FILE_BYTES_MAX);
    size_t header_bytes = gguf_finish(&b, &file);
    struct memory_file m = memory_file_create(file.data, file.num_bytes);
    for (size_t at = 0; at < header_bytes; at++) {
        for (size_t i = 0; i < array_length(flips); i++) {
            uint8_t damaged = (uint8_t)file.data[at] ^ flips[i];
            assert_int_equal(pwrite(m.fd, &damaged, 1, (off_t)at), 1);
            num_refused += !open_and_touch(m.path);
        }
        assert_int_equal(pwrite(m.fd, file.data + at, 1, (off_t)at), 1);
    }
    assert_true(open_and_touch(m.path));
    assert_true(num_refused > (int)header_bytes * 2); /* most bytes matter */
    close(m.fd);
    buffer_deinit(&file);
    gguf_builder_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_single_values),
        cmocka_unit_test(walks_arrays),
        cmocka_unit_test(finds_tensors),
        cmocka_unit_test(refuses_impossible_tensors),
        cmocka_unit_test(refuses_double_names),
        cmocka_unit_test(honours_alignment),
        cmocka_unit_test(refuses_other_files),
        cmocka_unit_test(opens_split_files),
        cmocka_unit_test(refuses_every_truncation),
        cmocka_unit_test(survives_every_damaged_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
