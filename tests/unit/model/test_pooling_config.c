/* What a model's files say of its embeddings: sentence-transformers' files, old and new, and GGUF's key. */
#include "unit/model/in_directory.h"

#include <sys/stat.h>

#include "model/pooling_config.h"

#define TRANSFORMER "{\"idx\":0,\"path\":\"\",\"type\":\"sentence_transformers.models.Transformer\"}"
#define POOLING(path) "{\"idx\":1,\"path\":\"" path "\",\"type\":\"sentence_transformers.models.Pooling\"}"
#define NORMALIZE "{\"idx\":2,\"path\":\"2_Normalize\",\"type\":\"sentence_transformers.models.Normalize\"}"
#define DENSE "{\"idx\":2,\"path\":\"2_Dense\",\"type\":\"sentence_transformers.models.Dense\"}"

static enum pooling pooling_of(const char *modules, const char *config)
{
    char folder[TEST_PATH_BYTES];
    mkdir(join_path(folder, directory, "1_Pooling"), 0700);
    write_text(directory, "modules.json", modules);
    write_text(folder, "config.json", config);
    return pooling_config_read_hf(directory, POOLING_LAST);
}

static void of_a_directory(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        enum pooling pooling;
    } cases[] = {
        {"{\"word_embedding_dimension\":8,\"pooling_mode_cls_token\":false,\"pooling_mode_lasttoken\":true,"
         "\"include_prompt\":true}",
         POOLING_LAST},
        {"{\"pooling_mode_mean_tokens\":true,\"pooling_mode_lasttoken\":false}", POOLING_MEAN},
        {"{\"pooling_mode\":\"mean\"}", POOLING_MEAN},
        {"{\"pooling_mode\":\"lasttoken\"}", POOLING_LAST},
        {"{\"pooling_mode\":\"cls\"}", POOLING_FIRST},
        {"{\"pooling_mode_cls_token\":true}", POOLING_FIRST},
        {"{\"pooling_mode_mean_tokens\":true,\"pooling_mode_max_tokens\":true}", POOLING_NONE},
        {"{}", POOLING_NONE},
        {"[true]", POOLING_NONE},
        {"[", POOLING_NONE},
    };
    assert_int_equal(pooling_config_read_hf(directory, POOLING_LAST), POOLING_LAST); /* which says nothing */
    assert_int_equal(pooling_config_read_hf(directory, POOLING_MEAN), POOLING_MEAN);
    assert_int_equal(pooling_config_longest_hf(directory), 0);
    write_text(directory, "sentence_bert_config.json", "{\"max_seq_length\":-5}");
    assert_int_equal(pooling_config_longest_hf(directory), 0);
    write_text(directory, "sentence_bert_config.json", "{\"max_seq_length\":256}");
    assert_int_equal(pooling_config_longest_hf(directory), 256);
    for (size_t i = 0; i < array_length(cases); i++)
        assert_int_equal(
            pooling_of("[" TRANSFORMER "," POOLING("1_Pooling") "," NORMALIZE "]", cases[i].config),
            cases[i].pooling);
}

static void of_modules_that_are_not_as_usual(void **state)
{
    (void)state;
    static const struct {
        const char *modules;
        enum pooling pooling;
    } cases[] = {
        {"[" TRANSFORMER "," POOLING("1_Pooling") "]", POOLING_MEAN},
        {"[" TRANSFORMER "]", POOLING_LAST},
        {"[" TRANSFORMER "," POOLING("1_Pooling") "," DENSE "]", POOLING_NONE},
        {"[" TRANSFORMER "," POOLING("../1_Pooling") "]", POOLING_NONE},
        {"[" TRANSFORMER "," POOLING("/1_Pooling") "]", POOLING_NONE},
        {"[" TRANSFORMER ",{\"type\":\"a.Pooling\"}]", POOLING_NONE},
        {"[7]", POOLING_NONE},
        {"{\"type\":7}", POOLING_NONE},
        {"[]", POOLING_LAST},
        {"[", POOLING_LAST},
    };
    for (size_t i = 0; i < array_length(cases); i++)
        assert_int_equal(pooling_of(cases[i].modules, "{\"pooling_mode\":\"mean\"}"), cases[i].pooling);
}

/* type below 0: the file does not say. */
static enum pooling pooling_of_gguf(int type, bool *is_reranker)
{
    struct gguf_builder builder;
    struct buffer file;
    char path[TEST_PATH_BYTES];
    struct gguf *g;
    struct error err = {0};
    gguf_builder_init(&builder);
    gguf_put_text(&builder, "general.architecture", "qwen3");
    if (type >= 0) gguf_put_u32(&builder, "qwen3.pooling_type", (uint32_t)type);
    buffer_init(&file, TEST_FILE_BYTES_MAX);
    gguf_finish(&builder, &file);
    write_file(directory, "m.gguf", file.data, file.num_bytes);
    buffer_deinit(&file);
    gguf_builder_deinit(&builder);
    if (gguf_open(join_path(path, directory, "m.gguf"), &g, &err)) fail_msg("%s", err.text);
    enum pooling pooling = pooling_config_read_gguf(g, "qwen3", POOLING_LAST, is_reranker);
    gguf_close(g);
    return pooling;
}

static void of_a_gguf_file(void **state)
{
    (void)state;
    static const enum pooling poolings[] = {POOLING_LAST, POOLING_MEAN, POOLING_FIRST,
                                            POOLING_LAST, POOLING_LAST, POOLING_NONE};
    bool is_reranker;
    for (int type = 0; type < (int)array_length(poolings); type++) {
        assert_int_equal(pooling_of_gguf(type, &is_reranker), poolings[type]);
        assert_int_equal(is_reranker, type == 4);
    }
    assert_int_equal(pooling_of_gguf(-1, &is_reranker), POOLING_LAST);
    assert_false(is_reranker);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {TEST(of_a_directory), TEST(of_modules_that_are_not_as_usual),
                                       TEST(of_a_gguf_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
