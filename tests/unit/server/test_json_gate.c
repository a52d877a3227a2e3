#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/rng.h"
#include "server/api/json_gate.h"

static const struct json_gate_limits limits = {.max_depth = 64, .max_nodes = 1000000, .max_keys = 4096};

static int check_bytes(const char *text, size_t n)
{
    struct error err = {0};
    /* A heap copy of exactly n bytes: the sanitizer sees a read past the end. */
    char *copy = malloc(n > 0 ? n : 1);
    memcpy(copy, text, n);
    int status = json_gate_check(copy, n, &limits, &err);
    assert_true(status == 0 || err.text[0] != '\0');
    free(copy);
    return status;
}

static int check(const char *text)
{
    return check_bytes(text, strlen(text));
}

static void accepts_json(void **state)
{
    (void)state;
    static const char *const good[] = {
        "{}",
        "[]",
        "0",
        "-0",
        "-0.0e-0",
        "1E5",
        "1e+05",
        "0.5",
        "true",
        "false",
        "null",
        "\"\"",
        " \t\r\n[ ] \n",
        "{\"a\":1,\"b\":[1,2,{\"c\":null}],\"d\":\"x\"}",
        "[[],{},[{}]]",
        "{\"\":0}",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        "\"\\u0001\\u00e9\\uFFFF\"",
        "\"\\ud83d\\ude00\"",
        "\"\xF0\x9F\x98\x80 \xC3\xA9 \xE2\x82\xAC\"",
        "\"\xEF\xBF\xBF\xF4\x8F\xBF\xBF\"",
        "9223372036854775807",
        "-9223372036854775808",
        "1.7976931348623157e308",
        "\"\x7F\"",
    };
    for (size_t i = 0; i < array_length(good); i++)
        if (check(good[i]) != 0) fail_msg("refused: %s", good[i]);
}

static void refuses_what_is_not_json(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        " ",
        "\n\t ",
        "{",
        "[",
        "\"",
        "\"abc",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "[1,]",
        "[,1]",
        "{,}",
        "{a:1}",
        "{'a':1}",
        "{1:2}",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "[1 2]",
        "[1}",
        "{\"a\":1]",
        "]",
        "}",
        ",",
        ":",
        "01",
        "-01",
        "00",
        "1.",
        ".5",
        "-",
        "-.5",
        "+1",
        "1e",
        "1e+",
        "1.e5",
        "0x10",
        "1_000",
        "NaN",
        "Infinity",
        "-Infinity",
        "nul",
        "nulll",
        "tru",
        "True",
        "undefined",
        "'a'",
        "1 2",
        "{} {}",
        "null,",
        "[]]",
        "\"a\" \"b\"",
        "/**/1",
        "1//",
        "\"\\x41\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\\"",
        "\"\\",
        "\"\\u\"",
        "\"a\nb\"",
        "\"a\tb\"",
        "\"\x01\"",
        "\"\x1f\"",
        "1e999",
        "-1e999",
        "123456789012345678901234567890123456789012345678901234567890.1234",
    };
    for (size_t i = 0; i < array_length(bad); i++)
        if (check(bad[i]) == 0) fail_msg("accepted: %s", bad[i]);
}

static void refuses_invalid_utf8(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\"\x80\"",
        "\"\xFF\"",
        "\"\xC0\x80\"",
        "\"\xC1\xBF\"",
        "\"\xC3\"",
        "\"\xC3\x28\"",
        "\"\xE0\x80\x80\"",
        "\"\xE0\x9F\xBF\"",
        "\"\xE2\x82\"",
        "\"\xED\xA0\x80\"",
        "\"\xED\xBF\xBF\"",
        "\"\xF0\x80\x80\x80\"",
        "\"\xF0\x8F\xBF\xBF\"",
        "\"\xF4\x90\x80\x80\"",
        "\"\xF5\x80\x80\x80\"",
        "\"\xF0\x9F\x98\"",
        "{\"\xFF\":1}",
        "\xC3\xA9",
        "\xFE",
    };
    for (size_t i = 0; i < array_length(bad); i++)
        if (check(bad[i]) == 0) fail_msg("accepted case %zu", i);
}

static void refuses_surrogates_and_raw_nul(void **state)
{
    (void)state;
    assert_int_equal(check("[\"\\u0000\",\"a\\u0000b\",{\"a\\u0000\":1,\"a\":2}]"), 0);
    static const char *const bad[] = {
        "\"\\ud800\"",        "\"\\udfff\"",
        "\"\\udc00\\ud800\"", "\"\\ud800x\"",
        "\"\\ud800\\n\"",     "\"\\ud800\\ud800\"",
        "\"\\ud800\\u0041\"", "\"\\ud83d\\ude0\"",
        "{\"\\ud800\":1}",    "{\"\\u0000\":1,\"\\u0000\":2}",
    };
    for (size_t i = 0; i < array_length(bad); i++)
        if (check(bad[i]) == 0) fail_msg("accepted: %s", bad[i]);
    assert_int_not_equal(check_bytes("\"a\0b\"", 5), 0);
    assert_int_not_equal(check_bytes("{}\0", 3), 0);
}

