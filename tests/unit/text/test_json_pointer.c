/* test_json_pointer.c - pointers into a document, escapes first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

#include "base/check.h"
#include "text/json_pointer.h"

static void leads(void **state)
{
    static const struct {
        const char *pointer;
        int number; /* 0: there is nothing */
    } cases[] = {{"/a", 1},      {"/a%2fb", 2},   {"/a~1b", 2},    {"/%7e1", 3},
                 {"/~", 4},      {"/c%20d", 5},   {"/list/0", 6},  {"/list/1/x", 7},
                 {"/list/2", 0}, {"/list/-1", 0}, {"/list/0x", 0}, {"/list/99999999999", 0},
                 {"/", 8},       {"/b", 0},       {"a", 0},        {"/a/b", 0},
                 {"/list/1", 0}, {"/%zz", 9}};
    cJSON *document =
        cJSON_Parse("{\"a\":1,\"a/b\":2,\"/\":3,\"~\":4,\"c d\":5,\"list\":[6,{\"x\":7}],\"\":8,\"%zz\":9}");
    (void)state;
    assert_non_null(document);
    assert_ptr_equal(json_pointer_follow(document, "", NULL), document);
    assert_null(json_pointer_follow(NULL, "", NULL));
    for (size_t i = 0; i < array_length(cases); i++) {
        const cJSON *found = json_pointer_follow(document, cases[i].pointer, NULL);
        const int number = cJSON_IsNumber(found) ? found->valueint : 0;
        if (number != cases[i].number) fail_msg("%s: %d", cases[i].pointer, number);
    }
    size_t num_seen = 0;
    (void)json_pointer_follow(document, "/list/1/x",
                              &num_seen); /* six members, one element before it, one member */
    assert_int_equal(num_seen, 8);
    cJSON_Delete(document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(leads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
