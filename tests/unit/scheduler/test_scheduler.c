/* The policy alone: what a plan holds, in which order, and what is promised over many plans. Tokens are drawn
 * at once, there is no model. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "scheduler/scheduler.h"

enum { MAX_MODEL_LEN = 512, MAX_SEQS = 1000, NO_SEQ = NO_SEQUENCE };

struct bench {
    struct scheduler_options options;
    struct scheduler *scheduler;
    struct plan plan;
    int32_t tokens[MAX_SEQS][MAX_MODEL_LEN];
    int32_t num_added, finished[MAX_SEQS], num_finished; /* slots, in the order in which they finished */
};

static struct scheduler_options options_default(void)
{
    return (struct scheduler_options){.max_num_seqs = 8,
                                      .max_num_batched_tokens = 64,
                                      .max_num_logits = 8,
                                      .max_model_len = MAX_MODEL_LEN,
                                      .num_batch_slots = 8,
                                      .max_num_sequences = MAX_SEQS,
                                      .kv_groups = {.count = 1},
                                      .num_blocks = 64,
                                      .enable_prefix_caching = true,
                                      .prefill_decode_equal = true,
                                      .model_key = "m",
                                      .model_key_bytes = 1};
}

static struct bench *create(struct scheduler_options options)
{
    struct bench *b = calloc(1, sizeof(*b));
    assert_non_null(b);
    options.num_batch_slots = max_of(options.num_batch_slots, options.max_num_seqs);
    options.max_num_logits = max_of(options.max_num_logits, options.max_num_seqs);
    options.max_num_rows = max_of(options.max_num_rows, options.max_num_seqs);
    b->options = options;
    assert_int_equal(scheduler_create(&options, &b->scheduler, NULL), 0);
    assert_int_equal(plan_init(&b->plan, options.max_num_seqs, options.max_num_rows, options.num_host_blocks),
                     0);
    return b;
}

static void destroy(struct bench *b)
{
    scheduler_check(b->scheduler);
    plan_deinit(&b->plan);
    scheduler_destroy(b->scheduler);
    free(b);
}

struct who {
    uint64_t tenant_id, arrival_us;
    double weight;
    bool leaves_places;
    uint64_t owner_id;
    bool owner_leaves_places;
    int64_t num_beside;
};

/* prefix: prompts with the same one begin alike, all over; -1: alone in the world. */
static int32_t add_of(struct bench *b, struct who who, int32_t num_prompt, int32_t max_tokens, int32_t prefix,
                      bool prompt_logprobs)
{
    int32_t slot = b->num_added++, seq_id;
    for (int32_t i = 0; i < MAX_MODEL_LEN; i++)
        b->tokens[slot][i] = (prefix < 0 ? 1000 + slot : prefix) * 1000 + i;
    struct sequence_input input = {.slot_idx = slot,
                                   .tokens = b->tokens[slot],
                                   .num_prompt = num_prompt,
                                   .max_tokens = max_tokens,
                                   .prompt_logprobs = prompt_logprobs,
                                   .salt = "",
                                   .tenant_id = who.tenant_id,
                                   .owner_id = who.owner_id,
                                   .weight = who.weight,
                                   .leaves_places = who.leaves_places,
                                   .owner_leaves_places = who.owner_leaves_places,
                                   .arrival_us = who.arrival_us,
                                   .num_beside = who.num_beside};
    assert_int_equal(scheduler_add(b->scheduler, &input, &seq_id), 0);
    scheduler_check(b->scheduler);
    return seq_id;
}

static int32_t add(struct bench *b, int32_t num_prompt, int32_t max_tokens, int32_t prefix,
                   bool prompt_logprobs)
{
    return add_of(b, (struct who){0}, num_prompt, max_tokens, prefix, prompt_logprobs);
}

static void end_entry(struct bench *b, const struct plan_entry *e)
{
    const struct sequence *seq = scheduler_sequence(b->scheduler, e->seq_id);
    if (!scheduler_end_entry(b->scheduler, e)) return;
    if (e->samples) scheduler_append_token(b->scheduler, e->seq_id);
    bool done = e->samples ? seq->num_tokens - seq->num_prompt == seq->max_tokens
                           : seq->max_tokens == 0 && e->position + e->num_tokens == seq->num_prompt;
    if (!done) return;
    b->finished[b->num_finished++] = seq->slot_idx;
    scheduler_finish(b->scheduler, e->seq_id, true);
}

/* One step of a device with one step in flight. */
static enum schedule_result turn(struct bench *b)
{
    enum schedule_result result = scheduler_plan(b->scheduler, &b->plan);
    scheduler_check(b->scheduler);
    assert_true(b->plan.num_tokens <= b->options.max_num_batched_tokens);
    assert_true(b->plan.num_logits <= b->options.max_num_logits);
    assert_true(plan_num_step_seqs(&b->plan) <= b->options.max_num_rows);
    if (result != SCHEDULE_STEP) return result;
    scheduler_end_step(b->scheduler);
    for (int32_t i = 0; i < b->plan.num_prefills; i++) end_entry(b, &b->plan.prefills[i]);
    for (int32_t i = 0; i < b->plan.num_decodes; i++) end_entry(b, &b->plan.decodes[i]);
    scheduler_check(b->scheduler);
    return result;
}

static int32_t run_all(struct bench *b)
{
    int32_t num_turns = 0;
    while (turn(b) == SCHEDULE_STEP) assert_true(++num_turns < 100000);
    assert_true(scheduler_is_empty(b->scheduler));
    return num_turns;
}

static void expect_entry(const struct plan_entry *e, int32_t seq_id, int32_t position, int32_t num_tokens,
                         bool samples)
{
    assert_int_equal(e->seq_id, seq_id);
    assert_int_equal(e->position, position);
    assert_int_equal(e->num_tokens, num_tokens);
    assert_int_equal(e->samples, samples);
}

static void test_prompts_are_chunked_and_mixed_with_decodes(void **state)
{
    (void)state;
    struct bench *b = create(options_default());
    int32_t one = add(b, 10, 5, -1, false), two = add(b, 100, 5, -1, false), three = add(b, 30, 5, -1, false);
    assert_int_equal(turn(b), SCHEDULE_STEP);
    assert_int_equal(b->plan.num_prefills, 2);
    assert_int_equal(b->plan.num_decodes, 0);
    expect_entry(&b->plan.prefills[0], one, 0, 10, true);
    expect_entry(&b->plan.prefills[1], two, 0, 54, false);
    assert_true(b->plan.prefills[0].admitted && b->plan.prefills[1].admitted);
    assert_int_equal(turn(b), SCHEDULE_STEP);
    expect_entry(&b->plan.decodes[0], one, 10, 1, true);
    expect_entry(&b->plan.prefills[0], two, 54, 46, true);
    expect_entry(&b->plan.prefills[1], three, 0, 17, false);
    assert_false(b->plan.prefills[0].admitted);
    assert_true(b->plan.prefills[1].admitted);
    assert_int_equal(turn(b), SCHEDULE_STEP);
    assert_int_equal(b->plan.num_decodes, 2);
    expect_entry(&b->plan.prefills[0], three, 17, 13, true);
    run_all(b);
    destroy(b);
}

/* In one step each, whatever the time, and none waits for ever behind shorter ones. */
static void test_whole_prompts(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    options.max_num_batched_tokens = options.max_num_logits = MAX_MODEL_LEN;
    options.whole_prompts = true;
    options.enable_prefix_caching = false;
    options.target_us = 100;
    struct bench *b = create(options);
    const struct step_prices prices = {
        .prompt_step = 10, .decode_step = 10, .prompt_token = 20, .decode_token = 20};
    scheduler_set_prices(b->scheduler, &prices);
    static const enum pooling poolings[] = {POOLING_MEAN, POOLING_FIRST, POOLING_LAST};
    int32_t lengths[] = {30, MAX_MODEL_LEN, 1, 17, 64, 2, MAX_MODEL_LEN - 1, 5, 40}, num_steps = 0;
    for (size_t i = 0; i < array_length(lengths); i++) {
        int32_t slot = b->num_added++, seq_id;
        for (int32_t j = 0; j < MAX_MODEL_LEN; j++) b->tokens[slot][j] = j;
        struct sequence_input input = {.slot_idx = slot,
                                       .tokens = b->tokens[slot],
                                       .num_prompt = lengths[i],
                                       .pooling = poolings[i % 3],
                                       .salt = ""};
        assert_int_equal(scheduler_add(b->scheduler, &input, &seq_id), 0);
    }
    while (turn(b) == SCHEDULE_STEP) {
        assert_int_equal(b->plan.num_decodes, 0);
        for (int32_t i = 0; i < b->plan.num_prefills; i++) {
            const struct plan_entry *e = &b->plan.prefills[i];
            int32_t slot = b->finished[b->num_finished - b->plan.num_prefills + i];
            assert_int_equal(e->position, 0);
            assert_int_equal(e->num_tokens, lengths[slot]);
            assert_int_equal(e->num_score_rows, poolings[slot % 3] == POOLING_MEAN ? lengths[slot] : 1);
            assert_int_equal(e->score_position, poolings[slot % 3] == POOLING_LAST ? lengths[slot] - 1 : 0);
        }
        num_steps++;
    }
    assert_int_equal(b->num_finished, array_length(lengths));
    assert_true(num_steps > 2);
    destroy(b);
}

/* A budget that decodes could use up leaves a token for the prompts. */
static void test_decodes_do_not_starve_prefills(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    options.max_num_batched_tokens = 8;
    struct bench *b = create(options);
    for (int i = 0; i < 7; i++) add(b, 1, 100, -1, false);
    int32_t long_prompt = add(b, 40, 1, -1, false);
    for (int i = 0; i < 45; i++) turn(b);
    assert_int_equal(b->num_finished, 1);
    assert_int_equal(scheduler_sequence(b->scheduler, long_prompt)->state, SEQUENCE_FREE);
    run_all(b);
    destroy(b);
}

static void test_first_come_first_served(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    options.max_num_seqs = 2;
    struct bench *b = create(options);
    for (int i = 0; i < 20; i++) add(b, 20, 4, -1, false);
    run_all(b);
    for (int i = 0; i < 20; i++) assert_int_equal(b->finished[i], i);
    destroy(b);
}

