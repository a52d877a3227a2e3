/* A slot that another engine had: for each number of tokens that the dead one may have published, the next
 * engine gives the rest, byte for byte, on devices with equal and unequal halves, with one and with two steps
 * in flight. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

#include "unit/engine/fake_engine.h"

enum { MAX_MODEL_LEN = 128, NUM_SLOTS = 4, NUM_PROMPT = 37, MAX_TOKENS = 20 };

static int32_t prompt[NUM_PROMPT];

/* The whole answer of a request that nothing has disturbed. */
struct answer {
    int32_t num_tokens, tokens[MAX_MODEL_LEN];
    struct token_logprobs logprobs[MAX_MODEL_LEN];
    enum finish_reason finish_reason;
    int32_t stop_token_id;
};

struct setup {
    bool prefill_decode_equal, decode_runs;
    int num_steps_in_flight;
};

static struct rig create(const struct setup *setup)
{
    const struct fake_options fake = {.num_steps_in_flight = setup->num_steps_in_flight,
                                      .prefill_decode_equal = setup->prefill_decode_equal,
                                      .has_answers = true,
                                      .num_blocks = 32,
                                      .fail_at_step = -1};
    const struct engine_options options = {.max_model_len = MAX_MODEL_LEN,
                                           .max_num_seqs = 4,
                                           .max_num_batched_tokens = 16,
                                           .max_num_logits = 8,
                                           .enable_prefix_caching = true,
                                           .decode_runs = setup->decode_runs,
                                           .leaves_requests = true};
    return rig_create(&fake, options, NUM_SLOTS);
}

static void answer_of(struct rig *rig, int32_t slot_idx, struct answer *out)
{
    const struct request_slot *slot = request_slots_get(rig->slots, slot_idx);
    memset(out, 0, sizeof(*out));
    out->num_tokens = slot->num_published;
    memcpy(out->tokens, request_slots_tokens(rig->slots, slot_idx), sizeof(out->tokens));
    memcpy(out->logprobs, request_slots_logprobs(rig->slots, slot_idx), sizeof(out->logprobs));
    out->finish_reason = rig_finish_reason(rig, slot_idx);
    out->stop_token_id = slot->stop_token_id;
}

/* The slot as an engine left it that had published so much, and had perhaps stored one token more. */
static void leave_behind(struct rig *rig, int32_t slot_idx, const struct answer *whole, int32_t num_published,
                         int32_t num_prompt_published)
{
    struct request_slot *slot = request_slots_get(rig->slots, slot_idx);
    int32_t num_known = num_published > 0 ? NUM_PROMPT + num_published : num_prompt_published;
    for (int32_t p = 0; p < num_known; p++) {
        request_slots_tokens(rig->slots, slot_idx)[p] = whole->tokens[p];
        request_slots_logprobs(rig->slots, slot_idx)[p] = whole->logprobs[p];
    }
    if (num_published < whole->num_tokens)
        request_slots_tokens(rig->slots, slot_idx)[NUM_PROMPT + num_published] = 46;
    atomic_store(&slot->num_published, num_published);
    if (slot->input.prompt_logprobs) atomic_store(&slot->num_prompt_published, num_prompt_published);
    atomic_store(&slot->num_prompt_computed, num_published > 0 ? NUM_PROMPT : num_prompt_published);
    slot->scheduled_ns = 1;
}

static void resume(const struct setup *setup, const struct request_slot_input *input,
                   const struct answer *whole, int32_t num_published, int32_t num_prompt_published)
{
    struct rig rig = create(setup);
    struct answer answer;
    struct link_stats stats;
    int32_t slot_idx = rig_submit(&rig, input, prompt);
    leave_behind(&rig, slot_idx, whole, num_published, num_prompt_published);
    rig_run(&rig);
    rig_expect_solo(&rig, slot_idx);
    answer_of(&rig, slot_idx, &answer);
    assert_memory_equal(&answer, whole, sizeof(answer));
    link_stats(rig.link, &stats);
    assert_int_equal(stats.generated_tokens - stats.discarded_tokens, whole->num_tokens - num_published);
    assert_int_equal(stats.prefix_query_tokens, 0); /* the dead one has counted it */
    /* What ended with its last token needs no step. */
    if (num_published == whole->num_tokens && num_published > 0) assert_int_equal(stats.num_steps, 0);
    rig_destroy(&rig);
}

