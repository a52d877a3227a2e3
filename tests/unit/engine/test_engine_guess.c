/* Drafts of answers that must have a form: a thread is the front, which guesses and makes masks, sometimes wrongly and sometimes
 * late. Every answer is that of an engine that drafts nothing. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "base/bit_set.h"
#include "unit/engine/fake_engine.h"

enum { NUM_REQUESTS = 24, PROMPT = 20, FORCED_OF = 6, NUM_FREE = 2, NUM_ROUNDS = 12 };

struct front {
    struct rig *rig;
    pthread_t thread;
    _Atomic bool stopping;
    uint64_t random;
    bool is_punctual;
    int32_t served[NUM_REQUESTS]; /* tokens that were known, and one */
};

static int32_t below(struct front *f, int32_t n)
{
    f->random = fake_mix(f->random, 77);
    return (int32_t)(f->random % (uint64_t)n);
}

/* ---- the form: so many tokens are free, the next follow from each other; some answers end by it ---- */

static bool ends(uint64_t seed, int32_t k)
{
    return seed % 3 == 0 && k >= (int32_t)(11 + seed % 17);
}

static int32_t forced_id(int32_t last)
{
    return (last * 7 + 5) % FAKE_VOCAB == FAKE_EOS ? 1 : (last * 7 + 5) % FAKE_VOCAB;
}

static bool is_forced(int32_t k)
{
    return k % FORCED_OF >= NUM_FREE;
}

static void write_mask(struct front *f, int32_t slot_idx, int32_t k, int32_t last)
{
    uint64_t *mask = request_slots_mask(f->rig->slots, slot_idx, k);
    mask[0] = is_forced(k) ? (uint64_t)1 << forced_id(last) : 0xFFFFFFFFFFFF & ~((uint64_t)1 << (last % 40));
}

/* ---- the front ---- */

static void be_late(struct front *f)
{
    const struct timespec time = {.tv_nsec = 1000 * (1 + below(f, 2500))};
    if (!f->is_punctual && below(f, 100) < 2) nanosleep(&time, NULL);
}

/* What is guessed of a free token comes seldom. */
static int32_t guess(struct front *f, struct slot_guess *g, int32_t k, int32_t last)
{
    int32_t num = min_of(atomic_load(&g->num_wanted), 1 + below(f, GUESS_TOKENS_MAX));
    for (int32_t i = 0; i < num; i++)
        last = g->tokens[i] = is_forced(k + i) && below(f, 100) < 90 ? forced_id(last) : below(f, FAKE_VOCAB);
    return num;
}

static bool may_follow(const struct front *f, int32_t slot_idx, int32_t k, int32_t id)
{
    return bit_set_has(request_slots_mask(f->rig->slots, slot_idx, k), (size_t)id) && id != FAKE_EOS;
}

static void make_ahead(struct front *f, int32_t slot_idx, int32_t k, uint64_t seed)
{
    struct slot_guess *g = &request_slots_get(f->rig->slots, slot_idx)->guess;
    for (int32_t i = 0; i < atomic_load(&g->num_tokens); i++) {
        be_late(f);
        if (may_follow(f, slot_idx, k + i, g->tokens[i]) && !ends(seed, k + i + 1)) {
            write_mask(f, slot_idx, k + i + 1, g->tokens[i]);
            atomic_store(&g->num_masks_ahead, i + 1);
        } else {
            atomic_store(&g->num_tokens, i);
        }
        link_say_mask_is_made(f->rig->link);
    }
}

static void serve(struct front *f, int32_t slot_idx)
{
    struct request_slot *slot = request_slots_get(f->rig->slots, slot_idx);
    int32_t k = atomic_load(&slot->num_published);
    if (f->served[slot_idx] == k + 1) return;
    f->served[slot_idx] = k + 1;
    int32_t last = request_slots_tokens(f->rig->slots, slot_idx)[PROMPT + k - 1];
    bool is_end = ends(slot->input.sampling.seed, k);
    be_late(f);
    atomic_store(&slot->guess.num_tokens, is_end ? 0 : guess(f, &slot->guess, k, last));
    atomic_store(&slot->guess.num_masks_ahead, 0);
    atomic_store(&slot->guess.state, k + 1);
    link_say_mask_is_made(f->rig->link);
    be_late(f);
    if (!is_end) write_mask(f, slot_idx, k, last);
    atomic_store(&slot->mask_state, is_end ? MASK_ENDED : k + 1);
    link_say_mask_is_made(f->rig->link);
    if (!is_end) make_ahead(f, slot_idx, k, slot->input.sampling.seed);
}

static void *run_front(void *context)
{
    struct front *f = context;
    while (!atomic_load(&f->stopping)) {
        uint32_t seen = link_num_wanted(f->rig->link);
        int32_t slot_idx = -1;
        bool any = false;
        for (; link_next_wanted(f->rig->link, &slot_idx); any = true) serve(f, slot_idx);
        if (!any && !atomic_load(&f->stopping)) link_sleep_until_wanted(f->rig->link, seen);
    }
    return NULL;
}

