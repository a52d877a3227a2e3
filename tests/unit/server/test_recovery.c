/* What happens to requests when engines die: who is suspected, who is tried alone, who fails, and when it is
 * too much. The engine is played by hand. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <nettle/sha2.h>

#include "base/log.h"
#include "server/recovery.h"
#include "unit/link/link_rig.h"

enum { NUM_SLOTS = 16, NUM_PROMPT = 8 };

static const uint64_t S = 1000000000;

struct rig {
    struct link *link;
    struct recovery recovery;
    uint64_t now_ns;
};

static struct rig create(int32_t max_deaths)
{
    struct error err;
    struct rig r = {.link = link_rig_create(NUM_SLOTS, 64), .now_ns = 5 * S};
    assert_int_equal(recovery_init(&r.recovery, r.link, max_deaths, &err), 0);
    return r;
}

static void destroy(struct rig *r)
{
    recovery_deinit(&r->recovery);
    link_destroy(r->link);
}

/* ---- the front ---- */

static struct request_slot *slot_of(struct rig *r, int32_t slot_idx)
{
    return request_slots_get(link_slots(r->link), slot_idx);
}

static int32_t submit(struct rig *r)
{
    int32_t slot_idx;
    assert_int_equal(request_slots_acquire(link_slots(r->link), 1, &slot_idx), 0);
    slot_of(r, slot_idx)->input = (struct request_slot_input){
        .request_id = 77, .num_prompt_tokens = NUM_PROMPT, .max_tokens = 20, .sampling = {.seed = 9}};
    for (int32_t i = 0; i < NUM_PROMPT; i++) request_slots_tokens(link_slots(r->link), slot_idx)[i] = 3 * i;
    link_submit(r->link, slot_idx);
    return slot_idx;
}

/* ---- the engine ---- */

static void begin_step(struct rig *r)
{
    counter_add(&link_counters(r->link)->num_steps_begun, 1);
}

static void end_step(struct rig *r)
{
    counter_add(&link_counters(r->link)->num_steps, 1);
}

/* The newest step computes these tokens of it. */
static void take_part(struct rig *r, int32_t slot_idx, int32_t begin, int32_t end)
{
    uint64_t step = link_counters(r->link)->num_steps_begun;
    struct step_part *part = &slot_of(r, slot_idx)->parts[step % STEPS_IN_FLIGHT_MAX];
    part->begin = begin;
    part->end = end;
    part->step = step;
}

static void publish(struct rig *r, int32_t slot_idx)
{
    atomic_fetch_add(&slot_of(r, slot_idx)->num_published, 1);
}

/* Up to four slots have these tokens in a step that kills. -1: no more. */
static bool die_at(struct rig *r, const int32_t *slot_ids, int32_t begin, int32_t end)
{
    begin_step(r);
    for (; *slot_ids >= 0; slot_ids++) take_part(r, *slot_ids, begin, end);
    return recovery_on_death(&r->recovery, true, r->now_ns += S);
}

/* Returns what is with the new engine then, as a set of bits. */
static unsigned come_back(struct rig *r)
{
    unsigned slots = 0;
    int32_t slot_idx;
    link_set_state(r->link, LINK_READY, NULL);
    recovery_on_progress(&r->recovery);
    while (link_next_submission(r->link, &slot_idx)) slots |= 1u << slot_idx;
    return slots;
}

static unsigned more(struct rig *r)
{
    return come_back(r);
}

static unsigned bit(int32_t slot_idx)
{
    return 1u << slot_idx;
}

#define SLOTS(...) ((const int32_t[]){__VA_ARGS__, -1})

/* ---- the policy ---- */

static void test_one_death_hands_everybody_over(void **state)
{
    (void)state;
    struct rig r = create(0);
    int32_t a = submit(&r), b = submit(&r), c = submit(&r);
    publish(&r, a);
    request_slot_finish(slot_of(&r, c), FINISH_LENGTH, NULL);
    assert_true(die_at(&r, SLOTS(a, b), 0, 8));
    assert_int_equal(come_back(&r), bit(a) | bit(b));
    assert_false(link_is_holding(r.link));
    destroy(&r);
}

static void test_two_at_one_place_make_a_suspect(void **state)
{
    (void)state;
    struct rig r = create(0);
    int32_t a = submit(&r), b = submit(&r), c = submit(&r);
    assert_true(die_at(&r, SLOTS(b), 0, 8));
    assert_int_equal(come_back(&r), bit(a) | bit(b) | bit(c));
    assert_true(die_at(&r, SLOTS(b, c), 4, 12));
    assert_int_equal(come_back(&r), bit(b)); /* before those that are older */
    int32_t d = submit(&r);
    assert_int_equal(more(&r), 0); /* nothing has happened */
    publish(&r, b);
    assert_int_equal(more(&r), bit(a) | bit(c) | bit(d));
    assert_false(link_is_holding(r.link));
    destroy(&r);
}

