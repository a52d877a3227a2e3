/* What steps take, learned from simulated machines whose prices are known. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rng.h"
#include "scheduler/step_cost.h"

/* An 8B model on a GPU, roughly. */
static const struct step_prices gpu = {.prompt_token = 22,
                                       .prompt_pair = 0.0008,
                                       .prompt_step = 2000,
                                       .decode_token = 8,
                                       .decode_pair = 0.033,
                                       .decode_step = 3800};

static struct step_prices times(const struct step_prices *p, double factor)
{
    return (struct step_prices){p->prompt_token * factor,
                                p->prompt_pair * factor,
                                p->prompt_step * factor,
                                p->decode_token * factor,
                                p->decode_pair * factor,
                                p->decode_step * factor,
                                p->block_copy * factor,
                                p->windowed,
                                p->window,
                                p->tile,
                                p->bundle,
                                p->doubt};
}

static double uniform(uint64_t i, uint64_t stream)
{
    return rng_uniform(11, i, stream);
}

/* Step i of a day: prompts of all lengths beside up to 64 streams. */
static struct step_work work_of(uint64_t i)
{
    int32_t num_tokens = uniform(i, 0) < 0.5 ? 0 : 16 + (int32_t)(uniform(i, 1) * 1000),
            position = (int32_t)(uniform(i, 2) * uniform(i, 3) * 100000);
    double num_decodes = floor(uniform(i, 4) * 64);
    if (num_tokens == 0 && num_decodes == 0) num_decodes = 1;
    return (struct step_work){.prompt_tokens = num_tokens,
                              .prompt_pairs = step_num_pairs(&gpu, position, num_tokens),
                              .decode_tokens = num_decodes,
                              .decode_pairs = num_decodes * uniform(i, 5) * 8000};
}

/* noise: of a step's time, either way; hiccup: the chance that a step takes ten times as long. */
static void live(struct step_cost *c, const struct step_prices *truth, uint64_t begin, uint64_t end,
                 double noise, double hiccup)
{
    for (uint64_t i = begin; i < end; i++) {
        struct step_work work = work_of(i);
        double us = step_prices_us(truth, &work) * (1 + noise * (2 * uniform(i, 6) - 1));
        step_cost_learn(c, &work, uniform(i, 7) < hiccup ? 10 * us : us);
    }
}

/* The mean of |predicted / true - 1| over steps that it has not seen. */
static double mean_error(const struct step_cost *c, const struct step_prices *truth)
{
    double sum = 0;
    struct step_prices learned = step_cost_prices(c);
    for (uint64_t i = 1000000; i < 1001000; i++) {
        struct step_work work = work_of(i);
        sum += fabs(step_prices_us(&learned, &work) / step_prices_us(truth, &work) - 1);
    }
    return sum / 1000;
}

static void test_a_guess_becomes_knowledge(void **state)
{
    (void)state;
    for (double factor = 0.3; factor < 4; factor *= 1.7) {
        struct step_prices start = times(&gpu, factor);
        struct step_cost c;
        step_cost_init(&c, &start);
        live(&c, &gpu, 0, 40, 0.05, 0);
        assert_true(mean_error(&c, &gpu) < 0.15);
        live(&c, &gpu, 40, 1000, 0.05, 0);
        assert_true(mean_error(&c, &gpu) < 0.05);
    }
}

/* Others take the machine now and then; and one day it is half as fast. */
static void test_hiccups_are_no_news_and_a_slower_machine_is(void **state)
{
    (void)state;
    struct step_prices slow = times(&gpu, 2);
    struct step_cost c;
    step_cost_init(&c, &gpu);
    live(&c, &gpu, 0, 1000, 0.05, 0.01);
    assert_true(mean_error(&c, &gpu) < 0.15);
    live(&c, &slow, 1000, 1200, 0.05, 0);
    assert_true(mean_error(&c, &slow) < 0.1);
}