static void test_the_youngest_is_preempted_and_comes_back(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    options.max_num_batched_tokens = 512;
    options.num_blocks = 8;
    options.enable_prefix_caching = false;
    struct bench *b = create(options);
    int32_t old = add(b, 30, 60, -1, false), young = add(b, 30, 60, -1, false);
    struct scheduler_stats stats;
    do {
        assert_int_equal(turn(b), SCHEDULE_STEP);
        scheduler_stats(b->scheduler, &stats);
    } while (stats.num_preemptions == 0);
    assert_int_equal(scheduler_sequence(b->scheduler, young)->state, SEQUENCE_WAITING);
    assert_int_equal(scheduler_sequence(b->scheduler, old)->state, SEQUENCE_RUNNING);
    int32_t num_tokens = scheduler_sequence(b->scheduler, young)->num_tokens;
    assert_true(num_tokens > 30);
    add(b, 1, 1, -1, false); /* would fit, but nobody passes one that was preempted */
    while (scheduler_sequence(b->scheduler, young)->state == SEQUENCE_WAITING)
        assert_int_equal(turn(b), SCHEDULE_STEP);
    expect_entry(&b->plan.prefills[0], young, 0, num_tokens, true); /* prompt and what it had generated */
    run_all(b);
    assert_int_equal(b->finished[0], 0);
    assert_int_equal(b->num_finished, 3);
    destroy(b);
}

/* ---- layers with a state ---- */

static struct bench *create_with_states(int32_t num_states, int32_t num_blocks, int32_t num_host_blocks)
{
    struct scheduler_options options = options_default();
    options.max_num_batched_tokens = 256;
    options.num_states = num_states;
    options.num_blocks = num_blocks;
    options.num_host_blocks = num_host_blocks;
    return create(options);
}

static void expect_copy(const struct bench *b, int32_t i, int32_t seq_id, int32_t position, bool keeps)
{
    assert_true(i < b->plan.num_state_copies);
    const struct state_copy *c = &b->plan.state_copies[i];
    assert_int_equal(c->batch_slot, scheduler_sequence(b->scheduler, seq_id)->batch_slot);
    assert_int_equal(c->position, position);
    assert_int_equal(c->keeps, keeps);
    assert_true(c->state >= 0 && c->state < b->options.num_states);
}

/* A part of a prompt ends where its state is kept, which is done before the next one. */
static void test_a_prompts_state_is_kept_and_found(void **state)
{
    (void)state;
    struct bench *b = create_with_states(4, 64, 0);
    int32_t one = add(b, 150, 2, 7, false);
    assert_int_equal(turn(b), SCHEDULE_STEP);
    expect_entry(&b->plan.prefills[0], one, 0, 128, false);
    assert_int_equal(b->plan.num_state_copies, 0);
    assert_int_equal(turn(b), SCHEDULE_STEP);
    expect_entry(&b->plan.prefills[0], one, 128, 22, true);
    assert_int_equal(b->plan.num_state_copies, 1);
    expect_copy(b, 0, one, 128, true);
    int32_t kept = b->plan.state_copies[0].state, two = add(b, 150, 2, 7, false);
    assert_int_equal(turn(b), SCHEDULE_STEP);
    expect_entry(&b->plan.prefills[0], two, 128, 22, true);
    assert_int_equal(b->plan.num_state_copies, 1);
    expect_copy(b, 0, two, 128, false);
    assert_int_equal(b->plan.state_copies[0].state, kept);
    assert_int_equal(scheduler_sequence(b->scheduler, two)->num_cached_tokens, 128);
    run_all(b);
    destroy(b);
}

/* The second of those who begin alike finds where they part, the third goes on from there. */
static void test_a_state_is_kept_where_prompts_part(void **state)
{
    (void)state;
    struct bench *b = create_with_states(8, 64, 0);
    int32_t ids[3], cached[3];
    for (int i = 0; i < 3; i++) {
        ids[i] = add(b, 300, 1, 7, false);
        b->tokens[b->num_added - 1][100] = 5000 + i; /* 96 are alike */
        cached[i] = -1;
        while (turn(b) == SCHEDULE_STEP) {
            if (b->plan.num_prefills == 0 || cached[i] >= 0) continue;
            cached[i] = b->plan.prefills[0].position;
            assert_int_equal(b->plan.prefills[0].seq_id, ids[i]);
            assert_int_equal(b->plan.prefills[0].num_tokens, i == 1 ? 64 : i == 2 ? 192 : 256);
        }
    }
    assert_true(cached[0] == 0 && cached[1] == 0 && cached[2] == 64);
    destroy(b);
}

/* Of what it generates the newest alone stays, in the place of the one before. */
static void test_a_conversation_goes_on_behind_its_answer(void **state)
{
    (void)state;
    struct bench *b = create_with_states(2, 64, 0);
    add(b, 70, 200, 7, false);
    int32_t num_kept = 0, places[8];
    while (turn(b) == SCHEDULE_STEP)
        for (int32_t i = 0; i < b->plan.num_state_copies; i++) {
            assert_int_equal(b->plan.state_copies[i].position, 64 * (num_kept + 1));
            places[num_kept++] = b->plan.state_copies[i].state;
        }
    assert_int_equal(num_kept, 4);
    assert_true(places[1] != places[0] && places[2] == places[1] && places[3] == places[1]);
    int32_t next = add(b, 280, 2, 7, false); /* 70 + 200 and 10 more */
    assert_int_equal(turn(b), SCHEDULE_STEP);
    expect_entry(&b->plan.prefills[0], next, 256, 24, true);
    expect_copy(b, 0, next, 256, false);
    run_all(b);
    destroy(b);
}

/* A preempted one is saved with its state, which nobody else gets meanwhile. */
static void test_a_state_is_saved_with_its_blocks(void **state)
{
    (void)state;
    for (int32_t num_states = 1; num_states <= 2; num_states++) {
        struct bench *b = create_with_states(num_states, 8, 8);
        add(b, 30, 60, -1, false);
        int32_t young = add(b, 30, 60, -1, false);
        do assert_int_equal(turn(b), SCHEDULE_STEP);
        while (b->plan.num_preemptions == 0);
        const struct preemption *p = &b->plan.preemptions[0];
        assert_true(p->saved && p->has_state);
        int32_t saved = b->plan.state_copies[0].state, position = p->num_tokens;
        assert_true(b->plan.state_copies[0].keeps && b->plan.state_copies[0].position == position);
        while (turn(b) == SCHEDULE_STEP && scheduler_sequence(b->scheduler, young)->state == SEQUENCE_WAITING)
            for (int32_t i = 0; i < b->plan.num_state_copies; i++)
                assert_int_not_equal(b->plan.state_copies[i].state, saved);
        expect_copy(b, b->plan.num_state_copies - 1, young, position, false);
        assert_int_equal(b->plan.state_copies[b->plan.num_state_copies - 1].state, saved);
        run_all(b);
        destroy(b);
    }
}

/* Prices under which a block is copied for copy_us: a token costs 10 us in a prompt, 35 in a step of two. */
static struct step_prices prices_of_copies(double copy_us)
{
    return (struct step_prices){
        .prompt_token = 10, .decode_token = 10, .decode_step = 50, .block_copy = copy_us};
}

enum replay { REPLAY_AS_PROMPT, REPLAY_BY_TOKEN, REPLAY_IN_RUNS };

static struct bench *create_offloading(int32_t num_host_blocks, double copy_us, enum replay replay)
{
    struct scheduler_options options = options_default();
    options.max_num_batched_tokens = 512;
    options.num_blocks = 8;
    options.num_host_blocks = num_host_blocks;
    options.prefill_decode_equal = replay == REPLAY_AS_PROMPT;
    options.decode_runs = replay == REPLAY_IN_RUNS;
    options.enable_prefix_caching = false;
    struct bench *b = create(options);
    struct step_prices p = prices_of_copies(copy_us);
    scheduler_set_prices(b->scheduler, &p);
    return b;
}

static struct sequence_input input_resumed(struct bench *b, int32_t num_prompt, int32_t num_generated)
{
    return (struct sequence_input){.slot_idx = b->num_added++,
                                   .tokens = b->tokens[0],
                                   .num_prompt = num_prompt,
                                   .max_tokens = num_generated + 10,
                                   .num_generated = num_generated,
                                   .salt = ""};
}

/* Behind another engine: those who have the beginning of an answer come before all of their owner's who wait, whoever is due first and
 * whose turn it is. */
static void test_begun_answers_go_on_first(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    options.max_num_seqs = 2;
    struct bench *b = create(options);
    int32_t ids[2];
    for (int i = 0; i < 6; i++)
        add_of(b, (struct who){.tenant_id = 1 + (uint64_t)i % 2, .owner_id = 3}, 8, 3, -1, false);
    for (int i = 0; i < 2; i++) {
        struct sequence_input input = input_resumed(b, 20, 5);
        input.arrival_us = 1000000; /* the others have come before them */
        input.tenant_id = 1;
        input.owner_id = 3;
        assert_int_equal(scheduler_add(b->scheduler, &input, &ids[i]), 0);
    }
    assert_int_equal(turn(b), SCHEDULE_STEP);
    assert_int_equal(plan_num_entries(&b->plan), 2);
    for (int i = 0; i < 2; i++) assert_int_equal(plan_get_entry(&b->plan, i)->seq_id, ids[i]);
    while (b->num_finished < 8) assert_int_equal(turn(b), SCHEDULE_STEP);
    for (int i = 0; i < 2; i++) assert_true(b->finished[i] >= 6);
    destroy(b);
}

/* What a dead engine has drawn takes the step's sequences that others leave, and draws with its last token alone. */
static void test_known_tokens_are_replayed_in_runs(void **state)
{
    (void)state;
    for (int runs = 0; runs < 2; runs++) {
        struct scheduler_options options = options_default();
        options.prefill_decode_equal = false;
        options.decode_runs = runs;
        struct bench *b = create(options);
        add(b, 5, 60, -1, false);
        turn(b);
        struct sequence_input input = input_resumed(b, 20, 30);
        int32_t id, at = 20, num_turns = 0;
        assert_int_equal(scheduler_add(b->scheduler, &input, &id), 0);
        turn(b);
        if (runs)
            expect_entry(&b->plan.decodes[1], id, 0, at += 6, false); /* prompt and other have two places */
        else
            expect_entry(&b->plan.prefills[0], id, 0, at, false);
        for (; at < 50; num_turns++) {
            int32_t num_tokens = runs ? min_of(7, 50 - at) : 1; /* the other one has the eighth place */
            assert_int_equal(turn(b), SCHEDULE_STEP);
            assert_int_equal(b->plan.num_decodes, 2);
            bool is_last = at + num_tokens == 50, is_first = b->plan.decodes[0].seq_id == id;
            expect_entry(&b->plan.decodes[!is_first], id, at, num_tokens, is_last);
            assert_int_equal(plan_num_step_seqs(&b->plan), 1 + num_tokens);
            at += num_tokens;
        }
        assert_int_equal(num_turns, runs ? 4 : 30);
        run_all(b);
        destroy(b);
    }
}

