/* scheduler_states.c - which states are kept, and who goes on from them (scheduler.h). */
#include "base/check.h"
#include "scheduler/scheduler_internal.h"

static void add_copy(const struct scheduler *s, struct plan *plan, const struct sequence *seq, int32_t id,
                     bool keeps)
{
    assert_always(plan->num_state_copies < 2 * s->options.max_num_seqs);
    plan->state_copies[plan->num_state_copies++] = (struct state_copy){.batch_slot = seq->batch_slot,
                                                                       .state = id - s->options.num_blocks,
                                                                       .position = seq->num_computed,
                                                                       .keeps = keeps};
}

void scheduler_release_state(struct scheduler *s, struct sequence *seq)
{
    if (seq->from_state != NO_BLOCK) block_manager_release(s->blocks, 1, &seq->from_state);
    seq->from_state = NO_BLOCK;
}

/* The last place in its prompt that leaves a token to be computed behind it, so that an equal prompt goes on from there. */
static int32_t last_in_prompt(const struct sequence *seq)
{
    return (seq->num_prompt - 1) / STATE_STRIDE * STATE_STRIDE;
}

void scheduler_take_state(struct scheduler *s, struct sequence *seq, const struct state_match *match,
                          int32_t num_hits)
{
    int32_t branch = match->num_blocks * BLOCK_SIZE / STATE_STRIDE * STATE_STRIDE;
    seq->branch = branch > num_hits * BLOCK_SIZE ? branch : 0;
    if (match->id != NO_BLOCK && seq->num_saved_tokens > num_hits * BLOCK_SIZE) {
        block_manager_release(s->blocks, 1, &match->id);
    } else if (seq->num_saved_tokens <= num_hits * BLOCK_SIZE) {
        scheduler_release_state(s, seq);
        seq->from_state = match->id;
    }
}

/* Copies are made in their order, and plans' one after the other: whoever gets the place next writes behind this. */
static void load_state(struct scheduler *s, struct plan *plan, struct sequence *seq)
{
    assert_always((seq->num_computed > 0) == (seq->from_state != NO_BLOCK));
    if (seq->from_state == NO_BLOCK) return;
    add_copy(s, plan, seq, seq->from_state, false);
    scheduler_release_state(s, seq);
}

static bool is_kept(const struct sequence *seq, int32_t position)
{
    return position > 0 && position % STATE_STRIDE == 0 &&
           (position == seq->branch || position >= last_in_prompt(seq));
}

static void keep_state(struct scheduler *s, struct plan *plan, struct sequence *seq)
{
    int32_t id, position = seq->num_computed;
    if (!s->prefixes || !is_kept(seq, position)) return;
    scheduler_hash_full_blocks(s, seq);
    if (seq->num_hashed_blocks * BLOCK_SIZE != position)
        return; /* a token is not known yet, or nobody's to share */
    if (!prefix_cache_wants_state(s->prefixes, &seq->hash)) return;
    bool is_generated = position > last_in_prompt(seq);
    if (is_generated && seq->last_state != NO_BLOCK)
        prefix_cache_drop_state(s->prefixes, seq->last_state, &seq->last_state_hash);
    if (block_manager_hold_state(s->blocks, &id) != 0) return;
    prefix_cache_insert_state(s->prefixes, id, &seq->hash);
    block_manager_release(s->blocks, 1, &id);
    add_copy(s, plan, seq, id, true);
    if (!is_generated) return;
    seq->last_state = id;
    seq->last_state_hash = seq->hash;
}

void scheduler_plan_state(struct scheduler *s, struct plan *plan, struct sequence *seq)
{
    if (s->options.num_states == 0) return;
    if (seq->is_entered)
        keep_state(s, plan, seq);
    else
        load_state(s, plan, seq);
}

int32_t scheduler_num_tokens_to_state(const struct scheduler *s, const struct sequence *seq)
{
    int32_t last = last_in_prompt(seq), next = INT32_MAX;
    if (s->options.num_states == 0 || !s->prefixes) return INT32_MAX;
    if (last > seq->num_computed) next = last;
    if (seq->branch > seq->num_computed) next = min_of(next, seq->branch);
    return next == INT32_MAX ? next : next - seq->num_computed;
}

int32_t scheduler_next_generated_state(const struct scheduler *s, const struct sequence *seq)
{
    if (s->options.num_states == 0 || !s->prefixes) return INT32_MAX;
    return (seq->num_computed / STATE_STRIDE + 1) * STATE_STRIDE;
}

/* One that has had no step since it was admitted still holds what it was to go on from. */
bool scheduler_can_save_state(const struct scheduler *s, const struct sequence *seq, int32_t num_before)
{
    return s->options.num_states == 0 || seq->from_state != NO_BLOCK ||
           block_manager_num_free_states(s->blocks) + block_manager_num_cached_states(s->blocks) > num_before;
}

void scheduler_save_state(struct scheduler *s, struct plan *plan, struct sequence *seq)
{
    if (s->options.num_states == 0 || seq->from_state != NO_BLOCK) return;
    int status = block_manager_hold_state(s->blocks, &seq->from_state);
    assert_always(status == 0);
    add_copy(s, plan, seq, seq->from_state, true);
}
