/* test_load.c - the arithmetic of the memory plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/load.h"

/* The option speaks of the GPU's memory, not of what the weights leave. */
static void the_share_is_of_the_whole_memory(void **state)
{
    (void)state;
    static const uint64_t gib = 1ull << 30;
    assert_int_equal(load_kv_bytes_left(80 * gib, 80 * gib, 1.0), 80 * gib);
    assert_int_equal(load_kv_bytes_left(80 * gib, 64 * gib, 1.0), 64 * gib);
    assert_int_equal(load_kv_bytes_left(80 * gib, 64 * gib, 0.75), 44 * gib); /* 16 + 44 are 75 % of 80 */
    assert_int_equal(load_kv_bytes_left(80 * gib, 20 * gib, 0.75), 0);
    assert_int_equal(load_kv_bytes_left(80 * gib, 10 * gib, 0.75),
                     0); /* the weights alone are more than that */
    assert_int_equal(load_kv_bytes_left(0, 0, 0.5), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_share_is_of_the_whole_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