/* A run takes no longer than the target leaves it. */
static void test_runs_keep_the_target(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    options.prefill_decode_equal = false;
    options.decode_runs = true;
    options.target_us = 400;
    struct bench *b = create(options);
    struct step_prices p = {.prompt_token = 1, .prompt_step = 10, .decode_token = 100, .decode_step = 10};
    scheduler_set_prices(b->scheduler, &p);
    add(b, 5, 60, -1, false);
    turn(b);
    struct sequence_input input = input_resumed(b, 20, 30);
    int32_t id;
    assert_int_equal(scheduler_add(b->scheduler, &input, &id), 0);
    turn(b);
    expect_entry(&b->plan.decodes[1], id, 0, 20 + 2, false); /* 400 - 100 - 10 - 20 */
    turn(b);
    expect_entry(&b->plan.decodes[1], id, 22, 2, false); /* 400 - 100 - 10 */
    run_all(b);
    destroy(b);
}

/* Two that grow until the younger one is preempted. */
static int32_t preempt_one(struct bench *b)
{
    add(b, 30, 60, -1, false);
    int32_t young = add(b, 30, 60, -1, false);
    do assert_int_equal(turn(b), SCHEDULE_STEP);
    while (b->plan.num_preemptions == 0);
    assert_int_equal(b->plan.num_preemptions, 1);
    assert_int_equal(b->plan.preemptions[0].slot_idx, scheduler_sequence(b->scheduler, young)->slot_idx);
    return young;
}

static int32_t num_free_host_blocks(const struct bench *b)
{
    struct scheduler_stats stats;
    scheduler_stats(b->scheduler, &stats);
    return stats.num_free_host_blocks;
}

static void test_a_preempted_one_comes_back_to_its_blocks(void **state)
{
    (void)state;
    struct bench *b = create_offloading(6, 1, REPLAY_AS_PROMPT);
    int32_t young = preempt_one(b), hosts[4];
    int32_t num_computed = b->plan.preemptions[0].num_tokens;
    assert_true(b->plan.preemptions[0].saved);
    assert_int_equal(num_computed, 64);
    assert_int_equal(b->plan.saves.count, 4);
    assert_int_equal(num_free_host_blocks(b), 2);
    memcpy(hosts, b->plan.saves.host_ids, sizeof hosts);
    while (scheduler_sequence(b->scheduler, young)->state == SEQUENCE_WAITING)
        assert_int_equal(turn(b), SCHEDULE_STEP);
    assert_int_equal(b->plan.loads.count, 4);
    assert_memory_equal(b->plan.loads.host_ids, hosts, sizeof hosts);
    assert_memory_equal(
        b->plan.loads.block_ids,
        kv_tables_get(scheduler_tables(b->scheduler), scheduler_sequence(b->scheduler, young)->batch_slot, 0)
            ->block_ids,
        sizeof hosts);
    expect_entry(&b->plan.prefills[0], young, num_computed, 1, true);
    assert_int_equal(num_free_host_blocks(b), 6);
    run_all(b);
    assert_int_equal(b->num_finished, 2);
    destroy(b);
}

static void expect_choice(int32_t num_host_blocks, double copy_us, enum replay replay, bool saved)
{
    static const double compute_us[] = {640, 30 * 10 + 34 * 35, 640 + 5 * 25};
    struct bench *b = create_offloading(num_host_blocks, copy_us, replay);
    preempt_one(b);
    const struct preemption *p = &b->plan.preemptions[0];
    assert_int_equal(p->saved, saved);
    assert_int_equal(b->plan.saves.count, saved ? 4 : 0);
    assert_true(p->restore_us == 8 * copy_us);
    assert_true(p->compute_us == compute_us[replay]);
    run_all(b);
    destroy(b);
}

/* 64 tokens in 4 blocks, copied twice; where halves differ, 34 of them take a step each, or 5 steps. */
static void test_the_cheaper_way_is_chosen(void **state)
{
    (void)state;
    expect_choice(4, 79, REPLAY_AS_PROMPT, true);
    expect_choice(4, 81, REPLAY_AS_PROMPT, false);
    expect_choice(4, 186, REPLAY_BY_TOKEN, true);
    expect_choice(4, 187, REPLAY_BY_TOKEN, false);
    expect_choice(4, 95, REPLAY_IN_RUNS, true);
    expect_choice(4, 96, REPLAY_IN_RUNS, false);
    expect_choice(3, 1, REPLAY_AS_PROMPT, false); /* no room */
    expect_choice(0, 0, REPLAY_AS_PROMPT, false);
}

static void test_what_is_saved_goes_with_its_sequence(void **state)
{
    (void)state;
    struct bench *b = create_offloading(6, 1, REPLAY_AS_PROMPT);
    int32_t young = preempt_one(b);
    assert_int_equal(num_free_host_blocks(b), 2);
    scheduler_finish(b->scheduler, young, true);
    assert_int_equal(num_free_host_blocks(b), 6);
    run_all(b);
    destroy(b);
}

/* Sequences that all grow to the same length: nobody is preempted again after a few tokens. */
static void test_no_thrashing_when_all_grow_alike(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    options.num_blocks = options.num_host_blocks = 64;
    options.enable_prefix_caching = false;
    struct bench *b = create(options);
    int32_t begins[MAX_SEQS] = {0}, least = INT32_MAX;
    for (int i = 0; i < 24; i++) add(b, 16, 240, -1, false);
    while (turn(b) == SCHEDULE_STEP) {
        for (int32_t i = 0; i < b->plan.num_preemptions; i++) {
            const struct preemption *p = &b->plan.preemptions[i];
            if (begins[p->slot_idx] > 0) least = min_of(least, p->num_tokens - begins[p->slot_idx]);
            begins[p->slot_idx] = p->num_tokens;
        }
    }
    struct scheduler_stats stats;
    scheduler_stats(b->scheduler, &stats);
    assert_int_equal(b->num_finished, 24);
    assert_in_range(stats.num_preemptions, 1, 24);
    assert_true(least >= ROOM_BLOCKS / 2 * BLOCK_SIZE);
    destroy(b);
}

/* Many sequences that want far more than the pool has: each finishes, the oldest never loses anything. */
static void test_the_oldest_always_finishes(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 40; round++) {
        struct scheduler_options options = options_default();
        options.num_blocks = 12;
        options.num_host_blocks = (int32_t)(round % 5) * 3;
        options.prefill_decode_equal = round % 2;
        options.decode_runs = round % 4 == 2;
        struct bench *b = create(options);
        for (uint64_t i = 0; i < 30; i++) {
            struct rng_block r = rng_philox(round, i, 0);
            int32_t num_prompt = 1 + (int32_t)(r.word[0] % 90), max_tokens = 1 + (int32_t)(r.word[1] % 100);
            add(b, num_prompt, max_tokens, (int32_t)(r.word[2] % 3), r.word[3] % 8 == 0);
        }
        run_all(b);
        assert_int_equal(b->num_finished, 30);
        struct scheduler_stats stats;
        scheduler_stats(b->scheduler, &stats);
        assert_int_equal(stats.num_held_blocks, 0);
        assert_int_equal(stats.num_free_host_blocks, options.num_host_blocks);
        destroy(b);
    }
}

/* A large request waits for blocks while an endless stream of small ones could always use them. */
static void test_aging_bounds_the_waiting(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    options.num_blocks = 10;
    options.enable_prefix_caching = false;
    struct bench *b = create(options);
    for (int i = 0; i < 2; i++) add(b, 16, 16, -1, false);
    turn(b);
    int32_t large = add(b, 9 * BLOCK_SIZE, 8, -1, false);
    int32_t num_passed = 0;
    while (scheduler_sequence(b->scheduler, large)->state == SEQUENCE_WAITING) {
        add(b, 16, 16, -1, false);
        turn(b);
        for (int32_t i = 0; i < b->plan.num_prefills; i++) num_passed += b->plan.prefills[i].admitted;
        assert_true(b->num_added < 200);
    }
    assert_in_range(num_passed, 1, BYPASS_MAX + 1);
    run_all(b);
    destroy(b);
}

/* Nothing waits that could run: as long as somebody waits, all sequence places or all tokens are used, or the
 * next in line would not fit. */
static void test_work_is_conserved(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    struct bench *b = create(options);
    for (uint64_t i = 0; i < 200; i++) {
        struct rng_block r = rng_philox(5, i, 0);
        add(b, 1 + (int32_t)(r.word[0] % 60), 1 + (int32_t)(r.word[1] % 40), -1, false);
    }
    struct scheduler_stats stats;
    while (turn(b) == SCHEDULE_STEP) {
        scheduler_stats(b->scheduler, &stats);
        int32_t num_in_step = b->plan.num_prefills + b->plan.num_decodes;
        if (stats.num_waiting == 0) continue;
        assert_true(num_in_step == 8 || b->plan.num_tokens == 64);
    }
    destroy(b);
}

/* A prompt of answers: a header, the answer, its end, and so on; words are below 100000. */
enum { HEADER = 900001, END = 900002 };

static struct scheduler_options options_with_answers(int32_t num_blocks)
{
    struct scheduler_options options = options_default();
    options.num_blocks = num_blocks;
    options.max_num_batched_tokens = 512;
    options.prefill_decode_equal = false;
    options.decode_runs = true;
    return options;
}

static struct bench *create_by_rule(struct scheduler_options options)
{
    static const struct answer_rule rule = {
        .num_header = 1, .header = {HEADER}, .num_ends = 1, .ends = {END}};
    struct bench *b = create(options);
    scheduler_set_answer_rule(b->scheduler, &rule);
    return b;
}

static struct bench *create_with_answers(int32_t num_blocks)
{
    return create_by_rule(options_with_answers(num_blocks));
}

