#include "scheduler/scheduler_internal.h"

#include "base/check.h"

void sequence_list_insert(struct scheduler *s, struct sequence_list *list, int32_t id, int32_t after)
{
    struct sequence *seq = &s->sequences[id];
    seq->prev = after;
    seq->next = after == NO_SEQUENCE ? list->head : s->sequences[after].next;
    if (seq->prev == NO_SEQUENCE)
        list->head = id;
    else
        s->sequences[seq->prev].next = id;
    if (seq->next == NO_SEQUENCE)
        list->tail = id;
    else
        s->sequences[seq->next].prev = id;
    list->count++;
}

void sequence_list_remove(struct scheduler *s, struct sequence_list *list, int32_t id)
{
    struct sequence *seq = &s->sequences[id];
    if (seq->prev == NO_SEQUENCE)
        list->head = seq->next;
    else
        s->sequences[seq->prev].next = seq->next;
    if (seq->next == NO_SEQUENCE)
        list->tail = seq->prev;
    else
        s->sequences[seq->next].prev = seq->prev;
    seq->prev = seq->next = NO_SEQUENCE;
    list->count--;
}

static int create_arrays(struct scheduler *s)
{
    const struct scheduler_options *o = &s->options;
    s->num_sequences = o->max_num_sequences + o->num_batch_slots;
    s->sequences = calloc((size_t)s->num_sequences, sizeof(s->sequences[0]));
    s->free_batch_slots = calloc((size_t)o->num_batch_slots, sizeof(int32_t));
    s->tenants = calloc((size_t)s->num_sequences, sizeof(s->tenants[0]));
    s->active = calloc((size_t)s->num_sequences, sizeof(s->active[0]));
    s->owners = calloc((size_t)s->num_sequences, sizeof(s->owners[0]));
    bool all = s->sequences && s->free_batch_slots && s->tenants && s->active && s->owners;
    return all ? 0 : STATUS_NO_MEMORY;
}

int scheduler_create(const struct scheduler_options *options, struct scheduler **out, struct error *err)
{
    assert_always(options->max_num_seqs >= 1 && options->max_num_seqs <= options->max_num_batched_tokens &&
                  options->max_num_seqs <= options->max_num_logits &&
                  options->max_num_seqs <= options->max_num_rows &&
                  options->max_num_seqs <= options->num_batch_slots);
    struct scheduler *s = calloc(1, sizeof(*s));
    if (!s) return error_set(err, STATUS_NO_MEMORY, "no memory for the scheduler");
    s->options = *options;
    s->free = s->urgent = s->running = s->closing = (struct sequence_list){NO_SEQUENCE, NO_SEQUENCE, 0};
    int status = create_arrays(s);
    if (status) error_set(err, status, "no memory for the scheduler's tables");
    if (!status) status = block_manager_create(options->num_blocks, options->num_states, &s->blocks, err);
    if (!status && options->enable_prefix_caching)
        status = prefix_cache_create(s->blocks, &options->kv_groups, options->model_key,
                                     options->model_key_bytes, &s->prefixes, err);
    if (!status)
        status = kv_tables_create(s->blocks, s->prefixes, &options->kv_groups, options->num_batch_slots,
                                  options->max_model_len, &s->tables, err);
    if (!status) status = host_blocks_create(options->num_host_blocks, &s->host_blocks, err);
    if (status) {
        scheduler_destroy(s);
        return status;
    }
    for (int32_t i = s->num_sequences - 1; i >= 0; i--) sequence_list_insert(s, &s->free, i, NO_SEQUENCE);
    for (int32_t i = options->num_batch_slots - 1; i >= 0; i--)
        s->free_batch_slots[s->num_free_batch_slots++] = i;
    *out = s;
    return 0;
}

void scheduler_destroy(struct scheduler *s)
{
    if (!s) return;
    kv_tables_destroy(s->tables);
    prefix_cache_destroy(s->prefixes);
    block_manager_destroy(s->blocks);
    host_blocks_destroy(s->host_blocks);
    free(s->sequences);
    free(s->free_batch_slots);
    free(s->tenants);
    free(s->active);
    free(s->owners);
    free(s);
}

