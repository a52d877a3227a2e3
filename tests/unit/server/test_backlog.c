/* Retry-After is true: a machine of known speed makes steps as the engine does, the rates are learned from
 * them, and the time that the backlog foretells is compared with the time that the machine takes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rng.h"
#include "engine/step_rates.h"
#include "server/api/backlog.h"

enum { SEQUENCES_MAX = 4096 };

static struct machine {
    double step_seconds, token_seconds; /* a step costs this, and this for each prompt token in it */
    int num_places, step_tokens;        /* running at once; prompt tokens in a step */
    double seconds;
    struct step_rates rates;
    int32_t prompt[SEQUENCES_MAX], answer[SEQUENCES_MAX]; /* left */
    int num_begun, count;                                 /* sequences before num_begun run or have ended */
    int num_ended;
    int num_keys, num_ended_own; /* sequence i is of key i % num_keys; own: of key 0 */
} m;

static bool is_running(int i)
{
    return i < m.num_begun && m.prompt[i] + m.answer[i] > 0;
}

static int num_running(void)
{
    int count = 0;
    for (int i = 0; i < m.num_begun; i++) count += is_running(i);
    return count;
}

static void begin(void)
{
    for (int free = m.num_places - num_running(); free > 0 && m.num_begun < m.count; free--) m.num_begun++;
}

/* One step: a token for all that decode, and as much of the oldest prompts as fits. */
static void make_step(void)
{
    int32_t room = m.step_tokens, num_decodes = 0, num_prefilled = 0;
    begin();
    for (int i = 0; i < m.num_begun; i++) {
        if (!is_running(i)) continue;
        if (m.prompt[i] == 0) {
            m.answer[i]--;
            num_decodes++;
        } else {
            int32_t n = min_of(m.prompt[i], room);
            m.prompt[i] -= n;
            room -= n;
            num_prefilled += n;
            if (m.prompt[i] == 0) m.answer[i]--; /* its last token's row draws */
        }
        m.num_ended += m.prompt[i] + m.answer[i] == 0;
        m.num_ended_own += m.prompt[i] + m.answer[i] == 0 && i % m.num_keys == 0;
    }
    double seconds = m.step_seconds * (num_decodes > 0) + m.token_seconds * num_prefilled;
    m.seconds += seconds;
    step_rates_add(&m.rates, seconds, num_prefilled, num_decodes);
    begin();
}

static double waiting_tokens_begun(int from)
{
    double tokens = 0;
    for (int i = from; i < m.num_begun; i++) tokens += m.prompt[i];
    return tokens;
}

static double foretell(int num_ends, double num_tokens)
{
    static struct backlog_sequence sequences[SEQUENCES_MAX];
    struct backlog b = {.sequences = sequences,
                        .num_running = num_running(),
                        .num_places = m.num_places,
                        .num_step_tokens = m.step_tokens,
                        .prefill_seconds_per_token = step_rates_prefill_seconds_per_token(&m.rates),
                        .decode_seconds_per_step = step_rates_decode_seconds_per_step(&m.rates)};
    for (int i = 0; i < m.count; i++)
        if (m.prompt[i] + m.answer[i] > 0)
            sequences[b.num_sequences++] =
                (struct backlog_sequence){m.prompt[i], m.answer[i], i % m.num_keys != 0};
    return backlog_seconds(&b, num_ends, num_tokens, 1e9);
}

static void start(double step_seconds, double token_seconds, int num_places, int count, int32_t prompt,
                  int32_t answer, uint32_t seed)
{
    memset(&m, 0, sizeof m);
    m.step_seconds = step_seconds;
    m.token_seconds = token_seconds;
    m.num_places = num_places;
    m.step_tokens = 512;
    m.count = count;
    m.num_keys = 1;
    for (int i = 0; i < count; i++) {
        uint32_t word = rng_philox(seed, (uint64_t)i, 1).word[0];
        m.prompt[i] = 1 + (int32_t)(word % (uint32_t)(2 * prompt));
        m.answer[i] = 1 + (int32_t)((word >> 16) % (uint32_t)(2 * answer));
    }
}

static void expect_near(double foretold, double taken, const char *what)
{
    if (fabs(foretold - taken) > 0.25 * taken)
        fail_msg("%s: %g s foretold, %g s taken", what, foretold, taken);
}

/* Prompts and answers of all proportions, by machines on which prefill or decode is what costs. */
static void room_comes_when_it_was_foretold(void **state)
{
    (void)state;
    static const struct {
        double step_seconds, token_seconds;
        int num_places;
        int32_t prompt, answer;
    } cases[] = {{.004, .00002, 64, 500, 200}, {.02, .002, 8, 100, 100}, {.05, .0001, 1, 30, 400},
                 {.03, .003, 16, 2000, 8},     {.01, .001, 4, 20, 1000}, {.004, .00002, 256, 100, 4000}};
    for (size_t i = 0; i < array_length(cases); i++) {
        for (uint32_t seed = 0; seed < 3; seed++) {
            int places = cases[i].num_places, num_ends = places / 2 + 1;
            start(cases[i].step_seconds, cases[i].token_seconds, places, 6 * places, cases[i].prompt,
                  cases[i].answer, seed);
            while (m.num_ended < places) make_step(); /* it learns its speed */
            double foretold = foretell(num_ends, 0), begin_s = m.seconds;
            int ended = m.num_ended;
            while (m.num_ended < ended + num_ends) make_step();
            expect_near(foretold, m.seconds - begin_s, "an end");
        }
    }
}

