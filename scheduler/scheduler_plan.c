/* scheduler_plan.c - the policy; its four parts and its promises are in scheduler.h. */
#include "scheduler/scheduler_internal.h"

#include "base/check.h"

/* 1. room. False: only a preemption helps, and a step in flight is in the way. */
static bool make_room(struct scheduler *s)
{
    for (int32_t id = s->running.head; id != NO_SEQUENCE; id = s->sequences[id].next) {
        struct sequence *seq = &s->sequences[id];
        if (!sequence_is_decoding(seq) || !sequence_wants_step(seq)) continue;
        if (seq->num_computed < seq->num_blocks * BLOCK_SIZE) continue;
        while (block_manager_hold(s->blocks, 1, table_of(s, seq->batch_slot) + seq->num_blocks) != 0) {
            if (s->num_steps_in_flight > 0) return false;
            struct sequence *youngest = &s->sequences[s->running.tail];
            assert_always(s->running.count > 1);
            scheduler_preempt(s, youngest);
            if (youngest == seq) return true;
        }
        seq->num_blocks++;
    }
    return true;
}

/* The part of a sequence that computes its next num_tokens tokens. */
static struct plan_entry entry_make(const struct scheduler *s, const struct sequence *seq, int32_t num_tokens)
{
    int32_t end = seq->num_computed + num_tokens;
    struct plan_entry e = {.seq_id = id_of(s, seq), .position = seq->num_computed, .num_tokens = num_tokens};
    e.samples = num_tokens == sequence_num_uncomputed(seq) && sequence_num_generated(seq) < seq->max_tokens;
    if (seq->prompt_logprobs) {
        e.score_position = max_of(e.position, seq->num_scored - 1);
        e.num_score_rows = max_of(min_of(end, seq->num_prompt - 1) - e.score_position, 0);
    }
    return e;
}

static int32_t entry_num_logits(const struct plan_entry *e)
{
    return e->num_score_rows + e->samples;
}

/* Puts the entry into the plan and moves the sequence's marks: from here on it counts as computed. */
static void plan_add(struct scheduler *s, struct plan *plan, struct plan_entry e, bool prefill)
{
    struct sequence *seq = &s->sequences[e.seq_id];
    if (prefill) {
        plan->prefills[plan->num_prefills++] = e;
        plan->num_prefill_tokens += e.num_tokens;
    } else {
        plan->decodes[plan->num_decodes++] = e;
    }
    plan->num_tokens += e.num_tokens;
    plan->num_logits += entry_num_logits(&e);
    seq->num_computed += e.num_tokens;
    seq->num_pending += e.samples;
    seq->num_steps_in_flight++;
    if (e.num_score_rows > 0) seq->num_scored = e.score_position + 1 + e.num_score_rows;
    scheduler_hash_full_blocks(s, seq);
}

/* 2. decode. */
static void plan_decodes(struct scheduler *s, struct plan *plan)
{
    for (int32_t id = s->running.head; id != NO_SEQUENCE; id = s->sequences[id].next) {
        const struct sequence *seq = &s->sequences[id];
        if (sequence_is_decoding(seq) && sequence_wants_step(seq))
            plan_add(s, plan, entry_make(s, seq, 1), false);
    }
}

/* As many of the sequence's tokens as fit into what the plan has left. */
static void plan_prefill(struct scheduler *s, struct plan *plan, const struct sequence *seq, bool admitted)
{
    int32_t num_tokens =
        min_of(sequence_num_uncomputed(seq), s->options.max_num_batched_tokens - plan->num_tokens);
    bool generated = seq->num_computed >= seq->num_prompt;
    if (!s->options.prefill_decode_equal)
        num_tokens = min_of(num_tokens, generated ? 1 : seq->num_prompt - seq->num_computed);
    int32_t max_logits = s->options.max_num_logits - plan->num_logits;
    struct plan_entry e = entry_make(s, seq, num_tokens);
    while (e.num_tokens > 0 && entry_num_logits(&e) > max_logits)
        e = entry_make(s, seq, e.num_tokens - (entry_num_logits(&e) - max_logits));
    assert_always(e.num_tokens > 0 || !admitted);
    if (e.num_tokens <= 0) return;
    e.admitted = admitted;
    plan_add(s, plan, e, s->options.prefill_decode_equal || !generated);
}

/* 3. prefill. */
static void plan_prefills(struct scheduler *s, struct plan *plan)
{
    for (int32_t id = s->running.head; id != NO_SEQUENCE; id = s->sequences[id].next) {
        const struct sequence *seq = &s->sequences[id];
        if (sequence_is_decoding(seq) || sequence_num_uncomputed(seq) == 0) continue;
        if (sequence_wants_step(seq)) plan_prefill(s, plan, seq, false);
    }
}