static bool copies_init(struct block_copies *copies, int32_t num_host_blocks)
{
    size_t most = (size_t)num_host_blocks + 1; /* never none */
    copies->block_ids = calloc(most, sizeof(int32_t));
    copies->host_ids = calloc(most, sizeof(int32_t));
    return copies->block_ids && copies->host_ids;
}

static void copies_deinit(struct block_copies *copies)
{
    free(copies->block_ids);
    free(copies->host_ids);
}

int plan_init(struct plan *plan, int32_t max_num_seqs, int32_t max_num_rows, int32_t num_host_blocks)
{
    *plan = (struct plan){0};
    plan->prefills = calloc((size_t)max_num_seqs, sizeof(struct plan_entry));
    plan->decodes = calloc((size_t)max_num_seqs, sizeof(struct plan_entry));
    plan->runs = calloc((size_t)max_num_rows, sizeof(struct plan_run));
    plan->preemptions = calloc((size_t)max_num_seqs, sizeof(struct preemption));
    plan->state_copies = calloc(2 * (size_t)max_num_seqs, sizeof(struct state_copy));
    bool all = copies_init(&plan->saves, num_host_blocks) && copies_init(&plan->loads, num_host_blocks);
    all = all && plan->prefills && plan->decodes && plan->runs && plan->preemptions && plan->state_copies;
    return all ? 0 : STATUS_NO_MEMORY;
}

void plan_deinit(struct plan *plan)
{
    free(plan->prefills);
    free(plan->decodes);
    free(plan->runs);
    free(plan->preemptions);
    free(plan->state_copies);
    copies_deinit(&plan->saves);
    copies_deinit(&plan->loads);
    *plan = (struct plan){0};
}

void scheduler_set_prices(struct scheduler *s, const struct step_prices *prices)
{
    s->prices = *prices;
}

void scheduler_set_answer_rule(struct scheduler *s, const struct answer_rule *rule)
{
    assert_always(scheduler_is_empty(s));
    if (!s->options.prefill_decode_equal && s->options.decode_runs && !s->options.whole_prompts)
        s->answers = *rule;
}

/* Of a request's prompts; many take what their tokens do at a beginning, so that all of them are due at one time. */
static double request_us(const struct scheduler *s, const struct sequence_input *input)
{
    if (input->num_beside == 0) return step_prices_prompt_us(&s->prices, 0, input->num_prompt);
    return (double)(input->num_prompt + input->num_beside) * step_prices_prompt_us(&s->prices, 0, 1);
}

/* The longer its request's prompts take, the longer it may wait. */
static uint64_t due_us_of(const struct scheduler *s, const struct sequence_input *input)
{
    double patience = PATIENCE * request_us(s, input);
    int64_t due = (int64_t)(input->arrival_us + (uint64_t)patience) + input->patience_us;
    uint64_t due_us = (uint64_t)max_of(due, (int64_t)0);
    return input->deadline_us > 0 ? min_of(due_us, input->deadline_us) : due_us;
}

int scheduler_add(struct scheduler *s, const struct sequence_input *input, int32_t *seq_id)
{
    assert_always(input->num_prompt + input->max_tokens <= s->options.max_model_len);
    int32_t num_places = sequence_num_places_max(input->num_prompt, input->max_tokens);
    if (kv_groups_num_blocks_max(&s->options.kv_groups, num_places) > s->options.num_blocks)
        return STATUS_NO_BLOCKS;
    struct block_hash root = {{0}};
    if (s->prefixes) prefix_cache_root(s->prefixes, input->salt, (size_t)input->salt_bytes, &root);
    int32_t id = s->free.head;
    assert_always(id != NO_SEQUENCE);
    sequence_list_remove(s, &s->free, id);
    struct sequence *seq = &s->sequences[id];
    sequence_init(seq, input, ++s->num_arrivals, &root);
    seq->due_us = due_us_of(s, input);
    for (int32_t i = 0; s->answers.num_header > 0 && i < input->num_prompt; i++)
        (void)answer_rule_push(&s->answers, seq->tokens, i, &seq->in_answer);
    scheduler_join_tenant(s, seq, input);
    scheduler_enqueue(s, seq);
    if (input->num_generated > 0) scheduler_make_urgent(s, seq);
    *seq_id = id;
    return 0;
}

