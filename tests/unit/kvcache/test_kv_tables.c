#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rng.h"
#include "kvcache/kv_tables.h"

enum { NUM_BLOCKS = 40, NUM_ROWS = 4, MAX_LEN = 320, WINDOW = 40, AHEAD = 32 };

/* A full group and one with a window, which reaches over no more than div_up(39 + 32, 16) + 1 blocks. */
enum { FULL, WINDOWED, REACH = 6 };

struct rig {
    struct block_manager *bm;
    struct prefix_cache *pc;
    struct kv_tables *t;
    struct block_hash root;
    int32_t tokens[MAX_LEN];
    bool is_chunk;
};

/* is_chunk: the second group's window. */
static struct rig create_of(int32_t num_blocks, bool is_chunk)
{
    struct rig r = {.is_chunk = is_chunk};
    const struct kv_groups groups = {
        .count = 2, .num_ahead = AHEAD, .groups = {[FULL] = {0}, [WINDOWED] = {WINDOW, is_chunk}}};
    assert_int_equal(block_manager_create(num_blocks, 0, &r.bm, NULL), 0);
    assert_int_equal(prefix_cache_create(r.bm, &groups, "m", 1, &r.pc, NULL), 0);
    assert_int_equal(kv_tables_create(r.bm, r.pc, &groups, NUM_ROWS, MAX_LEN, &r.t, NULL), 0);
    prefix_cache_root(r.pc, "", 0, &r.root);
    for (int32_t i = 0; i < MAX_LEN; i++) r.tokens[i] = i;
    return r;
}

static struct rig create(int32_t num_blocks)
{
    return create_of(num_blocks, false);
}

static void destroy(struct rig *r)
{
    kv_tables_destroy(r->t);
    prefix_cache_destroy(r->pc);
    block_manager_destroy(r->bm);
}

static void check(const struct rig *r)
{
    block_manager_check(r->bm);
    prefix_cache_check(r->pc);
}

static void expect_span(const struct rig *r, int32_t row, int32_t group, int32_t begin, int32_t end)
{
    assert_int_equal(kv_tables_get(r->t, row, group)->begin, begin);
    assert_int_equal(kv_tables_get(r->t, row, group)->end, end);
}

/* As a sequence does: behind what is found, its tokens in steps of step, each of which ends before the next begins. */
static void run(struct rig *r, int32_t row, const int32_t *tokens, int32_t num_tokens, int32_t step)
{
    struct block_hash hash = r->root;
    int32_t num_hashed = kv_tables_match(r->t, row, tokens, num_tokens / BLOCK_SIZE, &hash, NULL);
    assert_int_equal(kv_tables_hold(r->t, row, num_tokens), 0);
    for (int32_t position = num_hashed * BLOCK_SIZE; position < num_tokens;) {
        position = min_of(position + step, num_tokens);
        assert_true(kv_tables_num_places(r->t, row) >= position);
        for (; num_hashed < position / BLOCK_SIZE; num_hashed++)
            kv_tables_insert(r->t, row, num_hashed, tokens + num_hashed * BLOCK_SIZE, &hash);
        kv_tables_pass(r->t, row, position);
        assert_int_equal(kv_tables_hold(r->t, row, num_tokens), 0);
        check(r);
    }
}

/* Takes what there is of the tokens and gives it back; how many blocks of tokens that was. */
static int32_t num_found(struct rig *r, const int32_t *tokens, int32_t max_blocks)
{
    struct block_hash hash = r->root;
    int32_t n = kv_tables_match(r->t, NUM_ROWS - 1, tokens, max_blocks, &hash, NULL);
    expect_span(r, NUM_ROWS - 1, FULL, 0, n);
    int32_t next = n * BLOCK_SIZE, first = r->is_chunk ? next - next % WINDOW : max_of(next + 1 - WINDOW, 0);
    expect_span(r, NUM_ROWS - 1, WINDOWED, first / BLOCK_SIZE, n);
    for (int32_t g = FULL; g <= WINDOWED; g++) {
        const struct kv_table *table = kv_tables_get(r->t, NUM_ROWS - 1, g);
        for (int32_t i = table->begin; i < table->end; i++)
            assert_true(block_manager_ref_count(r->bm, table->block_ids[i]) >= 1);
    }
    kv_tables_release(r->t, NUM_ROWS - 1);
    check(r);
    return n;
}