/* Blocks for all tokens that the sequence has, those found in the prefix cache shared. False: not enough. */
static bool hold_blocks(struct scheduler *s, struct sequence *seq, int32_t *table)
{
    int32_t headroom = s->running.count, available = block_manager_num_available(s->blocks);
    int32_t num_blocks = (int32_t)div_up(seq->num_tokens, BLOCK_SIZE), num_hits = 0;
    /* Looking up a long prompt each step while nothing changes would cost more than the step's whole plan. */
    if (available < num_blocks + headroom && available <= seq->available_at_refusal && headroom > 0)
        return false;
    if (s->prefixes && !seq->prompt_logprobs) {
        int32_t max_tokens = s->options.prefill_decode_equal ? seq->num_tokens : seq->num_prompt;
        int32_t max_blocks = min_of(max_tokens, seq->num_tokens - 1) / BLOCK_SIZE;
        num_hits = prefix_cache_match(s->prefixes, seq->tokens, max_blocks, &seq->hash, table);
    }
    int32_t num_new = num_blocks - num_hits;
    if (block_manager_num_available(s->blocks) < num_new + headroom ||
        block_manager_hold(s->blocks, num_new, table + num_hits) != 0) {
        block_manager_release(s->blocks, num_hits, table);
        seq->hash = seq->root;
        seq->available_at_refusal = available;
        return false;
    }
    seq->num_blocks = num_blocks;
    seq->num_hashed_blocks = num_hits;
    seq->num_computed = num_hits * BLOCK_SIZE;
    return true;
}

static void count_first_admission(struct scheduler *s, struct sequence *seq)
{
    if (seq->num_cached_tokens >= 0) return;
    seq->num_cached_tokens = seq->num_computed;
    if (!s->prefixes || seq->prompt_logprobs) return;
    s->prefix_query_tokens += (uint64_t)seq->num_prompt;
    s->prefix_hit_tokens += (uint64_t)seq->num_cached_tokens;
}

static bool admit(struct scheduler *s, struct sequence *seq)
{
    int32_t batch_slot = s->free_batch_slots[s->num_free_batch_slots - 1];
    if (!hold_blocks(s, seq, table_of(s, batch_slot))) return false;
    s->num_free_batch_slots--;
    seq->batch_slot = batch_slot;
    seq->state = SEQUENCE_RUNNING;
    sequence_list_remove(s, &s->waiting, id_of(s, seq));
    int32_t older = s->running.tail;
    while (older != NO_SEQUENCE && s->sequences[older].arrival > seq->arrival)
        older = s->sequences[older].prev;
    sequence_list_insert(s, &s->running, id_of(s, seq), older);
    count_first_admission(s, seq);
    return true;
}

/* All that still wait before `end` in the queue were passed over. */
static void count_bypass(struct scheduler *s, int32_t end)
{
    for (int32_t id = s->waiting.head; id != end; id = s->sequences[id].next) s->sequences[id].num_bypassed++;
}

static bool has_room_for_sequence(const struct scheduler *s, const struct plan *plan)
{
    const struct scheduler_options *o = &s->options;
    return s->running.count < o->max_num_seqs && s->num_free_batch_slots > 0 &&
           plan->num_tokens < o->max_num_batched_tokens && plan->num_logits < o->max_num_logits;
}

/* 4. admit. */
static void admit_waiting(struct scheduler *s, struct plan *plan)
{
    int32_t id = s->waiting.head;
    for (int32_t n = 0; n < BYPASS_LOOK_AHEAD && id != NO_SEQUENCE && has_room_for_sequence(s, plan); n++) {
        struct sequence *seq = &s->sequences[id];
        int32_t next = seq->next;
        if (admit(s, seq)) {
            count_bypass(s, next);
            plan_prefill(s, plan, seq, true);
        } else if (seq->num_bypassed >= BYPASS_MAX) {
            return;
        }
        id = next;
    }
}

enum schedule_result scheduler_plan(struct scheduler *s, struct plan *plan)
{
    plan->num_prefills = plan->num_decodes = 0;
    plan->num_tokens = plan->num_prefill_tokens = plan->num_logits = 0;
    if (!make_room(s)) return SCHEDULE_DRAIN;
    plan_decodes(s, plan);
    plan_prefills(s, plan);
    admit_waiting(s, plan);
    if (plan->num_tokens == 0) return SCHEDULE_IDLE;
    s->num_steps_in_flight++;
    return SCHEDULE_STEP;
}
