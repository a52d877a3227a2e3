/* What crosses the link when the engine is another process, and what is left of it when that has died. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "unit/link/link_rig.h"

enum { NUM_SLOTS = 100, MAX_MODEL_LEN = 64 };

static const struct link_facts facts = {
    .num_slots = NUM_SLOTS, .max_model_len = MAX_MODEL_LEN, .vocab_size = 320, .device = "a device"};

/* A front, and an engine's view of the same region. */
struct pair {
    struct link *front, *engine;
};

static struct link *attach(struct link *front)
{
    struct error err = {0};
    struct link *engine;
    assert_int_equal(link_attach(dup(link_fd(front)), &engine, &err), 0);
    return engine;
}

static void open_engine(struct pair *p)
{
    struct error err = {0};
    p->engine = attach(p->front);
    assert_int_equal(link_open(p->engine, &facts, &err), 0);
    link_set_state(p->engine, LINK_READY, NULL);
}

static struct pair create(void)
{
    struct error err = {0};
    struct pair p;
    assert_int_equal(link_create(&p.front, &err), 0);
    open_engine(&p);
    assert_int_equal(link_join(p.front, &err), 0);
    return p;
}

static void destroy(struct pair *p)
{
    link_destroy(p->engine);
    link_destroy(p->front);
}

static void die(struct pair *p)
{
    link_destroy(p->engine);
    link_reset(p->front);
    open_engine(p);
}

static int32_t submit(struct pair *p, int32_t num_prompt)
{
    int32_t slot_idx;
    assert_int_equal(request_slots_acquire(link_slots(p->front), 1, &slot_idx), 0);
    request_slots_get(link_slots(p->front), slot_idx)->input.num_prompt_tokens = num_prompt;
    for (int32_t i = 0; i < num_prompt; i++)
        request_slots_tokens(link_slots(p->front), slot_idx)[i] = slot_idx + i;
    link_submit(p->front, slot_idx);
    return slot_idx;
}

static void release(struct pair *p, int32_t slot_idx)
{
    request_slots_release(link_slots(p->front), slot_idx);
}

static void finish(struct pair *p, int32_t slot_idx)
{
    request_slot_finish(request_slots_get(link_slots(p->engine), slot_idx), FINISH_LENGTH, NULL);
}

static int32_t next_submission(struct pair *p)
{
    int32_t slot_idx;
    return link_next_submission(p->engine, &slot_idx) ? slot_idx : -1;
}

static void test_two_mappings_are_one_link(void **state)
{
    (void)state;
    struct pair p = create();
    assert_true(link_state(p.front) == LINK_READY);
    assert_string_equal(link_facts(p.front)->device, "a device");
    assert_ptr_not_equal(link_slots(p.front), link_slots(p.engine));
    link_set_text(p.front, 7);
    assert_int_equal(link_tokenizer_eos_id(p.engine), 7);
    int32_t header[ANSWER_HEADER_MAX];
    assert_int_equal(link_answer_header(p.engine, header), 0);
    link_set_answer_header(p.front, (const int32_t[]){11, 12}, 2);
    assert_int_equal(link_answer_header(p.engine, header), 2);
    assert_true(header[0] == 11 && header[1] == 12);
    for (int i = 0; i < 320 / 64; i++) assert_int_equal(link_silent_ids(p.engine)[i], 0);
    link_silent_ids(p.front)[4] = 1u << 31;
    assert_int_equal(link_silent_ids(p.engine)[4], 1u << 31);
    int32_t slot_idx = submit(&p, 3);
    assert_int_equal(next_submission(&p), slot_idx);
    assert_int_equal(next_submission(&p), -1);
    assert_int_equal(request_slots_tokens(link_slots(p.engine), slot_idx)[2], slot_idx + 2);
    atomic_store(&request_slots_get(link_slots(p.engine), slot_idx)->num_published, 1);
    assert_int_equal(request_slots_get(link_slots(p.front), slot_idx)->num_published, 1);
    counter_add(&link_counters(p.engine)->num_steps, 5);
    struct link_stats stats;
    link_stats(p.front, &stats);
    assert_int_equal(stats.num_steps, 5);
    link_cancel(p.front, slot_idx);
    int32_t cancelled = -1;
    assert_true(link_next_cancelled(p.engine, &cancelled));
    assert_int_equal(cancelled, slot_idx);
    link_stop(p.front);
    assert_true(link_is_stopping(p.engine));
    destroy(&p);
}