static int32_t ask(struct bench *b, const int32_t *tokens, int32_t num_tokens, int32_t max_tokens,
                   const char *salt)
{
    int32_t slot = b->num_added++, id;
    memcpy(b->tokens[slot], tokens, (size_t)num_tokens * sizeof(tokens[0]));
    for (int32_t i = num_tokens; i < MAX_MODEL_LEN; i++) b->tokens[slot][i] = 5000 + i;
    struct sequence_input input = {.slot_idx = slot,
                                   .tokens = b->tokens[slot],
                                   .num_prompt = num_tokens,
                                   .max_tokens = max_tokens,
                                   .salt = salt,
                                   .salt_bytes = (int32_t)strlen(salt)};
    assert_int_equal(scheduler_add(b->scheduler, &input, &id), 0);
    return id;
}

static struct plan_run run_of(const struct bench *b, const struct plan_entry *e, int32_t i)
{
    assert_in_range(i, 0, e->num_runs - 1);
    return b->plan.runs[e->first_run + i];
}

static void expect_run(const struct bench *b, const struct plan_entry *e, int32_t i, int32_t num_tokens,
                       bool decodes)
{
    assert_int_equal(run_of(b, e, i).num_tokens, num_tokens);
    assert_int_equal(run_of(b, e, i).decodes, decodes);
}

static const int32_t two_turns[] = {1, 2, 3, HEADER, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, END, 14, HEADER, 15};

/* Runs of both kinds go in one step, each to its half, as far as there are rows for them. */
static void test_earlier_answers_are_replayed(void **state)
{
    (void)state;
    struct bench *b = create_with_answers(64);
    int32_t id = ask(b, two_turns, (int32_t)array_length(two_turns), 3, "");
    const struct plan_entry *e = &b->plan.decodes[0];
    turn(b);
    assert_int_equal(plan_num_entries(&b->plan), 1);
    expect_entry(e, id, 0, 11, false);
    assert_int_equal(e->num_runs, 2);
    expect_run(b, e, 0, 4, false);
    expect_run(b, e, 1, 7, true);
    assert_int_equal(plan_num_step_seqs(&b->plan), 8);
    turn(b);
    assert_int_equal(plan_num_entries(&b->plan), 1);
    expect_entry(e, id, 11, 7, true);
    assert_int_equal(e->num_runs, 3);
    expect_run(b, e, 0, 3, true);
    expect_run(b, e, 1, 3, false);
    expect_run(b, e, 2, 1, true);
    assert_int_equal(b->plan.num_prefill_tokens, 3);
    run_all(b);
    destroy(b);
}

/* More rows than sequences: all at once. */
static void test_a_conversation_is_one_step(void **state)
{
    (void)state;
    struct scheduler_options options = options_with_answers(64);
    options.max_num_rows = 32;
    struct bench *b = create_by_rule(options);
    int32_t id = ask(b, two_turns, (int32_t)array_length(two_turns), 3, "");
    turn(b);
    expect_entry(&b->plan.decodes[0], id, 0, (int32_t)array_length(two_turns), true);
    assert_int_equal(b->plan.decodes[0].num_runs, 4);
    assert_int_equal(plan_num_step_seqs(&b->plan), 2 + 11);
    for (int i = 0; i < 8; i++) add(b, 5, 60, -1, false);
    turn(b);
    assert_int_equal(plan_num_entries(&b->plan), 8); /* no more sequences than there were */
    run_all(b);
    destroy(b);
}

/* Rows that report on tokens have one order: a run a step. */
static void test_scored_prompts_take_a_run_a_step(void **state)
{
    (void)state;
    struct bench *b = create_with_answers(64);
    int32_t slot = b->num_added++, id, ends[] = {4, 12, 14, 17, 18}, at = 0;
    memcpy(b->tokens[slot], two_turns, sizeof two_turns);
    struct sequence_input input = {.slot_idx = slot,
                                   .tokens = b->tokens[slot],
                                   .num_prompt = (int32_t)array_length(two_turns),
                                   .max_tokens = 1,
                                   .prompt_logprobs = true,
                                   .salt = ""};
    assert_int_equal(scheduler_add(b->scheduler, &input, &id), 0);
    for (size_t i = 0; i < array_length(ends); at = ends[i++]) {
        turn(b);
        assert_int_equal(plan_num_entries(&b->plan), 1);
        const struct plan_entry *e = plan_get_entry(&b->plan, 0);
        assert_int_equal(e->num_runs, 1);
        expect_entry(e, id, at, ends[i] - at, ends[i] == input.num_prompt);
    }
    run_all(b);
    destroy(b);
}

/* What a step's prompts see is in memory of its own: each counts whole blocks and one more. */
static void test_prompts_see_no_more_keys_than_there_is_room_for(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    options.max_num_prefill_keys = MAX_MODEL_LEN + 2 * BLOCK_SIZE;
    options.enable_prefix_caching = false;
    options.num_blocks = 128;
    options.max_num_batched_tokens = 4 * MAX_MODEL_LEN;
    struct bench *b = create(options);
    const int32_t half = MAX_MODEL_LEN / 2 - BLOCK_SIZE; /* counts half of MAX_MODEL_LEN */
    for (int i = 0; i < 4; i++) add(b, half, 2, -1, false);
    turn(b);
    assert_int_equal(b->plan.num_prefills, 3);
    struct scheduler_stats stats;
    scheduler_stats(b->scheduler, &stats);
    assert_int_equal(stats.num_running, 3); /* nobody gets blocks to wait with */
    assert_int_equal(b->plan.prefills[1].num_tokens, half);
    assert_int_equal(b->plan.prefills[2].num_tokens,
                     BLOCK_SIZE); /* and a block more: all of the two that were left */
    assert_int_equal(b->plan.num_prefill_keys, options.max_num_prefill_keys);
    run_all(b);
    add(b, MAX_MODEL_LEN - 2, 2, -1, false);
    turn(b);
    assert_int_equal(b->plan.prefills[0].num_tokens, MAX_MODEL_LEN - 2);
    run_all(b);
    destroy(b);
}

/* Runs that there is no time for wait for the next step. */
static void test_runs_of_both_kinds_keep_the_target(void **state)
{
    (void)state;
    struct scheduler_options options = options_with_answers(64);
    options.target_us = 400;
    options.max_num_rows = 32;
    struct bench *b = create_by_rule(options);
    struct step_prices p = {.prompt_token = 10, .prompt_step = 10, .decode_token = 50, .decode_step = 10};
    scheduler_set_prices(b->scheduler, &p);
    add(b, 5, 60, -1, false);
    turn(b);
    int32_t id = ask(b, two_turns, (int32_t)array_length(two_turns), 3, "");
    turn(b); /* 400 - 10 - 50 = 340: 4 tokens of 10, and 6 of 50 */
    const struct plan_entry *e = &b->plan.decodes[1];
    expect_entry(e, id, 0, 10, false);
    expect_run(b, e, 1, 6, true);
    run_all(b);
    destroy(b);
}

/* 20 turns: each computes what is new, and the block in which it begins. Told anew under another salt it is computed whole. */
static void test_a_conversation_computes_each_token_once(void **state)
{
    (void)state;
    enum { TURNS = 20, QUESTION = 7, ANSWER = 11 };
    struct bench *b = create_with_answers(128);
    int32_t tokens[MAX_MODEL_LEN], n = 0, known = 0, num_computed = 0;
    for (int32_t t = 0; t < TURNS; t++) {
        for (int32_t i = 0; i < QUESTION; i++) tokens[n++] = 100 * t + i;
        tokens[n++] = HEADER;
        int32_t id = ask(b, tokens, n, ANSWER, "");
        assert_int_equal(turn(b), SCHEDULE_STEP);
        int32_t cached = scheduler_sequence(b->scheduler, id)->num_cached_tokens;
        assert_true(n - cached < n - known + BLOCK_SIZE);
        num_computed += n - cached;
        run_all(b);
        for (int32_t i = 0; i < ANSWER; i++, n++) tokens[n] = 5000 + n;
        known = n - 1; /* nobody computes the last one */
        tokens[n++] = END;
    }
    assert_true(num_computed < TURNS * (QUESTION + 1 + 2 + BLOCK_SIZE));
    int32_t cold = ask(b, tokens, n, 1, "other");
    turn(b);
    assert_int_equal(scheduler_sequence(b->scheduler, cold)->num_cached_tokens, 0);
    run_all(b);
    destroy(b);
}

static void count_computed(const struct plan_entry *entries, int32_t num, int32_t *computed)
{
    for (int32_t i = 0; i < num; i++)
        for (int32_t t = 0; t < entries[i].num_tokens; t++) computed[entries[i].position + t]++;
}

/* Where each turn ends with a block no plan of 20 turns has a token for the second time. */
static void test_turns_of_whole_blocks_plan_each_token_once(void **state)
{
    (void)state;
    enum { TURNS = 20, QUESTION = 5, ANSWER = BLOCK_SIZE - QUESTION - 2 };
    struct bench *b = create_with_answers(128);
    int32_t tokens[MAX_MODEL_LEN] = {1, 2}, n = 2, computed[MAX_MODEL_LEN] = {0};
    for (int32_t t = 0; t < TURNS; t++) {
        for (int32_t i = 0; i < QUESTION; i++) tokens[n++] = 100 * t + i;
        tokens[n++] = HEADER;
        ask(b, tokens, n, ANSWER, "");
        while (turn(b) == SCHEDULE_STEP) {
            count_computed(b->plan.prefills, b->plan.num_prefills, computed);
            count_computed(b->plan.decodes, b->plan.num_decodes, computed);
        }
        for (int32_t i = 0; i < ANSWER; i++, n++) tokens[n] = 5000 + n;
        assert_int_equal((n - 1) % BLOCK_SIZE, 0); /* nobody computes the last one */
        for (int32_t i = 0; i < MAX_MODEL_LEN; i++) assert_int_equal(computed[i], i < n - 1);
        tokens[n++] = END;
    }
    destroy(b);
}

/* What goes on behind an end, or without a header, went through decode against the rule: nobody shares it. */
static void test_what_the_rule_does_not_cover_is_not_shared(void **state)
{
    (void)state;
    for (int with_header = 0; with_header < 2; with_header++) {
        struct bench *b = create_with_answers(64);
        int32_t tokens[80] = {1, 2, 3, with_header ? HEADER : 4};
        for (int32_t i = 4; i < 80; i++) tokens[i] = 5000 + i;
        ask(b, tokens, 4, 60, "");
        b->tokens[0][40] = END;
        run_all(b);
        tokens[40] = END;
        int32_t again = ask(b, tokens, 64, 1, "");
        turn(b);
        assert_int_equal(scheduler_sequence(b->scheduler, again)->num_cached_tokens, with_header ? 32 : 0);
        run_all(b);
        destroy(b);
    }
}

