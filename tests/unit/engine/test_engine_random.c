/* Random requests against random engines: tiny pools, small budgets, shared prefixes, cancellations, prompt
 * log probabilities, penalties, failing rows, one or two steps in flight, devices with equal and unequal
 * halves. What a request gives is compared with what it gives alone, all invariants are walked after every
 * turn, and at the end of each run nothing may be left.
 *
 *   test_engine_random [first seed [number of seeds]] */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/log.h"
#include "unit/engine/fake_engine.h"

enum { NUM_SLOTS = 24, NUM_PREFIXES = 4, PREFIX_TOKENS = 96, MAX_MODEL_LEN = 160 };

static uint64_t first_seed = 1, num_seeds = 150;

/* What the runs together must have seen, or the test proves less than it says. */
static struct {
    uint64_t stop, length, cancelled_waiting, cancelled_running, failed, refused, hits, preemptions,
        discarded, mixed, late, full_turns, scored, preempted_finished, saved, loaded, states_kept,
        states_loaded, drafted, accepted, predicted_accepted, predicted_rejected, pooled[POOLING_LOGITS + 1];
} seen;

struct world {
    struct rig rig;
    uint64_t random;
    int32_t max_prompt, max_tokens_max;
    bool storm; /* of preemptions: short prompts, long answers, few blocks */
    int32_t prefixes[NUM_PREFIXES][PREFIX_TOKENS];
    int32_t last_answer[MAX_MODEL_LEN], last_answer_tokens; /* prompt and answer of a request that finished */
    bool in_use[NUM_SLOTS], cancelled[NUM_SLOTS];
    uint64_t num_delivered, num_submitted, num_finished;
};

static uint64_t next_random(struct world *w)
{
    return w->random = fake_mix(w->random, 0x5EED);
}

static int32_t below(struct world *w, int32_t n)
{
    return (int32_t)(next_random(w) % (uint64_t)n);
}

static bool chance(struct world *w, int32_t percent)
{
    return below(w, 100) < percent;
}

static void ask_for_row(struct world *w, struct request_slot_input *in)
{
    in->pooling = (enum pooling)(POOLING_LAST + below(w, POOLING_LOGITS));
    in->num_row_logits = in->pooling == POOLING_LOGITS ? 1 + below(w, FAKE_HIDDEN) : 0;
    in->max_tokens = in->min_tokens = 0;
    in->prompt_logprobs = false;
}

static struct request_slot_input random_input(struct world *w)
{
    int32_t num_prompt = 1 + below(w, w->max_prompt);
    if (chance(w, 20)) num_prompt = 16 * (1 + below(w, w->max_prompt / 16));
    struct request_slot_input in = input_default(num_prompt, 1 + below(w, w->max_tokens_max));
    in.sampling.seed = next_random(w) >> 16;
    in.ignore_eos = w->storm || chance(w, 40);
    in.min_tokens = chance(w, 20) ? below(w, 10) : 0;
    in.sampling.temperature = chance(w, 50) ? 0.0f : 0.5f;
    in.sampling.top_k = below(w, 3);
    in.sampling.num_logprobs = chance(w, 30) ? below(w, 4) : -1;
    if (chance(w, 15)) {
        in.prompt_logprobs = true;
        if (chance(w, 50)) in.max_tokens = 0;
    }
    if (chance(w, 20)) in.sampling.frequency_penalty = 0.5f;
    if (chance(w, 10)) in.sampling.repetition_penalty = 1.25f;
    if (chance(w, 20)) in.stop_token_ids[in.num_stop_token_ids++] = 7 + below(w, 20);
    in.num_logit_bias = chance(w, 20);
    if (chance(w, 3)) in.sampling.seed = fake_failing_seed(in.num_prompt_tokens + below(w, 4));
    in.cache_salt[5] = (uint8_t)chance(w, 20);
    if (chance(w, 15)) ask_for_row(w, &in);
    return in;
}

/* The prompt ends with a header, so that all that is generated is an answer. */
static void end_with_header(struct world *w, int32_t *prompt, int32_t num_prompt)
{
    if (num_prompt < FAKE_HEADER || !chance(w, 30)) return;
    prompt[num_prompt - 2] = FAKE_HEADER_FIRST;
    prompt[num_prompt - 1] = FAKE_HEADER_LAST;
}

