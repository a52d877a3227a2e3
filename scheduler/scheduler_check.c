/* scheduler_check.c - walks all sequences and blocks. Quadratic in nothing, but far too slow for each step of
 * a production engine: tests call it after every change, debug builds whenever the engine goes idle. */
#include "scheduler/scheduler_internal.h"

#include <string.h>

#include "base/check.h"

static void check_list(const struct scheduler *s, const struct sequence_list *list, enum sequence_state state)
{
    int32_t prev = NO_SEQUENCE, count = 0;
    uint64_t arrival = 0;
    for (int32_t id = list->head; id != NO_SEQUENCE; id = s->sequences[id].next) {
        const struct sequence *seq = &s->sequences[id];
        assert_always(++count <= list->count);
        assert_always(seq->state == state && seq->prev == prev);
        assert_always(state != SEQUENCE_RUNNING || seq->arrival > arrival);
        assert_always(state != SEQUENCE_WAITING || sequence_is_urgent(seq) == (list == &s->urgent));
        arrival = seq->arrival;
        prev = id;
    }
    assert_always(count == list->count && list->tail == prev);
}

/* Whoever waits holds the state of what was saved, whoever is about to begin that of what is computed. */
static void check_state(const struct scheduler *s, const struct sequence *seq)
{
    bool waits = seq->state == SEQUENCE_WAITING, begins = seq->state == SEQUENCE_RUNNING && !seq->is_entered;
    int32_t num_tokens = waits ? seq->num_saved_tokens : begins ? seq->num_computed : 0;
    bool needs_one = s->options.num_states > 0 && num_tokens > 0;
    assert_always((seq->from_state != NO_BLOCK) == needs_one);
    if (needs_one) assert_always(seq->from_state >= s->options.num_blocks);
}

static void check_marks(const struct scheduler *s, const struct sequence *seq)
{
    bool has_blocks = seq->state == SEQUENCE_RUNNING || seq->state == SEQUENCE_CLOSING;
    /* A closing one's last tokens may be unknown forever. */
    if (seq->state != SEQUENCE_CLOSING)
        assert_always(seq->num_computed <= seq->num_tokens + seq->num_pending);
    assert_always(seq->num_pending >= 0 &&
                  seq->num_pending <= seq->num_steps_in_flight + seq->num_draft_pending);
    assert_always(seq->num_draft_pending == 0 || seq->num_steps_in_flight == 1);
    assert_always(seq->num_drafted >= 0 && seq->num_draft_pending >= 0);
    assert_always(seq->num_steps_in_flight <= s->num_steps_in_flight);
    assert_always(sequence_num_generated(seq) <= seq->max_tokens);
    assert_always(seq->num_scored >= 1 && seq->num_scored <= seq->num_prompt);
    assert_always(has_blocks == (seq->batch_slot >= 0));
    /* The last token may be computed once more, to the same bits. */
    assert_always(seq->num_hashed_blocks * BLOCK_SIZE <= seq->num_computed + 1);
    if (seq->state == SEQUENCE_CLOSING) assert_always(seq->num_steps_in_flight > 0);
    if (seq->state == SEQUENCE_WAITING) assert_always(seq->num_steps_in_flight == 0);
    if (seq->saved != NO_HOST_BLOCK)
        assert_always(seq->state == SEQUENCE_WAITING && seq->num_preemptions > 0);
    assert_always(seq->num_saved_tokens < seq->num_tokens);
    check_state(s, seq);
}

/* The sequence holds in each group what its next token sees, and no more than it was reckoned with. */
static void check_blocks(const struct scheduler *s, const struct sequence *seq)
{
    const struct kv_groups *groups = &s->options.kv_groups;
    int32_t num_places = sequence_num_places_max(seq->num_prompt, seq->max_tokens);
    for (int32_t g = 0; g < groups->count; g++) {
        const struct kv_table *table = kv_tables_get(s->tables, seq->batch_slot, g);
        assert_always(table->begin <= kv_group_first_block(&groups->groups[g], seq->num_computed));
        assert_always(div_up(seq->num_computed, BLOCK_SIZE) <= table->end);
        assert_always(table->end <= div_up(num_places, BLOCK_SIZE));
        assert_always(table->end - table->begin <= kv_group_num_blocks_max(groups, g, num_places));
    }
}

/* Each host block is free or in the chain of one waiting sequence, which has what its saved tokens need. */
static void check_saved(const struct scheduler *s)
{
    int32_t num_saved = 0;
    bool *used = calloc((size_t)s->options.num_host_blocks + 1, sizeof(*used));
    assert_always(used);
    for (int32_t i = 0; i < s->num_sequences; i++) {
        const struct sequence *seq = &s->sequences[i];
        int32_t count = 0, id = seq->state == SEQUENCE_FREE ? NO_HOST_BLOCK : seq->saved;
        for (; id != NO_HOST_BLOCK; id = host_blocks_next(s->host_blocks, id), count++) {
            assert_always(!used[id]);
            used[id] = true;
        }
        if (seq->state != SEQUENCE_FREE)
            assert_always(count == kv_groups_num_seen(&s->options.kv_groups, seq->num_saved_tokens));
        num_saved += count;
    }
    assert_always(num_saved + host_blocks_num_free(s->host_blocks) == s->options.num_host_blocks);
    free(used);
}