static void test_what_an_engine_inherits(void **state)
{
    (void)state;
    struct error err = {0};
    struct pair p = create();
    assert_false(link_is_inherited(p.engine));
    link_silent_ids(p.front)[1] = 5;
    link_set_answer_header(p.front, (const int32_t[]){11}, 1);
    die(&p);
    int32_t header[ANSWER_HEADER_MAX];
    assert_int_equal(link_answer_header(p.engine, header), 1);
    assert_int_equal(link_silent_ids(p.engine)[1], 5);
    assert_true(link_is_inherited(p.engine));
    assert_int_equal(link_facts(p.engine)->vocab_size, 320);
    struct link_facts others[] = {facts, facts, facts, facts};
    others[0].vocab_size++;
    others[1].num_slots--;
    others[2].max_model_len++;
    others[3].num_guess_tokens++;
    for (size_t i = 0; i < array_length(others); i++) {
        struct link *engine = attach(p.front);
        assert_int_equal(link_open(engine, &others[i], &err), STATUS_INVALID);
        assert_string_equal(err.text, "the model or its limits are not what they were before");
        link_destroy(engine);
    }
    assert_int_equal(link_facts(p.front)->vocab_size, 320);
    destroy(&p);
}

/* Slots are used again in another order than they are numbered. */
static void test_hand_over_in_order_of_submission(void **state)
{
    (void)state;
    struct pair p = create();
    int32_t ids[4];
    for (int i = 0; i < 3; i++) ids[i] = submit(&p, 2);
    for (int i = 0; i < 3; i++) assert_int_equal(next_submission(&p), ids[i]);
    finish(&p, ids[0]);
    release(&p, ids[0]);
    ids[3] = submit(&p, 2);
    assert_int_equal(ids[3], ids[0]);
    finish(&p, ids[1]); /* nobody has looked at it yet: finished is finished */
    die(&p);
    assert_true(link_is_holding(p.front));
    assert_int_equal(next_submission(&p), -1); /* what the dead one had not taken is not in the ring twice */
    assert_int_equal(link_next_waiting(p.front, -1), ids[2]);
    assert_int_equal(link_next_waiting(p.front, ids[2]), ids[3]);
    assert_int_equal(link_next_waiting(p.front, ids[3]), -1);
    link_let_through(p.front);
    assert_int_equal(next_submission(&p), ids[2]);
    assert_int_equal(next_submission(&p), ids[3]);
    assert_int_equal(next_submission(&p), -1);
    assert_int_equal(link_next_waiting(p.front, -1), -1);
    destroy(&p);
}

static void test_what_is_submitted_while_held_waits(void **state)
{
    (void)state;
    struct pair p = create();
    int32_t first = submit(&p, 1), second;
    die(&p);
    second = submit(&p, 1);
    assert_int_equal(next_submission(&p), -1);
    link_hand_over(p.front, second);
    assert_int_equal(next_submission(&p), second);
    int32_t third = submit(&p, 1);
    link_let_through(p.front);
    assert_int_equal(next_submission(&p), first);
    assert_int_equal(next_submission(&p), third);
    int32_t fourth = submit(&p, 1);
    assert_int_equal(next_submission(&p), fourth);
    destroy(&p);
}

static void test_the_ring_takes_every_slot_after_each_death(void **state)
{
    (void)state;
    struct pair p = create();
    for (int i = 0; i < NUM_SLOTS; i++) submit(&p, 1);
    for (int death = 0; death < 3; death++) {
        die(&p);
        link_let_through(p.front);
        for (int i = 0; i < 20 * death; i++) assert_true(next_submission(&p) >= 0);
    }
    for (int i = 40; i < NUM_SLOTS; i++) assert_true(next_submission(&p) >= 0);
    assert_int_equal(next_submission(&p), -1);
    destroy(&p);
}

static void test_a_cancellation_outlives_the_engine(void **state)
{
    (void)state;
    struct pair p = create();
    int32_t slot_idx = submit(&p, 1), cancelled = -1;
    link_cancel(p.front, slot_idx);
    assert_true(link_next_cancelled(p.engine, &cancelled)); /* and there it dies */
    die(&p);
    link_let_through(p.front);
    assert_int_equal(next_submission(&p), slot_idx);
    assert_true(request_slots_get(link_slots(p.engine), slot_idx)->cancel);
    destroy(&p);
}

