/* emulated_set.h - checks of a set of panel kernels on machines that lack its instructions. The including
 * file has defined these in plain C, then included the set's own file, so that cpu_linear_create finds the
 * table defined there instead of the library's. It defines as well
 *
 *   EMULATED    the level of that table
 *   PLAIN       a level whose bits it must give, and whose instructions it uses otherwise */
#ifndef TESTS_KERNELS_EMULATED_SET_H
#define TESTS_KERNELS_EMULATED_SET_H

#include "tests/kernels/linear_fixture.h"

static void test_outputs_are_within_bounds(void **state)
{
    (void)state;
    if (!cpu_isa_has(PLAIN)) skip();
    check_all_dtypes(EMULATED, pool, &random_numbers);
}

static void test_same_bits(void **state)
{
    (void)state;
    if (!cpu_isa_has(PLAIN)) skip();
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        const int sizes[] = {1, 15, 16, 17, 35, 64, 69, 130};
        for (size_t i = 0; i < array_length(sizes); i++) {
            const int num_tokens = sizes[i];
            struct linear_case c = {.isa = PLAIN, .cols = cols_for(dtype, 4)};
            case_add_part(&c, &random_numbers, dtype, 50, true);
            case_add_tokens(&c, &random_numbers, num_tokens);
            struct linear *l = case_create(&c, pool);
            float *const expected = case_run(&c, l, pool, num_tokens, c.x);
            cpu_linear_destroy(l);
            c.isa = EMULATED;
            l = case_create(&c, pool);
            float *const out = case_run(&c, l, pool, num_tokens, c.x);
            assert_memory_equal(out, expected, (size_t)num_tokens * (size_t)c.rows * sizeof *out);
            cpu_linear_destroy(l);
            free(out);
            free(expected);
            case_free(&c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outputs_are_within_bounds),
        cmocka_unit_test(test_same_bits),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

#endif