/* Rows may read ahead of others that decode: not what these write. */
static void test_nothing_is_replayed_beside_who_writes_it(void **state)
{
    (void)state;
    struct bench *b = create_with_answers(64);
    int32_t tokens[20];
    for (int32_t i = 0; i < 20; i++) tokens[i] = i < 10 ? i : 5000 + i;
    tokens[5] = HEADER;
    int32_t first = ask(b, tokens, 10, 12, "");
    for (int32_t computed = 9; computed < 15; computed++) turn(b);
    int32_t second = ask(b, tokens, 20, 3, "");
    turn(b);
    assert_int_equal(plan_num_entries(&b->plan), 1);
    expect_entry(&b->plan.decodes[0], first, 15, 1, true);
    assert_int_equal(scheduler_sequence(b->scheduler, second)->num_computed, 16);
    turn(b);
    assert_int_equal(plan_num_entries(&b->plan), 2);
    expect_entry(&b->plan.decodes[1], second, 16, 4, true);
    run_all(b);
    destroy(b);
}

/* The attention of a step's prompts stands between what is written and the rows that decode. */
static void test_what_a_step_with_prompts_writes_is_shared_in_it(void **state)
{
    (void)state;
    struct scheduler_options options = options_with_answers(64);
    options.max_num_rows = 16;
    struct bench *b = create_by_rule(options);
    int32_t tokens[40];
    for (int32_t i = 0; i < 40; i++) tokens[i] = i;
    tokens[9] = HEADER;
    int32_t first = ask(b, tokens, 20, 3, ""), second = ask(b, tokens, 20, 3, "");
    turn(b);
    expect_entry(&b->plan.decodes[0], first, 0, 20, true);
    expect_entry(&b->plan.decodes[1], second, 16, 4, true);
    run_all(b);
    destroy(b);
}

static void test_a_found_prefix_is_not_computed(void **state)
{
    (void)state;
    struct bench *b = create(options_default());
    add(b, 50, 1, 1, false);
    run_all(b);
    int32_t again = add(b, 64, 2, 1, false), scored = add(b, 40, 2, 1, true);
    turn(b);
    expect_entry(&b->plan.prefills[0], again, 48, 16, true);
    assert_int_equal(scheduler_sequence(b->scheduler, again)->num_cached_tokens, 48);
    assert_int_equal(b->plan.prefills[1].seq_id, scored); /* its logits are wanted, so nothing is skipped */
    assert_int_equal(b->plan.prefills[1].position, 0);
    run_all(b);
    int32_t whole = add(b, 48, 1, 1, false);
    turn(b);
    expect_entry(&b->plan.prefills[0], whole, 32, 16, true); /* the last token must be computed */
    assert_int_equal(scheduler_sequence(b->scheduler, whole)->num_cached_tokens, 32);
    destroy(b);
}

static void test_equal_prompts_of_one_step_share(void **state)
{
    (void)state;
    struct bench *b = create(options_default());
    for (int i = 0; i < 4; i++) add(b, 40, 1, 1, false);
    turn(b);
    assert_int_equal(b->plan.num_prefills, 4);
    assert_int_equal(b->plan.prefills[0].num_tokens, 40);
    for (int i = 1; i < 4; i++) assert_int_equal(b->plan.prefills[i].num_tokens, 8);
    destroy(b);
}

static void test_scored_prompts_keep_to_the_rows(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    options.max_num_logits = 10;
    struct bench *b = create(options);
    int32_t scored = add(b, 25, 0, -1, true);
    add(b, 8, 1, -1, false);
    assert_int_equal(turn(b), SCHEDULE_STEP);
    expect_entry(&b->plan.prefills[0], scored, 0, 10, false);
    assert_int_equal(b->plan.prefills[0].num_score_rows, 10);
    assert_int_equal(b->plan.num_prefills, 1); /* no row is left for another */
    int32_t num_rows = 10, num_turns = 1;
    while (b->num_finished < 2) {
        turn(b);
        num_turns++;
        for (int32_t i = 0; i < b->plan.num_prefills; i++) num_rows += b->plan.prefills[i].num_score_rows;
    }
    assert_int_equal(num_rows, 24); /* of every prompt token but the first, once */
    assert_int_equal(num_turns, 3);
    destroy(b);
}

static void test_what_cannot_ever_fit_is_refused(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    options.num_blocks = 4;
    struct bench *b = create(options);
    int32_t seq_id, tokens[MAX_MODEL_LEN] = {0};
    struct sequence_input input = {.tokens = tokens, .num_prompt = 60, .max_tokens = 6, .salt = ""};
    assert_int_equal(scheduler_add(b->scheduler, &input, &seq_id), STATUS_NO_BLOCKS);
    add(b, 60, 5, -1, false); /* the last token needs no K and V: 64 positions */
    run_all(b);
    assert_int_equal(b->num_finished, 1);
    destroy(b);
}

/* Two steps in flight: what a step in flight names is neither given away nor planned wrongly. */
static void test_plans_ahead_of_results(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    options.num_batch_slots = 16;
    struct bench *b = create(options);
    struct plan first, second;
    assert_int_equal(plan_init(&first, 8, 8, 0), 0);
    assert_int_equal(plan_init(&second, 8, 8, 0), 0);
    int32_t id = add(b, 20, 2, -1, false), endless = add(b, 20, 50, -1, false);
    assert_int_equal(scheduler_plan(b->scheduler, &first), SCHEDULE_STEP);
    assert_int_equal(scheduler_plan(b->scheduler, &second), SCHEDULE_STEP);
    scheduler_check(b->scheduler);
    expect_entry(&second.decodes[0], id, 20, 1, true);
    assert_int_equal(scheduler_sequence(b->scheduler, id)->num_pending, 2);
    scheduler_end_step(b->scheduler);
    for (int32_t i = 0; i < first.num_prefills; i++) {
        assert_true(scheduler_end_entry(b->scheduler, &first.prefills[i]));
        scheduler_append_token(b->scheduler, first.prefills[i].seq_id);
    }
    scheduler_check(b->scheduler);
    scheduler_finish(b->scheduler, endless, true); /* it stopped; its surplus token is in flight */
    scheduler_check(b->scheduler);
    assert_int_equal(scheduler_sequence(b->scheduler, endless)->state, SEQUENCE_CLOSING);
    struct scheduler_stats stats;
    scheduler_stats(b->scheduler, &stats);
    assert_int_equal(stats.num_held_blocks, 4);
    assert_int_equal(scheduler_plan(b->scheduler, &first),
                     SCHEDULE_IDLE); /* all of id's tokens are under way */
    scheduler_end_step(b->scheduler);
    assert_true(scheduler_end_entry(b->scheduler, &second.decodes[0]));
    scheduler_append_token(b->scheduler, id);
    scheduler_finish(b->scheduler, id, true);
    assert_false(scheduler_end_entry(b->scheduler, &second.decodes[1]));
    scheduler_check(b->scheduler);
    assert_true(scheduler_is_empty(b->scheduler));
    plan_deinit(&first);
    plan_deinit(&second);
    destroy(b);
}

static void test_preemption_asks_for_an_empty_device(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    options.num_batch_slots = 16;
    options.num_blocks = 4;
    options.enable_prefix_caching = false;
    struct bench *b = create(options);
    struct plan plans[2];
    for (int i = 0; i < 2; i++) assert_int_equal(plan_init(&plans[i], 8, 8, 0), 0);
    add(b, 16, 40, -1, false);
    add(b, 16, 40, -1, false);
    enum schedule_result result = SCHEDULE_IDLE;
    int num_plans = 0;
    for (; num_plans < 100; num_plans++) {
        result = scheduler_plan(b->scheduler, &plans[num_plans % 2]);
        if (result != SCHEDULE_STEP) break;
        if (num_plans == 0) continue;
        struct plan *ended = &plans[(num_plans + 1) % 2];
        scheduler_end_step(b->scheduler);
        for (int32_t i = 0; i < ended->num_prefills; i++) end_entry(b, &ended->prefills[i]);
        for (int32_t i = 0; i < ended->num_decodes; i++) end_entry(b, &ended->decodes[i]);
        scheduler_check(b->scheduler);
    }
    assert_int_equal(result, SCHEDULE_DRAIN);
    struct scheduler_stats stats;
    scheduler_stats(b->scheduler, &stats);
    assert_int_equal(stats.num_preemptions, 0);
    struct plan *ended = &plans[(num_plans + 1) % 2];
    scheduler_end_step(b->scheduler);
    for (int32_t i = 0; i < ended->num_decodes; i++) end_entry(b, &ended->decodes[i]);
    assert_int_equal(turn(b), SCHEDULE_STEP);
    scheduler_stats(b->scheduler, &stats);
    assert_int_equal(stats.num_preemptions, 1);
    run_all(b);
    for (int i = 0; i < 2; i++) plan_deinit(&plans[i]);
    destroy(b);
}

static void test_nan_blocks_are_not_handed_on(void **state)
{
    (void)state;
    struct bench *b = create(options_default());
    int32_t bad = add(b, 40, 5, 1, false);
    turn(b);
    scheduler_finish(b->scheduler, bad, false);
    scheduler_check(b->scheduler);
    int32_t next = add(b, 40, 5, 1, false);
    turn(b);
    expect_entry(&b->plan.prefills[0], next, 0, 40, true);
    destroy(b);
}

/* A token 100 us, a key 1 us, a step 200 us. */
static const struct step_prices prices = {100, 0.1, 200, 100, 1, 200, 0, 0, 0, 1, 1, 0};

static struct bench *create_timed(double target_us)
{
    struct scheduler_options options = options_default();
    options.max_num_batched_tokens = 512;
    options.num_blocks = 256;
    options.target_us = target_us;
    options.enable_prefix_caching = false;
    struct bench *b = create(options);
    scheduler_set_prices(b->scheduler, &prices);
    return b;
}

