/* How a request runs and ends, one rule at a time, with one and with two steps in flight. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

#include "unit/engine/fake_engine.h"

enum { MAX_MODEL_LEN = 128, NUM_SLOTS = 16 };

static const int32_t prompt[MAX_MODEL_LEN] = {5, 9,  17, 33, 2,  8, 20, 41, 7,  30, 11,
                                              6, 22, 1,  40, 13, 4, 19, 25, 12, 3};

static struct fake_options fake_default(int num_steps_in_flight)
{
    return (struct fake_options){.num_steps_in_flight = num_steps_in_flight,
                                 .prefill_decode_equal = true,
                                 .num_blocks = 64,
                                 .fail_at_step = -1};
}

static struct engine_options options_default(void)
{
    return (struct engine_options){.max_model_len = MAX_MODEL_LEN,
                                   .max_num_seqs = 8,
                                   .max_num_batched_tokens = 64,
                                   .max_num_logits = 16,
                                   .enable_prefix_caching = true};
}

static struct rig create(int num_steps_in_flight)
{
    struct fake_options fake = fake_default(num_steps_in_flight);
    return rig_create(&fake, options_default(), NUM_SLOTS);
}

static struct request_slot *run_one(struct rig *rig, const struct request_slot_input *input)
{
    int32_t slot_idx = rig_submit(rig, input, prompt);
    rig_run(rig);
    rig_expect_solo(rig, slot_idx);
    return request_slots_get(rig->slots, slot_idx);
}

/* What the prompt gives when nothing stops it. */
static void generate_freely(int32_t *tokens, int32_t num_tokens)
{
    struct rig rig = create(1);
    struct request_slot_input input = input_default(20, num_tokens);
    input.ignore_eos = true;
    int32_t slot_idx = rig_submit(&rig, &input, prompt);
    rig_run(&rig);
    assert_int_equal(rig_finish_reason(&rig, slot_idx), FINISH_LENGTH);
    memcpy(tokens, request_slots_tokens(rig.slots, slot_idx) + 20, (size_t)num_tokens * sizeof(tokens[0]));
    rig_destroy(&rig);
}

static void test_max_tokens(void **state)
{
    for (int32_t max_tokens = 1; max_tokens <= 40; max_tokens += 13) {
        struct rig rig = create(*(int *)*state);
        struct request_slot_input input = input_default(20, max_tokens);
        input.ignore_eos = true;
        struct request_slot *slot = run_one(&rig, &input);
        assert_int_equal(slot->finish_reason, FINISH_LENGTH);
        assert_int_equal(slot->num_published, max_tokens);
        assert_int_equal(slot->num_prompt_computed, 20);
        assert_int_equal(slot->stop_token_id, 0);
        assert_true(slot->scheduled_ns > 0 && slot->first_token_ns >= slot->scheduled_ns);
        assert_true(slot->finish_ns >= slot->first_token_ns);
        struct link_stats stats;
        link_stats(rig.link, &stats);
        assert_int_equal(stats.generated_tokens, max_tokens);
        assert_int_equal(stats.discarded_tokens,
                         0); /* the length is known in advance: nothing is drawn in vain */
        assert_int_equal(stats.prompt_tokens, 20);
        rig_destroy(&rig);
    }
}

static void test_stop_ids_and_min_tokens(void **state)
{
    int32_t free_tokens[30], at = 0;
    generate_freely(free_tokens, 30);
    for (int32_t i = 1; i < 30 && at == 0; i++) /* a token that comes up for the first time at i */
        for (int32_t k = 0; k <= i; k++) {
            if (k == i && i >= 5) at = i;
            if (free_tokens[k] == free_tokens[i]) break;
        }
    assert_true(at >= 5);
    struct rig rig = create(*(int *)*state);
    struct request_slot_input input = input_default(20, 30);
    input.ignore_eos = true;
    input.stop_token_ids[0] = 47;
    input.stop_token_ids[1] = free_tokens[at];
    input.num_stop_token_ids = 2;
    struct request_slot *slot = run_one(&rig, &input);
    assert_int_equal(slot->finish_reason, FINISH_STOP);
    assert_int_equal(slot->stop_token_id, free_tokens[at]);
    assert_int_equal(slot->num_published, at + 1); /* the stop token itself is published */
    input.min_tokens = at + 1;
    slot = run_one(&rig, &input); /* rig_expect_solo knows what is banned until then */
    assert_true(slot->num_published > at + 1);
    rig_destroy(&rig);
}