/* An hour of equal decode steps says nothing about prompts, and nothing wrong. */
static void test_what_is_not_seen_is_not_forgotten(void **state)
{
    (void)state;
    struct step_cost c;
    step_cost_init(&c, &gpu);
    live(&c, &gpu, 0, 1000, 0.05, 0);
    const struct step_work same = {.decode_tokens = 8, .decode_pairs = 8000};
    for (int i = 0; i < 1000000; i++) step_cost_learn(&c, &same, step_prices_us(&gpu, &same));
    assert_true(mean_error(&c, &gpu) < 0.15);
    struct step_prices p = step_cost_prices(&c);
    assert_true(fabs(step_prices_us(&p, &same) / step_prices_us(&gpu, &same) - 1) < 0.01);
    live(&c, &gpu, 0, 100, 0.05, 0);
    assert_true(mean_error(&c, &gpu) < 0.06);
}

static void test_nothing_is_learned_from_nothing(void **state)
{
    (void)state;
    struct step_cost c;
    const struct step_prices unknown = {0};
    const struct step_work work = {.prompt_tokens = 100, .prompt_pairs = 5050};
    step_cost_init(&c, &unknown);
    step_cost_learn(&c, &work, 1000);
    assert_true(step_cost_prices(&c).prompt_token == 0);
    step_cost_init(&c, &gpu);
    step_cost_learn(&c, &work, NAN);
    step_cost_learn(&c, &work, -1);
    step_cost_learn(&c, &(struct step_work){0}, 1000);
    assert_true(step_cost_prices(&c).prompt_token == gpu.prompt_token);
}

static void test_copies_are_learned(void **state)
{
    (void)state;
    struct step_cost c;
    struct step_prices start = gpu;
    start.block_copy = 500;
    step_cost_init(&c, &start);
    step_cost_learn_copy(&c, 0, 1000);
    step_cost_learn_copy(&c, 10, 0);
    assert_true(step_cost_prices(&c).block_copy == 500);
    for (int i = 0; i < 40; i++) step_cost_learn_copy(&c, 20, i % 10 ? 20 * 100 : 20 * 100000);
    double learned = step_cost_prices(&c).block_copy;
    assert_true(learned > 90 && learned < 250); /* 100, and hiccups that count three times as much */
    for (int i = 0; i < 100; i++) step_cost_hope_copy(&c);
    assert_true(step_cost_prices(&c).block_copy < 0.1 * learned); /* tried again before long */
    for (int i = 0; i < 40; i++) step_cost_learn_copy(&c, 20, 20 * 100);
    assert_true(step_cost_prices(&c).block_copy > 90);
    step_cost_init(&c, &(struct step_prices){0});
    step_cost_learn_copy(&c, 20, 2000);
    assert_true(step_cost_prices(&c).block_copy == 0);
}

/* A chunk that ends inside a tile takes what the whole one takes, but for the keys that its last queries do not see. */
static void test_tiles_are_paid_whole(void **state)
{
    (void)state;
    struct step_prices p = gpu;
    p.tile = 128;
    assert_true(step_num_pairs(&p, 100000, 128) == 128.0 * 100128);
    assert_true(step_num_pairs(&p, 100000, 1) == 128.0 * 100001);
    assert_true(step_num_pairs(&p, 100000, 129) == 128.0 * (100128 + 100129));
    assert_true(step_num_decode_pairs(&p, 100000, 1) == 100001);
    assert_true(step_num_decode_pairs(&p, 0, 3) == 1 + 2 + 3);
    struct step_cost c;
    step_cost_init(&c, &p);
    assert_true(step_cost_prices(&c).tile == 128);
    /* One more than whole tiles is never the most that fits: the time for it is the time for all of the next. */
    for (double us = 15000; us < 100000; us += 1234) {
        int32_t num_tokens = step_prices_num_tokens(&p, 100000, us, 4096);
        assert_true(num_tokens == 0 || step_prices_prompt_us(&p, 100000, num_tokens + 1) > us);
    }
    assert_int_equal(step_prices_num_tokens(&p, 100000, step_prices_prompt_us(&p, 100000, 128) + 500, 4096),
                     128);
}

