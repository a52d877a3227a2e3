/* The engine on its own thread, this one in the loop's place: nothing is lost, no wake-up is missed, an idle
 * engine uses no CPU time. Made to be run under ThreadSanitizer too. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "unit/engine/fake_engine.h"

enum { MAX_MODEL_LEN = 96, NUM_SLOTS = 12 };

struct bench {
    struct rig rig;
    int wake_fd;
    pthread_t thread;
};

static void wake(void *context)
{
    uint64_t n = 1;
    assert_always(write(*(int *)context, &n, sizeof(n)) == sizeof(n));
}

static void *serve(void *engine)
{
    engine_serve(engine);
    return NULL;
}

static void create(struct bench *b, int num_steps_in_flight, int32_t num_blocks)
{
    b->wake_fd = eventfd(0, 0);
    struct fake_options fake = {.num_steps_in_flight = num_steps_in_flight,
                                .prefill_decode_equal = true,
                                .num_blocks = num_blocks,
                                .fail_at_step = -1};
    struct engine_options options = {.max_model_len = MAX_MODEL_LEN,
                                     .max_num_seqs = 6,
                                     .max_num_batched_tokens = 40,
                                     .enable_prefix_caching = true};
    b->rig = rig_create(&fake, options, NUM_SLOTS);
    link_set_front_wake(b->rig.link, wake, &b->wake_fd);
    assert_int_equal(pthread_create(&b->thread, NULL, serve, b->rig.engine), 0);
}

static void stop(struct bench *b)
{
    link_stop(b->rig.link);
    pthread_join(b->thread, NULL);
}

static void destroy(struct bench *b)
{
    rig_destroy(&b->rig);
    close(b->wake_fd);
}

static void wait_for_wake(struct bench *b)
{
    uint64_t n;
    assert_int_equal(read(b->wake_fd, &n, sizeof(n)), sizeof(n));
}

static struct request_slot_input random_input(uint64_t random)
{
    struct request_slot_input input =
        input_default(1 + (int32_t)(random % 40), 1 + (int32_t)(random / 64 % 50));
    input.sampling.seed = random;
    input.ignore_eos = random / 4096 % 2;
    input.sampling.num_logprobs = random / 8192 % 2 ? 1 : -1;
    input.prompt_logprobs = random / 16384 % 8 == 0;
    return input;
}

static void fill_prompt(int32_t *prompt, uint64_t random)
{
    for (int i = 0; i < MAX_MODEL_LEN; i++)
        prompt[i] = (int32_t)(fake_mix(random % 5, (uint64_t)i) % FAKE_VOCAB);
}

/* One after the other, each with the engine asleep or just about to be: a lost wake-up would hang here. */
static void test_no_wake_up_is_lost(void **state)
{
    (void)state;
    struct bench b;
    int32_t prompt[MAX_MODEL_LEN];
    create(&b, 1, 64);
    for (uint64_t i = 0; i < 4000; i++) {
        fill_prompt(prompt, i);
        struct request_slot_input input = input_default(1 + (int32_t)(i % 20), 1);
        for (volatile uint64_t spin = fake_mix(i, 1) % 3000; spin > 0; spin--) continue;
        int32_t slot_idx = rig_submit(&b.rig, &input, prompt);
        while (rig_finish_reason(&b.rig, slot_idx) == FINISH_NONE) wait_for_wake(&b);
        rig_expect_solo(&b.rig, slot_idx);
        request_slots_release(b.rig.slots, slot_idx);
    }
    stop(&b);
    destroy(&b);
}

struct client {
    bool in_use, cancelled;
    int32_t num_seen;
};