static void test_end_of_sequence(void **state)
{
    struct rig rig = create(*(int *)*state);
    int32_t num_stopped = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct request_slot_input input = input_default(7, 60);
        input.sampling.seed = seed;
        int32_t slot_idx = rig_submit(&rig, &input, prompt);
        rig_run(&rig);
        rig_expect_solo(&rig, slot_idx);
        num_stopped += rig_finish_reason(&rig, slot_idx) == FINISH_STOP;
        request_slots_release(rig.slots, slot_idx);
    }
    assert_in_range(num_stopped, 5, 20);
    struct link_stats stats;
    link_stats(rig.link, &stats);
    /* With a step in flight, each stop costs one token too many, and no more. */
    assert_int_equal(stats.discarded_tokens, *(int *)*state == 2 ? num_stopped : 0);
    rig_destroy(&rig);
}

static void test_scoring_without_generation(void **state)
{
    for (int32_t num_prompt = 1; num_prompt <= 21; num_prompt += 4) {
        struct rig rig = create(*(int *)*state);
        struct request_slot_input input = input_default(num_prompt, 0);
        input.prompt_logprobs = true;
        input.sampling.num_logprobs = 2;
        struct request_slot *slot = run_one(&rig, &input);
        assert_int_equal(slot->finish_reason, FINISH_LENGTH);
        assert_int_equal(slot->num_published, 0);
        assert_int_equal(slot->num_prompt_published, num_prompt);
        assert_int_equal(slot->num_prompt_computed, num_prompt);
        rig_destroy(&rig);
    }
}

static void test_scoring_is_not_skipped_by_a_prefix_hit(void **state)
{
    struct rig rig = create(*(int *)*state);
    struct request_slot_input input = input_default(21, 3);
    run_one(&rig, &input);
    input.prompt_logprobs = true;
    struct request_slot *slot = run_one(&rig, &input);
    assert_int_equal(slot->num_cached_tokens, 0);
    assert_int_equal(slot->num_prompt_published, 21);
    input.prompt_logprobs = false;
    assert_int_equal(run_one(&rig, &input)->num_cached_tokens, 16);
    rig_destroy(&rig);
}

static void test_rows_instead_of_tokens(void **state)
{
    for (int32_t num_prompt = 1; num_prompt <= 41; num_prompt += 8)
        for (int pooling = POOLING_LAST; pooling <= POOLING_LOGITS; pooling++) {
            struct rig rig = create(*(int *)*state);
            struct request_slot_input input = input_default(num_prompt, 0);
            input.pooling = (enum pooling)pooling;
            input.num_row_logits = pooling == POOLING_LOGITS ? 2 : 0;
            struct request_slot *slot = run_one(&rig, &input);
            assert_int_equal(slot->finish_reason, FINISH_LENGTH);
            assert_int_equal(slot->num_published, 0);
            assert_int_equal(slot->num_prompt_computed, num_prompt);
            rig_destroy(&rig);
        }
}

/* A mean needs all hidden states, of which a cache of K and V has none; the last one needs its own alone. */
static void test_a_mean_is_not_cut_by_a_prefix_hit(void **state)
{
    struct rig rig = create(*(int *)*state);
    struct request_slot_input input = input_default(37, 0);
    input.pooling = POOLING_MEAN;
    run_one(&rig, &input);
    assert_int_equal(run_one(&rig, &input)->num_cached_tokens, 0);
    input.pooling = POOLING_LAST;
    assert_int_equal(run_one(&rig, &input)->num_cached_tokens, 32);
    rig_destroy(&rig);
}

static void test_a_row_has_no_answer_beside_it(void **state)
{
    struct rig rig = create(*(int *)*state);
    struct request_slot_input input = input_default(5, 3);
    input.pooling = POOLING_LAST;
    int32_t slot_idx = rig_submit(&rig, &input, prompt);
    rig_run(&rig);
    assert_int_equal(rig_finish_reason(&rig, slot_idx), FINISH_ERROR);
    rig_destroy(&rig);
}

static void test_salts_separate(void **state)
{
    struct rig rig = create(*(int *)*state);
    struct request_slot_input input = input_default(21, 3);
    run_one(&rig, &input);
    assert_int_equal(run_one(&rig, &input)->num_cached_tokens, 16);
    input.cache_salt[31] = 1;
    assert_int_equal(run_one(&rig, &input)->num_cached_tokens, 0);
    assert_int_equal(run_one(&rig, &input)->num_cached_tokens, 16);
    rig_destroy(&rig);
}

