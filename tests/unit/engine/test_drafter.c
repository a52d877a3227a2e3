/* What is drafted from what was said, and how much of it is worth a row. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rng.h"
#include "engine/drafter.h"

static struct drafter drafter_of(const int32_t *tokens, int32_t num_tokens)
{
    struct drafter d;
    drafter_init(&d, DRAFTER_LOOKS_UP);
    drafter_follow(&d, tokens, num_tokens);
    return d;
}

static void test_goes_on_as_before(void **state)
{
    (void)state;
    int32_t tokens[32] = {1, 2, 3, 4, 5, 6, 7, 9, 2, 3, 4};
    struct drafter d = drafter_of(tokens, 11);
    assert_int_equal(drafter_write(&d, tokens, 4), 4);
    const int32_t expected[] = {5, 6, 7, 9};
    assert_memory_equal(tokens + 11, expected, sizeof expected);
}

/* The newest place counts, three tokens must be equal, and what is no place is none. */
static void test_looks_up(void **state)
{
    (void)state;
    int32_t newest[32] = {1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3}, other[32] = {1, 2, 3, 4, 8, 2, 3},
            first[32] = {1, 2, 3};
    struct drafter d = drafter_of(newest, 11);
    assert_int_equal(drafter_write(&d, newest, 1), 1);
    assert_int_equal(newest[11], 5);
    d = drafter_of(other, 7);
    assert_int_equal(drafter_write(&d, other, 8), 0);
    assert_int_equal(drafter_num_worth(&d, 100, 1, 8), 0);
    d = drafter_of(first, 3);
    assert_int_equal(drafter_write(&d, first, 8), 0);
    d = drafter_of(first, 1);
    assert_int_equal(drafter_write(&d, first, 8), 0);
}

/* A draft that is longer than what is known goes round. */
static void test_loops(void **state)
{
    (void)state;
    int32_t tokens[32] = {7, 1, 2, 1, 2, 1, 2};
    struct drafter d = drafter_of(tokens, 7);
    assert_int_equal(drafter_write(&d, tokens, 10), 10);
    for (int32_t i = 7; i < 17; i++) assert_int_equal(tokens[i], 1 + (i + 1) % 2);
}

/* From its begin, behind what has deviated, and back where it stands earlier; what stands in it twice is what comes next. */
static void test_prediction(void **state)
{
    (void)state;
    static const int32_t predicted[] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 14, 15, 19};
    int32_t tokens[64] = {1, 2, 3, 10};
    struct drafter d;
    drafter_init(&d, DRAFTER_LOOKS_UP);
    drafter_predict(&d, predicted, array_length(predicted), 3);
    drafter_follow(&d, tokens, 4);
    assert_int_equal(drafter_write(&d, tokens, 4), 4);
    assert_int_equal(d.num_predicted, 4);
    assert_memory_equal(tokens + 4, predicted + 1, 4 * sizeof tokens[0]);
    assert_true(d.prediction.hope > 0.8);
    const int32_t other[] = {11, 99, 13, 14}; /* 12 is another */
    memcpy(tokens + 4, other, sizeof other);
    drafter_follow(&d, tokens, 7);
    assert_int_equal(drafter_write(&d, tokens, 4), 0);
    drafter_follow(&d, tokens, 8);
    assert_int_equal(drafter_write(&d, tokens, 2), 2);
    assert_memory_equal(tokens + 8, predicted + 5, 2 * sizeof tokens[0]);
    const int32_t gone[] = {77, 17, 18, 14, 15, 19, 78}; /* past the second 14, 15, to the end */
    memcpy(tokens + 8, gone, sizeof gone);
    drafter_follow(&d, tokens, 13);
    assert_int_equal(drafter_write(&d, tokens, 7), 1); /* nothing stands behind it */
    assert_int_equal(tokens[13], 19);
    drafter_follow(&d, tokens, 15);
    assert_int_equal(drafter_write(&d, tokens, 7), 0);
    const int32_t back[] = {10, 11};
    memcpy(tokens + 15, back, sizeof back);
    drafter_follow(&d, tokens, 17);
    assert_int_equal(drafter_write(&d, tokens, 7), 7);
    assert_memory_equal(tokens + 17, predicted + 2, 7 * sizeof tokens[0]);
}