/* What an answer before has said, or one of the few ids that some worlds draw after the other. */
static void predict(struct world *w, struct request_slot *slot, int32_t *predicted)
{
    if (!chance(w, 40) || slot->input.max_tokens == 0) return;
    bool as_before = chance(w, 30) && w->last_answer_tokens > 0;
    slot->input.num_predicted = as_before ? w->last_answer_tokens : 1 + below(w, MAX_MODEL_LEN);
    for (int32_t i = 0; i < slot->input.num_predicted; i++)
        predicted[i] = as_before ? w->last_answer[i] : 1 + below(w, chance(w, 90) ? 2 : FAKE_VOCAB - 1);
}

static void submit(struct world *w)
{
    struct request_slot_input in = random_input(w);
    int32_t prompt[PREFIX_TOKENS];
    memcpy(prompt, w->prefixes[below(w, NUM_PREFIXES)], sizeof(prompt));
    /* A conversation goes on: what was generated is now a prompt. */
    if (chance(w, 30) && w->last_answer_tokens > 0) {
        memcpy(prompt, w->last_answer, sizeof(prompt));
        in.num_prompt_tokens = min_of(w->last_answer_tokens, (int32_t)PREFIX_TOKENS);
    }
    /* Some prompts leave the common prefix somewhere. */
    if (chance(w, 50)) prompt[below(w, in.num_prompt_tokens)] = below(w, FAKE_VOCAB);
    end_with_header(w, prompt, in.num_prompt_tokens);
    struct logit_bias bias = {below(w, FAKE_VOCAB), -__builtin_inff()};
    int32_t slot_idx = rig_submit_biased(&w->rig, &in, bias, prompt);
    assert_true(slot_idx < NUM_SLOTS && !w->in_use[slot_idx]);
    predict(w, request_slots_get(w->rig.slots, slot_idx), request_slots_predicted(w->rig.slots, slot_idx));
    w->in_use[slot_idx] = true;
    w->cancelled[slot_idx] = false;
    w->num_submitted++;
}

static void cancel_one(struct world *w)
{
    int32_t slot_idx = below(w, NUM_SLOTS);
    if (!w->in_use[slot_idx]) return;
    bool waiting = request_slots_get(w->rig.slots, slot_idx)->scheduled_ns == 0;
    seen.cancelled_waiting += waiting;
    seen.cancelled_running += !waiting;
    w->cancelled[slot_idx] = true;
    link_cancel(w->rig.link, slot_idx);
}

static void expect_reason(struct world *w, int32_t slot_idx, enum finish_reason reason)
{
    struct request_slot *slot = request_slots_get(w->rig.slots, slot_idx);
    seen.stop += reason == FINISH_STOP;
    seen.length += reason == FINISH_LENGTH;
    seen.pooled[slot->input.pooling] += reason == FINISH_LENGTH;
    seen.scored += reason == FINISH_LENGTH && slot->input.prompt_logprobs;
    int32_t predicted =
        atomic_load(&slot->num_predicted_accepted) + atomic_load(&slot->num_predicted_rejected);
    assert_true(predicted == 0 || slot->input.num_predicted > 0);
    seen.predicted_accepted += (uint64_t)atomic_load(&slot->num_predicted_accepted);
    seen.predicted_rejected += (uint64_t)atomic_load(&slot->num_predicted_rejected);
    seen.preempted_finished += slot->num_preemptions > 0 && reason != FINISH_CANCELLED;
    if (reason == FINISH_CANCELLED) assert_true(w->cancelled[slot_idx]);
    if (reason != FINISH_ERROR) return;
    bool too_big = strstr(slot->error_text, "blocks") != NULL;
    if (!too_big) assert_int_equal(slot->input.sampling.seed >> 48, 0xFA11);
    seen.refused += too_big;
    seen.failed += !too_big;
}