struct sequence *scheduler_sequence(struct scheduler *s, int32_t seq_id)
{
    assert_always(seq_id >= 0 && seq_id < s->num_sequences);
    return &s->sequences[seq_id];
}

const struct kv_tables *scheduler_tables(const struct scheduler *s)
{
    return s->tables;
}

/* ---- holding and giving back ---- */

/* Generated tokens went through decode, so the first that the rule has otherwise ends it. */
int32_t scheduler_num_shareable(const struct scheduler *s, struct sequence *seq, int32_t num_tokens)
{
    if (s->options.prefill_decode_equal) return num_tokens;
    for (; seq->num_by_rule < num_tokens; seq->num_by_rule++) {
        bool in_answer = seq->in_answer;
        if (!answer_rule_push(&s->answers, seq->tokens, seq->num_by_rule, &in_answer)) break;
        seq->in_answer = in_answer;
    }
    return min_of(num_tokens, seq->num_by_rule);
}

void scheduler_hash_full_blocks(struct scheduler *s, struct sequence *seq)
{
    if (!s->prefixes) return;
    int32_t num_tokens = min_of(seq->num_computed, seq->num_tokens);
    num_tokens = scheduler_num_shareable(s, seq, num_tokens);
    for (int32_t i = seq->num_hashed_blocks; i < num_tokens / BLOCK_SIZE; i++) {
        kv_tables_insert(s->tables, seq->batch_slot, i, seq->tokens + (size_t)i * BLOCK_SIZE, &seq->hash);
        seq->num_hashed_blocks = i + 1;
    }
}

void scheduler_release(struct scheduler *s, struct sequence *seq)
{
    kv_tables_release(s->tables, seq->batch_slot);
    s->free_batch_slots[s->num_free_batch_slots++] = seq->batch_slot;
    seq->batch_slot = -1;
}

static void free_sequence(struct scheduler *s, struct sequence *seq)
{
    seq->state = SEQUENCE_FREE;
    seq->tokens = NULL;
    sequence_list_insert(s, &s->free, id_of(s, seq), NO_SEQUENCE);
}

/* Whatever was wrong with this sequence, its K and V are not handed to others. */
static void forget_blocks(struct scheduler *s, const struct sequence *seq)
{
    if (s->prefixes)
        kv_tables_forget(s->tables, seq->batch_slot, seq->tokens, seq->num_hashed_blocks, &seq->root);
}

void scheduler_finish(struct scheduler *s, int32_t seq_id, bool reusable)
{
    struct sequence *seq = scheduler_sequence(s, seq_id);
    scheduler_leave_tenant(s, seq);
    scheduler_release_state(s, seq);
    if (seq->state == SEQUENCE_WAITING) {
        scheduler_dequeue(s, seq);
        scheduler_forget_saved(s, seq);
        free_sequence(s, seq);
        return;
    }
    assert_always(seq->state == SEQUENCE_RUNNING);
    if (reusable)
        scheduler_hash_full_blocks(s, seq);
    else
        forget_blocks(s, seq);
    sequence_list_remove(s, &s->running, seq_id);
    if (seq->num_steps_in_flight > 0) {
        seq->state = SEQUENCE_CLOSING;
        seq->tokens = NULL;
        sequence_list_insert(s, &s->closing, seq_id, s->closing.tail);
        return;
    }
    scheduler_release(s, seq);
    free_sequence(s, seq);
}

void scheduler_draft(struct scheduler *s, int32_t seq_id, int32_t num_drafted)
{
    struct sequence *seq = scheduler_sequence(s, seq_id);
    assert_always(seq->state == SEQUENCE_RUNNING && sequence_is_decoding(seq));
    assert_always(seq->num_steps_in_flight == 0 && num_drafted >= 0);
    assert_always(num_drafted <= sequence_num_drafted_max(seq));
    seq->num_drafted = num_drafted;
}

void scheduler_withhold(struct scheduler *s, struct plan_entry *entry, int32_t num_rows)
{
    struct sequence *seq = scheduler_sequence(s, entry->seq_id);
    int32_t num_draws = plan_entry_num_draws(entry);
    assert_always(entry->samples && !entry->withheld && seq->num_pending >= num_draws);
    assert_always(num_rows >= 0 && num_rows < num_draws);
    entry->num_verified = max_of(num_rows - 1, 0);
    if (num_rows > 0) return;
    entry->withheld = true;
    seq->num_pending -= num_draws;
    seq->num_draft_pending -= entry->num_drafted;
    if (seq->state == SEQUENCE_RUNNING) seq->num_computed -= num_draws;
}