/* A key's quota: so many of its own must end, among others' that hold places and whose prompts take their time. */
static void room_of_a_key_comes_when_it_was_foretold(void **state)
{
    (void)state;
    static const double token_seconds[] = {.00002, .002};
    for (int num_keys = 2; num_keys <= 5; num_keys++)
        for (uint32_t seed = 0; seed < 6; seed++) {
            start(.02, token_seconds[seed % 2], 16, 120, 400, 120, seed + 20);
            m.num_keys = num_keys;
            while (m.num_ended < 16) make_step();
            int ended = m.num_ended_own, num_ends = 3;
            double foretold = foretell(num_ends, 0), begin_s = m.seconds;
            while (m.num_ended_own < ended + num_ends) make_step();
            expect_near(foretold, m.seconds - begin_s, "an end of one key's");
        }
}

static void the_queue_shortens_when_it_was_foretold(void **state)
{
    (void)state;
    start(.02, .001, 8, 200, 300, 150, 5);
    while (m.num_ended < 16) make_step();
    double foretold = foretell(0, 12000), begin_s = m.seconds, begun = 0;
    int from = m.num_begun;
    for (int last = from; begun < 12000; last = m.num_begun) {
        make_step();
        begun += waiting_tokens_begun(last);
    }
    expect_near(foretold, m.seconds - begin_s, "tokens");
}

/* The case that was told 2 seconds and took 17.5: a few long answers, and prompts a hundred times as fast. */
static void long_answers_are_not_counted_at_the_speed_of_prompts(void **state)
{
    (void)state;
    start(.05, .0002, 1, 3, 1, 1, 0);
    m.prompt[0] = 4000; /* what the rate of all tokens together would be made of */
    m.answer[0] = 60;
    m.prompt[1] = m.prompt[2] = 10;
    m.answer[1] = m.answer[2] = 350;
    while (m.num_ended < 1) make_step();
    double foretold = foretell(1, 0);
    assert_true(foretold > 17 && foretold < 18);
}

static void odd_backlogs(void **state)
{
    (void)state;
    const struct backlog_sequence one = {10, 100, false};
    struct backlog b = {.sequences = &one, .num_places = 1, .num_step_tokens = 1e9};
    assert_true(backlog_seconds(&b, 1, 0, 60) == 0); /* nothing is there */
    b.num_sequences = 1;
    assert_true(backlog_seconds(&b, 1, 0, 60) == 0); /* nothing is known of the speed */
    b.decode_seconds_per_step = 0.1;
    b.prefill_seconds_per_token = 0.2;
    assert_true(fabs(backlog_seconds(&b, 1, 0, 60) - 12) < 1e-6);
    assert_true(fabs(backlog_seconds(&b, 5, 1e9, 60) - 12) < 1e-6); /* more than there is: when all is done */
    assert_true(backlog_seconds(&b, 1, 0, 7) == 7);
}

static void rates_are_told_apart(void **state)
{
    (void)state;
    struct step_rates r = {0};
    assert_true(step_rates_decode_seconds_per_step(&r) == 0 && step_rates_prefill_seconds_per_token(&r) == 0);
    step_rates_add(&r, 0, 5, 5);
    step_rates_add(&r, 1, 0, 0);
    step_rates_add(&r, .3, 200, 100); /* shared out by tokens */
    assert_true(fabs(step_rates_decode_seconds_per_step(&r) - .1) < 1e-9);
    assert_true(fabs(step_rates_prefill_seconds_per_token(&r) - .001) < 1e-9);
    step_rates_add(&r, .04, 0, 100);
    assert_true(fabs(step_rates_decode_seconds_per_step(&r) - .04) < 1e-9);
    for (int i = 0; i < 1000; i++) step_rates_add(&r, .04 + .5, 250, 100);
    assert_true(fabs(step_rates_prefill_seconds_per_token(&r) - .002) < 1e-6);
    for (int i = 0; i < 1000000; i++) step_rates_add(&r, .05, 0, 100); /* half a day without a prompt */
    assert_true(fabs(step_rates_decode_seconds_per_step(&r) - .05) < 1e-6);
    assert_true(fabs(step_rates_prefill_seconds_per_token(&r) - .002) < 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_comes_when_it_was_foretold),
        cmocka_unit_test(room_of_a_key_comes_when_it_was_foretold),
        cmocka_unit_test(the_queue_shortens_when_it_was_foretold),
        cmocka_unit_test(long_answers_are_not_counted_at_the_speed_of_prompts),
        cmocka_unit_test(odd_backlogs),
        cmocka_unit_test(rates_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
