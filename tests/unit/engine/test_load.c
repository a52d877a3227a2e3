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

/* 1.25 GiB of 80 are kept for activations. */
static void weights_have_room_beside_activations(void **state)
{
    (void)state;
    static const uint64_t gib = 1ull << 30;
    assert_true(load_has_room(80 * gib, 79 * gib, 0.9, 0, 70 * gib - gib / 2));
    assert_false(load_has_room(80 * gib, 79 * gib, 0.9, 0, 70 * gib));
    assert_false(load_has_room(80 * gib, 79 * gib, 0.9, 0, 130 * gib));
    assert_true(load_has_room(80 * gib, 79 * gib, 0.9, 4 * gib, 73 * gib)); /* whatever the share is */
    assert_false(load_has_room(80 * gib, 79 * gib, 0.9, 8 * gib, 70 * gib));
}

/* Two states of each sequence and a kept one, and eight more kept. */
static void so_many_sequences_run_as_their_states_have_room(void **state)
{
    (void)state;
    static const uint64_t mib = 1ull << 20;
    assert_int_equal(load_num_seqs(776 * mib, mib, 256), 256);
    assert_int_equal(load_num_seqs(776 * mib - 1, mib, 256), 255);
    assert_int_equal(load_num_seqs(20000 * mib, mib, 256), 256);
    assert_int_equal(load_num_seqs(38 * mib, mib, 256), 10);
    assert_int_equal(load_num_seqs(8 * mib, mib, 256), 1);
    assert_int_equal(load_num_seqs(0, mib, 256), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_share_is_of_the_whole_memory),
                                       cmocka_unit_test(weights_have_room_beside_activations),
                                       cmocka_unit_test(so_many_sequences_run_as_their_states_have_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
