/* engine_guess.c - what a form lets an answer go on with, as the front guesses it (struct slot_guess) while it makes masks; where
 * it leaves a choice, what was found in what was said, as far as the form lets that through.
 *
 * The masks behind a guess are made for its tokens, so a draft of such an answer is the guess or nothing. It is told a little
 * after the token before it was published: whoever plans a step at once has to wait for it. */
#include "base/check.h"
#include "base/clock.h"
#include "engine/engine_internal.h"

static bool is_answered(const struct request_slot *slot, const struct sequence *seq)
{
    int32_t state = seq->num_tokens - seq->num_prompt + 1;
    return atomic_load_explicit(&slot->guess.state, memory_order_acquire) == state ||
           atomic_load_explicit(&slot->mask_state, memory_order_acquire) < 0;
}

static bool is_wanted(const struct request_slot *slot)
{
    return atomic_load_explicit(&slot->guess.num_wanted, memory_order_relaxed) > 0;
}

bool engine_hear_guess(struct engine *e, const struct sequence *seq)
{
    struct drafter *d = &e->drafters[seq->slot_idx];
    const struct request_slot *slot = request_slots_get(e->slots, seq->slot_idx);
    if (d->source == DRAFTER_IS_TOLD && !is_wanted(slot)) return false;
    drafter_follow(d, seq->tokens, seq->num_tokens);
    if (d->source != DRAFTER_IS_TOLD || d->is_told) return d->is_told;
    if (!is_answered(slot, seq)) return false;
    bool is_guessed = atomic_load_explicit(&slot->mask_state, memory_order_acquire) >= 0;
    int32_t num = atomic_load_explicit(&slot->guess.num_tokens, memory_order_acquire);
    drafter_tell(d, slot->guess.tokens, is_guessed ? num : 0, is_guessed && slot->guess.is_offered);
    return true;
}

void engine_offer_guess(struct engine *e, const struct sequence *seq)
{
    struct drafter *d = &e->drafters[seq->slot_idx];
    struct request_slot *slot = request_slots_get(e->slots, seq->slot_idx);
    struct slot_guess *guess = &slot->guess;
    int32_t ids[GUESS_TOKENS_MAX];
    if (d->source != DRAFTER_IS_TOLD || !is_wanted(slot)) return;
    drafter_follow(d, seq->tokens, seq->num_tokens);
    int32_t num = drafter_found(d, seq->tokens, ids, GUESS_TOKENS_MAX);
    for (int32_t i = 0; i < num; i++) atomic_store_explicit(&guess->offered[i], ids[i], memory_order_relaxed);
    atomic_store_explicit(&guess->num_offered, num, memory_order_relaxed);
    atomic_store_explicit(&guess->offer_state, seq->num_tokens - seq->num_prompt + 1, memory_order_release);
}

void engine_want_guess(struct engine *e, const struct sequence *seq, int32_t num)
{
    struct slot_guess *guess = &request_slots_get(e->slots, seq->slot_idx)->guess;
    int32_t num_wanted = min_of(num, request_slots_num_guess_tokens(e->slots));
    if (atomic_load_explicit(&guess->num_wanted, memory_order_relaxed) != num_wanted)
        atomic_store_explicit(&guess->num_wanted, num_wanted, memory_order_relaxed);
}

void engine_await_guess(struct engine *e, const struct sequence *seq, uint64_t deadline_ns)
{
    for (;;) {
        uint32_t seen = link_num_made(e->link);
        if (engine_hear_guess(e, seq)) return;
        uint64_t now_ns = clock_monotonic_ns();
        if (now_ns >= deadline_ns) return;
        link_sleep_until_made(e->link, seen, deadline_ns - now_ns);
    }
}