/* Decoding rows of one sequence that are read for together cost what the last of them does. */
static void test_bundles_are_paid_once(void **state)
{
    (void)state;
    struct step_prices p = gpu;
    p.bundle = 4;
    assert_true(step_num_decode_pairs(&p, 100, 8) == 104 + 108);
    assert_true(step_num_decode_pairs(&p, 100, 1) == 101);
    assert_true(step_num_decode_pairs(&p, 100, 2) == 102);
    struct step_prices decoding = step_prices_of_decoding(&p);
    double us = step_prices_decode_us(&p, 100, 8);
    assert_true(fabs(step_prices_prompt_us(&decoding, 100, 8) - us) < 1e-9);
    assert_int_equal(step_prices_num_tokens(&decoding, 100, us, 4096), 8);
}

/* Half of the layers see 1,024 keys; token by token. */
static void test_windows_cap_pairs(void **state)
{
    (void)state;
    struct step_prices p = gpu;
    p.windowed = 0.5;
    p.window = 1024;
    for (int32_t position = 0; position < 3000; position += 500)
        for (int32_t num_tokens = 0; num_tokens < 2500; num_tokens += 300) {
            double pairs = 0;
            for (int32_t i = 1; i <= num_tokens; i++)
                pairs += 0.5 * (position + i) + 0.5 * min_of(position + i, p.window);
            assert_true(fabs(step_num_pairs(&p, position, num_tokens) - pairs) < 1e-6 * (pairs + 1));
        }
    assert_true(fabs(step_prices_decode_us(&p, 5023, 1) - (8 + 0.033 * 3024)) < 1e-9);
    p.windowed = 1;
    double early = step_prices_prompt_us(&p, 2000, 500), late = step_prices_prompt_us(&p, 90000, 500);
    assert_true(fabs(early - late) < 1e-6);
    assert_true(step_prices_num_tokens(&p, 90000, 25000, 4096) > 1000); /* 300 of them without a window */
    assert_true(step_prices_num_tokens(&gpu, 90000, 25000, 4096) < 300);
    struct step_cost c;
    step_cost_init(&c, &p);
    assert_true(step_cost_prices(&c).windowed == 1 && step_cost_prices(&c).window == 1024);
}

/* As long as the worst of the latest steps was late by; what something else held up does not count. */
static void test_doubt(void **state)
{
    (void)state;
    const struct step_work work = {.prompt_tokens = 500, .prompt_pairs = step_num_pairs(&gpu, 0, 500)};
    struct step_cost c;
    step_cost_init(&c, &gpu);
    double expected = step_prices_us(&gpu, &work);
    step_cost_learn(&c, &work, expected * 0.5);
    assert_true(step_cost_prices(&c).doubt == 0);
    step_cost_init(&c, &gpu);
    step_cost_learn(&c, &work, expected * 1.1);
    double doubt = step_cost_prices(&c).doubt;
    assert_true(fabs(doubt - 0.1 * expected) < 1);
    step_cost_learn(&c, &work, expected * 3);
    assert_true(step_cost_prices(&c).doubt < doubt);
    for (int i = 0; i < 200; i++) {
        const struct step_prices p = step_cost_prices(&c);
        step_cost_learn(&c, &work, step_prices_us(&p, &work));
    }
    assert_true(step_cost_prices(&c).doubt < 0.01 * doubt);
}

static void test_tokens_for_a_time(void **state)
{
    (void)state;
    for (int32_t position = 0; position <= 100000; position += 12500) {
        for (double us = 30; us < 100000; us *= 3) {
            int32_t n = step_prices_num_tokens(&gpu, position, us, 100000);
            if (n > 0) assert_true(step_prices_prompt_us(&gpu, position, n) <= us * 1.000001);
            assert_true(step_prices_prompt_us(&gpu, position, n + 1) > us);
            assert_int_equal(step_prices_num_tokens(&gpu, position, us, 1), min_of(n, 1));
        }
    }
    struct step_prices flat = {.prompt_token = 10};
    assert_int_equal(step_prices_num_tokens(&flat, 5000, 1000, 1000000), 100);
    assert_int_equal(step_prices_num_tokens(&gpu, 0, -5, 100), 0);
    const struct step_prices unknown = {0};
    assert_int_equal(step_prices_num_tokens(&unknown, 0, 1, 100), 100);
}