/* The further a prompt has come the more its tokens cost, and the fewer are in a step. */
static void test_steps_keep_their_time(void **state)
{
    (void)state;
    struct bench *b = create_timed(5000);
    int32_t stream = add(b, 8, 200, -1, false);
    turn(b);
    add(b, 500, 1, -1, false);
    int32_t first_chunk = 0, last_chunk = 0;
    while (turn(b) == SCHEDULE_STEP && b->plan.num_prefills == 1) {
        assert_true(b->plan.us <= 5000);
        assert_int_equal(b->plan.decodes[0].seq_id, stream);
        last_chunk = b->plan.prefills[0].num_tokens;
        if (first_chunk == 0) first_chunk = last_chunk;
        if (b->plan.prefills[0].samples) break;
        assert_true(b->plan.us > 3500);
    }
    assert_true(first_chunk < 50 && first_chunk > 30 && last_chunk < first_chunk);
    run_all(b);
    destroy(b);
}

/* What decodes alone takes longer than a step should: prompts get on all the same. */
static void test_a_target_that_cannot_be_kept(void **state)
{
    (void)state;
    struct bench *b = create_timed(10);
    for (int i = 0; i < 4; i++) add(b, 1, 300, -1, false);
    turn(b);
    int32_t id = add(b, 100, 1, -1, false);
    int32_t num_turns = 0;
    while (scheduler_sequence(b->scheduler, id)->state != SEQUENCE_FREE) {
        assert_int_equal(turn(b), SCHEDULE_STEP);
        assert_true(++num_turns <= 100);
    }
    run_all(b);
    destroy(b);
}

static void test_short_before_long(void **state)
{
    (void)state;
    struct bench *b = create_timed(5000);
    int32_t first = add_of(b, (struct who){.arrival_us = 1000}, 500, 1, -1, false);
    turn(b);
    int32_t second = add_of(b, (struct who){.arrival_us = 1000}, 510, 1, -1, false);
    int32_t brief = add_of(b, (struct who){.arrival_us = 3000}, 20, 1, -1, false);
    turn(b);
    expect_entry(&b->plan.prefills[0], brief, 0, 20, true);
    assert_int_equal(b->plan.prefills[1].seq_id, first);
    assert_int_equal(b->plan.num_prefills, 2); /* the second long one waits for the first */
    assert_int_equal(scheduler_sequence(b->scheduler, second)->state, SEQUENCE_WAITING);
    run_all(b);
    destroy(b);
}

/* A long prompt that has waited for long enough is passed by nobody, but for a quarter of each step. */
static void test_long_before_short_in_the_end(void **state)
{
    (void)state;
    struct bench *b = create_timed(5000);
    int32_t first = add_of(b, (struct who){.arrival_us = 0}, 500, 1, -1, false);
    int32_t num_turns = 0;
    for (; scheduler_sequence(b->scheduler, first)->state != SEQUENCE_FREE; num_turns++) {
        add_of(b, (struct who){.arrival_us = 1000000}, 90, 1, -1, false);
        turn(b);
        int32_t num_long = 0, num_short = 0;
        bool is_done = false;
        for (int32_t i = 0; i < b->plan.num_prefills; i++) {
            const struct plan_entry *e = &b->plan.prefills[i];
            *(e->seq_id == first ? &num_long : &num_short) += e->num_tokens;
            is_done |= e->seq_id == first && e->samples;
        }
        assert_true(is_done || (num_short > 0 && num_long > 2 * num_short));
    }
    assert_in_range(num_turns, 6, 24);
    run_all(b);
    destroy(b);
}

enum { NUM_TEXTS = 50, TEXT_TOKENS = 40 };

/* A request of many prompts. */
static void add_texts(struct bench *b, struct who who)
{
    who.num_beside = (NUM_TEXTS - 1) * TEXT_TOKENS;
    for (int i = 0; i < NUM_TEXTS; i++) add_of(b, who, TEXT_TOKENS, 0, -1, false);
}

/* Each of many prompts of one request is as short as another's only one, which passes them all: they are due as one long prompt. */
static void test_short_before_many(void **state)
{
    (void)state;
    struct bench *b = create_timed(5000);
    add_texts(b, (struct who){.arrival_us = 1000});
    turn(b);
    assert_true(b->plan.num_tokens > TEXT_TOKENS); /* several in a step, alone */
    int32_t other = add_of(b, (struct who){.arrival_us = 100000}, TEXT_TOKENS / 2, 1, -1, false);
    turn(b);
    expect_entry(&b->plan.prefills[0], other, 0, TEXT_TOKENS / 2, true);
    run_all(b);
    destroy(b);
}

/* Behind their time they leave a quarter of each step to who has less to compute than all of them, though each of
 * them fits into the step; and get the rest, also where another request of many stands beside. */
static void test_many_before_short_in_the_end(void **state)
{
    (void)state;
    struct bench *b = create_timed(5000);
    add_texts(b, (struct who){.arrival_us = 0});
    add_texts(b, (struct who){.arrival_us = 0});
    for (int i = 0; i < 10; i++) {
        int32_t other = add_of(b, (struct who){.arrival_us = 10000000}, 8, 1, -1, false);
        turn(b);
        expect_entry(&b->plan.prefills[0], other, 0, 8, true);
        assert_true(b->plan.num_prefill_tokens > 3 * 8);
    }
    while (b->num_finished < NUM_TEXTS + 10) turn(b);
    for (int i = 0, next = 0; i < b->num_finished; i++)
        if (b->finished[i] < 2 * NUM_TEXTS)
            assert_int_equal(b->finished[i], next++); /* one request, then the other */
    run_all(b);
    destroy(b);
}

/* What each tenant has received of a step: of its time as much as of what all entries take of their own. */
static void count_received(const struct bench *b, const int32_t *tenant_of_slot, double *received)
{
    const struct plan *plan = &b->plan;
    double own_us = plan->us - (plan->num_prefills > 0 ? prices.prompt_step : prices.decode_step);
    for (int32_t i = 0; i < plan_num_entries(plan); i++) {
        bool decodes = i >= plan->num_prefills;
        const struct plan_entry *e = plan_get_entry(plan, i);
        double us = decodes ? step_prices_decode_us(&prices, e->position, e->num_tokens)
                            : step_prices_prompt_us(&prices, e->position, e->num_tokens);
        received[tenant_of_slot[scheduler_sequence(b->scheduler, e->seq_id)->slot_idx]] +=
            us / own_us * plan->us;
    }
}

/* Three tenants that always have more to do: long prompts, some of both, long answers. */
static void test_shares_follow_weights(void **state)
{
    (void)state;
    static const double weights[] = {1, 2, 5};
    static const int32_t most_prompt[] = {400, 200, 30}, most_answer[] = {3, 20, 80};
    struct bench *b = create_timed(20000);
    double received[3] = {0};
    int32_t tenant_of_slot[MAX_SEQS] = {0}, num_open[3] = {0};
    for (uint64_t now_us = 0; b->num_added < MAX_SEQS - 40; now_us += 20000) {
        for (int t = 0; t < 3; t++)
            for (; num_open[t] < 12; num_open[t]++) {
                struct rng_block r = rng_philox(3, (uint64_t)b->num_added, 0);
                tenant_of_slot[b->num_added] = t;
                int32_t num_prompt =
                    most_prompt[t] / 4 + (int32_t)(r.word[0] % (uint32_t)most_prompt[t] * 3 / 4);
                add_of(b, (struct who){(uint64_t)t + 1, now_us, .weight = weights[t]}, num_prompt,
                       1 + (int32_t)(r.word[1] % (uint32_t)most_answer[t]), -1, false);
            }
        int32_t num_finished = b->num_finished;
        assert_int_equal(turn(b), SCHEDULE_STEP);
        count_received(b, tenant_of_slot, received);
        for (; num_finished < b->num_finished; num_finished++)
            num_open[tenant_of_slot[b->finished[num_finished]]]--;
    }
    for (int t = 0; t < 3; t++) {
        double share = received[t] / (received[0] + received[1] + received[2]);
        if (fabs(share / (weights[t] / 8) - 1) > 0.03) fail_msg("tenant %d has %.3f of all", t, share);
    }
    run_all(b);
    destroy(b);
}

/* A key with many requests does not stand before one that has just come. */
static void test_a_flood_holds_nobody_up(void **state)
{
    (void)state;
    struct bench *b = create_timed(5000);
    for (int i = 0; i < 60; i++) add_of(b, (struct who){.tenant_id = 1}, 200, 2, -1, false);
    for (int i = 0; i < 20; i++) turn(b);
    int32_t guest = add_of(b, (struct who){.tenant_id = 2, .arrival_us = 100}, 30, 1, -1, false);
    turn(b);
    expect_entry(&b->plan.prefills[0], guest, 0, 30, true);
    run_all(b);
    destroy(b);
}

/* Long answers of one tenant, more than a step has time for, leave another's stream its token in each step. */
static void test_many_streams_hold_nobody_up(void **state)
{
    (void)state;
    struct bench *b = create_timed(1000); /* a row takes 100 us and more, a step 200 */
    int32_t of_flood[7], num_turns[7] = {0};
    for (int i = 0; i < 7; i++)
        of_flood[i] = add_of(b, (struct who){.tenant_id = 1, .weight = 1}, 20, 60, -1, false);
    while (turn(b) == SCHEDULE_STEP && b->plan.num_decodes < 7)
        continue; /* alone it has every step to itself */
    int32_t guest = add_of(b, (struct who){.tenant_id = 2, .weight = 1}, 4, 30, -1, false);
    while (scheduler_sequence(b->scheduler, guest)->num_tokens == 4) turn(b);
    for (int i = 0; i < 20; i++) {
        bool has_guest = false;
        turn(b);
        for (int32_t k = 0; k < b->plan.num_decodes; k++) {
            has_guest |= b->plan.decodes[k].seq_id == guest;
            for (int t = 0; t < 7; t++) num_turns[t] += b->plan.decodes[k].seq_id == of_flood[t];
        }
        assert_true(has_guest);
        assert_true(b->plan.us <= 1000 + 2 * 160);
    }
    for (int t = 0; t < 7; t++) assert_in_range(num_turns[t], 20 * 4 / 7 - 1, 20 * 6 / 7 + 1);
    run_all(b);
    destroy(b);
}

/* Tokens of all streams have time in a step, and a prompt beside them a quarter of it. Another tenant's gets its half, for which
 * streams take turns as long as it lasts; their own tenant's does not. */
