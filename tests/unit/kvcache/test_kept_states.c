/* Kept states: a pool of their own in the block manager, and what a prefix needs beside its blocks. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rng.h"
#include "kvcache/prefix_cache.h"

enum { MAX_BLOCKS = 16, MAX_TOKENS = MAX_BLOCKS * BLOCK_SIZE };

struct caches {
    struct block_manager *bm;
    struct prefix_cache *pc;
    struct block_hash root;
    int32_t tokens[MAX_TOKENS];
};

static struct caches create(int32_t num_blocks, int32_t num_states)
{
    struct caches c;
    const struct kv_groups one = {.count = 1};
    assert_int_equal(block_manager_create(num_blocks, num_states, &c.bm, NULL), 0);
    assert_int_equal(prefix_cache_create(c.bm, &one, "m", 1, &c.pc, NULL), 0);
    prefix_cache_root(c.pc, "", 0, &c.root);
    for (int32_t i = 0; i < MAX_TOKENS; i++) c.tokens[i] = i;
    return c;
}

static void destroy(struct caches *c)
{
    prefix_cache_destroy(c->pc);
    block_manager_destroy(c->bm);
}

static void check(const struct caches *c)
{
    block_manager_check(c->bm);
    prefix_cache_check(c->pc);
}

static void expect_states(const struct caches *c, int32_t num_free, int32_t num_cached, int32_t num_held)
{
    assert_int_equal(block_manager_num_free_states(c->bm), num_free);
    assert_int_equal(block_manager_num_cached_states(c->bm), num_cached);
    assert_int_equal(block_manager_num_held_states(c->bm), num_held);
    check(c);
}

/* As a sequence does, and leaves them cached. */
static void leave_blocks(struct caches *c, const int32_t *tokens, int32_t num_blocks, int32_t *ids)
{
    struct block_hash hash = c->root;
    assert_int_equal(block_manager_hold(c->bm, num_blocks, ids), 0);
    for (int32_t i = 0; i < num_blocks; i++)
        prefix_cache_insert(c->pc, &ids[i], tokens + i * BLOCK_SIZE, &hash);
    block_manager_release(c->bm, num_blocks, ids);
}

static struct block_hash hash_of(const struct caches *c, const int32_t *tokens, int32_t num_blocks)
{
    struct block_hash hash = c->root;
    for (int32_t i = 0; i < num_blocks; i++) prefix_cache_extend(&hash, tokens + i * BLOCK_SIZE);
    return hash;
}

/* NO_BLOCK: it is there already, or nobody would find it. */
static int32_t leave_state(struct caches *c, const int32_t *tokens, int32_t num_blocks)
{
    struct block_hash hash = hash_of(c, tokens, num_blocks);
    int32_t id;
    if (!prefix_cache_wants_state(c->pc, &hash)) return NO_BLOCK;
    assert_int_equal(block_manager_hold_state(c->bm, &id), 0);
    assert_true(id >= block_manager_num_blocks(c->bm));
    prefix_cache_insert_state(c->pc, id, &hash);
    block_manager_release(c->bm, 1, &id);
    return id;
}

/* Blocks of the hit; *state: its state, which is not held any more. */
static int32_t find(struct caches *c, const int32_t *tokens, int32_t num_blocks, struct state_match *state)
{
    int32_t ids[MAX_BLOCKS];
    struct block_hash hash = c->root, end;
    int32_t n = prefix_cache_match(c->pc, tokens, num_blocks, &hash, ids, MAX_BLOCKS, state);
    end = hash_of(c, tokens, n);
    assert_memory_equal(&hash, &end, sizeof hash);
    end = hash_of(c, tokens, state->num_blocks);
    assert_memory_equal(&state->hash, &end, sizeof hash);
    assert_true(n <= state->num_blocks && (n > 0) == (state->id != NO_BLOCK));
    check(c);
    if (n > 0) block_manager_release(c->bm, 1, &state->id);
    block_manager_release(c->bm, n, ids);
    check(c);
    return n;
}

