/* What a model's files say of its embeddings: sentence-transformers' files, old and new, and GGUF's key. */
#include "unit/model/in_directory.h"

#include <sys/stat.h>

#include "model/pooling_config.h"

#define TRANSFORMER "{\"idx\":0,\"path\":\"\",\"type\":\"sentence_transformers.models.Transformer\"}"
#define POOLING(path) "{\"idx\":1,\"path\":\"" path "\",\"type\":\"sentence_transformers.models.Pooling\"}"
#define NORMALIZE "{\"idx\":2,\"path\":\"2_Normalize\",\"type\":\"sentence_transformers.models.Normalize\"}"
#define DENSE "{\"idx\":2,\"path\":\"2_Dense\",\"type\":\"sentence_transformers.models.Dense\"}"

static struct dense_chain dense;

static enum pooling pooling_of(const char *modules, const char *config)
{
    char folder[TEST_PATH_BYTES];
    mkdir(join_path(folder, directory, "1_Pooling"), 0700);
    write_text(directory, "modules.json", modules);
    write_text(folder, "config.json", config);
    return pooling_config_read_hf(directory, POOLING_LAST, &dense);
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
    assert_int_equal(pooling_config_read_hf(directory, POOLING_LAST, &dense),
                     POOLING_LAST); /* which says nothing */
    assert_int_equal(pooling_config_read_hf(directory, POOLING_MEAN, &dense), POOLING_MEAN);
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

/* Each layer's folder has a config.json of its own; where one of them is not as known here there is no embedding, and no layer. */
static void of_dense_layers(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        enum pooling pooling;
        struct dense_layer layer;
    } cases[] = {
        {"{\"in_features\":8,\"out_features\":5,\"bias\":false,"
         "\"activation_function\":\"torch.nn.modules.linear.Identity\"}",
         POOLING_MEAN,
         {.num_in = 8, .num_out = 5, .folder = "2_Dense/"}},
        {"{\"in_features\":8,\"out_features\":5}",
         POOLING_MEAN,
         {.num_in = 8, .num_out = 5, .has_bias = true, .is_tanh = true, .folder = "2_Dense/"}},
        {.config = "{\"in_features\":8,\"out_features\":5,\"activation_function\":\"a.GELU\"}"},
        {.config = "{\"in_features\":8}"},
        {.config = "{\"in_features\":0,\"out_features\":5}"},
        {.config = "{\"in_features\":8,\"out_features\":-1}"},
        {.config = "{\"in_features\":\"8\",\"out_features\":5}"},
        {.config = "{\"in_features\":8,\"out_features\":5,\"bias\":1}"},
        {.config = "["},
    };
    char folder[TEST_PATH_BYTES];
    mkdir(join_path(folder, directory, "2_Dense"), 0700);
    for (size_t i = 0; i < array_length(cases); i++) {
        write_text(folder, "config.json", cases[i].config);
        assert_int_equal(pooling_of("[" TRANSFORMER "," POOLING("1_Pooling") "," DENSE "," NORMALIZE "]",
                                    "{\"pooling_mode\":\"mean\"}"),
                         cases[i].pooling);
        assert_int_equal(dense.num_layers, cases[i].pooling == POOLING_MEAN);
        if (dense.num_layers == 0) continue;
        assert_int_equal(dense.layers[0].num_in, cases[i].layer.num_in);
        assert_int_equal(dense.layers[0].num_out, cases[i].layer.num_out);
        assert_int_equal(dense.layers[0].has_bias, cases[i].layer.has_bias);
        assert_int_equal(dense.layers[0].is_tanh, cases[i].layer.is_tanh);
        assert_string_equal(dense.layers[0].folder, cases[i].layer.folder);
    }
    write_text(folder, "config.json", cases[0].config);
    static const char *const out_of_order[] = {
        "[" TRANSFORMER "," DENSE "," POOLING("1_Pooling") "]",
        "[" TRANSFORMER "," POOLING("1_Pooling") "," NORMALIZE "," DENSE "]",
        "[" TRANSFORMER "," POOLING("1_Pooling") "," DENSE "," DENSE "," DENSE "," DENSE "," DENSE "]",
    };
    for (size_t i = 0; i < array_length(out_of_order); i++)
        assert_int_equal(pooling_of(out_of_order[i], "{\"pooling_mode\":\"mean\"}"), POOLING_NONE);
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
                                       TEST(of_dense_layers), TEST(of_a_gguf_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