static void test_many_streams_make_room_for_a_prompt(void **state)
{
    (void)state;
    for (int own = 0; own < 2; own++) {
        struct scheduler_options options = options_default();
        options.max_num_seqs = options.max_num_batched_tokens = options.max_num_logits =
            options.max_num_rows = options.num_batch_slots = 64;
        options.num_blocks = 512;
        options.target_us = 5000;
        struct bench *b = create(options);
        scheduler_set_prices(b->scheduler, &prices);
        for (int i = 0; i < 30; i++) add_of(b, (struct who){.tenant_id = 1}, 4, 80, -1, false);
        while (turn(b) == SCHEDULE_STEP && b->plan.num_decodes < 30) continue;
        int32_t guest = add_of(b, (struct who){.tenant_id = own ? 1 : 2}, 34, 1, -1, false), num_steps = 0;
        for (bool done = false; !done; num_steps++) {
            turn(b);
            assert_int_equal(b->plan.prefills[0].seq_id, guest);
            if (own || num_steps == 0) assert_int_equal(b->plan.num_decodes, own ? 30 : 23);
            assert_true(b->plan.us < 5000 * 1.3);
            done = b->plan.prefills[0].samples;
        }
        assert_in_range(num_steps, own ? 3 : 2, own ? 4 : 2);
        turn(b);
        assert_int_equal(b->plan.num_decodes, 30);
        run_all(b);
        destroy(b);
    }
}

static struct bench *create_sharing(int32_t num_places, int32_t num_blocks, int32_t num_host_blocks)
{
    struct scheduler_options options = options_default();
    options.max_num_seqs = options.num_batch_slots = num_places;
    options.num_blocks = num_blocks;
    options.num_host_blocks = num_host_blocks;
    options.enable_prefix_caching = false;
    struct bench *b = create(options);
    scheduler_set_prices(b->scheduler, &prices);
    return b;
}

static void expect_displaced(const struct bench *b, int32_t seq_id)
{
    assert_int_equal(b->plan.num_preemptions, 1);
    assert_true(b->plan.preemptions[0].displaced && b->plan.preemptions[0].saved);
    assert_int_equal(b->plan.preemptions[0].slot_idx, scheduler_sequence(b->scheduler, seq_id)->slot_idx);
    assert_int_equal(scheduler_sequence(b->scheduler, seq_id)->state, SEQUENCE_WAITING);
}

/* Long answers have all places: who comes gets some, up to its part, and those who made room come back with what they had. */
static void test_places_are_taken_from_who_has_most(void **state)
{
    (void)state;
    struct bench *b = create_sharing(4, 64, 64);
    int32_t of_flood[4], guests[3];
    for (int i = 0; i < 4; i++) of_flood[i] = add_of(b, (struct who){.tenant_id = 1}, 30, 97, -1, false);
    for (int i = 0; i < 20; i++) turn(b);
    assert_int_equal(b->plan.num_decodes, 4);
    for (int i = 0; i < 3; i++) {
        guests[i] = add_of(b, (struct who){.tenant_id = 2}, 20, 70, -1, false);
        turn(b);
        if (i < 2)
            expect_displaced(b, of_flood[3 - i]);
        else
            assert_int_equal(b->plan.num_preemptions, 0);
        bool is_in = scheduler_sequence(b->scheduler, guests[i])->state == SEQUENCE_RUNNING;
        assert_int_equal(is_in, i < 2);
        for (int k = 0; k < 20; k++) turn(b); /* as long as eight times the copies */
    }
    while (scheduler_sequence(b->scheduler, of_flood[2])->state == SEQUENCE_WAITING) turn(b);
    assert_true(b->plan.loads.count > 0);
    run_all(b);
    assert_int_equal(b->num_finished, 7);
    destroy(b);
}

/* Each owner has one place at least, whatever the weights. */
static void test_who_has_nothing_gets_a_place(void **state)
{
    (void)state;
    struct bench *b = create_sharing(2, 64, 64);
    int32_t of_flood[2];
    for (int i = 0; i < 2; i++)
        of_flood[i] = add_of(b, (struct who){.tenant_id = 1, .weight = 9}, 20, 80, -1, false);
    for (int i = 0; i < 10; i++) turn(b);
    add_of(b, (struct who){.tenant_id = 2, .weight = 1}, 20, 50, -1, false);
    turn(b);
    expect_displaced(b, of_flood[1]);
    for (int i = 0; i < 30; i++) {
        turn(b);
        assert_int_equal(b->plan.num_preemptions, 0);
    }
    run_all(b);
    destroy(b);
}

/* What could not be saved is not displaced, nor what is of no use: its owner has as few. */
static void test_no_place_is_taken_in_vain(void **state)
{
    (void)state;
    for (int few = 0; few < 2; few++) {
        struct bench *b = create_sharing(few ? 1 : 4, 64, few ? 64 : 0);
        for (int i = 0; i < 4; i++) add_of(b, (struct who){.tenant_id = 1}, 20, 40, -1, false);
        for (int i = 0; i < 10; i++) turn(b);
        add_of(b, (struct who){.tenant_id = 2}, 20, 1, -1, false);
        turn(b);
        assert_int_equal(b->plan.num_preemptions, 0);
        run_all(b);
        destroy(b);
    }
}

/* Long answers have all blocks, and one of them waits, before all others of theirs, for more. */
static void test_blocks_are_taken_from_who_has_most(void **state)
{
    (void)state;
    struct bench *b = create_sharing(8, 16, 64);
    for (int i = 0; i < 4; i++) add_of(b, (struct who){.tenant_id = 1}, 40, 80, -1, false);
    do turn(b);
    while (b->plan.num_preemptions == 0);
    assert_false(b->plan.preemptions[0].displaced);
    int32_t guest = add_of(b, (struct who){.tenant_id = 2}, 40, 1, -1, false), num_turns = 0;
    for (; scheduler_sequence(b->scheduler, guest)->state == SEQUENCE_WAITING; num_turns++) turn(b);
    assert_in_range(num_turns, 1, 2); /* refused, then somebody is displaced for it */
    run_all(b);
    assert_int_equal(b->num_finished, 5);
    destroy(b);
}

/* What decoding takes is shared by weight where nobody has less to do than that. */
static void test_turns_follow_weights(void **state)
{
    (void)state;
    struct bench *b = create_timed(1000);
    int32_t tenant_of[8], received[2] = {0};
    for (int i = 0; i < 8; i++) {
        int32_t id =
            add_of(b, (struct who){.tenant_id = 1 + i % 2, .weight = 1 + 2 * (i % 2)}, 4, 90, -1, false);
        tenant_of[id] = i % 2;
    }
    for (int i = 0; i < 60; i++) {
        turn(b);
        for (int32_t k = 0; i >= 20 && k < b->plan.num_decodes; k++)
            received[tenant_of[b->plan.decodes[k].seq_id]]++;
    }
    assert_in_range(received[1] * 10 / received[0], 15, 40);
    run_all(b);
    destroy(b);
}

/* An owner that names a tenant for each request, in waiting prompts and in rows, has no more than one that names none. */
static void test_many_names_bring_nothing(void **state)
{
    (void)state;
    struct bench *b = create_timed(5000);
    int32_t owner_of_slot[MAX_SEQS] = {0}, num_open[2] = {0};
    double received[2] = {0};
    for (uint64_t now_us = 0; b->num_added < MAX_SEQS - 40; now_us += 5000) {
        for (int o = 0; o < 2; o++)
            for (; num_open[o] < 16; num_open[o]++) {
                uint64_t tenant_id = o ? 1000 + (uint64_t)b->num_added : 1;
                owner_of_slot[b->num_added] = o;
                add_of(b, (struct who){tenant_id, now_us, .owner_id = (uint64_t)o + 1}, 100, 20, -1, false);
            }
        int32_t num_finished = b->num_finished;
        assert_int_equal(turn(b), SCHEDULE_STEP);
        count_received(b, owner_of_slot, received);
        for (; num_finished < b->num_finished; num_finished++)
            num_open[owner_of_slot[b->finished[num_finished]]]--;
    }
    assert_true(fabs(received[1] / received[0] - 1) < 0.05);
    run_all(b);
    destroy(b);
}

/* Two tenants with long answers and more waiting: one that comes has a place at once, and no more than that. */
static void test_a_place_is_left_for_others(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    options.max_num_seqs = 32;
    options.num_blocks = 1024;
    struct bench *b = create(options);
    for (int i = 0; i < 80; i++)
        add_of(b, (struct who){.tenant_id = 1 + (uint64_t)i % 2, .leaves_places = true}, 4, 100, -1, false);
    for (int i = 0; i < 20; i++) turn(b);
    assert_int_equal(b->plan.num_decodes, 32 - 2);
    int32_t guests[3];
    for (int i = 0; i < 3; i++)
        guests[i] = add_of(b, (struct who){.tenant_id = 3, .leaves_places = true}, 4, 100, -1, false);
    turn(b);
    assert_int_equal(scheduler_sequence(b->scheduler, guests[0])->state, SEQUENCE_RUNNING);
    assert_int_equal(scheduler_sequence(b->scheduler, guests[1])->state, SEQUENCE_WAITING);
    assert_int_equal(b->plan.num_prefills, 1);
    int32_t other = add_of(b, (struct who){.tenant_id = 4, .leaves_places = true}, 4, 100, -1, false);
    turn(b);
    assert_int_equal(scheduler_sequence(b->scheduler, other)->state, SEQUENCE_RUNNING);
    run_all(b);
    destroy(b);
}

/* An owner's places count together: with a tenant's name for each request it takes no more than another owner leaves it, and
 * what a tenant of its own leaves is there for its next tenant alone. */
static void test_a_place_is_left_for_other_owners(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    options.max_num_seqs = 32;
    options.num_blocks = 1024;
    struct bench *b = create(options);
    for (uint64_t i = 0; i < 80; i++)
        add_of(b, (struct who){.tenant_id = 1000 + i, .owner_id = 1, .owner_leaves_places = true}, 4, 100, -1,
               false);
    for (int i = 0; i < 20; i++) turn(b);
    assert_int_equal(b->plan.num_decodes, 32 - 2);
    int32_t guest = add_of(b, (struct who){.tenant_id = 2, .owner_id = 2, .owner_leaves_places = true}, 4,
                           100, -1, false);
    turn(b);
    assert_int_equal(scheduler_sequence(b->scheduler, guest)->state, SEQUENCE_RUNNING);
    run_all(b);
    destroy(b);

    b = create(options);
    const struct who both = {
        .tenant_id = 1, .leaves_places = true, .owner_id = 1, .owner_leaves_places = true};
    struct who own = both, other = both;
    own.tenant_id = 2;
    other.tenant_id = other.owner_id = 3;
    for (int i = 0; i < 80; i++) add_of(b, both, 4, 100, -1, false);
    for (int i = 0; i < 20; i++) turn(b);
    assert_int_equal(b->plan.num_decodes, 32 - 4);
    int32_t ids[] = {add_of(b, own, 4, 100, -1, false), add_of(b, other, 4, 100, -1, false)};
    for (int i = 0; i < 2; i++) turn(b);
    for (int i = 0; i < 2; i++)
        assert_int_equal(scheduler_sequence(b->scheduler, ids[i])->state, SEQUENCE_RUNNING);
    run_all(b);
    destroy(b);
}

