#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/check.h"
#include "base/rng.h"
#include "kvcache/host_blocks.h"

static int32_t length(const struct host_blocks *hb, int32_t head)
{
    int32_t count = 0;
    for (; head != NO_HOST_BLOCK; head = host_blocks_next(hb, head)) count++;
    return count;
}

static void test_none(void **state)
{
    (void)state;
    struct host_blocks *hb;
    assert_int_equal(host_blocks_create(0, &hb, NULL), 0);
    assert_int_equal(host_blocks_num_free(hb), 0);
    host_blocks_give_back(hb, NO_HOST_BLOCK);
    host_blocks_destroy(hb);
}

/* What was never needed is not touched: the blocks given back last are taken first. */
static void test_the_same_ones_are_used_again(void **state)
{
    (void)state;
    struct host_blocks *hb;
    assert_int_equal(host_blocks_create(1000, &hb, NULL), 0);
    for (int i = 0; i < 10; i++) {
        int32_t head = host_blocks_take(hb, 5);
        for (int32_t id = head; id != NO_HOST_BLOCK; id = host_blocks_next(hb, id)) assert_true(id < 5);
        host_blocks_give_back(hb, head);
    }
    host_blocks_destroy(hb);
}

static void test_chains_and_free_ones_add_up(void **state)
{
    (void)state;
    enum { BLOCKS = 50, CHAINS = 8 };
    struct host_blocks *hb;
    int32_t heads[CHAINS], lengths[CHAINS] = {0}, taken = 0;
    assert_int_equal(host_blocks_create(BLOCKS, &hb, NULL), 0);
    for (int i = 0; i < CHAINS; i++) heads[i] = NO_HOST_BLOCK;
    for (uint64_t turn = 0; turn < 2000; turn++) {
        struct rng_block r = rng_philox(3, turn, 0);
        int i = (int)(r.word[0] % CHAINS);
        int32_t count = 1 + (int32_t)(r.word[1] % 20);
        host_blocks_give_back(hb, heads[i]);
        taken -= lengths[i];
        bool fits = count <= host_blocks_num_free(hb);
        heads[i] = fits ? host_blocks_take(hb, count) : NO_HOST_BLOCK;
        lengths[i] = fits ? count : 0;
        taken += lengths[i];
        assert_int_equal(host_blocks_num_free(hb), BLOCKS - taken);
        bool used[BLOCKS] = {false};
        for (int k = 0; k < CHAINS; k++) {
            assert_int_equal(length(hb, heads[k]), lengths[k]);
            for (int32_t id = heads[k]; id != NO_HOST_BLOCK; id = host_blocks_next(hb, id)) {
                assert_false(used[id]);
                used[id] = true;
            }
        }
    }
    host_blocks_destroy(hb);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_the_same_ones_are_used_again),
        cmocka_unit_test(test_chains_and_free_ones_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