static int32_t draw(uint32_t *num_drawn, int32_t below)
{
    return (int32_t)(rng_philox(5, ++*num_drawn, 0).word[0] % (uint32_t)below);
}

/* Many tokens at once, and one by one: the same. A prediction that is nothing is none. */
static void test_prediction_at_once(void **state)
{
    (void)state;
    enum { NUM = 400, PROMPT = 20 };
    uint32_t drawn = 0;
    for (int round = 0; round < 200; round++) {
        int32_t tokens[NUM + 8], predicted[NUM], num_predicted = draw(&drawn, NUM),
                                                 few = 2 + draw(&drawn, 30);
        for (int32_t i = 0; i < NUM; i++) predicted[i] = draw(&drawn, few);
        for (int32_t i = 0; i < NUM; i++)
            tokens[i] = i >= PROMPT && draw(&drawn, 10) > 0 ? predicted[i - PROMPT] : draw(&drawn, few);
        struct drafter one, all;
        drafter_init(&one, DRAFTER_LOOKS_UP);
        drafter_init(&all, DRAFTER_LOOKS_UP);
        drafter_predict(&one, predicted, num_predicted, PROMPT);
        drafter_predict(&all, predicted, num_predicted, PROMPT);
        int32_t num_tokens = PROMPT + draw(&drawn, NUM - PROMPT);
        for (int32_t i = PROMPT + 1; i <= num_tokens; i++) drafter_follow(&one, tokens, i);
        drafter_follow(&all, tokens, num_tokens);
        if (num_tokens == PROMPT) continue;
        assert_int_equal(one.prediction.next, all.prediction.next);
        assert_int_equal(one.prediction.from, all.prediction.from);
        int32_t ids[7], num = drafter_found(&one, tokens, ids, 7);
        for (int32_t i = 0; one.prediction.next >= 0 && one.prediction.next < num_predicted && i < num; i++)
            assert_int_equal(ids[i], predicted[one.prediction.next + i]);
    }
}

static void test_hope(void **state)
{
    (void)state;
    int32_t tokens[64] = {0};
    for (int32_t i = 0; i < 64; i++) tokens[i] = i % 8;
    struct drafter d = drafter_of(tokens, 20), off;
    double first = d.hope;
    assert_int_equal(drafter_num_worth(&d, 100, 101, 8), 0);
    assert_int_equal(drafter_num_worth(&d, 100, 30, 8), 1); /* 0.5 * 100 are worth it, 0.25 * 100 are not */
    for (int32_t n = 21; n <= 40; n++) drafter_follow(&d, tokens, n);
    assert_true(d.hope > 0.98 && d.hope > first);
    assert_int_equal(drafter_num_worth(&d, 100, 30, 8), 8);
    assert_int_equal(drafter_num_worth(&d, 0, 0, 5), 5); /* not known */
    assert_true(drafter_num_expected(&d, 8) > 7 && drafter_num_expected(&d, 8) < 8);
    tokens[40] = 63;
    drafter_follow(&d, tokens, 41);
    assert_true(d.hope < 0.8);
    assert_int_equal(drafter_num_worth(&d, 100, 1, 8), 0); /* nothing has stood behind 63 */
    drafter_init(&off, DRAFTER_OFF);
    drafter_follow(&off, tokens, 40);
    assert_int_equal(drafter_num_worth(&off, 100, 1, 8), 0);
}