static void test_cancel_within_a_turn(void **state)
{
    struct rig rig = create(*(int *)*state);
    struct request_slot_input input = input_default(20, 100);
    input.ignore_eos = true;
    for (int num_turns = 0; num_turns < 12; num_turns++) {
        int32_t slot_idx = rig_submit(&rig, &input, prompt);
        for (int i = 0; i < num_turns; i++) engine_step(rig.engine);
        link_cancel(rig.link, slot_idx);
        link_cancel(rig.link, slot_idx);
        engine_step(rig.engine);
        engine_check(rig.engine);
        assert_int_equal(rig_finish_reason(&rig, slot_idx), FINISH_CANCELLED);
        rig_expect_solo(&rig, slot_idx);
        request_slots_release(rig.slots, slot_idx);
        /* The slot is used again at once, with a cancellation of its former life possibly still on the way.
         */
        int32_t again = rig_submit(&rig, &input, prompt);
        assert_int_equal(again, slot_idx);
        engine_step(rig.engine);
        engine_step(rig.engine);
        assert_int_equal(rig_finish_reason(&rig, again), FINISH_NONE);
        link_cancel(rig.link, again);
        rig_run(&rig);
        struct link_stats stats;
        link_stats(rig.link, &stats);
        assert_int_equal(stats.num_held_blocks, 0);
        request_slots_release(rig.slots, again);
    }
    rig_destroy(&rig);
}

static void test_a_cancel_after_the_end_hurts_nobody(void **state)
{
    struct rig rig = create(*(int *)*state);
    struct request_slot_input input = input_default(20, 3);
    int32_t slot_idx = rig_submit(&rig, &input, prompt);
    rig_run(&rig);
    link_cancel(rig.link, slot_idx); /* the loop had not seen the end yet */
    request_slots_release(rig.slots, slot_idx);
    assert_int_equal(rig_submit(&rig, &input, prompt), slot_idx);
    rig_run(&rig);
    assert_int_equal(rig_finish_reason(&rig, slot_idx), FINISH_LENGTH);
    rig_destroy(&rig);
}

static int num_looks;

static bool ends_at_the_third_look(void)
{
    return ++num_looks == 3;
}

/* Two steps in flight, of which the first is expected to take a minute. */
static void test_a_step_that_ends_early_is_published_early(void **state)
{
    struct fake_options fake = fake_default(2);
    fake.has_ended = ends_at_the_third_look;
    struct rig rig = rig_create(&fake, options_default(), NUM_SLOTS);
    const struct step_prices prices = {
        .prompt_token = 1, .prompt_step = 60e6, .decode_token = 1, .decode_step = 1};
    struct request_slot_input input = input_default(20, 1);
    (void)state;
    num_looks = 0;
    engine_guess_prices(rig.engine, &prices);
    int32_t slot_idx = rig_submit(&rig, &input, prompt);
    assert_true(engine_step(rig.engine));
    assert_int_equal(rig_num_published(&rig, slot_idx), 0);
    assert_true(engine_step(rig.engine));
    assert_int_equal(num_looks, 3);
    assert_int_equal(rig_num_published(&rig, slot_idx), 1);
    rig_destroy(&rig);
}

static void test_a_failed_row_ends_its_request_alone(void **state)
{
    struct rig rig = create(*(int *)*state);
    struct request_slot_input good = input_default(20, 30), bad = good;
    bad.sampling.seed = fake_failing_seed(25);
    int32_t first = rig_submit(&rig, &good, prompt), failing = rig_submit(&rig, &bad, prompt);
    int32_t last = rig_submit(&rig, &good, prompt);
    rig_run(&rig);
    rig_expect_solo(&rig, first);
    rig_expect_solo(&rig, failing);
    rig_expect_solo(&rig, last);
    assert_int_equal(rig_finish_reason(&rig, failing), FINISH_ERROR);
    assert_int_equal(rig_num_published(&rig, failing), 5);
    assert_true(strlen(request_slots_get(rig.slots, failing)->error_text) > 10);
    assert_true(rig_finish_reason(&rig, first) != FINISH_ERROR &&
                rig_finish_reason(&rig, last) != FINISH_ERROR);
    rig_destroy(&rig);
}

static void test_requests_that_cannot_run_are_refused(void **state)
{
    struct fake_options fake = fake_default(*(int *)*state);
    fake.num_blocks = 4;
    struct rig rig = rig_create(&fake, options_default(), NUM_SLOTS);
    struct request_slot_input inputs[] = {input_default(60, 30), input_default(0, 5),
                                          input_default(100, 100)};
    for (size_t i = 0; i < array_length(inputs); i++) {
        int32_t slot_idx = rig_submit(&rig, &inputs[i], prompt);
        rig_run(&rig);
        assert_int_equal(rig_finish_reason(&rig, slot_idx), FINISH_ERROR);
        assert_true(strlen(request_slots_get(rig.slots, slot_idx)->error_text) > 10);
    }
    rig_destroy(&rig);
}