static void collect(struct world *w)
{
    for (int32_t i = 0; i < NUM_SLOTS; i++) {
        if (!w->in_use[i]) continue;
        enum finish_reason reason = rig_finish_reason(&w->rig, i);
        if (w->cancelled[i]) assert_int_not_equal(reason, FINISH_NONE); /* within one turn */
        if (reason == FINISH_NONE) continue;
        expect_reason(w, i, reason);
        rig_expect_solo(&w->rig, i);
        w->num_delivered += (uint64_t)rig_num_published(&w->rig, i);
        w->num_finished++;
        memcpy(w->last_answer, request_slots_tokens(w->rig.slots, i), sizeof(w->last_answer));
        w->last_answer_tokens =
            request_slots_get(w->rig.slots, i)->input.num_prompt_tokens + rig_num_published(&w->rig, i);
        w->in_use[i] = false;
        request_slots_release(w->rig.slots, i);
    }
}

/* Headers and ends of answers, here and there. */
static void plant_answers(struct world *w)
{
    for (int i = 0; i < NUM_PREFIXES; i++)
        for (int p = below(w, 20); p + FAKE_HEADER <= PREFIX_TOKENS; p += 1 + below(w, 40)) {
            w->prefixes[i][p] = chance(w, 30) ? FAKE_EOS : FAKE_HEADER_FIRST;
            if (w->prefixes[i][p] != FAKE_EOS) w->prefixes[i][++p] = FAKE_HEADER_LAST;
        }
}

static void world_init(struct world *w, uint64_t seed)
{
    *w = (struct world){.random = seed};
    int32_t budget_of[] = {8, 16, 17, 64, 512};
    struct engine_options options = {.max_model_len = MAX_MODEL_LEN, .enable_prefix_caching = !chance(w, 20)};
    options.max_num_seqs = 1 + below(w, 10);
    options.max_num_batched_tokens = budget_of[below(w, 5)];
    options.max_num_logits = chance(w, 50) ? 0 : 1 + below(w, 40);
    struct fake_options fake = {.num_steps_in_flight = 1 + below(w, 2),
                                .prefill_decode_equal = chance(w, 60)};
    fake.fail_at_step = -1;
    /* From "one request barely fits, some do not" to "everything fits". */
    fake.num_blocks = chance(w, 15) ? 6 : 10 + below(w, chance(w, 70) ? 20 : 200);
    w->max_prompt = chance(w, 50) ? PREFIX_TOKENS : 20;
    w->max_tokens_max = chance(w, 60) ? MAX_MODEL_LEN - PREFIX_TOKENS : 12;
    for (int i = 0; i < NUM_PREFIXES; i++)
        for (int p = 0; p < PREFIX_TOKENS; p++) w->prefixes[i][p] = below(w, FAKE_VOCAB);
    w->storm = chance(w, 30);
    if (w->storm) {
        w->max_prompt = 20;
        w->max_tokens_max = MAX_MODEL_LEN - PREFIX_TOKENS;
        fake.num_blocks = 10 + below(w, 8);
    }
    options.num_host_blocks = chance(w, 60) ? below(w, 20) : 0;
    options.kv_block_bytes = FAKE_BLOCK_BYTES;
    if (chance(w, 50)) fake.window = 1 + below(w, FAKE_WINDOW_MAX);
    fake.window_is_chunk = chance(w, 50);
    fake.has_states = chance(w, 50);
    options.decode_runs = !fake.has_states && chance(w, 70);
    if (options.decode_runs && chance(w, 50)) options.max_num_rows = 1 + below(w, 40);
    if ((options.decode_runs || fake.has_states) && chance(w, 70))
        options.num_draft_tokens = 1 + below(w, 12);
    /* Answers of two ids, or three with an end among them: what was said before comes again. */
    if (chance(w, 40)) fake.forbidden = ~(uint64_t)(chance(w, 50) ? 6 : 14);
    fake.has_answers = chance(w, 60);
    if (fake.has_answers) plant_answers(w);
    if (fake.has_states) options.num_states = 1 + below(w, chance(w, 50) ? 4 : 20);
    w->rig = rig_create(&fake, options, NUM_SLOTS);
}

