/* Which tokens of a sequence are computed as decoding does. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rng.h"
#include "scheduler/answer_rule.h"

enum { H = 1, I = 2, END = 3, STOP = 4, W = 9, MOST = 300 };

static const struct answer_rule rule = {
    .num_header = 2, .header = {H, I}, .num_ends = 2, .ends = {END, STOP}};

/* kinds: p or d for each token. */
static void expect_kinds(const struct answer_rule *r, const int32_t *tokens, int32_t num_tokens,
                         const char *kinds)
{
    bool in_answer = false;
    assert_int_equal(strlen(kinds), num_tokens);
    for (int32_t i = 0; i < num_tokens; i++)
        assert_int_equal(answer_rule_push(r, tokens, i, &in_answer) ? 'd' : 'p', kinds[i]);
}
#define EXPECT_KINDS(r, kinds, ...)                                                                          \
    do {                                                                                                     \
        const int32_t tokens[] = {__VA_ARGS__};                                                              \
        expect_kinds(r, tokens, (int32_t)array_length(tokens), kinds);                                       \
    } while (0)

static void test_kinds(void **state)
{
    (void)state;
    const struct answer_rule none = {.num_ends = 1, .ends = {END}};
    const struct answer_rule ends_itself = {
        .num_header = 2, .header = {H, END}, .num_ends = 1, .ends = {END}};
    EXPECT_KINDS(&rule, "pppddpppd", W, H, I, W, W, END, H, I, W);
    EXPECT_KINDS(&rule, "pppppddd", H, W, I, H, I, W, H, I);      /* a header in an answer is part of it */
    EXPECT_KINDS(&rule, "pppppppd", H, I, STOP, W, END, H, I, W); /* an answer of nothing */
    EXPECT_KINDS(&rule, "ppp", I, H, I);
    EXPECT_KINDS(&rule, "ppd", H, I, H);
    EXPECT_KINDS(&none, "ppp", H, I, W);
    EXPECT_KINDS(&ends_itself, "ppdpp", H, END, W, END, W);
    EXPECT_KINDS(&ends_itself, "ppdpdd", H, END, H, END, W, W); /* what ends one may begin the next */
}

/* Far from the beginning all are of the prompt kind, */
static void test_far(void **state)
{
    (void)state;
    static int32_t tokens[ANSWER_POSITION_MAX + 8];
    struct answer_run run = {0};
    for (size_t i = 0; i < array_length(tokens); i++) tokens[i] = W;
    tokens[0] = H;
    tokens[1] = I;
    answer_run_find(&rule, tokens, (int32_t)array_length(tokens), 5, &run);
    assert_true(run.decodes && run.begin == 2 && run.end == ANSWER_POSITION_MAX);
    answer_run_find(&rule, tokens, (int32_t)array_length(tokens), ANSWER_POSITION_MAX + 1, &run);
    assert_true(!run.decodes && run.begin == ANSWER_POSITION_MAX && run.end == (int32_t)array_length(tokens));
}

static bool same_run(const struct answer_run *a, const struct answer_run *b)
{
    return a->begin == b->begin && a->end == b->end && a->decodes == b->decodes;
}

/* Runs are the longest of one kind, in whatever order they are asked for. */
static void test_runs(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++) {
        int32_t tokens[MOST], num_tokens = 1 + (int32_t)(rng_philox(seed, 0, 1).word[0] % MOST);
        bool decodes[MOST], in_answer = false;
        struct answer_run run = {0};
        for (int32_t i = 0; i < num_tokens; i++) {
            tokens[i] = 1 + (int32_t)(rng_philox(seed, (uint64_t)i, 0).word[0] % 7);
            decodes[i] = answer_rule_push(&rule, tokens, i, &in_answer);
        }
        for (uint64_t k = 0; k < 100; k++) {
            int32_t at = (int32_t)(rng_philox(seed, k, 2).word[0] % (uint32_t)num_tokens);
            struct answer_run expected = {.begin = at, .end = at, .decodes = decodes[at]};
            while (expected.begin > 0 && decodes[expected.begin - 1] == decodes[at]) expected.begin--;
            while (expected.end < num_tokens && decodes[expected.end] == decodes[at]) expected.end++;
            answer_run_find(&rule, tokens, num_tokens, at, &run);
            assert_true(same_run(&run, &expected));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds), cmocka_unit_test(test_far),
                                       cmocka_unit_test(test_runs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