/* Reads what was published since the last look, as a stream would, and lets go of what is finished. */
static uint64_t collect(struct bench *b, struct client *clients)
{
    uint64_t num_finished = 0;
    for (int32_t i = 0; i < NUM_SLOTS; i++) {
        if (!clients[i].in_use) continue;
        enum finish_reason reason = rig_finish_reason(&b->rig, i);
        int32_t num_published = rig_num_published(&b->rig, i);
        assert_true(num_published >= clients[i].num_seen);
        clients[i].num_seen = num_published;
        if (reason == FINISH_NONE) continue;
        assert_true(reason == FINISH_STOP || reason == FINISH_LENGTH ||
                    (reason == FINISH_CANCELLED && clients[i].cancelled));
        rig_expect_solo(&b->rig, i);
        clients[i].in_use = false;
        request_slots_release(b->rig.slots, i);
        num_finished++;
    }
    return num_finished;
}

static void run_streams(int num_steps_in_flight)
{
    struct bench b;
    struct client clients[NUM_SLOTS] = {{0}};
    uint64_t random = 77, num_submitted = 0, num_finished = 0;
    int32_t prompt[MAX_MODEL_LEN];
    create(&b, num_steps_in_flight, 14);
    while (num_finished < 1500) {
        while (num_submitted < 1500 && request_slots_num_free(b.rig.slots) > 0) {
            random = fake_mix(random, 1);
            struct request_slot_input input = random_input(random);
            fill_prompt(prompt, random >> 20);
            clients[rig_submit(&b.rig, &input, prompt)] = (struct client){.in_use = true};
            num_submitted++;
        }
        random = fake_mix(random, 2);
        int32_t slot_idx = (int32_t)(random % NUM_SLOTS);
        if (random >> 32 & 1 && clients[slot_idx].in_use) {
            clients[slot_idx].cancelled = true;
            link_cancel(b.rig.link, slot_idx);
        }
        wait_for_wake(&b);
        num_finished += collect(&b, clients);
    }
    struct link_stats stats;
    link_stats(b.rig.link, &stats);
    assert_true(stats.num_steps > 0 && stats.tokens_per_second > 0 && stats.generated_tokens > 0);
    stop(&b);
    destroy(&b);
}

static void test_streams_one_step_in_flight(void **state)
{
    (void)state;
    run_streams(1);
}

static void test_streams_two_steps_in_flight(void **state)
{
    (void)state;
    run_streams(2);
}

static void test_stop_while_running(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct bench b;
        int32_t prompt[MAX_MODEL_LEN], slots[NUM_SLOTS];
        create(&b, 1 + i % 2, 64);
        fill_prompt(prompt, 1);
        struct request_slot_input input = input_default(30, 60);
        struct link_stats stats = {0};
        input.ignore_eos = true;
        for (int k = 0; k < NUM_SLOTS; k++) slots[k] = rig_submit(&b.rig, &input, prompt);
        while (stats.num_steps < (uint64_t)(i % 5)) link_stats(b.rig.link, &stats);
        stop(&b);
        for (int k = 0; k < NUM_SLOTS; k++) {
            assert_int_not_equal(rig_finish_reason(&b.rig, slots[k]), FINISH_NONE);
            rig_expect_solo(&b.rig, slots[k]);
        }
        destroy(&b);
    }
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void test_an_idle_engine_sleeps(void **state)
{
    (void)state;
    struct bench b;
    int32_t prompt[MAX_MODEL_LEN];
    create(&b, 1, 64);
    fill_prompt(prompt, 1);
    struct request_slot_input input = input_default(30, 1);
    int32_t slot_idx = rig_submit(&b.rig, &input, prompt);
    while (rig_finish_reason(&b.rig, slot_idx) == FINISH_NONE) wait_for_wake(&b);
    usleep(20000);
    double before = cpu_seconds();
    usleep(200000);
    assert_true(cpu_seconds() - before < 0.05);
    stop(&b);
    destroy(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_wake_up_is_lost),          cmocka_unit_test(test_streams_one_step_in_flight),
        cmocka_unit_test(test_streams_two_steps_in_flight), cmocka_unit_test(test_stop_while_running),
        cmocka_unit_test(test_an_idle_engine_sleeps),
    };
    alarm(100); /* a hang is a failure */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