/* The hash that the next block will hang on is that of the tokens before it. */
static void check_hash(const struct sequence *seq)
{
    struct block_hash hash = seq->root;
    for (int32_t i = 0; i < seq->num_hashed_blocks; i++)
        prefix_cache_extend(&hash, seq->tokens + (size_t)i * BLOCK_SIZE);
    assert_always(memcmp(&hash, &seq->hash, sizeof(hash)) == 0);
}

static void count_references(const struct scheduler *s, int32_t batch_slot, int32_t *refs)
{
    for (int32_t g = 0; g < s->options.kv_groups.count; g++) {
        const struct kv_table *table = kv_tables_get(s->tables, batch_slot, g);
        for (int32_t i = table->begin; i < table->end; i++) refs[table->block_ids[i]]++;
    }
}

/* Each reference of a block is one entry of one table of one group, that of a state a sequence that is to go on from there,
 * and no sequence slot is used twice. */
static void check_tables(const struct scheduler *s)
{
    int32_t num_used = 0;
    int32_t num_ids = s->options.num_blocks + s->options.num_states;
    int32_t *refs = calloc((size_t)num_ids, sizeof(*refs));
    bool *used = calloc((size_t)s->options.num_batch_slots, sizeof(*used));
    assert_always(refs && used);
    for (int32_t id = 0; id < s->num_sequences; id++) {
        const struct sequence *seq = &s->sequences[id];
        if (seq->state == SEQUENCE_FREE) continue;
        if (seq->from_state != NO_BLOCK) refs[seq->from_state]++;
        if (seq->batch_slot < 0) continue;
        assert_always(!used[seq->batch_slot]);
        used[seq->batch_slot] = true;
        num_used++;
        count_references(s, seq->batch_slot, refs);
    }
    assert_always(num_used + s->num_free_batch_slots == s->options.num_batch_slots);
    for (int32_t i = 0; i < s->num_free_batch_slots; i++) {
        assert_always(!used[s->free_batch_slots[i]]);
        assert_always(kv_tables_num_held(s->tables, s->free_batch_slots[i]) == 0);
    }
    for (int32_t id = 0; id < num_ids; id++)
        assert_always(refs[id] == block_manager_ref_count(s->blocks, id));
    free(refs);
    free(used);
}

/* Each has as many sequences as it counts, and lists those that wait by when they are due. */
static void check_tenant(const struct scheduler *s, int32_t tenant)
{
    const struct tenant *t = &s->tenants[tenant];
    int32_t count = 0;
    check_list(s, &t->waiting, SEQUENCE_WAITING);
    for (int32_t id = t->waiting.head; id != NO_SEQUENCE; id = s->sequences[id].next) {
        const struct sequence *seq = &s->sequences[id];
        assert_always(seq->tenant == tenant);
        if (seq->next != NO_SEQUENCE) assert_always(sequence_is_due_before(seq, &s->sequences[seq->next]));
    }
    for (int32_t id = 0; id < s->num_sequences; id++) {
        const struct sequence *seq = &s->sequences[id];
        bool is_open = seq->state == SEQUENCE_RUNNING || seq->state == SEQUENCE_WAITING;
        count += is_open && seq->tenant == tenant;
    }
    assert_always(count == t->party.num_members);
}

static void check_queues(const struct scheduler *s)
{
    int32_t num_waiting = s->urgent.count, num_open = 0;
    for (int32_t i = 0; i < s->num_active; i++) {
        const struct tenant *t = &s->tenants[s->active[i]];
        assert_always(t->party.num_members > 0 && t->weight > 0);
        check_tenant(s, s->active[i]);
        num_waiting += t->waiting.count;
        num_open += t->party.num_members;
    }
    assert_always(num_waiting == s->num_waiting && num_open == s->num_waiting + s->running.count);
}

void scheduler_check(const struct scheduler *s)
{
    check_list(s, &s->free, SEQUENCE_FREE);
    check_list(s, &s->urgent, SEQUENCE_WAITING);
    check_queues(s);
    check_list(s, &s->running, SEQUENCE_RUNNING);
    check_list(s, &s->closing, SEQUENCE_CLOSING);
    assert_always(s->free.count + s->num_waiting + s->running.count + s->closing.count == s->num_sequences);
    assert_always(s->running.count <= s->options.max_num_seqs);
    for (int32_t id = 0; id < s->num_sequences; id++) {
        const struct sequence *seq = &s->sequences[id];
        if (seq->state != SEQUENCE_FREE) check_marks(s, seq);
        if (seq->state != SEQUENCE_FREE && seq->batch_slot >= 0) check_blocks(s, seq);
        if (seq->state == SEQUENCE_RUNNING || seq->state == SEQUENCE_WAITING) check_hash(seq);
    }
    check_tables(s);
    check_saved(s);
    block_manager_check(s->blocks);
    if (s->prefixes) prefix_cache_check(s->prefixes);
}