/* 20 blocks of tokens take 26 blocks, not 40. */
static void test_a_window_moves_on(void **state)
{
    (void)state;
    struct rig r = create(26);
    assert_int_equal(kv_groups_num_blocks_max(kv_tables_groups(r.t), MAX_LEN), 20 + REACH);
    assert_int_equal(kv_tables_num_missing(r.t, 0, MAX_LEN), 20 + REACH);
    assert_int_equal(kv_tables_hold(r.t, 0, MAX_LEN), 0);
    expect_span(&r, 0, FULL, 0, 20);
    expect_span(&r, 0, WINDOWED, 0, REACH);
    assert_int_equal(kv_tables_num_places(r.t, 0), REACH * BLOCK_SIZE);
    assert_false(kv_tables_is_behind(r.t, 0, WINDOW + BLOCK_SIZE - 2));
    kv_tables_pass(r.t, 0, WINDOW + BLOCK_SIZE - 2);
    expect_span(&r, 0, WINDOWED, 0, REACH); /* position 54 still sees token 15 */
    assert_true(kv_tables_is_behind(r.t, 0, WINDOW + BLOCK_SIZE - 1));
    kv_tables_pass(r.t, 0, WINDOW + BLOCK_SIZE - 1);
    expect_span(&r, 0, WINDOWED, 1, REACH);
    assert_int_equal(kv_tables_hold(r.t, 0, MAX_LEN), 0);
    expect_span(&r, 0, WINDOWED, 1, REACH + 1);
    kv_tables_pass(r.t, 0, MAX_LEN);
    assert_int_equal(kv_tables_hold(r.t, 0, MAX_LEN), 0);
    expect_span(&r, 0, FULL, 0, 20);
    expect_span(&r, 0, WINDOWED, 17, 20);
    assert_int_equal(kv_tables_num_held(r.t, 0), block_manager_num_held(r.bm));
    kv_tables_release(r.t, 0);
    assert_int_equal(block_manager_num_free(r.bm), 26);
    destroy(&r);
}

/* Chunks of two blocks and a half: what lies behind one goes when its last token has been computed. */
static void test_a_chunk_is_left_at_once(void **state)
{
    (void)state;
    struct rig r = create_of(26, true);
    assert_int_equal(kv_tables_hold(r.t, 0, MAX_LEN), 0);
    assert_false(kv_tables_is_behind(r.t, 0, WINDOW - 1));
    kv_tables_pass(r.t, 0, WINDOW);
    expect_span(&r, 0, WINDOWED, 2, REACH); /* a half of block 2 is the next chunk's */
    assert_false(kv_tables_is_behind(r.t, 0, 2 * WINDOW - 1));
    kv_tables_pass(r.t, 0, 2 * WINDOW);
    expect_span(&r, 0, WINDOWED, 5, REACH);
    assert_int_equal(kv_tables_hold(r.t, 0, MAX_LEN), 0);
    expect_span(&r, 0, WINDOWED, 5, 5 + REACH);
    kv_tables_release(r.t, 0);
    destroy(&r);
}

/* Of the chunks nothing is in the cache any more. */
static void test_a_hit_where_a_chunk_begins_needs_none_of_it(void **state)
{
    (void)state;
    for (int is_chunk = 0; is_chunk < 2; is_chunk++) {
        struct rig r = create_of(NUM_BLOCKS, is_chunk);
        struct block_hash hash = r.root;
        int32_t ids[8];
        assert_int_equal(block_manager_hold(r.bm, 8, ids), 0);
        for (int32_t i = 0; i < 8; i++)
            prefix_cache_insert(r.pc, (int32_t[]){[FULL] = ids[i], [WINDOWED] = NO_BLOCK},
                                r.tokens + i * BLOCK_SIZE, &hash);
        assert_int_equal(num_found(&r, r.tokens, 8), is_chunk ? 2 * WINDOW / BLOCK_SIZE : 0);
        block_manager_release(r.bm, 8, ids);
        destroy(&r);
    }
}

static void test_holding_is_all_or_nothing(void **state)
{
    (void)state;
    struct rig r = create(7);
    assert_int_equal(kv_tables_hold(r.t, 0, 4 * BLOCK_SIZE), STATUS_NO_BLOCKS);
    assert_int_equal(kv_tables_num_held(r.t, 0), 0);
    assert_int_equal(kv_tables_hold(r.t, 0, 3 * BLOCK_SIZE), 0);
    assert_int_equal(kv_tables_hold(r.t, 1, 1), STATUS_NO_BLOCKS); /* one block for two groups */
    assert_int_equal(kv_tables_num_held(r.t, 0), 6);
    kv_tables_release(r.t, 0);
    destroy(&r);
}

