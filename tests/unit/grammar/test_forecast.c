/* What an answer is expected to go on with: what its form leaves no choice of, with white space where it has put it before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/grammar/forecast.h"
#include "unit/grammar/compile.h"
#include "unit/grammar/small_vocabulary.h"

static const char PERSON[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\"},"
    "\"unit\":{\"enum\":[\"celsius\",\"fahrenheit\"]},\"at\":{\"type\":\"array\",\"items\":{\"type\":"
    "\"null\"},"
    "\"minItems\":2,\"maxItems\":2}},\"required\":[\"name\",\"age\",\"unit\",\"at\"],"
    "\"additionalProperties\":false}";

/* What is expected behind an answer's begin. */
static const char *behind(const struct grammar *g, const char *begin)
{
    static char text[FORECAST_BYTES_MAX + 1];
    struct matcher *m;
    struct spacing s;
    assert_int_equal(matcher_new(g, &m), 0);
    spacing_init(&s);
    for (const char *p = begin; *p; p++) {
        assert_int_equal(matcher_accept(m, p, 1), 0);
        spacing_take(&s, p, 1);
    }
    size_t n = forecast_text(m, &s, text);
    text[n] = '\0';
    matcher_free(m);
    return text;
}

static void what_must_come(void **state)
{
    (void)state;
    struct grammar *g = compile_schema(PERSON);
    assert_string_equal(behind(g, ""), "{\"name\": \"");
    assert_string_equal(behind(g, "{\"na"), "me\": \"");
    assert_string_equal(behind(g, "{\"name\": \"a, b: {"), ""); /* free text */
    assert_string_equal(behind(g, "{\"name\": \"x\","), " \"age\": ");
    assert_string_equal(behind(g, "{\"name\": \"x\", \"age\": 1"), ""); /* another digit, a comma */
    assert_string_equal(behind(g, "{\"name\": \"x\", \"age\": 1, \"unit\": \"c"),
                        "elsius\", \"at\": [null, null]}");
    assert_string_equal(
        behind(g, "{\"name\": \"x\", \"age\": 1, \"unit\": \"celsius\", \"at\": [null, null]}"), "");
    grammar_free(g);
}

static void white_space_as_it_was_before(void **state)
{
    (void)state;
    struct grammar *g = compile_schema(PERSON);
    assert_string_equal(behind(g, "{ \"name\":\"x\","), " \"age\":");
    assert_string_equal(behind(g, "{\"name\":\"x\",\"age\":1,"), "\"unit\":\"");
    assert_string_equal(behind(g, "{\n  \"name\": \"x\",\n  \"age\": 1,\n"), "  \"unit\": \"");
    assert_string_equal(behind(g, "{\n  \"name\": \"x\",\n  \"age\": 1,\n  \"unit\": \"c"),
                        "elsius\",\n  \"at\": [\n    null,\n    null]}");
    assert_string_equal(behind(g, "{\n  \"name\": \"\\\"}\\\\\",\n  \"age\": 1,\n  \"unit\": \"c"),
                        "elsius\",\n  \"at\": [\n    null,\n    null]}");
    assert_string_equal(
        behind(g, "{\n\"name\": \"x\",\n\"age\": 1,\n\"unit\": \"celsius\", \"at\": [null, null\n]"), "\n}");
    grammar_free(g);
}

static void other_notations(void **state)
{
    (void)state;
    struct error err;
    struct grammar *g;
    static const char pattern[] = "(abc|abd) (x|y)";
    assert_int_equal(grammar_from_regex(pattern, strlen(pattern), &g, &err), 0);
    assert_string_equal(behind(g, ""), "ab");
    assert_string_equal(behind(g, "abc"), " "); /* has to come */
    assert_string_equal(behind(g, "abc x"), "");
    grammar_free(g);
}

/* No more than there is room for. */
static void bounded(void **state)
{
    (void)state;
    struct error err;
    struct grammar *g;
    static const char pattern[] = "a{1000}";
    assert_int_equal(grammar_from_regex(pattern, strlen(pattern), &g, &err), 0);
    assert_int_equal(strlen(behind(g, "")), FORECAST_BYTES_MAX);
    grammar_free(g);
}

/* Whatever an answer does: it may be no JSON at all. */
static void white_space_of_any_text(void **state)
{
    (void)state;
    struct spacing s;
    spacing_init(&s);
    for (int i = 0; i < 5000; i++) spacing_take(&s, "}", 1);
    assert_int_equal(s.depth, 0);
    for (int i = 0; i < 100000; i++) spacing_take(&s, "[", 1);
    spacing_take(&s, "\n", 1);
    for (int i = 0; i < 100000; i++) spacing_take(&s, " ", 1);
    spacing_take(&s, "[\n", 2);
    assert_true(s.depth > 0 && s.depth <= 1000 && s.width <= 16);
    assert_int_equal(spacing_next(&s, '['), ' ');
    assert_int_equal(spacing_next(&s, ']'), 0); /* none stands between the two */
}

/* Together they are what is expected, and none but the last could have been longer. */
static void as_tokens(void **state)
{
    (void)state;
    struct grammar *g = compile_schema(PERSON);
    struct vocabulary *v = make_small_vocabulary();
    struct matcher *m;
    struct spacing s;
    int32_t ids[FORECAST_BYTES_MAX];
    char text[FORECAST_BYTES_MAX], joined[2 * FORECAST_BYTES_MAX];
    assert_int_equal(matcher_new(g, &m), 0);
    spacing_init(&s);
    size_t num_bytes = forecast_text(m, &s, text), at = 0;
    int32_t num = forecast_tokens(v, text, num_bytes, ids, FORECAST_BYTES_MAX);
    for (int32_t i = 0; i < num; i++) {
        size_t n;
        const char *bytes = small_token(NULL, ids[i], &n);
        memcpy(joined + at, bytes, n);
        at += n;
    }
    assert_int_equal(at, num_bytes);
    assert_memory_equal(joined, text, at);
    assert_int_equal(forecast_tokens(v, text, num_bytes, ids, 2), 2);
    matcher_free(m);
    vocabulary_free(v);
    grammar_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_must_come),          cmocka_unit_test(white_space_as_it_was_before),
        cmocka_unit_test(other_notations),         cmocka_unit_test(bounded),
        cmocka_unit_test(white_space_of_any_text), cmocka_unit_test(as_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