static void half_pairs_become_the_character_for_none(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"\"\\ud800\"", "\"\\ufffd\""},
        {"\"\\uDfFf\"", "\"\\ufffd\""},
        {"\"\\udc00\\ud800\"", "\"\\ufffd\\ufffd\""},
        {"\"\\ud800\\ud83d\\ude00\"", "\"\\ufffd\\ud83d\\ude00\""},
        {"\"\\ud83d\\ude00\\ude00\"", "\"\\ud83d\\ude00\\ufffd\""},
        {"\"\\ud800x\\u00e9\"", "\"\\ufffdx\\u00e9\""},
        {"{\"\\ud800\":1}", "{\"\\ufffd\":1}"},
        /* None is there: an escaped backslash, fewer digits, the end. */
        {"\"\\\\ud800\"", "\"\\\\ud800\""},
        {"\"\\ud80\"", "\"\\ud80\""},
        {"\"\\ud80", "\"\\ud80"},
        {"\"\\", "\"\\"},
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", cases[i][0]);
        json_gate_mend(text, strlen(text));
        assert_string_equal(text, cases[i][1]);
    }
}

static void names_encodings(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(json_gate_check("\xEF\xBB\xBF{}", 5, &limits, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "byte order mark"));
    static const char *const wide[] = {"\xFF\xFE{\0}\0", "\xFE\xFF\0{\0}", "{\0}\0", "\0{\0}"};
    static const size_t sizes[] = {6, 6, 4, 4};
    for (size_t i = 0; i < array_length(wide); i++) {
        assert_int_equal(json_gate_check(wide[i], sizes[i], &limits, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "UTF-16"));
    }
}

static void finds_duplicate_keys(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{\"a\":1,\"a\":2}",
        "{\"a\":1,\"b\":2,\"a\":3}",
        "{\"a\":1,\"\\u0061\":2}",
        "{\"\":1,\"\":2}",
        "{\"x\":{\"a\":1,\"a\":1}}",
        "[{\"k\":0},{\"k\":0,\"k\":0}]",
        "{\"\\ud83d\\ude00\":1,\"\xF0\x9F\x98\x80\":2}",
        "{\"a\\/b\":1,\"a/b\":2}",
        "{\"o\":{\"a\":1},\"o\":[]}",
    };
    for (size_t i = 0; i < array_length(bad); i++)
        if (check(bad[i]) == 0) fail_msg("accepted: %s", bad[i]);
    static const char *const good[] = {
        "{\"a\":1,\"A\":2}",  "{\"a\":{\"a\":{\"a\":1}}}",   "[{\"a\":1},{\"a\":1}]",
        "{\"a\":1,\"a \":2}", "{\"a\":[{\"a\":1}],\"b\":2}", "{\"ab\":1,\"a\":2,\"abc\":3,\"\":4}",
    };
    for (size_t i = 0; i < array_length(good); i++)
        if (check(good[i]) != 0) fail_msg("refused: %s", good[i]);
}

/* Many keys, one of them twice, at random places and depths. */
static void finds_the_one_duplicate_among_many(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        struct buffer text;
        int count = 2 + (int)(rng_uniform(7, (uint64_t)round, 0) * 600);
        int a = (int)(rng_uniform(7, (uint64_t)round, 1) * (float)count);
        int b = (int)(rng_uniform(7, (uint64_t)round, 2) * (float)count);
        buffer_init(&text, 1 << 20);
        buffer_append_char(&text, '{');
        for (int i = 0; i < count; i++) {
            int key = i == b ? a : i;
            buffer_printf(&text, "%s\"key%d\":%s", i ? "," : "", key,
                          i % 5 ? "1" : "{\"key1\":2,\"x\":[{}]}");
        }
        buffer_append_char(&text, '}');
        int status = check_bytes(text.data, text.num_bytes);
        assert_int_equal(status == 0, a == b);
        buffer_deinit(&text);
    }
}

static char *repeat(const char *unit, size_t count, size_t *n)
{
    size_t unit_bytes = strlen(unit);
    char *text = malloc(unit_bytes * count + 1);
    for (size_t i = 0; i < count; i++) memcpy(text + i * unit_bytes, unit, unit_bytes);
    *n = unit_bytes * count;
    text[*n] = '\0';
    return text;
}

