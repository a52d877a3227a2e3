/* When the next step is planned, on simulated devices: the wait is worth it, and the device does not run dry. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rng.h"
#include "engine/step_pace.h"

/* A device of two steps and its host. Microseconds. */
struct world {
    double predicted, host; /* host: to begin a step */
    double bias, noise;     /* a step takes predicted * (1 + bias +- noise) */
    double hiccup, late;    /* the chance that the host takes so much longer */
};

struct outcome {
    double dry, wait; /* shares of the time: the device had nothing to do; the host waited */
};

static double uniform(uint64_t i, uint64_t stream)
{
    return rng_uniform(5, i, stream);
}

static struct outcome live(struct step_pace *p, const struct world *w, int num_steps)
{
    double total = 0, dry = 0, waited = 0;
    for (int i = 0; i < num_steps; i++) {
        double us = w->predicted * (1 + w->bias + w->noise * (2 * uniform((uint64_t)i, 0) - 1));
        double host = w->host + (uniform((uint64_t)i, 1) < w->hiccup ? w->late : 0);
        double wait = fmax(step_pace_wait_us(p, w->predicted), 0), over = fmax(wait + host - us, 0);
        step_pace_learn(p, host, w->predicted, us + over, over > 0);
        total += us + over;
        dry += over;
        waited += wait;
    }
    return (struct outcome){dry / total, waited / total};
}

static void test_a_steady_device_is_planned_late(void **state)
{
    (void)state;
    struct step_pace p;
    step_pace_init(&p);
    const struct world w = {.predicted = 25000, .host = 300, .noise = 0.01};
    live(&p, &w, 200);
    struct outcome o = live(&p, &w, 2000);
    assert_true(o.dry == 0);
    assert_true(o.wait > 0.9);
}

static void test_short_steps_leave_the_host_its_time(void **state)
{
    (void)state;
    struct step_pace p;
    step_pace_init(&p);
    const struct world w = {.predicted = 4000, .host = 400, .noise = 0.02};
    live(&p, &w, 200);
    struct outcome o = live(&p, &w, 2000);
    assert_true(o.dry < 0.001);
    assert_true(o.wait > 0.7);
}

/* Nothing is known yet. */
static void test_the_first_steps_lose_little(void **state)
{
    (void)state;
    for (int ms = 1; ms < 60; ms *= 2) {
        struct step_pace p;
        step_pace_init(&p);
        const struct world w = {.predicted = 1000 * ms, .host = 900, .noise = 0.1};
        assert_true(live(&p, &w, 100).dry < 0.001);
    }
}

/* Whatever steps and predictions are like, 1 % is not lost. */
static void test_bad_predictions_cost_the_wait_and_not_the_device(void **state)
{
    (void)state;
    static const double biases[] = {-0.5, -0.2, 0, 0.5}, noises[] = {0, 0.1, 0.4};
    for (size_t i = 0; i < array_length(biases); i++)
        for (size_t k = 0; k < array_length(noises); k++) {
            struct step_pace p;
            step_pace_init(&p);
            const struct world w = {.predicted = 10000, .host = 300, .bias = biases[i], .noise = noises[k]};
            live(&p, &w, 100);
            assert_true(live(&p, &w, 5000).dry < 0.01);
        }
}

static void test_a_host_that_is_held_up(void **state)
{
    (void)state;
    struct step_pace p;
    step_pace_init(&p);
    const struct world w = {.predicted = 10000, .host = 300, .noise = 0.02, .hiccup = 0.02, .late = 2000};
    struct outcome o = live(&p, &w, 5000);
    assert_true(o.dry < 0.01);
    assert_true(o.wait > 0.3);
}

/* Of a host that takes longer than steps, nothing is asked. */
static void test_a_slow_host_never_waits(void **state)
{
    (void)state;
    struct step_pace p;
    step_pace_init(&p);
    const struct world w = {.predicted = 1000, .host = 1500};
    live(&p, &w, 10);
    assert_true(live(&p, &w, 1000).wait == 0);
}

static void test_what_was_bad_is_forgotten(void **state)
{
    (void)state;
    struct step_pace p;
    step_pace_init(&p);
    const struct world bad = {.predicted = 20000, .host = 5000, .bias = -0.4},
                       good = {.predicted = 20000, .host = 300, .noise = 0.01};
    live(&p, &bad, 100);
    live(&p, &good, 300);
    assert_true(live(&p, &good, 100).wait > 0.9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_steady_device_is_planned_late),
        cmocka_unit_test(test_short_steps_leave_the_host_its_time),
        cmocka_unit_test(test_the_first_steps_lose_little),
        cmocka_unit_test(test_bad_predictions_cost_the_wait_and_not_the_device),
        cmocka_unit_test(test_a_host_that_is_held_up),
        cmocka_unit_test(test_a_slow_host_never_waits),
        cmocka_unit_test(test_what_was_bad_is_forgotten),
    };
    return cmocka_run_group_tests_name("step_pace", tests, NULL, NULL);
}