void scheduler_end_step(struct scheduler *s)
{
    assert_always(s->num_steps_in_flight > 0);
    s->num_steps_in_flight--;
}

/* The windows of a sequence of which no step in flight begins before position: what is left behind makes room for
 * more of its prompt. Where blocks are short, the next plan sees to it. */
static void move_on(struct scheduler *s, struct sequence *seq, int32_t position)
{
    if (!kv_tables_is_behind(s->tables, seq->batch_slot, position)) return;
    scheduler_hash_full_blocks(s, seq);
    kv_tables_pass(s->tables, seq->batch_slot, position);
    if (!sequence_is_decoding(seq)) (void)!kv_tables_hold(s->tables, seq->batch_slot, seq->num_tokens);
}

bool scheduler_end_entry(struct scheduler *s, const struct plan_entry *entry)
{
    struct sequence *seq = scheduler_sequence(s, entry->seq_id);
    int32_t num_rejected = entry->num_drafted - entry->num_accepted;
    assert_always(seq->num_steps_in_flight > 0 && entry->num_accepted <= entry->num_verified);
    seq->num_steps_in_flight--;
    if (!entry->withheld) {
        seq->num_pending -= plan_entry_num_draws(entry);
        seq->num_draft_pending -= entry->num_drafted;
    }
    if (seq->state == SEQUENCE_RUNNING) {
        seq->num_computed -= entry->withheld ? 0 : num_rejected;
        move_on(s, seq, entry->position + entry->num_tokens - entry->withheld - num_rejected);
        return true;
    }
    assert_always(seq->state == SEQUENCE_CLOSING);
    if (seq->num_steps_in_flight == 0) {
        sequence_list_remove(s, &s->closing, entry->seq_id);
        scheduler_release(s, seq);
        free_sequence(s, seq);
    }
    return false;
}

void scheduler_append_token(struct scheduler *s, int32_t seq_id)
{
    struct sequence *seq = scheduler_sequence(s, seq_id);
    assert_always(seq->state == SEQUENCE_RUNNING);
    seq->num_tokens++;
}

/* The first of the waiting tenants from active[i] on. */
static int32_t first_of_tenants(const struct scheduler *s, int32_t i)
{
    for (; i < s->num_active; i++)
        if (s->tenants[s->active[i]].waiting.count > 0) return s->tenants[s->active[i]].waiting.head;
    return NO_SEQUENCE;
}

static int32_t place_of_tenant(const struct scheduler *s, int32_t tenant)
{
    int32_t i = 0;
    while (s->active[i] != tenant) i++;
    return i;
}

int32_t scheduler_next(const struct scheduler *s, int32_t seq_id)
{
    const struct sequence *seq = seq_id == NO_SEQUENCE ? NULL : &s->sequences[seq_id];
    if (seq && seq->next != NO_SEQUENCE) return seq->next;
    if (!seq && s->running.count > 0) return s->running.head;
    if ((!seq || seq->state == SEQUENCE_RUNNING) && s->urgent.count > 0) return s->urgent.head;
    bool of_tenant = seq && seq->state == SEQUENCE_WAITING && !sequence_is_urgent(seq);
    return first_of_tenants(s, of_tenant ? place_of_tenant(s, seq->tenant) + 1 : 0);
}

bool scheduler_is_empty(const struct scheduler *s)
{
    return s->free.count == s->num_sequences;
}

void scheduler_stats(const struct scheduler *s, struct scheduler_stats *out)
{
    *out = (struct scheduler_stats){
        .num_running = s->running.count,
        .num_waiting = s->num_waiting,
        .num_blocks = s->options.num_blocks,
        .num_free_blocks = block_manager_num_free(s->blocks),
        .num_cached_blocks = block_manager_num_cached(s->blocks),
        .num_held_blocks = block_manager_num_held(s->blocks),
        .num_free_host_blocks = host_blocks_num_free(s->host_blocks),
        .num_preemptions = s->num_preemptions,
        .num_saved = s->num_saved,
    };
}