static void test_a_device_failure_ends_everything(void **state)
{
    for (int64_t at = 0; at < 12; at++) {
        struct fake_options fake = fake_default(*(int *)*state);
        fake.fail_at_step = at;
        struct rig rig = rig_create(&fake, options_default(), NUM_SLOTS);
        struct request_slot_input input = input_default(20, 40);
        input.ignore_eos = true;
        int32_t slots[12];
        for (int i = 0; i < 12; i++) slots[i] = rig_submit(&rig, &input, prompt); /* 8 run, 4 wait */
        rig_run(&rig);
        assert_true(engine_failed(rig.engine));
        for (int i = 0; i < 12; i++) {
            assert_int_equal(rig_finish_reason(&rig, slots[i]), FINISH_DEVICE);
            assert_string_equal(request_slots_get(rig.slots, slots[i])->error_text, "the fake device broke");
            rig_expect_solo(&rig, slots[i]); /* what was published before is right */
        }
        int32_t late = rig_submit(&rig, &input, prompt);
        rig_run(&rig);
        assert_int_equal(rig_finish_reason(&rig, late), FINISH_DEVICE);
        rig_destroy(&rig);
    }
}

static void test_stop_cancels_what_is_left(void **state)
{
    struct rig rig = create(*(int *)*state);
    struct request_slot_input input = input_default(20, 100);
    input.ignore_eos = true;
    int32_t running = rig_submit(&rig, &input, prompt);
    for (int i = 0; i < 5; i++) engine_step(rig.engine);
    int32_t not_taken = rig_submit(&rig, &input, prompt);
    engine_wind_up(rig.engine);
    assert_int_equal(rig_finish_reason(&rig, running), FINISH_CANCELLED);
    assert_int_equal(rig_finish_reason(&rig, not_taken), FINISH_CANCELLED);
    rig_expect_solo(&rig, running);
    rig_destroy(&rig);
}

static void test_a_preempted_request_gives_the_same(void **state)
{
    struct fake_options fake = fake_default(*(int *)*state);
    for (int variant = 0; variant < 16; variant++) {
        fake.num_blocks = 9;
        fake.prefill_decode_equal = variant % 2;
        struct engine_options options = options_default();
        options.enable_prefix_caching = variant / 2 % 2;
        options.num_host_blocks = variant / 4 % 2 * 9;
        options.decode_runs = variant / 8;
        options.kv_block_bytes = FAKE_BLOCK_BYTES;
        struct rig rig = rig_create(&fake, options, NUM_SLOTS);
        struct request_slot_input input = input_default(20, 60);
        input.ignore_eos = true;
        input.sampling.num_logprobs = 2;
        input.sampling.frequency_penalty = 0.5f;
        int32_t slots[4], num_preemptions = 0;
        for (int i = 0; i < 4; i++) {
            input.sampling.seed = (uint64_t)i;
            slots[i] = rig_submit(&rig, &input, prompt);
        }
        rig_run(&rig);
        for (int i = 0; i < 4; i++) {
            rig_expect_solo(&rig, slots[i]);
            assert_int_equal(rig_finish_reason(&rig, slots[i]), FINISH_LENGTH);
            num_preemptions += request_slots_get(rig.slots, slots[i])->num_preemptions;
        }
        struct link_stats stats;
        link_stats(rig.link, &stats);
        assert_true(num_preemptions > 0);
        assert_int_equal(stats.num_preemptions, num_preemptions);
        assert_int_equal(stats.num_saved, options.num_host_blocks > 0 ? num_preemptions : 0);
        assert_int_equal(rig.model->num_blocks_loaded > 0, options.num_host_blocks > 0);
        assert_int_equal(stats.num_free_host_blocks, options.num_host_blocks);
        assert_int_equal(stats.generated_tokens, 4 * 60); /* nothing is drawn twice */
        assert_int_equal(stats.prompt_tokens + stats.prefix_hit_tokens, 4 * 20);
        assert_int_equal(stats.prefix_query_tokens, options.enable_prefix_caching ? 4 * 20 : 0);
        assert_int_equal(request_slots_get(rig.slots, slots[0])->num_preemptions, 0); /* never the oldest */
        rig_destroy(&rig);
    }
}