static void test_a_guess_from_two_steps(void **state)
{
    (void)state;
    struct step_prices p = step_prices_guess(20000, 16, 8000, 0.001);
    assert_true(fabs(p.prompt_step + 16 * p.prompt_token - 20000) < 1);
    assert_true(fabs(p.decode_step + p.decode_token - 8000) < 1);
    assert_true(p.prompt_pair == p.prompt_token * 0.001);
    p = step_prices_guess(5000, 16, 8000, 0.001); /* the first was slow */
    assert_true(p.prompt_token > 0 && p.prompt_step > 0 && p.decode_step > 0);
}

/* Steps of one row behind 500 keys, and as many rows as are tried. */
static double decoding_us(const struct step_prices *truth, double rows)
{
    return truth->decode_step + rows * (truth->decode_token + 500 * truth->decode_pair);
}

static double price_of_a_row(const struct step_cost *c)
{
    const struct step_prices p = step_cost_prices(c);
    return p.decode_token + 500 * p.decode_pair;
}

/* A row that was thought to take nine tenths of a lone sequence's step becomes cheaper until it is tried. What it takes then is known,
 * whether it is little or indeed as much, and what a step of one row takes has been known all the time. */
static void test_rows_are_hoped_to_be_cheap(void **state)
{
    const struct step_prices
        cheap = {.prompt_token = 1, .decode_token = 40, .decode_pair = 0.02, .decode_step = 950},
        dear = {.prompt_token = 1, .decode_token = 850, .decode_pair = 0.1, .decode_step = 100},
        guessed = {.prompt_token = 1,
                   .prompt_pair = 0.001,
                   .prompt_step = 1,
                   .decode_token = 850,
                   .decode_pair = 0.1,
                   .decode_step = 100};
    (void)state;
    for (int is_dear = 0; is_dear < 2; is_dear++) {
        const struct step_prices *truth = is_dear ? &dear : &cheap;
        const struct step_work one = {.decode_tokens = 1, .decode_pairs = 500},
                               four = {.decode_tokens = 4, .decode_pairs = 2000};
        struct step_cost c;
        step_cost_init(&c, &guessed);
        int num_steps = 0;
        for (; price_of_a_row(&c) > 500; num_steps++) {
            step_cost_learn(&c, &one, decoding_us(truth, 1));
            step_cost_hope_rows(&c, 500);
            const struct step_prices p = step_cost_prices(&c);
            assert_true(fabs(decoding_us(&p, 1) - 1000) < 50);
            assert_true(num_steps < 1000);
        }
        for (int i = 0; i < 10; i++) step_cost_learn(&c, &four, decoding_us(truth, 4));
        assert_true(fabs(price_of_a_row(&c) - (is_dear ? 900 : 50)) < (is_dear ? 100 : 50));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_guess_becomes_knowledge),
        cmocka_unit_test(test_hiccups_are_no_news_and_a_slower_machine_is),
        cmocka_unit_test(test_what_is_not_seen_is_not_forgotten),
        cmocka_unit_test(test_nothing_is_learned_from_nothing),
        cmocka_unit_test(test_copies_are_learned),
        cmocka_unit_test(test_tiles_are_paid_whole),
        cmocka_unit_test(test_bundles_are_paid_once),
        cmocka_unit_test(test_windows_cap_pairs),
        cmocka_unit_test(test_doubt),
        cmocka_unit_test(test_tokens_for_a_time),
        cmocka_unit_test(test_a_guess_from_two_steps),
        cmocka_unit_test(test_rows_are_hoped_to_be_cheap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