static void test_a_hit_is_as_long_as_every_group_allows(void **state)
{
    (void)state;
    struct rig r = create(NUM_BLOCKS);
    run(&r, 0, r.tokens, MAX_LEN, BLOCK_SIZE);
    assert_int_equal(num_found(&r, r.tokens, 20), 20); /* while it runs, and what it has passed is cached */
    assert_int_equal(num_found(&r, r.tokens, 7), 7);
    prefix_cache_forget(r.pc, kv_tables_get(r.t, 0, WINDOWED)->block_ids[17]);
    assert_int_equal(num_found(&r, r.tokens, 20), 17); /* hits of 18 to 20 see it, a hit of 17 does not */
    prefix_cache_forget(r.pc, kv_tables_get(r.t, 0, FULL)->block_ids[9]);
    assert_int_equal(num_found(&r, r.tokens, 20), 9);
    kv_tables_release(r.t, 0);
    assert_int_equal(block_manager_num_cached(r.bm), NUM_BLOCKS - 2);
    destroy(&r);
}

static void test_why_a_window_has_no_hit(void **state)
{
    (void)state;
    struct rig r = create(NUM_BLOCKS);
    run(&r, 0, r.tokens, MAX_LEN, BLOCK_SIZE);
    const struct kv_table *table = kv_tables_get(r.t, 0, WINDOWED);
    prefix_cache_forget(r.pc, table->block_ids[19]);
    struct block_hash hash = r.root;
    int32_t n = kv_tables_match(r.t, 1, r.tokens, 20, &hash, NULL);
    assert_int_equal(n, 19);
    struct cache_miss miss = prefix_cache_explain(r.pc, r.tokens + n * BLOCK_SIZE, n * BLOCK_SIZE, &hash);
    assert_int_equal(miss.reason, CACHE_MISS_EVICTED);
    assert_int_equal(miss.position, n * BLOCK_SIZE);
    kv_tables_release(r.t, 1);
    kv_tables_release(r.t, 0);
    destroy(&r);
}

static void test_what_was_passed_is_forgotten_too(void **state)
{
    (void)state;
    struct rig r = create(NUM_BLOCKS);
    run(&r, 0, r.tokens, MAX_LEN, BLOCK_SIZE);
    kv_tables_forget(r.t, 0, r.tokens, 0, &r.root);
    assert_int_equal(prefix_cache_num_entries(r.pc), 0);
    kv_tables_release(r.t, 0);
    assert_int_equal(block_manager_num_free(r.bm), NUM_BLOCKS);
    destroy(&r);
}

/* Sequences of any length, with any of four beginnings, that come and go: the law over both groups, in turn with what is
 * found. */
static void test_random(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct rig r = create_of(NUM_BLOCKS, seed % 2);
        int32_t tokens[MAX_LEN];
        for (uint32_t turn = 0; turn < 20; turn++) {
            struct rng_block x = rng_philox(seed, turn, 0);
            int32_t num_tokens = 1 + (int32_t)(x.word[0] % 200), common = (int32_t)(x.word[1] % 100),
                    held = 0;
            for (int32_t i = 0; i < MAX_LEN; i++)
                tokens[i] = i < common ? i : i + 1000 * (int32_t)(1 + x.word[2] % 4);
            num_found(&r, tokens, num_tokens / BLOCK_SIZE);
            run(&r, 0, tokens, num_tokens, 1 + (int32_t)(x.word[3] % AHEAD));
            for (int32_t g = FULL; g <= WINDOWED; g++)
                held += kv_tables_get(r.t, 0, g)->end - kv_tables_get(r.t, 0, g)->begin;
            assert_int_equal(held, block_manager_num_held(r.bm));
            assert_true(held <= kv_groups_num_blocks_max(kv_tables_groups(r.t), num_tokens));
            num_found(&r, tokens, num_tokens / BLOCK_SIZE);
            kv_tables_release(r.t, 0);
            assert_int_equal(block_manager_num_held(r.bm), 0);
        }
        destroy(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_window_moves_on),
        cmocka_unit_test(test_a_chunk_is_left_at_once),
        cmocka_unit_test(test_a_hit_where_a_chunk_begins_needs_none_of_it),
        cmocka_unit_test(test_holding_is_all_or_nothing),
        cmocka_unit_test(test_a_hit_is_as_long_as_every_group_allows),
        cmocka_unit_test(test_why_a_window_has_no_hit),
        cmocka_unit_test(test_what_was_passed_is_forgotten_too),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
