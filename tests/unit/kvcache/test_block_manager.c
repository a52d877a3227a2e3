#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rng.h"
#include "kvcache/block_manager.h"

enum { NUM_EVICTED_MAX = 64 };

struct evictions {
    int32_t ids[NUM_EVICTED_MAX], count;
};

static void record_eviction(void *context, int32_t block_id)
{
    struct evictions *e = context;
    e->ids[e->count++ % NUM_EVICTED_MAX] = block_id;
}

static struct block_manager *create(int32_t num_blocks, struct evictions *e)
{
    struct block_manager *bm;
    *e = (struct evictions){.count = 0};
    assert_int_equal(block_manager_create(num_blocks, 0, &bm, NULL), 0);
    block_manager_on_evict(bm, record_eviction, e);
    block_manager_check(bm);
    return bm;
}

static void expect_counts(const struct block_manager *bm, int32_t num_free, int32_t num_cached,
                          int32_t num_held)
{
    block_manager_check(bm);
    assert_int_equal(block_manager_num_free(bm), num_free);
    assert_int_equal(block_manager_num_cached(bm), num_cached);
    assert_int_equal(block_manager_num_held(bm), num_held);
}

static void test_hold_and_release(void **state)
{
    (void)state;
    struct evictions e;
    struct block_manager *bm = create(5, &e);
    int32_t ids[5];
    expect_counts(bm, 5, 0, 0);
    assert_int_equal(block_manager_hold(bm, 3, ids), 0);
    expect_counts(bm, 2, 0, 3);
    assert_true(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
    assert_int_equal(block_manager_hold(bm, 0, NULL), 0);
    block_manager_release(bm, 2, ids);
    expect_counts(bm, 4, 0, 1);
    block_manager_release(bm, 1, ids + 2);
    expect_counts(bm, 5, 0, 0);
    block_manager_destroy(bm);
}

static void test_hold_is_all_or_nothing(void **state)
{
    (void)state;
    struct evictions e;
    struct block_manager *bm = create(4, &e);
    int32_t ids[5] = {-7, -7, -7, -7, -7};
    assert_int_equal(block_manager_hold(bm, 5, ids), STATUS_NO_BLOCKS);
    assert_int_equal(ids[0], -7);
    expect_counts(bm, 4, 0, 0);
    assert_int_equal(block_manager_hold(bm, 4, ids), 0);
    assert_int_equal(block_manager_hold(bm, 1, ids + 4), STATUS_NO_BLOCKS);
    block_manager_destroy(bm);
}

static void test_eviction_takes_the_least_recently_released(void **state)
{
    (void)state;
    struct evictions e;
    struct block_manager *bm = create(4, &e);
    int32_t ids[4], more[4];
    assert_int_equal(block_manager_hold(bm, 4, ids), 0);
    for (int i = 0; i < 4; i++) block_manager_set_known(bm, ids[i], true);
    block_manager_release(bm, 1, &ids[2]);
    block_manager_release(bm, 1, &ids[0]);
    int32_t chain[2] = {ids[1], ids[3]}; /* the end of a chain goes before its beginning */
    block_manager_release(bm, 2, chain);
    expect_counts(bm, 0, 4, 0);
    block_manager_share(bm, ids[2]); /* used again: no longer the oldest */
    block_manager_release(bm, 1, &ids[2]);
    assert_int_equal(block_manager_hold(bm, 4, more), 0);
    int32_t expected[4] = {ids[0], ids[3], ids[1], ids[2]};
    assert_int_equal(e.count, 4);
    assert_memory_equal(e.ids, expected, sizeof(expected));
    for (int i = 0; i < 4; i++) assert_false(block_manager_is_known(bm, more[i]));
    expect_counts(bm, 0, 0, 4);
    block_manager_destroy(bm);
}

static void test_free_blocks_go_before_cached_ones(void **state)
{
    (void)state;
    struct evictions e;
    struct block_manager *bm = create(3, &e);
    int32_t ids[3];
    assert_int_equal(block_manager_hold(bm, 3, ids), 0);
    block_manager_set_known(bm, ids[0], true);
    block_manager_release(bm, 3, ids);
    expect_counts(bm, 2, 1, 0);
    assert_int_equal(block_manager_hold(bm, 2, ids + 1), 0);
    assert_int_equal(e.count, 0);
    expect_counts(bm, 0, 1, 2);
    block_manager_destroy(bm);
}

static void test_a_shared_block_is_held_until_the_last_release(void **state)
{
    (void)state;
    struct evictions e;
    struct block_manager *bm = create(2, &e);
    int32_t id;
    assert_int_equal(block_manager_hold(bm, 1, &id), 0);
    block_manager_set_known(bm, id, true);
    block_manager_share(bm, id);
    block_manager_share(bm, id);
    assert_int_equal(block_manager_ref_count(bm, id), 3);
    block_manager_release(bm, 1, &id);
    block_manager_release(bm, 1, &id);
    expect_counts(bm, 1, 0, 1);
    block_manager_set_known(bm, id, false); /* the prefix cache has dropped it meanwhile */
    block_manager_release(bm, 1, &id);
    expect_counts(bm, 2, 0, 0);
    block_manager_destroy(bm);
}

/* Against a model that is one array of counts: 200,000 random calls, each followed by comparing the totals.
 */
static void test_random_calls_against_a_plain_model(void **state)
{
    (void)state;
    enum { NUM_BLOCKS = 37, NUM_REFS_MAX = 200 };
    struct evictions e;
    struct block_manager *bm = create(NUM_BLOCKS, &e);
    int32_t held[NUM_REFS_MAX], num_refs = 0, refs[NUM_BLOCKS] = {0};
    for (uint64_t call = 0; call < 200000; call++) {
        struct rng_block r = rng_philox(11, call, 0);
        int32_t pick = num_refs ? (int32_t)(r.word[1] % (uint32_t)num_refs) : -1, ids[8];
        int32_t count = (int32_t)(r.word[2] % 8), available = 0;
        for (int i = 0; i < NUM_BLOCKS; i++) available += refs[i] == 0;
        if (r.word[0] % 4 == 0 && num_refs + count <= NUM_REFS_MAX) {
            int status = block_manager_hold(bm, count, ids);
            assert_int_equal(status, count <= available ? 0 : STATUS_NO_BLOCKS);
            for (int i = 0; status == 0 && i < count; i++) {
                assert_int_equal(refs[ids[i]]++, 0);
                held[num_refs++] = ids[i];
            }
        } else if (r.word[0] % 4 == 1 && pick >= 0) {
            if (!block_manager_is_known(bm, held[pick])) block_manager_set_known(bm, held[pick], true);
        } else if (r.word[0] % 4 == 2 && num_refs < NUM_REFS_MAX) {
            int32_t id = (int32_t)(r.word[1] % NUM_BLOCKS);
            if (!block_manager_is_known(bm, id)) continue;
            block_manager_share(bm, id);
            refs[id]++;
            held[num_refs++] = id;
        } else if (pick >= 0) {
            block_manager_release(bm, 1, &held[pick]);
            refs[held[pick]]--;
            held[pick] = held[--num_refs];
        }
        int32_t num_held = 0;
        for (int i = 0; i < NUM_BLOCKS; i++) {
            num_held += refs[i] > 0;
            assert_int_equal(block_manager_ref_count(bm, i), refs[i]);
        }
        expect_counts(bm, block_manager_num_free(bm), block_manager_num_cached(bm), num_held);
    }
    assert_true(e.count > 1000);
    block_manager_destroy(bm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hold_and_release),
        cmocka_unit_test(test_hold_is_all_or_nothing),
        cmocka_unit_test(test_eviction_takes_the_least_recently_released),
        cmocka_unit_test(test_free_blocks_go_before_cached_ones),
        cmocka_unit_test(test_a_shared_block_is_held_until_the_last_release),
        cmocka_unit_test(test_random_calls_against_a_plain_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