/* Against a search that goes through everything, token by token and many at a time. */
static void test_random(void **state)
{
    (void)state;
    static int32_t tokens[4096 + 8];
    uint32_t num_drawn = 0;
    for (int32_t round = 0; round < 200; round++) {
        int32_t num_ids = 2 + draw(&num_drawn, 12), num_tokens = 1 + draw(&num_drawn, 400), last = 0;
        for (int32_t i = 0; i < num_tokens; i++) tokens[i] = draw(&num_drawn, num_ids);
        struct drafter d = drafter_of(tokens, num_tokens);
        for (int32_t at = 2; at < num_tokens - 1; at++)
            if (tokens[at] == tokens[num_tokens - 1] && tokens[at - 1] == tokens[num_tokens - 2] &&
                tokens[at - 2] == tokens[num_tokens - 3])
                last = at + 1;
        assert_int_equal(drafter_write(&d, tokens, 1), last > 0);
        if (last > 0) assert_int_equal(tokens[num_tokens], tokens[last]);
    }
}

static void test_what_it_is_told(void **state)
{
    (void)state;
    int32_t tokens[32] = {5, 5, 5, 5, 5, 5}, written[32];
    struct drafter d;
    drafter_init(&d, DRAFTER_IS_TOLD);
    drafter_follow(&d, tokens, 6);
    assert_int_equal(drafter_write(&d, tokens, 4), 0); /* a loop, and nobody says that it goes on */
    drafter_tell(&d, (const int32_t[]){7, 8, 9}, 3, false);
    double hope = d.told_hope, gain = d.gain;
    assert_int_equal(drafter_num_worth(&d, 0, 0, 8), 3);
    assert_int_equal(drafter_num_worth(&d, 100, 30, 8), 3);
    assert_int_equal(drafter_num_worth(&d, 100, 81, 8), 0);
    memcpy(written, tokens, sizeof written);
    assert_int_equal(drafter_write(&d, written, 2), 2);
    assert_true(written[6] == 7 && written[7] == 8 && written[8] == 0);
    tokens[6] = 7;
    drafter_follow(&d, tokens, 7);
    assert_true(!d.is_told && d.num_told == 2 && d.told_hope > hope);
    hope = d.told_hope;
    tokens[7] = 9;
    tokens[8] = 9;
    drafter_follow(&d, tokens, 9);
    assert_true(d.num_told == 0 && d.told_hope < hope);
    drafter_tell(&d, NULL, 0, false);
    assert_true(d.is_told && d.gain > gain);
    gain = d.gain;
    drafter_follow(&d, tokens, 10);
    drafter_tell(&d, NULL, 0, false);
    assert_true(d.gain < gain);
    assert_int_equal(drafter_num_worth(&d, 0, 0, 8), 0);
}

/* What it has found counts by its own hope, once somebody lets it through. */
static void test_what_it_has_found_and_is_told(void **state)
{
    (void)state;
    int32_t tokens[32] = {1, 2, 3, 4, 5, 6, 9, 1, 2, 3}, ids[8];
    struct drafter d;
    drafter_init(&d, DRAFTER_IS_TOLD);
    drafter_follow(&d, tokens, 10);
    assert_int_equal(drafter_num_worth(&d, 0, 0, 8), 0);
    assert_int_equal(drafter_found(&d, tokens, ids, 8), 1); /* 0.25 for the next is too little */
    assert_int_equal(ids[0], 4);
    drafter_tell(&d, ids, 1, true);
    assert_int_equal(drafter_num_worth(&d, 100, 60, 8), 0);
    assert_int_equal(drafter_num_worth(&d, 100, 40, 8), 1);
    double told_hope = d.told_hope, hope = d.hope;
    for (int32_t n = 10; n < 13; n++) tokens[n] = tokens[n - 7];
    drafter_follow(&d, tokens, 13);
    assert_true(d.told_hope == told_hope && d.hope > hope);
    assert_true(drafter_found(&d, tokens, ids, 8) > 1 && ids[0] == 9 && ids[1] == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_goes_on_as_before),
                                       cmocka_unit_test(test_looks_up),
                                       cmocka_unit_test(test_loops),
                                       cmocka_unit_test(test_hope),
                                       cmocka_unit_test(test_prediction),
                                       cmocka_unit_test(test_prediction_at_once),
                                       cmocka_unit_test(test_what_it_is_told),
                                       cmocka_unit_test(test_what_it_has_found_and_is_told),
                                       cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