static void test_a_hit_ends_where_a_state_was_kept(void **state)
{
    (void)state;
    struct caches c = create(16, 3);
    struct state_match match;
    int32_t ids[8];
    assert_int_equal(leave_state(&c, c.tokens, 4), NO_BLOCK); /* nothing is known of its blocks */
    leave_blocks(&c, c.tokens, 8, ids);
    assert_int_equal(find(&c, c.tokens, 8, &match), 0);
    assert_int_equal(match.num_blocks, 8);
    int32_t four = leave_state(&c, c.tokens, 4), eight = leave_state(&c, c.tokens, 8);
    assert_int_equal(leave_state(&c, c.tokens, 4), NO_BLOCK);
    expect_states(&c, 1, 2, 0);
    assert_int_equal(find(&c, c.tokens, 8, &match), 8);
    assert_int_equal(match.id, eight);
    assert_int_equal(find(&c, c.tokens, 7, &match), 4);
    assert_int_equal(match.id, four);
    assert_int_equal(match.num_blocks, 7);
    assert_int_equal(find(&c, c.tokens, 3, &match), 0);
    c.tokens[6 * BLOCK_SIZE] = -1;
    assert_int_equal(find(&c, c.tokens, 8, &match), 4);
    assert_int_equal(match.num_blocks, 6); /* where a state would have helped */
    destroy(&c);
}

static void test_pools_do_not_take_from_each_other(void **state)
{
    (void)state;
    struct caches c = create(4, 2);
    int32_t ids[4], states[2], none;
    assert_int_equal(block_manager_hold(c.bm, 4, ids), 0);
    expect_states(&c, 2, 0, 0);
    for (int i = 0; i < 2; i++) assert_int_equal(block_manager_hold_state(c.bm, &states[i]), 0);
    assert_int_equal(block_manager_hold_state(c.bm, &none), STATUS_NO_BLOCKS);
    block_manager_release(c.bm, 4, ids);
    assert_int_equal(block_manager_hold_state(c.bm, &none), STATUS_NO_BLOCKS);
    expect_states(&c, 0, 0, 2);
    block_manager_release(c.bm, 2, states);
    expect_states(&c, 2, 0, 0);
    destroy(&c);
}

static void test_the_state_used_longest_ago_goes_first(void **state)
{
    (void)state;
    struct caches c = create(16, 2);
    struct state_match match;
    int32_t ids[12];
    leave_blocks(&c, c.tokens, 12, ids);
    leave_state(&c, c.tokens, 4);
    leave_state(&c, c.tokens, 8);
    assert_int_equal(find(&c, c.tokens, 4, &match), 4); /* used again */
    assert_int_equal(leave_state(&c, c.tokens, 4), NO_BLOCK);
    assert_true(leave_state(&c, c.tokens, 12) != NO_BLOCK);
    expect_states(&c, 0, 2, 0);
    assert_int_equal(find(&c, c.tokens, 11, &match), 4);
    assert_int_equal(find(&c, c.tokens, 12, &match), 12);
    destroy(&c);
}

static void test_a_state_leaves_with_its_block(void **state)
{
    (void)state;
    struct caches c = create(8, 2);
    struct state_match match;
    int32_t ids[8], more[2];
    leave_blocks(&c, c.tokens, 8, ids);
    leave_state(&c, c.tokens, 4);
    leave_state(&c, c.tokens, 8);
    assert_int_equal(block_manager_hold(c.bm, 1, more), 0); /* the chain's end */
    expect_states(&c, 1, 1, 0);
    assert_int_equal(find(&c, c.tokens, 8, &match), 4);
    block_manager_share(c.bm, ids[3]);
    prefix_cache_forget(c.pc, ids[3]);
    expect_states(&c, 2, 0, 0);
    assert_int_equal(find(&c, c.tokens, 8, &match), 0);
    destroy(&c);
}

/* Whoever holds it goes on from it, and then it is free. */
static void test_a_held_state_outlives_being_known(void **state)
{
    (void)state;
    struct caches c = create(8, 1);
    int32_t ids[8], id;
    leave_blocks(&c, c.tokens, 4, ids);
    id = leave_state(&c, c.tokens, 4);
    block_manager_share(c.bm, id);
    prefix_cache_forget_chain(c.pc, c.tokens, 4, &c.root);
    assert_false(block_manager_is_known(c.bm, id));
    expect_states(&c, 0, 0, 1);
    block_manager_release(c.bm, 1, &id);
    expect_states(&c, 1, 0, 0);
    destroy(&c);
}