/* ---- the same requests, with drafts and without ---- */

struct answers {
    int32_t tokens[NUM_REQUESTS][PROMPT + 64];
    struct token_logprobs logprobs[NUM_REQUESTS][PROMPT + 64];
    int32_t num_tokens[NUM_REQUESTS];
    enum finish_reason reasons[NUM_REQUESTS];
    struct link_stats stats;
};

static struct request_slot_input input_of(int round, int i)
{
    struct request_slot_input in = input_default(PROMPT, 1 + (7 * i + round) % 50);
    in.constrained = true;
    in.sampling.seed = (uint64_t)(1000 * round + i);
    in.sampling.temperature = i % 2 ? 0.0f : 0.7f;
    in.sampling.num_logprobs = i % 3 - 1;
    in.min_tokens = i % 5 == 0 ? 6 : 0;
    if (i % 7 == 0) in.stop_token_ids[in.num_stop_token_ids++] = 9;
    if (i % 11 == 0) in.sampling.frequency_penalty = 0.5f;
    return in;
}

static void take_answers(struct rig *rig, const int32_t *slots, struct answers *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < NUM_REQUESTS; i++) {
        out->num_tokens[i] = rig_num_published(rig, slots[i]);
        out->reasons[i] = rig_finish_reason(rig, slots[i]);
        size_t num = (size_t)(PROMPT + out->num_tokens[i]);
        memcpy(out->tokens[i], request_slots_tokens(rig->slots, slots[i]), num * sizeof(int32_t));
        memcpy(out->logprobs[i], request_slots_logprobs(rig->slots, slots[i]),
               num * sizeof out->logprobs[i][0]);
    }
    link_stats(rig->link, &out->stats);
}

static void answer(const struct fake_options *fake, int round, int32_t num_draft_tokens, struct answers *out)
{
    struct engine_options options = {.max_model_len = 128,
                                     .max_num_seqs = 8,
                                     .max_num_batched_tokens = 64,
                                     .max_num_rows = 24,
                                     .decode_runs = true,
                                     .enable_prefix_caching = true,
                                     .num_draft_tokens = num_draft_tokens};
    struct fake_options own = *fake;
    own.num_blocks = round % 2 ? 30 : 200;
    struct rig rig = rig_create(&own, options, NUM_REQUESTS);
    struct front front = {.rig = &rig, .random = (uint64_t)round, .is_punctual = num_draft_tokens == 0};
    int32_t slots[NUM_REQUESTS], prompt[PROMPT];
    assert_int_equal(pthread_create(&front.thread, NULL, run_front, &front), 0);
    for (int i = 0; i < NUM_REQUESTS; i++) {
        const struct request_slot_input in = input_of(round, i);
        for (int p = 0; p < PROMPT; p++) prompt[p] = (p * 3 + i % 4 + round) % FAKE_VOCAB;
        slots[i] = rig_submit(&rig, &in, prompt);
        if (i % 3 == 0) (void)engine_step(rig.engine);
    }
    rig_run(&rig);
    atomic_store(&front.stopping, true);
    link_call_mask_threads(rig.link);
    pthread_join(front.thread, NULL);
    take_answers(&rig, slots, out);
    rig_destroy(&rig);
}

static void drafts_change_no_answer(void **state)
{
    static struct answers with, without;
    uint64_t num_accepted = 0, num_rejected = 0, num_withheld = 0;
    const struct fake_options fake = {.num_steps_in_flight = *(int *)*state, .fail_at_step = -1};
    for (int round = 0; round < NUM_ROUNDS; round++) {
        answer(&fake, round, 0, &without);
        answer(&fake, round, 1 + round % 9, &with);
        assert_memory_equal(with.num_tokens, without.num_tokens, sizeof with.num_tokens);
        assert_memory_equal(with.reasons, without.reasons, sizeof with.reasons);
        assert_memory_equal(with.tokens, without.tokens, sizeof with.tokens);
        assert_memory_equal(with.logprobs, without.logprobs, sizeof with.logprobs);
        assert_int_equal(without.stats.draft_tokens, 0);
        num_accepted += with.stats.accepted_tokens;
        num_rejected += with.stats.draft_tokens - with.stats.accepted_tokens;
        num_withheld += with.stats.num_withheld;
    }
    printf("%llu drafted tokens accepted, %llu rejected, %llu rows withheld\n",
           (unsigned long long)num_accepted, (unsigned long long)num_rejected,
           (unsigned long long)num_withheld);
    assert_true(num_accepted > 0 && num_rejected > 0);
}

static int one = 1, two = 2;

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"drafts_change_no_answer (1)", drafts_change_no_answer, NULL, NULL, &one},
        {"drafts_change_no_answer (2)", drafts_change_no_answer, NULL, NULL, &two},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
