/* test_check.c - the macros of check.h. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"

static int num_calls;

static int next(void)
{
    return ++num_calls;
}

static void operands_are_evaluated_once(void **state)
{
    (void)state;
    num_calls = 0;
    assert_int_equal(min_of(next(), 5), 1);
    assert_int_equal(max_of(0, next()), 2);
    assert_int_equal(min_of(max_of(next(), 1), min_of(next(), 9)), 3);
    assert_int_equal(num_calls, 4);
}

static void operands_are_compared_in_the_wider_type(void **state)
{
    (void)state;
    const int64_t large = INT64_C(1) << 40;
    assert_int_equal(min_of(7, large), 7);
    assert_true(max_of(7, large) == large);
    assert_true(min_of(0.5, 1) == 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_are_evaluated_once),
        cmocka_unit_test(operands_are_compared_in_the_wider_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