static void test_one_that_is_dropped_must_be_the_same(void **state)
{
    (void)state;
    struct caches c = create(8, 1);
    int32_t ids[8];
    leave_blocks(&c, c.tokens, 8, ids);
    int32_t id = leave_state(&c, c.tokens, 4);
    struct block_hash four = hash_of(&c, c.tokens, 4), eight = hash_of(&c, c.tokens, 8);
    prefix_cache_drop_state(c.pc, id, &eight);
    expect_states(&c, 0, 1, 0);
    block_manager_share(c.bm, id);
    prefix_cache_drop_state(c.pc, id, &four);
    expect_states(&c, 0, 0, 1);
    block_manager_release(c.bm, 1, &id);
    prefix_cache_drop_state(c.pc, id, &four);
    expect_states(&c, 1, 0, 0);
    assert_int_equal(leave_state(&c, c.tokens, 8), id);
    prefix_cache_drop_state(c.pc, id, &four);
    expect_states(&c, 0, 1, 0);
    destroy(&c);
}

/* Prompts with common beginnings through pools that are far too small: the state of a hit is the one that was kept behind
 * these tokens. */
static void test_random_prompts_in_small_pools(void **state)
{
    (void)state;
    enum { NUM_BLOCKS = 61, NUM_STATES = 7, NUM_PROMPTS = 40 };
    struct caches c = create(NUM_BLOCKS, NUM_STATES);
    static int32_t prompts[NUM_PROMPTS][MAX_TOKENS], contents[NUM_STATES][MAX_TOKENS];
    int32_t depth_of[NUM_STATES] = {0}, num_hits = 0, ids[MAX_BLOCKS];
    for (int32_t i = 0; i < NUM_PROMPTS; i++)
        for (int32_t t = 0; t < MAX_TOKENS; t++) {
            bool common = t < BLOCK_SIZE * (i % 9);
            prompts[i][t] =
                (int32_t)(rng_philox(common ? (uint64_t)(i % 3) : 100 + (uint64_t)i, (uint64_t)t, 0).word[0] %
                          50);
        }
    for (uint64_t round = 0; round < 20000; round++) {
        struct rng_block r = rng_philox(3, round, 1);
        const int32_t *prompt = prompts[r.word[0] % NUM_PROMPTS];
        int32_t num_blocks = 1 + (int32_t)(r.word[1] % MAX_BLOCKS), at = 1 + (int32_t)(r.word[2] % 16);
        struct state_match match;
        int32_t n = find(&c, prompt, num_blocks, &match);
        if (n > 0) {
            int32_t which = match.id - NUM_BLOCKS;
            assert_int_equal(depth_of[which], n);
            assert_memory_equal(contents[which], prompt, (size_t)n * BLOCK_SIZE * sizeof(int32_t));
        }
        num_hits += n;
        leave_blocks(&c, prompt, num_blocks, ids);
        int32_t id = at <= num_blocks ? leave_state(&c, prompt, at) : NO_BLOCK;
        if (id == NO_BLOCK) continue;
        depth_of[id - NUM_BLOCKS] = at;
        memcpy(contents[id - NUM_BLOCKS], prompt, (size_t)at * BLOCK_SIZE * sizeof(int32_t));
    }
    assert_true(num_hits > 2000);
    destroy(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_hit_ends_where_a_state_was_kept),
        cmocka_unit_test(test_pools_do_not_take_from_each_other),
        cmocka_unit_test(test_the_state_used_longest_ago_goes_first),
        cmocka_unit_test(test_a_state_leaves_with_its_block),
        cmocka_unit_test(test_a_held_state_outlives_being_known),
        cmocka_unit_test(test_one_that_is_dropped_must_be_the_same),
        cmocka_unit_test(test_random_prompts_in_small_pools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