static void check_every_cut(const struct setup *setup, const struct request_slot_input *input)
{
    static struct answer whole;
    struct rig rig = create(setup);
    int32_t slot_idx = rig_submit(&rig, input, prompt);
    rig_run(&rig);
    rig_expect_solo(&rig, slot_idx);
    answer_of(&rig, slot_idx, &whole);
    rig_destroy(&rig);
    assert_true(whole.finish_reason == FINISH_STOP || whole.finish_reason == FINISH_LENGTH);
    for (int32_t n = 0; n <= NUM_PROMPT && input->prompt_logprobs; n++) resume(setup, input, &whole, 0, n);
    for (int32_t n = 0; n <= whole.num_tokens; n++) resume(setup, input, &whole, n, NUM_PROMPT);
}

static struct request_slot_input input_of(const struct setup *setup, int32_t stop_at)
{
    struct request_slot_input input = input_default(NUM_PROMPT, MAX_TOKENS);
    input.ignore_eos = true;
    if (stop_at < 0) return input;
    struct rig rig = create(setup);
    int32_t slot_idx = rig_submit(&rig, &input, prompt);
    rig_run(&rig);
    input.stop_token_ids[0] = request_slots_tokens(rig.slots, slot_idx)[NUM_PROMPT + stop_at];
    input.num_stop_token_ids = 1;
    rig_destroy(&rig);
    return input;
}

static void test_length(void **state)
{
    struct request_slot_input input = input_of(*state, -1);
    check_every_cut(*state, &input);
    input.max_tokens = 1;
    check_every_cut(*state, &input);
}

static void test_penalties(void **state)
{
    struct request_slot_input input = input_of(*state, -1);
    input.sampling.frequency_penalty = 0.5f;
    input.sampling.repetition_penalty = 1.25f;
    check_every_cut(*state, &input);
}

static void test_stop_token(void **state)
{
    struct request_slot_input input = input_of(*state, 9);
    check_every_cut(*state, &input);
}

/* What would stop it earlier cannot be drawn, before the death and after it. */
static void test_min_tokens(void **state)
{
    struct request_slot_input input = input_of(*state, 3);
    input.min_tokens = 11;
    check_every_cut(*state, &input);
}

static void test_end_of_sequence(void **state)
{
    struct request_slot_input input = input_default(NUM_PROMPT, 60);
    for (uint64_t seed = 0; seed < 6; seed++) {
        input.sampling.seed = seed;
        check_every_cut(*state, &input);
    }
}

static void test_logprobs(void **state)
{
    struct request_slot_input input = input_of(*state, -1);
    input.sampling.num_logprobs = 3;
    check_every_cut(*state, &input);
}

static void test_prompt_logprobs(void **state)
{
    struct request_slot_input input = input_of(*state, -1);
    input.sampling.num_logprobs = 2;
    input.prompt_logprobs = true;
    check_every_cut(*state, &input);
    input.max_tokens = 0;
    check_every_cut(*state, &input);
}

static void test_one_that_was_cancelled_meanwhile(void **state)
{
    struct rig rig = create(*state);
    struct request_slot_input input = input_of(*state, -1);
    int32_t slot_idx = rig_submit(&rig, &input, prompt);
    atomic_store(&request_slots_get(rig.slots, slot_idx)->num_published, 5);
    link_cancel(rig.link, slot_idx);
    rig_run(&rig);
    assert_int_equal(rig_finish_reason(&rig, slot_idx), FINISH_CANCELLED);
    assert_int_equal(rig_num_published(&rig, slot_idx), 5);
    rig_destroy(&rig);
}