/* A mean of which a part is summed: its sum is gone with its batch slot, whatever is saved of its blocks. */
static void test_a_preempted_mean_is_summed_again(void **state)
{
    struct fake_options fake = fake_default(*(int *)*state);
    int32_t num_preemptions = 0;
    for (fake.num_blocks = 15; fake.num_blocks <= 20; fake.num_blocks++) {
        struct engine_options options = options_default();
        options.max_num_batched_tokens = 8;
        options.num_host_blocks = 16;
        options.kv_block_bytes = FAKE_BLOCK_BYTES;
        struct rig rig = rig_create(&fake, options, NUM_SLOTS);
        struct request_slot_input input = input_default(2, 60);
        input.ignore_eos = true;
        for (int i = 0; i < 5; i++) rig_submit(&rig, &input, prompt);
        input = input_default(112, 0);
        input.pooling = POOLING_MEAN;
        num_preemptions += run_one(&rig, &input)->num_preemptions;
        rig_destroy(&rig);
    }
    assert_true(num_preemptions > 0);
}

/* All ids but one are forbidden, so that drafts come true from some token on; the last step is waited for. */
static void test_what_is_shown_after_drafts(void **state)
{
    struct fake_options fake = fake_default(*(int *)*state);
    fake.forbidden = ~(uint64_t)2;
    struct engine_options options = options_default();
    options.decode_runs = true;
    options.num_draft_tokens = 4;
    for (int32_t max_tokens = 1; max_tokens <= 40; max_tokens++) {
        struct rig rig = rig_create(&fake, options, NUM_SLOTS);
        struct request_slot_input input = input_default(20, max_tokens);
        input.ignore_eos = true;
        run_one(&rig, &input);
        struct link_stats stats;
        link_stats(rig.link, &stats);
        assert_int_equal(stats.generated_tokens, max_tokens);
        assert_true(stats.accepted_tokens > 0 || max_tokens < 10);
        assert_int_equal(stats.num_running, 0);
        assert_int_equal(stats.num_held_blocks, 0);
        rig_destroy(&rig);
    }
}

/* While a sequence runs, which it does not hurt. */
static void test_an_order_of_an_adapter_is_answered(void **state)
{
    static const struct {
        const char *path;
        int status, num_layers;
    } orders[] = {{"", STATUS_OK, 1}, {"/adapters/a", STATUS_UNSUPPORTED, 0}};
    for (size_t i = 0; i < array_length(orders); i++) {
        struct rig rig = create(*(int *)*state);
        struct request_slot_input input = input_default(20, 8);
        const char *text;
        int status;
        int32_t slot_idx = rig_submit(&rig, &input, prompt);
        engine_step(rig.engine);
        link_tell_lora(rig.link, 3, orders[i].path);
        link_order_lora(rig.link, 3);
        engine_step(rig.engine);
        assert_true(link_hear_lora(rig.link, &status, &text));
        assert_int_equal(status, orders[i].status);
        assert_int_equal(rig.model->num_lora_layers, orders[i].num_layers);
        assert_true(status || rig.model->lora_place == 2);
        assert_int_equal(link_ordered_lora(rig.link), 0);
        rig_run(&rig);
        rig_expect_solo(&rig, slot_idx);
        rig_destroy(&rig);
    }
}

static int one = 1, two = 2;

#define BOTH(test)                                                                                           \
    {#test " (1)", test, NULL, NULL, &one},                                                                  \
    {                                                                                                        \
#test " (2)", test, NULL, NULL, &two                                                                 \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_max_tokens),
        BOTH(test_an_order_of_an_adapter_is_answered),
        BOTH(test_stop_ids_and_min_tokens),
        BOTH(test_end_of_sequence),
        BOTH(test_scoring_without_generation),
        BOTH(test_scoring_is_not_skipped_by_a_prefix_hit),
        BOTH(test_rows_instead_of_tokens),
        BOTH(test_a_mean_is_not_cut_by_a_prefix_hit),
        BOTH(test_a_row_has_no_answer_beside_it),
        BOTH(test_salts_separate),
        BOTH(test_cancel_within_a_turn),
        BOTH(test_a_cancel_after_the_end_hurts_nobody),
        cmocka_unit_test(test_a_step_that_ends_early_is_published_early),
        BOTH(test_a_failed_row_ends_its_request_alone),
        BOTH(test_requests_that_cannot_run_are_refused),
        BOTH(test_a_device_failure_ends_everything),
        BOTH(test_stop_cancels_what_is_left),
        BOTH(test_a_preempted_request_gives_the_same),
        BOTH(test_a_preempted_mean_is_summed_again),
        BOTH(test_what_is_shown_after_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
