/* scheduler_preempt.c - what becomes of a preempted sequence's work: it goes to host memory, or is done again. */
#include "base/check.h"
#include "scheduler/scheduler_internal.h"

/* All that it has computed, again: in chunks of a prompt, or replayed for a share of each step that this takes. */
static double compute_us(const struct scheduler *s, const struct sequence *seq)
{
    const struct step_prices *p = &s->prices;
    int32_t num_prompt = seq->num_computed;
    if (!s->options.prefill_decode_equal) num_prompt = min_of(num_prompt, seq->num_prompt);
    int32_t num_replayed = seq->num_computed - num_prompt, run = 1;
    if (s->options.decode_runs) run = s->options.max_num_rows - s->running.count + 1;
    return step_prices_prompt_us(p, 0, num_prompt) + step_prices_decode_us(p, num_prompt, num_replayed) +
           (double)div_up(num_replayed, run) * p->decode_step / s->running.count;
}

/* Blocks of a group and the host blocks behind host_id, from the first one that the token behind num_tokens sees; those
 * before from stay as they are. Returns the host block behind the last one. */
static int32_t copy_group(const struct scheduler *s, struct block_copies *copies, const struct sequence *seq,
                          int32_t group, int32_t num_tokens, int32_t from, int32_t host_id)
{
    const struct kv_table *table = kv_tables_get(s->tables, seq->batch_slot, group);
    int32_t i = kv_group_first_block(&s->options.kv_groups.groups[group], num_tokens);
    assert_always(i >= table->begin && div_up(num_tokens, BLOCK_SIZE) <= table->end);
    for (; i < div_up(num_tokens, BLOCK_SIZE); i++, host_id = host_blocks_next(s->host_blocks, host_id)) {
        if (i < from) continue;
        copies->block_ids[copies->count] = table->block_ids[i];
        copies->host_ids[copies->count++] = host_id;
    }
    return host_id;
}

/* Of all groups, one after the other, what is saved and what comes back. */
static void copy_blocks(const struct scheduler *s, struct block_copies *copies, const struct sequence *seq,
                        int32_t from)
{
    int32_t host_id = seq->saved;
    for (int32_t g = 0; g < s->options.kv_groups.count; g++)
        host_id = copy_group(s, copies, seq, g, seq->num_saved_tokens, from, host_id);
}

static void save(struct scheduler *s, struct plan *plan, struct sequence *seq, int32_t num_blocks)
{
    seq->saved = host_blocks_take(s->host_blocks, num_blocks);
    seq->num_saved_tokens = seq->num_computed;
    copy_blocks(s, &plan->saves, seq, 0);
    scheduler_save_state(s, plan, seq);
    s->num_saved++;
}

struct preemption scheduler_weigh_preemption(const struct scheduler *s, const struct sequence *seq,
                                             const struct saved *before)
{
    int32_t num_blocks = kv_groups_num_seen(&s->options.kv_groups, seq->num_computed);
    struct preemption p = {.slot_idx = seq->slot_idx,
                           .num_tokens = seq->num_computed,
                           .has_state = scheduler_can_save_state(s, seq, before->num_states),
                           .restore_us = 2 * num_blocks * s->prices.block_copy,
                           .compute_us = compute_us(s, seq)};
    bool has_room = num_blocks > 0 && num_blocks <= host_blocks_num_free(s->host_blocks) - before->num_blocks;
    bool is_all =
        seq->pooling != POOLING_MEAN && seq->pooling != POOLING_FIRST; /* whose row is not in its blocks */
    p.saved = has_room && is_all && p.has_state && p.restore_us <= p.compute_us;
    return p;
}

static void keep_work(struct scheduler *s, struct plan *plan, struct sequence *seq, bool displaced)
{
    struct preemption p = scheduler_weigh_preemption(s, seq, &(struct saved){0});
    p.displaced = displaced;
    if (p.saved)
        save(s, plan, seq, kv_groups_num_seen(&s->options.kv_groups, seq->num_computed));
    else
        scheduler_release_state(s, seq);
    plan->preemptions[plan->num_preemptions++] = p;
}

static void take_away(struct scheduler *s, struct plan *plan, struct sequence *seq, bool displaced)
{
    keep_work(s, plan, seq, displaced);
    sequence_list_remove(s, &s->running, id_of(s, seq));
    scheduler_release(s, seq);
    sequence_forget_computed(seq);
    seq->state = SEQUENCE_WAITING;
    seq->num_preemptions++;
    seq->available_at_refusal = -1;
    s->num_preemptions++;
}

void scheduler_preempt(struct scheduler *s, struct plan *plan, struct sequence *seq)
{
    take_away(s, plan, seq, false);
    seq->num_bypassed = BYPASS_MAX;
    sequence_list_insert(s, &s->urgent, id_of(s, seq), NO_SEQUENCE);
    s->num_waiting++;
}

void scheduler_displace_one(struct scheduler *s, struct plan *plan, struct sequence *seq)
{
    take_away(s, plan, seq, true);
    seq->num_bypassed = 0;
    scheduler_enqueue(s, seq);
}

void scheduler_restore(struct scheduler *s, struct plan *plan, struct sequence *seq, int32_t num_hits)
{
    if (seq->num_saved_tokens > seq->num_computed) copy_blocks(s, &plan->loads, seq, num_hits);
    seq->num_computed = max_of(seq->num_computed, seq->num_saved_tokens);
    scheduler_forget_saved(s, seq);
}

void scheduler_forget_saved(struct scheduler *s, struct sequence *seq)
{
    host_blocks_give_back(s->host_blocks, seq->saved);
    seq->saved = NO_HOST_BLOCK;
    seq->num_saved_tokens = 0;
}

/* Blocks by which a group may grow that has got as far as end; where a window moves on, it takes no more than it gives. */
static int32_t room_of(const struct kv_groups *groups, int32_t group, const struct sequence *seq, int32_t end)
{
    int32_t num_places = sequence_num_places_max(seq->num_prompt, seq->max_tokens);
    return min_of(kv_group_num_blocks_max(groups, group, num_places) -
                      kv_group_num_blocks_max(groups, group, end * BLOCK_SIZE),
                  (int32_t)ROOM_BLOCKS);
}

int32_t scheduler_room(const struct scheduler *s, const struct sequence *preempted)
{
    const struct kv_groups *groups = &s->options.kv_groups;
    int32_t room = 0;
    for (int32_t g = 0; g < groups->count; g++) {
        room += room_of(groups, g, preempted, (int32_t)div_up(preempted->num_tokens, BLOCK_SIZE));
        for (int32_t id = s->running.head; id != NO_SEQUENCE; id = s->sequences[id].next) {
            const struct sequence *seq = &s->sequences[id];
            room += room_of(groups, g, seq, kv_tables_get(s->tables, seq->batch_slot, g)->end);
        }
    }
    return room;
}