static void test_totals_go_on_and_steps_in_flight_never_end(void **state)
{
    (void)state;
    struct pair p = create();
    struct link_stats stats;
    counter_add(&link_counters(p.engine)->num_steps, 10);
    counter_add(&link_counters(p.engine)->num_steps_begun, 12);
    counter_add(&link_counters(p.engine)->generated_tokens, 99);
    die(&p);
    link_stats(p.front, &stats);
    assert_int_equal(stats.num_steps, 10);
    assert_int_equal(stats.num_steps_begun, 10);
    assert_int_equal(stats.generated_tokens, 99);
    destroy(&p);
}

static void test_finishing_in_the_engines_place(void **state)
{
    (void)state;
    struct pair p = create();
    int32_t first = submit(&p, 1), second = submit(&p, 1);
    die(&p);
    link_finish_waiting(p.front, first, FINISH_ERROR, "for this reason");
    struct request_slot *slot = request_slots_get(link_slots(p.front), first);
    assert_int_equal(slot->finish_reason, FINISH_ERROR);
    assert_string_equal(slot->error_text, "for this reason");
    assert_int_equal(link_next_waiting(p.front, -1), second);
    destroy(&p);
}

/* It died between an entry and the count that publishes it. */
static void test_a_released_slot_forgets_what_was_not_published(void **state)
{
    (void)state;
    const int32_t lengths[] = {2, MAX_MODEL_LEN - 1};
    for (size_t k = 0; k < array_length(lengths); k++) {
        struct pair p = create();
        int32_t slot_idx = submit(&p, lengths[k]);
        struct request_slots *slots = link_slots(p.engine);
        request_slots_get(slots, slot_idx)->input.sampling.num_logprobs = 1;
        request_slots_tokens(slots, slot_idx)[lengths[k]] = 7;
        request_slots_logprobs(slots, slot_idx)[lengths[k]].num_top = 1;
        die(&p);
        link_finish_waiting(p.front, slot_idx, FINISH_CANCELLED, NULL);
        release(&p, slot_idx);
        for (int32_t i = 0; i < MAX_MODEL_LEN; i++) {
            assert_int_equal(request_slots_tokens(link_slots(p.front), slot_idx)[i], 0);
            assert_int_equal(request_slots_logprobs(link_slots(p.front), slot_idx)[i].num_top, 0);
        }
        destroy(&p);
    }
}

/* One that has died may have died of it: the next begins with what is told by then. */
static void test_adapters_are_ordered_and_outlive_the_engine(void **state)
{
    (void)state;
    struct pair p = create();
    const char *text;
    int status;
    assert_int_equal(link_ordered_lora(p.engine), 0);
    link_tell_lora(p.front, 3, "/adapters/a");
    link_order_lora(p.front, 3);
    assert_int_equal(link_ordered_lora(p.engine), 3);
    assert_string_equal(link_lora(p.engine, 3), "/adapters/a");
    assert_false(link_hear_lora(p.front, &status, &text));
    link_answer_lora(p.engine, STATUS_INVALID, "no adapter");
    assert_int_equal(link_ordered_lora(p.engine), 0);
    assert_true(link_hear_lora(p.front, &status, &text));
    assert_int_equal(status, STATUS_INVALID);
    assert_string_equal(text, "no adapter");
    assert_false(link_hear_lora(p.front, &status, &text));

    link_tell_lora(p.front, LORA_PLACES_MAX, "/adapters/b");
    link_order_lora(p.front, LORA_PLACES_MAX);
    die(&p);
    assert_int_equal(link_ordered_lora(p.engine), 0);
    assert_true(link_hear_lora(p.front, &status, &text));
    assert_int_equal(status, STATUS_DEVICE);
    assert_string_equal(link_lora(p.engine, 3), "/adapters/a");
    die(&p);
    assert_false(link_hear_lora(p.front, &status, &text));
    destroy(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_mappings_are_one_link),
        cmocka_unit_test(test_what_an_engine_inherits),
        cmocka_unit_test(test_hand_over_in_order_of_submission),
        cmocka_unit_test(test_what_is_submitted_while_held_waits),
        cmocka_unit_test(test_the_ring_takes_every_slot_after_each_death),
        cmocka_unit_test(test_a_cancellation_outlives_the_engine),
        cmocka_unit_test(test_totals_go_on_and_steps_in_flight_never_end),
        cmocka_unit_test(test_finishing_in_the_engines_place),
        cmocka_unit_test(test_a_released_slot_forgets_what_was_not_published),
        cmocka_unit_test(test_adapters_are_ordered_and_outlive_the_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