static void run_seed(uint64_t seed)
{
    struct world w;
    world_init(&w, seed);
    int32_t submit_percent = 5 + below(&w, 60), cancel_percent = below(&w, 8);
    struct link_stats stats;
    for (int turn = 0; turn < 400; turn++) {
        while (chance(&w, submit_percent) && request_slots_num_free(w.rig.slots) > 0) submit(&w);
        if (chance(&w, cancel_percent)) cancel_one(&w);
        bool worked = engine_step(w.rig.engine);
        engine_check(w.rig.engine);
        collect(&w);
        link_stats(w.rig.link, &stats);
        if (!worked)
            assert_true(stats.num_running == 0 && stats.num_waiting == 0 && stats.num_held_blocks == 0);
        seen.full_turns += stats.num_free_blocks == 0;
    }
    int turns_left = 20000;
    while (engine_step(w.rig.engine)) {
        engine_check(w.rig.engine);
        collect(&w);
        assert_true(turns_left-- > 0);
    }
    collect(&w);
    assert_int_equal(w.num_finished, w.num_submitted);
    assert_int_equal(request_slots_num_free(w.rig.slots), NUM_SLOTS);
    link_stats(w.rig.link, &stats);
    assert_int_equal(stats.generated_tokens, w.num_delivered + stats.discarded_tokens);
    assert_int_equal(stats.num_held_blocks, 0);
    assert_int_equal(stats.num_free_blocks + stats.num_cached_blocks, w.rig.model->options.num_blocks);
    seen.hits += stats.prefix_hit_tokens;
    seen.preemptions += stats.num_preemptions;
    seen.saved += stats.num_saved;
    seen.loaded += (uint64_t)w.rig.model->num_blocks_loaded;
    seen.states_kept += (uint64_t)w.rig.model->num_states_kept;
    seen.states_loaded += (uint64_t)w.rig.model->num_states_loaded;
    seen.discarded += stats.discarded_tokens;
    seen.drafted += stats.draft_tokens;
    seen.accepted += stats.accepted_tokens;
    seen.mixed += (uint64_t)w.rig.model->num_mixed_steps;
    seen.late += (uint64_t)w.rig.model->num_late_inputs;
    rig_destroy(&w.rig);
}

static void test_random_runs(void **state)
{
    (void)state;
    for (uint64_t seed = first_seed; seed < first_seed + num_seeds; seed++) {
        /* On a failure the last line names the seed. */
        fprintf(stderr, "seed %llu\r", (unsigned long long)seed);
        run_seed(seed);
    }
    printf("stop %lu length %lu scored %lu cancelled %lu+%lu failed %lu refused %lu hits %lu preemptions %lu "
           "(of finished requests: %lu) discarded %lu mixed steps %lu late inputs %lu turns without a free "
           "block %lu saved %lu blocks loaded %lu states kept %lu loaded %lu drafted %lu accepted %lu "
           "predicted %lu + "
           "%lu\n",
           seen.stop, seen.length, seen.scored, seen.cancelled_waiting, seen.cancelled_running, seen.failed,
           seen.refused, seen.hits, seen.preemptions, seen.preempted_finished, seen.discarded, seen.mixed,
           seen.late, seen.full_turns, seen.saved, seen.loaded, seen.states_kept, seen.states_loaded,
           seen.drafted, seen.accepted, seen.predicted_accepted, seen.predicted_rejected);
    if (num_seeds < 100) return;
    assert_true(seen.stop && seen.length && seen.scored && seen.cancelled_waiting && seen.cancelled_running);
    assert_true(seen.failed && seen.refused && seen.hits && seen.preemptions && seen.preempted_finished);
    assert_true(seen.discarded && seen.mixed && seen.late && seen.full_turns);
    assert_true(seen.saved && seen.saved < seen.preemptions && seen.loaded);
    assert_true(seen.states_kept && seen.states_loaded);
    assert_true(seen.predicted_accepted > 100 && seen.predicted_rejected > 100);
    assert_true(seen.accepted > 1000 && seen.drafted > seen.accepted + 1000);
    for (int i = POOLING_LAST; i <= POOLING_LOGITS; i++) assert_true(seen.pooled[i]);
}

int main(int argc, char **argv)
{
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 1) num_seeds = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    log_configure(LOG_WARNING, false); /* preemptions are news */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_runs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