static void test_getting_on_is_no_place(void **state)
{
    (void)state;
    struct rig r = create(0);
    int32_t a = submit(&r);
    for (int i = 0; i < 5; i++) { /* a token between any two deaths */
        assert_true(die_at(&r, SLOTS(a), 0, 8 + i));
        assert_int_equal(come_back(&r), bit(a));
        assert_false(link_is_holding(r.link));
        publish(&r, a);
    }
    for (int i = 0; i < 5; i++) { /* of a long prompt, another part each time */
        assert_true(die_at(&r, SLOTS(a), 2 * i, 2 * i + 2));
        come_back(&r);
        assert_false(link_is_holding(r.link));
    }
    destroy(&r);
}

/* A request that waits, or whose step has ended, was not there. */
static void test_who_was_not_on_board(void **state)
{
    (void)state;
    struct rig r = create(0);
    int32_t a = submit(&r), b = submit(&r);
    for (int i = 0; i < 6; i++) {
        begin_step(&r);
        take_part(&r, a, 0, 8);
        end_step(&r);
        begin_step(&r); /* this one kills; and so the next engine's steps are behind it in number */
        take_part(&r, b, i, i + 1);
        assert_true(recovery_on_death(&r.recovery, true, r.now_ns += S));
        assert_int_equal(come_back(&r), bit(a) | bit(b));
        assert_false(link_is_holding(r.link));
    }
    destroy(&r);
}

/* Whichever of the two it is that kills. */
static void test_two_steps_in_flight_are_one_place(void **state)
{
    (void)state;
    struct rig r = create(0);
    int32_t a = submit(&r);
    begin_step(&r);
    take_part(&r, a, 7, 8);
    assert_true(die_at(&r, SLOTS(a), 8, 9));
    assert_int_equal(come_back(&r), bit(a));
    assert_true(die_at(&r, SLOTS(a), 7, 8)); /* before the next was begun */
    assert_int_equal(come_back(&r), bit(a));
    assert_true(link_is_holding(r.link));
    destroy(&r);
}

static void test_a_slots_next_request_is_another(void **state)
{
    (void)state;
    struct rig r = create(0);
    int32_t a = submit(&r);
    assert_true(die_at(&r, SLOTS(a), 0, 8));
    come_back(&r);
    request_slot_finish(slot_of(&r, a), FINISH_CANCELLED, NULL);
    request_slots_release(link_slots(r.link), a);
    assert_int_equal(submit(&r), a);
    come_back(&r);
    assert_true(die_at(&r, SLOTS(a), 0, 8));
    assert_int_equal(come_back(&r), bit(a));
    assert_false(link_is_holding(r.link));
    destroy(&r);
}

static void make_suspects(struct rig *r, const int32_t *slot_ids)
{
    for (int i = 0; i < 2; i++) {
        assert_true(die_at(r, slot_ids, 0, 8));
        come_back(r);
    }
}

static void test_the_end_of_one_that_is_tried_lets_the_others_through(void **state)
{
    (void)state;
    const enum finish_reason ends[] = {FINISH_CANCELLED, FINISH_LENGTH, FINISH_ERROR};
    for (size_t i = 0; i < array_length(ends); i++) {
        struct rig r = create(0);
        int32_t a = submit(&r), b = submit(&r);
        make_suspects(&r, SLOTS(a));
        request_slot_finish(slot_of(&r, a), ends[i], NULL);
        assert_int_equal(more(&r), bit(b));
        destroy(&r);
    }
}

/* The death of something else meanwhile changes nothing. */
static void test_a_trial_is_repeated_when_it_was_none(void **state)
{
    (void)state;
    struct rig r = create(0);
    submit(&r);
    int32_t b = submit(&r);
    make_suspects(&r, SLOTS(b));
    assert_true(recovery_on_death(&r.recovery, true, r.now_ns += S));
    assert_true(slot_of(&r, b)->finish_reason == FINISH_NONE);
    assert_int_equal(come_back(&r), bit(b));
    destroy(&r);
}

static FILE *catch_stderr(int *saved)
{
    FILE *file = tmpfile();
    fflush(stderr);
    *saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    return file;
}

static void read_stderr(FILE *file, int saved, char *text, size_t size)
{
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
}