static void limits_depth(void **state)
{
    (void)state;
    for (int depth = 63; depth <= 66; depth++) {
        struct buffer text;
        buffer_init(&text, 4096);
        for (int i = 0; i < depth; i++) buffer_append_text(&text, i % 2 ? "[" : "{\"a\":");
        buffer_append_char(&text, '1');
        for (int i = depth - 1; i >= 0; i--) buffer_append_char(&text, i % 2 ? ']' : '}');
        assert_int_equal(check_bytes(text.data, text.num_bytes), depth <= 64 ? 0 : STATUS_LIMIT);
        buffer_deinit(&text);
    }
    size_t n;
    char *open = repeat("[", 8 << 20, &n);
    assert_int_equal(json_gate_check(open, n, &limits, NULL), STATUS_LIMIT);
    free(open);
    /* No limit in the options goes past the stack of frames. */
    struct json_gate_limits deep = {.max_depth = 1 << 30, .max_nodes = 1 << 30, .max_keys = 16};
    open = repeat("[", 1000000, &n);
    assert_int_equal(json_gate_check(open, n, &deep, NULL), STATUS_LIMIT);
    free(open);
}

static void limits_nodes_and_keys(void **state)
{
    (void)state;
    struct json_gate_limits small = {.max_depth = 4, .max_nodes = 10, .max_keys = 3};
    assert_int_equal(json_gate_check("[1,2,3,4,5,6,7,8,9]", 19, &small, NULL), 0);
    assert_int_equal(json_gate_check("[1,2,3,4,5,6,7,8,9,0]", 21, &small, NULL), STATUS_LIMIT);
    const char *three = "{\"a\":1,\"b\":2,\"c\":3}", *four = "{\"a\":1,\"b\":2,\"c\":3,\"d\":4}";
    assert_int_equal(json_gate_check(three, strlen(three), &small, NULL), 0);
    assert_int_equal(json_gate_check(four, strlen(four), &small, NULL), STATUS_LIMIT);
    /* Keys are counted by object, not in all. */
    const char *nested = "{\"a\":{\"a\":1,\"b\":2,\"c\":3},\"b\":{\"a\":1,\"b\":2}}";
    assert_int_equal(json_gate_check(nested, strlen(nested), &small, NULL), 0);
}

static void names_the_option_of_a_limit(void **state)
{
    (void)state;
    struct json_gate_limits small = {.max_depth = 1, .max_nodes = 3, .max_keys = 1};
    struct error err;
    assert_int_equal(json_gate_check("[[1]]", 5, &small, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "--max-json-depth"));
    assert_int_equal(json_gate_check("[1,1,1]", 7, &small, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "--max-json-nodes"));
    assert_int_equal(json_gate_check("{\"a\":1,\"b\":1}", 13, &small, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "--max-json-keys"));
}

/* Every prefix of a text is refused, and no byte changed anywhere makes it read past its end. */
static void survives_cut_and_changed_texts(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\\u00e9\":[1.5e-3,\"\\ud83d\\ude00\xE2\x82\xAC\",{\"b\":null}],\"c\":[true,false]}";
    for (size_t n = 0; n + 1 < sizeof text - 1; n++) assert_int_not_equal(check_bytes(text, n), 0);
    assert_int_equal(check_bytes(text, sizeof text - 1), 0);
    char changed[sizeof text];
    for (size_t i = 0; i < sizeof text - 1; i++) {
        for (int c = 0; c < 256; c++) {
            memcpy(changed, text, sizeof text);
            changed[i] = (char)c;
            /* What the gate lets through, cJSON reads too. */
            if (check_bytes(changed, sizeof text - 1) != 0) continue;
            cJSON *tree = cJSON_ParseWithLength(changed, sizeof text - 1);
            if (!tree) fail_msg("cJSON refuses what the gate accepts: %s", changed);
            cJSON_Delete(tree);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_json),
        cmocka_unit_test(refuses_what_is_not_json),
        cmocka_unit_test(refuses_invalid_utf8),
        cmocka_unit_test(refuses_surrogates_and_raw_nul),
        cmocka_unit_test(half_pairs_become_the_character_for_none),
        cmocka_unit_test(names_encodings),
        cmocka_unit_test(finds_duplicate_keys),
        cmocka_unit_test(finds_the_one_duplicate_among_many),
        cmocka_unit_test(limits_depth),
        cmocka_unit_test(limits_nodes_and_keys),
        cmocka_unit_test(names_the_option_of_a_limit),
        cmocka_unit_test(survives_cut_and_changed_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