/* Reported, not asserted: 256 decoding sequences of 256 tokens. */
static void test_cost_of_a_plan(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    options.max_num_seqs = 256;
    options.max_num_batched_tokens = 8192;
    options.num_blocks = 256 * 40;
    struct bench *b = create(options);
    for (int i = 0; i < 256; i++) add(b, 256, 200, -1, false);
    for (int i = 0; i < 40; i++) turn(b);
    uint64_t best_ns = UINT64_MAX;
    for (int i = 0; i < 100; i++) {
        uint64_t start_ns = clock_monotonic_ns();
        assert_int_equal(scheduler_plan(b->scheduler, &b->plan), SCHEDULE_STEP);
        uint64_t ns = clock_monotonic_ns() - start_ns;
        if (i >= 20) best_ns = min_of(best_ns, ns);
        assert_int_equal(b->plan.num_decodes, 256);
        scheduler_end_step(b->scheduler);
        for (int32_t k = 0; k < 256; k++) end_entry(b, &b->plan.decodes[k]);
    }
    printf("plan of 256 decoding sequences: %.1f us\n", (double)best_ns * 1e-3);
    destroy(b);
}

/* The step of a draft, of which num_accepted tokens followed. */
static void verify(struct bench *b, int32_t seq_id, int32_t num_drafted, int32_t num_fit,
                   int32_t num_accepted)
{
    scheduler_draft(b->scheduler, seq_id, num_drafted);
    assert_int_equal(scheduler_plan(b->scheduler, &b->plan), SCHEDULE_STEP);
    scheduler_check(b->scheduler);
    struct plan_entry *e = &b->plan.decodes[0];
    assert_int_equal(e->num_drafted, num_fit);
    assert_int_equal(e->num_tokens, num_fit + 1);
    assert_int_equal(b->plan.num_logits, num_fit + b->plan.num_decodes);
    assert_int_equal(plan_num_step_seqs(&b->plan), num_fit + b->plan.num_decodes);
    scheduler_end_step(b->scheduler);
    for (int32_t i = 0; i < b->plan.num_decodes; i++) {
        b->plan.decodes[i].num_accepted = i == 0 ? num_accepted : 0;
        end_entry(b, &b->plan.decodes[i]);
    }
    for (int32_t i = 0; i < num_accepted; i++) scheduler_append_token(b->scheduler, seq_id);
    scheduler_check(b->scheduler);
}

static void test_drafts(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    options.decode_runs = true;
    options.max_num_seqs = options.max_num_batched_tokens = 2;
    options.max_num_rows = options.max_num_logits = options.max_num_batched_tokens = 6;
    struct bench *b = create(options);
    int32_t seq_id = add(b, 14, 12, -1, false);
    const struct sequence *seq = scheduler_sequence(b->scheduler, seq_id);
    while (sequence_num_generated(seq) == 0) turn(b);
    assert_int_equal(sequence_num_drafted_max(seq), 10);
    verify(b, seq_id, 3, 3, 3); /* into the next block */
    assert_int_equal(sequence_num_generated(seq), 5);
    verify(b, seq_id, 4, 4, 0); /* and back */
    assert_int_equal(sequence_num_generated(seq), 6);
    assert_int_equal(seq->num_computed, seq->num_tokens - 1);
    verify(b, seq_id, 5, 5, 1);
    assert_int_equal(sequence_num_generated(seq), 8);
    assert_int_equal(sequence_num_drafted_max(seq), 3);
    scheduler_draft(b->scheduler, seq_id, 3);
    assert_int_equal(scheduler_plan(b->scheduler, &b->plan), SCHEDULE_STEP);
    struct plan_entry e = b->plan.decodes[0];
    assert_int_equal(scheduler_plan(b->scheduler, &b->plan), SCHEDULE_IDLE); /* nobody knows what follows */
    e.num_accepted = 2;
    scheduler_end_step(b->scheduler);
    end_entry(b, &e);
    for (int32_t i = 0; i < 2; i++) scheduler_append_token(b->scheduler, seq_id);
    assert_int_equal(sequence_num_generated(seq), 11);
    run_all(b);
    destroy(b);
}

/* Rows that may not draw: all, so that nothing has come, or those behind the first. */
static void test_withheld_drafts(void **state)
{
    (void)state;
    struct scheduler_options options = options_default();
    options.decode_runs = true;
    options.max_num_seqs = 2;
    options.max_num_rows = options.max_num_logits = options.max_num_batched_tokens = 6;
    struct bench *b = create(options);
    int32_t seq_id = add(b, 14, 12, -1, false);
    const struct sequence *seq = scheduler_sequence(b->scheduler, seq_id);
    while (sequence_num_generated(seq) == 0) turn(b);
    for (int32_t num_rows = 0; num_rows < 4; num_rows++) {
        int32_t num_known = seq->num_tokens, num_accepted = max_of(num_rows - 1, 0);
        scheduler_draft(b->scheduler, seq_id, 4);
        assert_int_equal(scheduler_plan(b->scheduler, &b->plan), SCHEDULE_STEP);
        struct plan_entry *e = &b->plan.decodes[0];
        assert_int_equal(e->num_verified, 4);
        scheduler_withhold(b->scheduler, e, num_rows);
        scheduler_check(b->scheduler);
        assert_int_equal(e->withheld, num_rows == 0);
        assert_int_equal(e->num_verified, num_accepted);
        e->num_accepted = num_accepted;
        scheduler_end_step(b->scheduler);
        assert_true(scheduler_end_entry(b->scheduler, e));
        for (int32_t i = 0; i < num_rows; i++) scheduler_append_token(b->scheduler, seq_id);
        scheduler_check(b->scheduler);
        assert_int_equal(seq->num_tokens, num_known + num_rows);
        assert_int_equal(seq->num_computed, seq->num_tokens - 1);
    }
    run_all(b);
    destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts_are_chunked_and_mixed_with_decodes),
        cmocka_unit_test(test_whole_prompts),
        cmocka_unit_test(test_decodes_do_not_starve_prefills),
        cmocka_unit_test(test_first_come_first_served),
        cmocka_unit_test(test_the_youngest_is_preempted_and_comes_back),
        cmocka_unit_test(test_a_prompts_state_is_kept_and_found),
        cmocka_unit_test(test_a_state_is_kept_where_prompts_part),
        cmocka_unit_test(test_a_conversation_goes_on_behind_its_answer),
        cmocka_unit_test(test_a_state_is_saved_with_its_blocks),
        cmocka_unit_test(test_a_preempted_one_comes_back_to_its_blocks),
        cmocka_unit_test(test_the_cheaper_way_is_chosen),
        cmocka_unit_test(test_begun_answers_go_on_first),
        cmocka_unit_test(test_known_tokens_are_replayed_in_runs),
        cmocka_unit_test(test_runs_keep_the_target),
        cmocka_unit_test(test_what_is_saved_goes_with_its_sequence),
        cmocka_unit_test(test_no_thrashing_when_all_grow_alike),
        cmocka_unit_test(test_the_oldest_always_finishes),
        cmocka_unit_test(test_aging_bounds_the_waiting),
        cmocka_unit_test(test_work_is_conserved),
        cmocka_unit_test(test_earlier_answers_are_replayed),
        cmocka_unit_test(test_a_conversation_is_one_step),
        cmocka_unit_test(test_scored_prompts_take_a_run_a_step),
        cmocka_unit_test(test_runs_of_both_kinds_keep_the_target),
        cmocka_unit_test(test_prompts_see_no_more_keys_than_there_is_room_for),
        cmocka_unit_test(test_a_conversation_computes_each_token_once),
        cmocka_unit_test(test_turns_of_whole_blocks_plan_each_token_once),
        cmocka_unit_test(test_what_the_rule_does_not_cover_is_not_shared),
        cmocka_unit_test(test_nothing_is_replayed_beside_who_writes_it),
        cmocka_unit_test(test_what_a_step_with_prompts_writes_is_shared_in_it),
        cmocka_unit_test(test_a_found_prefix_is_not_computed),
        cmocka_unit_test(test_equal_prompts_of_one_step_share),
        cmocka_unit_test(test_scored_prompts_keep_to_the_rows),
        cmocka_unit_test(test_what_cannot_ever_fit_is_refused),
        cmocka_unit_test(test_plans_ahead_of_results),
        cmocka_unit_test(test_preemption_asks_for_an_empty_device),
        cmocka_unit_test(test_nan_blocks_are_not_handed_on),
        cmocka_unit_test(test_steps_keep_their_time),
        cmocka_unit_test(test_a_target_that_cannot_be_kept),
        cmocka_unit_test(test_short_before_long),
        cmocka_unit_test(test_long_before_short_in_the_end),
        cmocka_unit_test(test_short_before_many),
        cmocka_unit_test(test_many_before_short_in_the_end),
        cmocka_unit_test(test_shares_follow_weights),
        cmocka_unit_test(test_a_flood_holds_nobody_up),
        cmocka_unit_test(test_many_streams_hold_nobody_up),
        cmocka_unit_test(test_many_streams_make_room_for_a_prompt),
        cmocka_unit_test(test_places_are_taken_from_who_has_most),
        cmocka_unit_test(test_who_has_nothing_gets_a_place),
        cmocka_unit_test(test_no_place_is_taken_in_vain),
        cmocka_unit_test(test_blocks_are_taken_from_who_has_most),
        cmocka_unit_test(test_turns_follow_weights),
        cmocka_unit_test(test_many_names_bring_nothing),
        cmocka_unit_test(test_a_place_is_left_for_others),
        cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_withheld_drafts),
        cmocka_unit_test(test_a_place_is_left_for_other_owners),
        cmocka_unit_test(test_cost_of_a_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