static void digest_of(struct rig *r, int32_t slot_idx, char text[65])
{
    struct sha256_ctx hash;
    uint8_t digest[SHA256_DIGEST_SIZE];
    sha256_init(&hash);
    sha256_update(&hash, NUM_PROMPT * sizeof(int32_t),
                  (const uint8_t *)request_slots_tokens(link_slots(r->link), slot_idx));
    sha256_update(&hash, sizeof(struct sampling), (const uint8_t *)&slot_of(r, slot_idx)->input.sampling);
    sha256_digest(&hash, sizeof digest, digest);
    for (int i = 0; i < SHA256_DIGEST_SIZE; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

static void test_the_third_death_alone_fails_it(void **state)
{
    (void)state;
    struct rig r = create(0);
    int32_t a = submit(&r), b = submit(&r);
    char text[2048], digest[65];
    int saved;
    make_suspects(&r, SLOTS(a, b)); /* a is tried first */
    digest_of(&r, a, digest);
    FILE *file = catch_stderr(&saved);
    assert_true(die_at(&r, SLOTS(a), 0, 8));
    read_stderr(file, saved, text, sizeof text);
    assert_int_equal(slot_of(&r, a)->finish_reason, FINISH_ERROR);
    assert_string_equal(slot_of(&r, a)->error_text, "the engine dies of this request");
    assert_non_null(strstr(text, "request 77 ended the engine 3 times"));
    assert_non_null(strstr(text, digest));
    assert_int_equal(come_back(&r), bit(b)); /* still a suspect */
    publish(&r, b);
    assert_int_equal(more(&r), 0);
    assert_false(link_is_holding(r.link));
    destroy(&r);
}

/* One that got through runs on beside the next; a death of both says nothing of either. */
static void test_a_death_in_company_fails_nobody(void **state)
{
    (void)state;
    struct rig r = create(0);
    int32_t a = submit(&r), b = submit(&r), c = submit(&r);
    make_suspects(&r, SLOTS(a, b));
    publish(&r, a);
    assert_int_equal(more(&r), bit(b));
    assert_true(die_at(&r, SLOTS(a, b), 0, 9));
    assert_int_equal(slot_of(&r, b)->finish_reason, FINISH_NONE);
    assert_int_equal(come_back(&r), bit(b));
    assert_true(die_at(&r, SLOTS(b), 0, 8));
    assert_int_equal(slot_of(&r, b)->finish_reason, FINISH_ERROR);
    assert_int_equal(come_back(&r), bit(a) | bit(c));
    destroy(&r);
}

/* ---- too many ---- */

static void test_deaths_in_ten_minutes(void **state)
{
    (void)state;
    struct rig r = create(3);
    uint64_t at = 1000 * S;
    assert_true(recovery_on_death(&r.recovery, true, at));
    assert_true(recovery_on_death(&r.recovery, true, at + 500 * S));
    assert_true(recovery_on_death(&r.recovery, true, at + 600 * S));  /* the first is ten minutes old */
    assert_true(recovery_on_death(&r.recovery, true, at + 1150 * S)); /* the second, too */
    assert_false(recovery_on_death(&r.recovery, true, at + 1199 * S));
    destroy(&r);
}

static void test_the_most_deaths_that_can_be_asked_for(void **state)
{
    (void)state;
    struct rig r = create(RECOVERY_DEATHS_MAX);
    for (int i = 0; i < 200; i++)
        assert_true(recovery_on_death(&r.recovery, true, (uint64_t)(i + 1) * 10 * S));
    for (int i = 0; i < 3; i++) assert_true(recovery_on_death(&r.recovery, true, 2000 * S + (uint64_t)i));
    bool goes_on = true;
    for (int i = 3; i < RECOVERY_DEATHS_MAX && goes_on; i++)
        goes_on = recovery_on_death(&r.recovery, true, 2000 * S + (uint64_t)i);
    assert_false(goes_on);
    destroy(&r);
    r = create(0);
    for (int i = 0; i < 200; i++) assert_true(recovery_on_death(&r.recovery, true, 7 * S));
    destroy(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_death_hands_everybody_over),
        cmocka_unit_test(test_two_at_one_place_make_a_suspect),
        cmocka_unit_test(test_getting_on_is_no_place),
        cmocka_unit_test(test_who_was_not_on_board),
        cmocka_unit_test(test_two_steps_in_flight_are_one_place),
        cmocka_unit_test(test_a_slots_next_request_is_another),
        cmocka_unit_test(test_the_end_of_one_that_is_tried_lets_the_others_through),
        cmocka_unit_test(test_a_trial_is_repeated_when_it_was_none),
        cmocka_unit_test(test_the_third_death_alone_fails_it),
        cmocka_unit_test(test_a_death_in_company_fails_nobody),
        cmocka_unit_test(test_deaths_in_ten_minutes),
        cmocka_unit_test(test_the_most_deaths_that_can_be_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
