/* Where a model's tokenizer and chat template come from. */
#include "unit/model/in_directory.h"

#include "text/model_text.h"

static void expect_source(const char *expected)
{
    char *source;
    struct error err;
    assert_int_equal(template_source_of_directory(directory, &source, &err), 0);
    if (expected)
        assert_string_equal(source, expected);
    else
        assert_null(source);
    free(source);
}

static void finds_the_chat_template(void **state)
{
    (void)state;
    char *source;
    struct error err;
    expect_source(NULL);
    write_text(directory, "tokenizer_config.json", "{\"chat_template\":null}");
    expect_source(NULL);
    write_text(directory, "chat_template.json", "{\"chat_template\":\"of the processor\"}");
    expect_source("of the processor");
    write_text(directory, "tokenizer_config.json",
               "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"no\"},"
               "{\"name\":\"default\",\"template\":\"yes\"}]}");
    expect_source("yes");
    write_text(directory, "tokenizer_config.json", "{\"chat_template\":\"{{ a }}\\n\"}");
    expect_source("{{ a }}\n");
    write_text(directory, "chat_template.jinja", "own file");
    expect_source("own file");
    remove_directory(directory);
    make_directory(directory);
    write_text(directory, "tokenizer_config.json", "{");
    assert_int_equal(template_source_of_directory(directory, &source, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "tokenizer_config.json: not JSON"));
    remove_directory(directory);
    make_directory(directory);
    write_text(directory, "chat_template.json", "{");
    assert_int_equal(template_source_of_directory(directory, &source, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "chat_template.json: not JSON"));
}

static void a_directory_may_lack_a_tokenizer(void **state)
{
    (void)state;
    struct model_text text;
    struct error err;
    write_text(directory, "chat_template.jinja", "hello");
    assert_int_equal(model_text_open(directory, NULL, &text, &err), STATUS_NOT_FOUND);
    assert_true(text.tokenizer == NULL && text.chat_template != NULL && text.gguf == NULL);
    model_text_close(&text);
}

static void a_given_template_must_parse(void **state)
{
    (void)state;
    struct model_text text;
    struct error err;
    char path[TEST_PATH_BYTES];
    write_text(directory, "chat_template.jinja", "{% broken");
    assert_int_equal(model_text_open(directory, NULL, &text, &err),
                     STATUS_NOT_FOUND); /* its own: a warning */
    assert_null(text.chat_template);
    model_text_close(&text);
    join_path(path, directory, "chat_template.jinja");
    assert_int_equal(model_text_open(directory, path, &text, &err), STATUS_INVALID);
    assert_int_equal(model_text_open(directory, "/does/not/exist", &text, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "--chat-template"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(finds_the_chat_template, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_directory_may_lack_a_tokenizer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_given_template_must_parse, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