/* An engine that may be replaced leaves what its device fails under, and says who was on board; also of a
 * device that fails as it takes a history. */
static void test_a_device_failure_leaves_requests(void **state)
{
    const struct setup *setup = *state;
    for (int history = 0; history < 2; history++) {
        struct rig rig = create(setup);
        struct request_slot_input input = input_of(setup, -1);
        input.sampling.frequency_penalty = 0.5f;
        rig.model->options.fail_at_step = history ? -1 : 0;
        rig.model->options.fail_at_history = history;
        int32_t slot_idx = rig_submit(&rig, &input, prompt);
        while (engine_step(rig.engine)) continue;
        assert_true(engine_failed(rig.engine));
        assert_int_equal(link_state(rig.link), LINK_FAILED);
        assert_int_equal(rig_finish_reason(&rig, slot_idx), FINISH_NONE);
        const struct step_part *part = &request_slots_get(rig.slots, slot_idx)->parts[1];
        struct link_stats stats;
        link_stats(rig.link, &stats);
        assert_true(part->step == 1 && stats.num_steps == 0);
        assert_true(part->begin == 0 && part->end == 16);
        engine_destroy(rig.engine);
        link_destroy(rig.link);
        fake_model_destroy(rig.model);
    }
}

/* An engine may have died while it wrote the row: another one writes it again. */
static void test_pooling(void **state)
{
    struct request_slot_input input = input_default(NUM_PROMPT, 0);
    for (int pooling = POOLING_LAST; pooling <= POOLING_LOGITS; pooling++) {
        input.pooling = (enum pooling)pooling;
        input.num_row_logits = pooling == POOLING_LOGITS ? 3 : 0;
        struct rig rig = create(*state);
        int32_t slot_idx = rig_submit(&rig, &input, prompt);
        request_slots_get(rig.slots, slot_idx)->num_row_floats = FAKE_HIDDEN;
        request_slots_get(rig.slots, slot_idx)->num_prompt_computed = NUM_PROMPT;
        memset(request_slots_row(rig.slots, slot_idx), 0x7f, 2 * sizeof(float));
        rig_run(&rig);
        assert_int_equal(rig_finish_reason(&rig, slot_idx), FINISH_LENGTH);
        rig_expect_solo(&rig, slot_idx);
        rig_destroy(&rig);
    }
}

int main(void)
{
    static struct setup setups[] = {{true, false, 1},  {true, false, 2}, {false, false, 1},
                                    {false, false, 2}, {false, true, 1}, {false, true, 2}};
    int num_failed = 0;
    for (int32_t i = 0; i < NUM_PROMPT; i++) prompt[i] = (7 * i + i * i) % FAKE_VOCAB;
    for (size_t i = 0; i < array_length(setups); i++) {
        const struct CMUnitTest tests[] = {
            cmocka_unit_test_prestate(test_length, &setups[i]),
            cmocka_unit_test_prestate(test_penalties, &setups[i]),
            cmocka_unit_test_prestate(test_stop_token, &setups[i]),
            cmocka_unit_test_prestate(test_min_tokens, &setups[i]),
            cmocka_unit_test_prestate(test_end_of_sequence, &setups[i]),
            cmocka_unit_test_prestate(test_logprobs, &setups[i]),
            cmocka_unit_test_prestate(test_prompt_logprobs, &setups[i]),
            cmocka_unit_test_prestate(test_pooling, &setups[i]),
            cmocka_unit_test_prestate(test_one_that_was_cancelled_meanwhile, &setups[i]),
            cmocka_unit_test_prestate(test_a_device_failure_leaves_requests, &setups[i]),
        };
        num_failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    return num_failed;
}
