/* How a chat template begins an answer. */
#include "unit/text/small_tokenizer.h"

#include "text/answer_header.h"

static const struct small_added added[] = {{.content = "<|s|>", .special = true},
                                           {.content = "<|e|>", .special = true}};
enum { HEADER_MAX = 8 };

/* The ids as text, of a template's source. */
static const char *header_of(const char *source, char out[512])
{
    struct model_text text = {.tokenizer = open_small(true, NULL, 0, added, 2, NULL)};
    struct error err;
    int32_t ids[HEADER_MAX];
    if (source) assert_int_equal(chat_template_parse(source, &text.chat_template, &err), 0);
    int32_t num_ids = answer_header_find(&text, ids, HEADER_MAX);
    const struct token_list list = {.ids = ids, .num_ids = num_ids};
    model_text_close(&text);
    return ids_text(&list, out);
}

#define TURNS                                                                                                \
    "{% for m in messages %}<|s|>{{ m.role }}:{{ m.content }}<|e|>{% endfor %}"                              \
    "{% if add_generation_prompt %}"

static void test_headers(void **state)
{
    (void)state;
    char ids[512];
    assert_string_equal(header_of(TURNS "<|s|>a:{% endif %}", ids), "256 97 58");
    /* Of one that thinks and one that does not: how both begin. */
    assert_string_equal(
        header_of(TURNS "<|s|>a:{% if enable_thinking %}t{% else %}<|e|>{% endif %}{% endif %}", ids),
        "256 97 58");
    assert_string_equal(header_of(TURNS "<|s|>abcdefg{% endif %}", ids), "256 97 98 99 100 101 102 103");
}

static void test_no_header(void **state)
{
    (void)state;
    char ids[512];
    assert_string_equal(header_of(NULL, ids), "");
    assert_string_equal(header_of(TURNS "{% endif %}", ids), "");
    assert_string_equal(header_of(TURNS "a:{% endif %}", ids), "");            /* anybody may write that */
    assert_string_equal(header_of(TURNS "<|s|>abcdefgh{% endif %}", ids), ""); /* too long */
    assert_string_equal(header_of("{{ raise_exception('no') }}", ids), "");
    assert_string_equal(
        header_of("{% if add_generation_prompt %}<|s|>{% endif %}{{ messages[0].content }}", ids),
        ""); /* not at the end */
    assert_string_equal(header_of("{% if add_generation_prompt %}<|s|>{% endif %}", ids), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_headers), cmocka_unit_test(test_no_header)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
