#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rng.h"
#include "kvcache/prefix_cache.h"

enum { MAX_BLOCKS = 16, MAX_TOKENS = MAX_BLOCKS * BLOCK_SIZE };

struct caches {
    struct block_manager *bm;
    struct prefix_cache *pc;
};

static struct caches create(int32_t num_blocks, const char *model_key)
{
    struct caches c;
    assert_int_equal(block_manager_create(num_blocks, 0, &c.bm, NULL), 0);
    const struct kv_groups one = {.count = 1};
    assert_int_equal(prefix_cache_create(c.bm, &one, model_key, strlen(model_key), &c.pc, NULL), 0);
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

static struct block_hash root_of(const struct caches *c, const char *salt)
{
    struct block_hash root;
    prefix_cache_root(c->pc, salt, strlen(salt), &root);
    return root;
}

/* As a sequence does: holds blocks for the tokens, enters them, releases them. ids: [num_blocks]. */
static void leave_behind(struct caches *c, const char *salt, const int32_t *tokens, int32_t num_blocks,
                         int32_t *ids)
{
    struct block_hash hash = root_of(c, salt);
    assert_int_equal(block_manager_hold(c->bm, num_blocks, ids), 0);
    for (int32_t i = 0; i < num_blocks; i++)
        prefix_cache_insert(c->pc, &ids[i], tokens + i * BLOCK_SIZE, &hash);
    block_manager_release(c->bm, num_blocks, ids);
    check(c);
}

/* How many blocks are found, and released again. */
static int32_t num_found(struct caches *c, const char *salt, const int32_t *tokens, int32_t num_blocks)
{
    int32_t ids[MAX_BLOCKS];
    struct block_hash hash = root_of(c, salt);
    int32_t n = prefix_cache_match(c->pc, tokens, num_blocks, &hash, ids, MAX_BLOCKS, NULL);
    for (int32_t i = 0; i < n; i++) assert_true(block_manager_ref_count(c->bm, ids[i]) >= 1);
    block_manager_release(c->bm, n, ids);
    check(c);
    return n;
}

static void fill(int32_t *tokens, int32_t first)
{
    for (int32_t i = 0; i < MAX_TOKENS; i++) tokens[i] = first + i;
}

static struct cache_miss miss_of(struct caches *c, const char *salt, const int32_t *tokens,
                                 int32_t num_blocks)
{
    int32_t ids[MAX_BLOCKS];
    struct block_hash hash = root_of(c, salt);
    int32_t n = prefix_cache_match(c->pc, tokens, num_blocks, &hash, ids, MAX_BLOCKS, NULL);
    block_manager_release(c->bm, n, ids);
    assert_true(n < num_blocks);
    return prefix_cache_explain(c->pc, tokens + n * BLOCK_SIZE, n * BLOCK_SIZE, &hash);
}

static void assert_miss(struct cache_miss miss, enum cache_miss_reason reason, int32_t position)
{
    assert_int_equal(miss.reason, reason);
    assert_int_equal(miss.position, position);
}

/* What is not there never was, has another token, or was evicted. */
static void test_a_miss_has_a_reason(void **state)
{
    (void)state;
    struct caches c = create(1024, "m");
    int32_t tokens[MAX_TOKENS], ids[4];
    fill(tokens, 100);
    assert_miss(miss_of(&c, "", tokens, 2), CACHE_MISS_NEW, 0);
    leave_behind(&c, "", tokens, 3, ids);
    assert_miss(miss_of(&c, "", tokens, 4), CACHE_MISS_NEW, 3 * BLOCK_SIZE);
    assert_miss(miss_of(&c, "salt", tokens, 2), CACHE_MISS_NEW, 0);
    tokens[BLOCK_SIZE + 5]++;
    assert_miss(miss_of(&c, "", tokens, 3), CACHE_MISS_DIFFERS, BLOCK_SIZE + 5);
    tokens[0]++;
    assert_miss(miss_of(&c, "", tokens, 3), CACHE_MISS_DIFFERS, 0);
    tokens[0]--;
    tokens[BLOCK_SIZE + 5]--;
    tokens[2 * BLOCK_SIZE - 1]++; /* a block's last token */
    assert_miss(miss_of(&c, "", tokens, 3), CACHE_MISS_DIFFERS, 2 * BLOCK_SIZE - 1);
    tokens[2 * BLOCK_SIZE - 1]--;
    destroy(&c);
    c = create(4, "m");
    leave_behind(&c, "", tokens, 3, ids);
    assert_int_equal(block_manager_hold(c.bm, 3, ids), 0); /* a free one, and the chain's end */
    assert_miss(miss_of(&c, "", tokens, 3), CACHE_MISS_EVICTED, BLOCK_SIZE);
    block_manager_release(c.bm, 3, ids);
    leave_behind(&c, "", tokens, 2, ids);
    assert_int_equal(num_found(&c, "", tokens, 2), 2);
    destroy(&c);
}

static void test_a_prompt_is_found_again(void **state)
{
    (void)state;
    struct caches c = create(16, "m");
    int32_t tokens[MAX_TOKENS], ids[4], found[4];
    fill(tokens, 100);
    leave_behind(&c, "", tokens, 4, ids);
    struct block_hash hash = root_of(&c, "");
    assert_int_equal(prefix_cache_match(c.pc, tokens, 4, &hash, found, MAX_BLOCKS, NULL), 4);
    assert_memory_equal(ids, found, sizeof(ids));
    block_manager_release(c.bm, 4, found);
    assert_int_equal(num_found(&c, "", tokens, 2), 2); /* no more than asked for */
    assert_int_equal(num_found(&c, "", tokens, 8), 4);
    tokens[3 * BLOCK_SIZE + 15]++;
    assert_int_equal(num_found(&c, "", tokens, 8), 3);
    tokens[0]++;
    assert_int_equal(num_found(&c, "", tokens, 8), 0);
    destroy(&c);
}

static void test_salts_and_models_do_not_mix(void **state)
{
    (void)state;
    struct caches c = create(16, "m"), other = create(16, "n");
    int32_t tokens[MAX_TOKENS], ids[4];
    fill(tokens, 0);
    leave_behind(&c, "key one", tokens, 4, ids);
    assert_int_equal(num_found(&c, "key two", tokens, 4), 0);
    assert_int_equal(num_found(&c, "", tokens, 4), 0);
    assert_int_equal(num_found(&c, "key one", tokens, 4), 4);
    struct block_hash a = root_of(&c, "key one"), b = root_of(&other, "key one");
    assert_memory_not_equal(&a, &b, sizeof(a));
    destroy(&c);
    destroy(&other);
}

/* The same 16 tokens after another beginning are another block. */
static void test_a_block_belongs_to_its_beginning(void **state)
{
    (void)state;
    struct caches c = create(16, "m");
    int32_t a[MAX_TOKENS], b[MAX_TOKENS], ids[2];
    fill(a, 0);
    memcpy(b, a, sizeof(a));
    b[0] = 7777;
    leave_behind(&c, "", a, 2, ids);
    assert_int_equal(num_found(&c, "", b, 2), 0);
    assert_int_equal(num_found(&c, "", a + BLOCK_SIZE, 1), 0); /* its second block is not a beginning */
    leave_behind(&c, "", b, 2, ids);
    assert_int_equal(prefix_cache_num_entries(c.pc), 4);
    destroy(&c);
}

static void test_the_first_of_two_equal_blocks_stays(void **state)
{
    (void)state;
    struct caches c = create(8, "m");
    int32_t tokens[MAX_TOKENS], ids[2], found;
    fill(tokens, 0);
    assert_int_equal(block_manager_hold(c.bm, 2, ids), 0);
    struct block_hash first = root_of(&c, ""), second = first, third = first;
    prefix_cache_insert(c.pc, &ids[0], tokens, &first);
    prefix_cache_insert(c.pc, &ids[1], tokens, &second);
    assert_memory_equal(&first, &second, sizeof(first));
    assert_false(block_manager_is_known(c.bm, ids[1]));
    assert_int_equal(prefix_cache_match(c.pc, tokens, 1, &third, &found, MAX_BLOCKS, NULL), 1);
    assert_int_equal(found, ids[0]);
    block_manager_release(c.bm, 1, &found);
    block_manager_release(c.bm, 2, ids);
    check(&c);
    assert_int_equal(block_manager_num_cached(c.bm), 1);
    destroy(&c);
}

static void test_eviction_takes_the_end_first_and_forgets(void **state)
{
    (void)state;
    struct caches c = create(6, "m");
    int32_t tokens[MAX_TOKENS], ids[6];
    fill(tokens, 0);
    leave_behind(&c, "", tokens, 5, ids);
    assert_int_equal(block_manager_hold(c.bm, 3, ids), 0); /* one is free, two are evicted */
    check(&c);
    assert_int_equal(num_found(&c, "", tokens, 5), 3);
    block_manager_release(c.bm, 3, ids);
    destroy(&c);
}

static void test_a_forgotten_block_is_not_found(void **state)
{
    (void)state;
    struct caches c = create(6, "m");
    int32_t tokens[MAX_TOKENS], ids[3];
    struct block_hash hash = root_of(&c, "");
    fill(tokens, 0);
    assert_int_equal(block_manager_hold(c.bm, 3, ids), 0);
    for (int i = 0; i < 2; i++) prefix_cache_insert(c.pc, &ids[i], tokens + i * BLOCK_SIZE, &hash);
    for (int i = 0; i < 3; i++) prefix_cache_forget(c.pc, ids[i]);
    check(&c);
    assert_int_equal(num_found(&c, "", tokens, 3), 0);
    block_manager_release(c.bm, 3, ids);
    assert_int_equal(block_manager_num_free(c.bm), 6);
    destroy(&c);
}

/* A published attack on a polynomial chain hash: token[j] += 31 and token[j + 1] -= 1 left it as it was. */
static void test_a_published_collision_is_a_miss(void **state)
{
    (void)state;
    struct caches c = create(16, "m");
    int32_t tokens[MAX_TOKENS], ids[2];
    for (int32_t j = 0; j + 1 < BLOCK_SIZE; j++) {
        fill(tokens, 1000 * (j + 1));
        leave_behind(&c, "", tokens, 1, ids);
        tokens[j] += 31;
        tokens[j + 1] -= 1;
        assert_int_equal(num_found(&c, "", tokens, 1), 0);
    }
    destroy(&c);
}

/* Many chains with common beginnings through a pool that is far too small, so that the map is full of
 * deletions. What is found must be what was entered: each block remembers which prompt wrote it. */
static void test_random_prompts_in_a_small_pool(void **state)
{
    (void)state;
    enum { NUM_BLOCKS = 61, NUM_PROMPTS = 40 };
    struct caches c = create(NUM_BLOCKS, "m");
    static int32_t prompts[NUM_PROMPTS][MAX_TOKENS], contents[NUM_BLOCKS][MAX_TOKENS];
    int32_t depth_of[NUM_BLOCKS] = {0}, num_hits = 0;
    for (int32_t i = 0; i < NUM_PROMPTS; i++)
        for (int32_t t = 0; t < MAX_TOKENS; t++) {
            bool common = t < BLOCK_SIZE * (i % 7);
            prompts[i][t] =
                (int32_t)(rng_philox(common ? (uint64_t)(i % 3) : 100 + (uint64_t)i, (uint64_t)t, 0).word[0] %
                          50);
        }
    for (uint64_t round = 0; round < 20000; round++) {
        struct rng_block r = rng_philox(3, round, 1);
        const int32_t *prompt = prompts[r.word[0] % NUM_PROMPTS];
        int32_t num_blocks = 1 + (int32_t)(r.word[1] % MAX_BLOCKS), ids[MAX_BLOCKS];
        struct block_hash hash = root_of(&c, "");
        int32_t n = prefix_cache_match(c.pc, prompt, num_blocks, &hash, ids, MAX_BLOCKS, NULL);
        for (int32_t i = 0; i < n; i++) {
            assert_int_equal(depth_of[ids[i]], i + 1);
            assert_memory_equal(contents[ids[i]], prompt, (size_t)(i + 1) * BLOCK_SIZE * sizeof(int32_t));
        }
        num_hits += n;
        assert_int_equal(block_manager_hold(c.bm, num_blocks - n, ids + n), 0);
        for (int32_t i = n; i < num_blocks; i++) {
            prefix_cache_insert(c.pc, &ids[i], prompt + i * BLOCK_SIZE, &hash);
            depth_of[ids[i]] = i + 1;
            memcpy(contents[ids[i]], prompt, (size_t)(i + 1) * BLOCK_SIZE * sizeof(int32_t));
        }
        if (r.word[2] % 8 == 0) prefix_cache_forget(c.pc, ids[num_blocks - 1]);
        block_manager_release(c.bm, num_blocks, ids);
        if (round % 64 == 0) check(&c);
        assert_int_equal(num_found(&c, "", prompt, num_blocks) >= num_blocks - 1, 1);
    }
    assert_true(num_hits > 20000);
    destroy(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_prompt_is_found_again),
        cmocka_unit_test(test_a_miss_has_a_reason),
        cmocka_unit_test(test_salts_and_models_do_not_mix),
        cmocka_unit_test(test_a_block_belongs_to_its_beginning),
        cmocka_unit_test(test_the_first_of_two_equal_blocks_stays),
        cmocka_unit_test(test_eviction_takes_the_end_first_and_forgets),
        cmocka_unit_test(test_a_forgotten_block_is_not_found),
        cmocka_unit_test(test_a_published_collision_is_a_miss),
        cmocka_unit_test(test_random_prompts_in_a_small_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
