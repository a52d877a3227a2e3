/* test_custom_input.c - the text of a custom tool's call, however its arguments are cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/api/custom_input.h"

static const struct {
    const char *arguments, *input;
} cases[] = {
    {"{\"input\": \"plain\"}", "plain"},
    {" { \"input\" :\n\"\"}", ""},
    {"{\"input\":\"a\\n\\\"b\\\\ \\/ \\u00e9 \\ud83e\\udd9c\", \"more\": \"x\"}",
     "a\n\"b\\ / \xC3\xA9 \xF0\x9F\xA6\x9C"},
    {"{\"input\": \"never ends\\", "never ends"},
    {"{\"input\": \"half \\ud83e", "half "},
    {"{\"input\": \"a\\ud83eb\\udd9c\\ud83e\\u0041\\ud83e\\ud83e\\udd9c\\ud83e\"}",
     "a\xEF\xBF\xBD"
     "b\xEF\xBF\xBD\xEF\xBF\xBD"
     "A\xEF\xBF\xBD\xF0\x9F\xA6\x9C\xEF\xBF\xBD"}, /* halves without their others */
    {"{\"input\": \"\\u-001\\u00g0\\u12\"}", "\\u-001\\u00g0\\u12"},
    {"{\"input\": 3}", "{\"input\":3}"}, /* without its spaces */
    {"{\"inputs\": \"x\"}", "{\"inputs\": \"x\"}"},
    {"{}", "{}"},
    {"", ""},
};

static void inputs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].arguments);
        for (size_t step = 1; step <= n + 1; step++) {
            struct custom_input in = {0};
            struct buffer out;
            buffer_init(&out, 1 << 10);
            for (size_t at = 0; at < n; at += step)
                custom_input_take(&in, cases[i].arguments + at, step < n - at ? step : n - at, &out);
            buffer_append(&out, "", 1);
            assert_string_equal(out.data, cases[i].input);
            buffer_deinit(&out);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(inputs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
