/* scheduler_plan.c - the policy; its parts and its promises are in scheduler.h. */
#include <math.h>

#include "base/check.h"
#include "scheduler/scheduler_internal.h"

/* What is left of a step for prompts, at least, and of that for shorter ones when the first is a long one. */
static const double PROMPTS_SHARE = 0.25, SHORT_SHARE = 0.25;
/* What is left free of the target for what prices do not know, at most. */
static const double DOUBTS_SHARE = 0.2;
/* Time for prompts in a step, at least, in what a step costs in any case; and where nobody decodes. */
static const double STEPS_WORTH = 4, STEPS_WORTH_ALONE = 16;

/* 1. room. False: only a preemption helps, and a step in flight is in the way. */
static bool make_room(struct scheduler *s, struct plan *plan)
{
    for (int32_t id = s->running.head; id != NO_SEQUENCE; id = s->sequences[id].next) {
        struct sequence *seq = &s->sequences[id];
        if (sequence_num_uncomputed(seq) == 0 || !sequence_wants_step(seq)) continue;
        if (seq->num_computed < kv_tables_num_places(s->tables, seq->batch_slot)) continue;
        while (kv_tables_hold(s->tables, seq->batch_slot, seq->num_computed + 1) != 0) {
            if (s->num_steps_in_flight > 0) return false;
            struct sequence *youngest = &s->sequences[s->running.tail];
            assert_always(s->running.count > 1);
            scheduler_preempt(s, plan, youngest);
            if (youngest == seq) return true;
        }
    }
    return true;
}

/* The part of a sequence that computes its next num_tokens tokens, in the num_runs runs that stand behind the plan's. */
static struct plan_entry entry_make(const struct scheduler *s, const struct plan *plan,
                                    const struct sequence *seq, int32_t num_tokens, int32_t num_runs)
{
    int32_t end = seq->num_computed + num_tokens;
    struct plan_entry e = {.seq_id = id_of(s, seq),
                           .position = seq->num_computed,
                           .num_tokens = num_tokens,
                           .first_run = plan->num_runs,
                           .num_runs = num_runs,
                           .admitted = !seq->is_entered};
    e.samples = num_tokens == sequence_num_uncomputed(seq) && sequence_num_generated(seq) < seq->max_tokens;
    if (seq->prompt_logprobs) {
        e.score_position = max_of(e.position, seq->num_scored - 1);
        e.num_score_rows = max_of(min_of(end, seq->num_prompt - 1) - e.score_position, 0);
    } else if (seq->pooling) {
        e.score_position = max_of(e.position, pooling_begin(seq->pooling, seq->num_prompt));
        e.num_score_rows =
            max_of(min_of(end, pooling_end(seq->pooling, seq->num_prompt)) - e.score_position, 0);
    }
    return e;
}

static double run_us(const struct scheduler *s, int32_t position, struct plan_run run)
{
    return run.decodes ? step_prices_decode_us(&s->prices, position, run.num_tokens)
                       : step_prices_prompt_us(&s->prices, position, run.num_tokens);
}

static double entry_us(const struct scheduler *s, const struct plan *plan, const struct plan_entry *e)
{
    double us = 0;
    int32_t position = e->position;
    for (int32_t i = e->first_run; i < e->first_run + e->num_runs; position += plan->runs[i++].num_tokens)
        us += run_us(s, position, plan->runs[i]);
    return us;
}

/* That a prompt's run sees, as max_num_prefill_keys counts them. */
static int32_t num_keys_seen(int32_t position, int32_t num_tokens)
{
    return ((int32_t)div_up(position + num_tokens, BLOCK_SIZE) + 1) * BLOCK_SIZE;
}

static void count_run(const struct scheduler *s, struct plan *plan, int32_t position, struct plan_run run)
{
    plan->num_runs++;
    plan->num_tokens += run.num_tokens;
    if (run.decodes) {
        plan->work.decode_tokens += run.num_tokens;
        plan->work.decode_pairs += step_num_decode_pairs(&s->prices, position, run.num_tokens);
    } else {
        plan->num_prefill_runs++;
        plan->num_prefill_tokens += run.num_tokens;
        plan->num_prefill_keys += num_keys_seen(position, run.num_tokens);
        plan->work.prompt_tokens += run.num_tokens;
        plan->work.prompt_pairs += step_num_pairs(&s->prices, position, run.num_tokens);
    }
}

static void bill(struct scheduler *s, const struct sequence *seq, double us)
{
    struct tenant *tenant = tenant_of(s, seq);
    tenant->service_us += us / tenant->weight;
    owner_of(s, tenant)->service_us += us / tenant->weight;
}

/* Puts the entry into the plan and moves the sequence's marks: from here on it counts as computed. Its tenant
 * has received what it takes. */
static void plan_add(struct scheduler *s, struct plan *plan, struct plan_entry e)
{
    struct sequence *seq = &s->sequences[e.seq_id];
    double us = entry_us(s, plan, &e);
    bool decodes = plan->runs[e.first_run + e.num_runs - 1].decodes;
    scheduler_plan_state(s, plan, seq);
    assert_debug(e.position + e.num_tokens <= kv_tables_num_places(s->tables, seq->batch_slot));
    *(decodes ? &plan->decodes[plan->num_decodes++] : &plan->prefills[plan->num_prefills++]) = e;
    bill(s, seq, us);
    plan->us_left -= us;
    for (int32_t i = e.first_run; i < e.first_run + e.num_runs; i++) {
        count_run(s, plan, seq->num_computed, plan->runs[i]);
        seq->num_computed += plan->runs[i].num_tokens;
    }
    plan->num_drafted += e.num_drafted;
    plan->num_logits += plan_entry_num_logits(&e);
    seq->is_entered = true;
    seq->num_pending += plan_entry_num_draws(&e);
    seq->num_draft_pending += e.num_drafted;
    seq->num_steps_in_flight++;
    if (e.num_score_rows > 0 && seq->prompt_logprobs)
        seq->num_scored = e.score_position + 1 + e.num_score_rows;
    scheduler_hash_full_blocks(s, seq);
}

/* The last num_drafted of the run's tokens are a draft. */
static void plan_add_run(struct scheduler *s, struct plan *plan, const struct sequence *seq,
                         struct plan_run run, int32_t num_drafted)
{
    struct plan_entry e = entry_make(s, plan, seq, run.num_tokens - num_drafted, 1);
    e.num_tokens = run.num_tokens;
    e.num_drafted = e.num_verified = num_drafted;
    plan->runs[plan->num_runs] = run;
    plan_add(s, plan, e);
}

/* 2. decode. */

/* Of a draft, what fits beside a row for each running sequence; blocks are taken for it where more are left than those need. */
static int32_t num_drafts_that_fit(struct scheduler *s, const struct plan *plan, const struct sequence *seq)
{
    const struct scheduler_options *o = &s->options;
    int32_t num_left = min_of(o->max_num_rows, min_of(o->max_num_batched_tokens, o->max_num_logits));
    int32_t num = min_of(seq->num_drafted, num_left - s->running.count - plan->num_drafted);
    int32_t num_tokens = seq->num_computed + 1;
    num = min_of(num, scheduler_next_generated_state(s, seq) - num_tokens);
    if (num <= 0) return 0;
    if (block_manager_num_available(s->blocks) >= (s->running.count + num) * o->kv_groups.count)
        (void)!kv_tables_hold(s->tables, seq->batch_slot, num_tokens + num);
    return min_of(num, kv_tables_num_places(s->tables, seq->batch_slot) - num_tokens);
}

static void plan_decode(struct scheduler *s, struct plan *plan, struct sequence *seq)
{
    int32_t num_drafted = num_drafts_that_fit(s, plan, seq);
    plan_add_run(s, plan, seq, (struct plan_run){1 + num_drafted, true}, num_drafted);
}

static void plan_decodes(struct scheduler *s, struct plan *plan)
{
    scheduler_take_turns(s);
    for (int32_t id = s->running.head; id != NO_SEQUENCE; id = s->sequences[id].next) {
        struct sequence *seq = &s->sequences[id];
        if (sequence_is_decoding(seq) && sequence_wants_step(seq) && seq->plan_left_out != s->num_plans)
            plan_decode(s, plan, seq);
        seq->num_drafted = 0;
    }
}

/* 3. prompts: what a sequence computes of its own. */

/* The tokens from position on that are computed in one way: as decoding does generated ones that are known, and a prompt's by
 * the answer rule. Generated ones go on as the end of a prompt may have begun. at: the sequence's, or a copy to look ahead. */
static struct plan_run run_at(const struct scheduler *s, const struct sequence *seq, int32_t position,
                              struct answer_run *at)
{
    bool differ = !s->options.prefill_decode_equal;
    struct plan_run all = {seq->num_tokens + seq->num_pending - position, differ};
    if (!differ || position >= seq->num_prompt) return all;
    answer_run_find(&s->answers, seq->tokens, seq->num_prompt, position, at);
    if (at->decodes && at->end == seq->num_prompt) return all;
    return (struct plan_run){at->end - position, at->decodes};
}

static struct plan_run next_run(const struct scheduler *s, struct sequence *seq)
{
    return run_at(s, seq, seq->num_computed, &seq->run);
}

/* Runs of both kinds may follow each other in one step: not where the order of rows of logits would be another one. */
static bool mixes_runs(const struct scheduler *s, const struct sequence *seq)
{
    return s->options.decode_runs && !seq->prompt_logprobs && !seq->pooling;
}

/* What a step has left for a sequence's next runs. */
struct room {
    int32_t num_tokens, num_rows, num_keys; /* num_keys: for prompts to see */
    double us;
};

static struct room room_of(const struct scheduler *s, const struct plan *plan, double us)
{
    return (struct room){.num_tokens = s->options.max_num_batched_tokens - plan->num_tokens,
                         .num_rows = s->options.max_num_rows - plan_num_step_seqs(plan),
                         .num_keys = s->options.max_num_prefill_keys > 0
                                         ? s->options.max_num_prefill_keys - plan->num_prefill_keys
                                         : INT32_MAX,
                         .us = us};
}

static void room_take(const struct scheduler *s, struct room *room, int32_t position, struct plan_run run)
{
    room->num_tokens -= run.num_tokens;
    room->num_rows -= run.decodes ? run.num_tokens : 1;
    if (!run.decodes && s->options.max_num_prefill_keys > 0)
        room->num_keys -= num_keys_seen(position, run.num_tokens);
    room->us -= run_us(s, position, run);
}

/* Tokens of a run that the device has rows for. */
static int32_t num_in_rows(const struct scheduler *s, const struct room *room, struct plan_run run)
{
    if (!run.decodes) return room->num_rows > 0 ? run.num_tokens : 0;
    return min_of(run.num_tokens, s->options.decode_runs ? room->num_rows : 1);
}

/* The tokens of the most that there is time for; a larger step ends where tiles of matrix products do. */
static int32_t cut_to_time(const struct scheduler *s, const struct room *room, int32_t position,
                           struct plan_run run)
{
    struct step_prices p = run.decodes ? step_prices_of_decoding(&s->prices) : s->prices;
    int32_t most = run.num_tokens, before = s->options.max_num_batched_tokens - room->num_tokens;
    int32_t num_tokens = isinf(room->us) ? most : step_prices_num_tokens(&p, position, room->us, most);
    if (num_tokens == most) return most;
    int32_t total = before + num_tokens, tile = total >= 512 ? 128 : total >= 128 ? 16 : 1;
    int32_t in_tiles = total - total % tile - before;
    return in_tiles > 0 ? in_tiles : num_tokens;
}

/* Of one prompt, its last block and one more left out. */
static int32_t num_keys_left(const struct room *room)
{
    return room->num_keys - room->num_keys % BLOCK_SIZE - BLOCK_SIZE;
}

/* The part of a run that there is room for, and this many tokens where it is only time that is short. */
static struct plan_run cut_run(const struct scheduler *s, const struct sequence *seq, const struct room *room,
                               int32_t position, struct plan_run run, int32_t least)
{
    int32_t num_places = kv_tables_num_places(s->tables, seq->batch_slot) - position;
    run.num_tokens = min_of(num_in_rows(s, room, run), min_of(room->num_tokens, num_places));
    run.num_tokens = min_of(run.num_tokens, scheduler_num_tokens_to_state(s, seq));
    if (!run.decodes) run.num_tokens = min_of(run.num_tokens, num_keys_left(room) - position);
    if (run.num_tokens > 0) run.num_tokens = max_of(cut_to_time(s, room, position, run), least);
    return run;
}

/* Writes the sequence's next runs behind the plan's, as far as there is room, at least one token where it is only time that is
 * short. Returns the number of tokens. */
static int32_t draft_runs(const struct scheduler *s, struct plan *plan, struct sequence *seq, double us,
                          int32_t *num_runs)
{
    struct room room = room_of(s, plan, us);
    struct plan_run whole = next_run(s, seq), run;
    struct answer_run ahead = seq->run;
    int32_t begin = seq->num_computed, position = begin;
    *num_runs = 0;
    do {
        run = cut_run(s, seq, &room, position, whole, *num_runs == 0);
        if (run.num_tokens <= 0) break;
        plan->runs[plan->num_runs + (*num_runs)++] = run;
        room_take(s, &room, position, run);
        position += run.num_tokens;
        if (run.num_tokens < whole.num_tokens) break;
        whole = run_at(s, seq, position, &ahead);
    } while (mixes_runs(s, seq));
    return position - begin;
}

/* All tokens, unless there is no room for them or others' prompts are there and there is no time. */
static void plan_whole_prompt(struct scheduler *s, struct plan *plan, struct sequence *seq, double us)
{
    struct plan_run whole = next_run(s, seq);
    struct room room = room_of(s, plan, INFINITY);
    struct plan_entry e = entry_make(s, plan, seq, whole.num_tokens, 1);
    if (cut_run(s, seq, &room, seq->num_computed, whole, 1).num_tokens < whole.num_tokens ||
        plan->num_logits + plan_entry_num_logits(&e) > s->options.max_num_logits ||
        (plan->num_prefills > 0 && run_us(s, e.position, whole) > us))
        return;
    plan_add_run(s, plan, seq, whole, 0);
}

/* Decoding rows may read what is behind them before the step's other rows have written it, unless it has prompts, whose attention
 * stands between. What was found in the prefix cache just now may be what they write. */
static bool may_read_too_early(const struct scheduler *s, const struct plan *plan, const struct sequence *seq,
                               int32_t num_runs)
{
    bool is_new = seq->admitted_plan == s->num_plans && seq->num_computed > 0;
    bool has_prompts = plan->num_prefill_runs > 0 || num_runs > 1 || !plan->runs[plan->num_runs].decodes;
    return is_new && plan->num_tokens > 0 && !has_prompts;
}

/* As many of the sequence's tokens as fit into what the plan has left, and into us microseconds. */
static void plan_prompt(struct scheduler *s, struct plan *plan, struct sequence *seq, double us)
{
    if (s->options.whole_prompts) {
        plan_whole_prompt(s, plan, seq, us);
        return;
    }
    int32_t num_runs, num_tokens = draft_runs(s, plan, seq, us, &num_runs);
    int32_t max_logits = s->options.max_num_logits - plan->num_logits;
    if (num_tokens == 0 || may_read_too_early(s, plan, seq, num_runs)) return;
    struct plan_entry e = entry_make(s, plan, seq, num_tokens, num_runs);
    while (e.num_tokens > 0 && plan_entry_num_logits(&e) > max_logits) {
        assert_always(num_runs == 1);
        e = entry_make(s, plan, seq, e.num_tokens - (plan_entry_num_logits(&e) - max_logits), 1);
        plan->runs[e.first_run].num_tokens = e.num_tokens;
    }
    if (e.num_tokens > 0) plan_add(s, plan, e);
}

/* What the prefix cache has of the sequence's first max_blocks blocks. The first time, says why there is no more of K and V;
 * that no state was kept behind them is no miss of theirs. */
static int32_t look_up(struct scheduler *s, struct sequence *seq, int32_t batch_slot, int32_t max_blocks,
                       struct state_match *state)
{
    int32_t num_hits = kv_tables_match(s->tables, batch_slot, seq->tokens, max_blocks, &seq->hash, state);
    int32_t num_found = max_of(num_hits, state->num_blocks), position = num_found * BLOCK_SIZE;
    const struct block_hash *hash = num_found > num_hits ? &state->hash : &seq->hash;
    if (seq->num_cached_tokens < 0 && num_found < max_blocks)
        seq->cache_miss = prefix_cache_explain(s->prefixes, seq->tokens + position, position, hash);
    return num_hits;
}

/* Blocks that shall remain for others. */
static int32_t num_beside(const struct scheduler *s, const struct sequence *seq)
{
    return seq->num_preemptions > 0 ? scheduler_room(s, seq) : s->running.count * s->options.kv_groups.count;
}

/* Blocks for all tokens that the sequence has, those found in the prefix cache shared. False: not enough. */
static bool hold_blocks(struct scheduler *s, struct sequence *seq, int32_t batch_slot)
{
    int32_t headroom = num_beside(s, seq);
    int32_t available = block_manager_num_available(s->blocks);
    int32_t num_blocks = kv_tables_num_missing(s->tables, batch_slot, seq->num_tokens), num_hits = 0;
    struct state_match state = {.id = NO_BLOCK};
    /* Looking up a long prompt each step while nothing changes would cost more than the step's whole plan. */
    if (available < num_blocks + headroom && available <= seq->available_at_refusal && headroom > 0)
        return false;
    if (s->prefixes && !sequence_wants_all_rows(seq)) {
        int32_t max_tokens = scheduler_num_shareable(s, seq, seq->num_tokens);
        int32_t max_blocks = min_of(max_tokens, seq->num_tokens - 1) / BLOCK_SIZE;
        num_hits = look_up(s, seq, batch_slot, max_blocks, &state);
    }
    kv_tables_pass(s->tables, batch_slot, max_of(num_hits * BLOCK_SIZE, seq->num_saved_tokens));
    int32_t num_new = kv_tables_num_missing(s->tables, batch_slot, seq->num_tokens);
    if (block_manager_num_available(s->blocks) < num_new + headroom ||
        kv_tables_hold(s->tables, batch_slot, seq->num_tokens) != 0) {
        kv_tables_release(s->tables, batch_slot);
        if (state.id != NO_BLOCK) block_manager_release(s->blocks, 1, &state.id);
        seq->hash = seq->root;
        seq->available_at_refusal = available;
        return false;
    }
    scheduler_take_state(s, seq, &state, num_hits);
    seq->num_hashed_blocks = num_hits;
    seq->num_computed = num_hits * BLOCK_SIZE;
    return true;
}

static bool admit(struct scheduler *s, struct plan *plan, struct sequence *seq)
{
    int32_t batch_slot = s->free_batch_slots[s->num_free_batch_slots - 1];
    if (!hold_blocks(s, seq, batch_slot)) return false;
    s->num_free_batch_slots--;
    seq->batch_slot = batch_slot;
    scheduler_restore(s, plan, seq, seq->num_hashed_blocks);
    scheduler_dequeue(s, seq);
    seq->state = SEQUENCE_RUNNING;
    seq->is_entered = false;
    seq->admitted_plan = s->num_plans;
    tenant_of(s, seq)->num_running++;
    owner_of(s, tenant_of(s, seq))->num_running++;
    int32_t older = s->running.tail;
    while (older != NO_SEQUENCE && s->sequences[older].arrival > seq->arrival)
        older = s->sequences[older].prev;
    sequence_list_insert(s, &s->running, id_of(s, seq), older);
    if (seq->num_cached_tokens < 0) seq->num_cached_tokens = seq->num_computed;
    return true;
}

/* Somebody was admitted after these had been refused. */
static void count_bypass(struct scheduler *s)
{
    for (int32_t i = 0; i < s->num_refused; i++) {
        struct sequence *seq = s->refused[i];
        if (sequence_is_urgent(seq)) continue;
        if (seq->num_bypassed + 1 == BYPASS_MAX)
            scheduler_make_urgent(s, seq);
        else
            seq->num_bypassed++;
    }
}

static void refuse(struct scheduler *s, struct sequence *seq)
{
    seq->refused_plan = s->num_plans;
    if (!sequence_is_urgent(seq)) s->refused[s->num_refused++] = seq;
}

/* ---- whose turn it is ---- */

int32_t scheduler_num_left_free(const struct scheduler *s, const struct tenant *t)
{
    int32_t most =
        s->options.max_num_seqs >= PLACES_SHARED_FROM ? div_up(s->options.max_num_seqs, PLACES_PER_FREE) : 0;
    int32_t to_tenants = t && t->leaves_places ? min_of(t->num_running, most) : 0;
    return to_tenants + (t && t->owner_leaves_places ? min_of(s->owners[t->owner].num_running, most) : 0);
}

bool scheduler_passes_urgent(const struct scheduler *s, const struct tenant *t)
{
    if (s->urgent.count == 0) return true;
    const struct tenant *of_urgent = &s->tenants[s->sequences[s->urgent.head].tenant];
    return s->owners[t->owner].num_running == 0 && s->owners[of_urgent->owner].num_running > 0;
}

/* t: NULL for urgent ones. */
static bool may_admit(const struct scheduler *s, const struct tenant *t)
{
    bool is_place = s->running.count + scheduler_num_left_free(s, t) < s->options.max_num_seqs &&
                    s->num_free_batch_slots > 0;
    return is_place && (!t || (scheduler_passes_urgent(s, t) && s->num_refused < BYPASS_LOOK_AHEAD));
}

/* The tenant's first of those who wait that was not refused yet; NULL: the first urgent one, behind which nobody is looked at.
 */
static struct sequence *next_waiting(struct scheduler *s, const struct tenant *t)
{
    const struct sequence_list *list = t ? &t->waiting : &s->urgent;
    if (!may_admit(s, t)) return NULL;
    for (int32_t id = list->head; id != NO_SEQUENCE; id = s->sequences[id].next) {
        if (s->sequences[id].refused_plan != s->num_plans) return &s->sequences[id];
        if (!t) return NULL;
    }
    return NULL;
}

static struct sequence *next_of_tenant(struct scheduler *s, const struct tenant *t)
{
    struct sequence *running = t->prompts == NO_SEQUENCE ? NULL : &s->sequences[t->prompts];
    struct sequence *waiting = next_waiting(s, t);
    if (!running || !waiting) return running ? running : waiting;
    return sequence_is_due_before(waiting, running) ? waiting : running;
}

bool scheduler_goes_before(struct scheduler *s, const struct sequence *a, const struct sequence *b)
{
    const struct tenant *of_a = tenant_of(s, a), *of_b = tenant_of(s, b);
    double first = owner_of(s, of_a)->service_us, second = owner_of(s, of_b)->service_us;
    if (first < second || first > second) return first < second;
    if (of_a->owner == of_b->owner) first = of_a->service_us, second = of_b->service_us;
    if (first < second || first > second) return first < second;
    return sequence_is_due_before(a, b);
}

/* Urgent ones, then what is due first of the tenant that has received least, of the owner that has. */
static struct sequence *next_prompt(struct scheduler *s)
{
    struct sequence *first = NULL, *urgent = next_waiting(s, NULL);
    for (int32_t i = 0; i < s->num_active; i++) {
        struct sequence *seq = next_of_tenant(s, &s->tenants[s->active[i]]);
        if (seq && (!first || scheduler_goes_before(s, seq, first))) first = seq;
    }
    bool passes =
        first && first->state == SEQUENCE_WAITING && scheduler_passes_urgent(s, tenant_of(s, first));
    return urgent && !passes ? urgent : first;
}

/* Of the same tenant's, one that has less than half as much left to compute: the one with the least. Those that are due at one
 * time, as the prompts of a request are, count as one of those that are looked at. */
static struct sequence *shortest_beside(struct scheduler *s, const struct sequence *first)
{
    const struct tenant *t = tenant_of(s, first);
    struct sequence *shortest = NULL, *waiting = next_waiting(s, t);
    int64_t least = (sequence_num_left(first) + 1) / 2;
    int32_t next = waiting ? id_of(s, waiting) : NO_SEQUENCE, num_times = 0;
    uint64_t last_us = waiting ? waiting->due_us : 0;
    for (int32_t n = 0; next != NO_SEQUENCE && n < LOOK_AHEAD_SEQUENCES;
         n++, next = s->sequences[next].next) {
        struct sequence *seq = &s->sequences[next];
        num_times += seq->due_us != last_us;
        last_us = seq->due_us;
        if (num_times >= BYPASS_LOOK_AHEAD) break;
        if (seq == first || seq->refused_plan == s->num_plans || sequence_num_left(seq) >= least) continue;
        shortest = seq;
        least = sequence_num_left(seq);
    }
    for (int32_t id = t->prompts; id != NO_SEQUENCE; id = s->sequences[id].next_prompt) {
        struct sequence *seq = &s->sequences[id];
        if (seq == first || sequence_num_left(seq) >= least) continue;
        shortest = seq;
        least = sequence_num_left(seq);
    }
    return shortest;
}

static void leave_chain(struct scheduler *s, const struct sequence *seq)
{
    int32_t *at = &tenant_of(s, seq)->prompts;
    while (*at != id_of(s, seq)) at = &s->sequences[*at].next_prompt;
    *at = seq->next_prompt;
}

static void enter_chain(struct scheduler *s, struct sequence *seq)
{
    int32_t *at = &tenant_of(s, seq)->prompts;
    while (*at != NO_SEQUENCE && !sequence_is_due_before(seq, &s->sequences[*at]))
        at = &s->sequences[*at].next_prompt;
    seq->next_prompt = *at;
    *at = id_of(s, seq);
}

static void collect_prompts(struct scheduler *s)
{
    for (int32_t i = 0; i < s->num_active; i++) {
        struct tenant *t = &s->tenants[s->active[i]];
        t->prompts = NO_SEQUENCE;
        t->num_running = owner_of(s, t)->num_running = 0;
    }
    for (int32_t id = s->running.head; id != NO_SEQUENCE; id = s->sequences[id].next) {
        struct sequence *seq = &s->sequences[id];
        tenant_of(s, seq)->num_running++;
        owner_of(s, tenant_of(s, seq))->num_running++;
        if (sequence_is_decoding(seq) || sequence_num_uncomputed(seq) == 0) continue;
        if (sequence_wants_step(seq)) enter_chain(s, seq);
    }
}

bool scheduler_has_hope(const struct scheduler *s, const struct sequence *waiting)
{
    return block_manager_num_available(s->blocks) > waiting->available_at_refusal;
}

int32_t scheduler_num_blocks_missing(const struct scheduler *s, const struct sequence *waiting)
{
    int32_t num_blocks = kv_groups_num_blocks_max(&s->options.kv_groups, waiting->num_tokens);
    return num_blocks + num_beside(s, waiting) - block_manager_num_available(s->blocks);
}

static double left_us(const struct scheduler *s, const struct sequence *seq)
{
    return step_prices_prompt_us(&s->prices, seq->num_computed, sequence_num_uncomputed(seq));
}

double scheduler_prompts_us(struct scheduler *s, const struct tenant *t)
{
    double us = 0;
    for (int32_t id = t->prompts; id != NO_SEQUENCE; id = s->sequences[id].next_prompt)
        us += left_us(s, &s->sequences[id]);
    int32_t id = may_admit(s, t) ? t->waiting.head : NO_SEQUENCE;
    for (int32_t n = 0; id != NO_SEQUENCE && n < BYPASS_LOOK_AHEAD; n++, id = s->sequences[id].next)
        if (scheduler_has_hope(s, &s->sequences[id])) us += left_us(s, &s->sequences[id]);
    return us;
}

/* From among those whose turn may come, admitted if it waits. False: not enough blocks. */
static bool take(struct scheduler *s, struct plan *plan, struct sequence *seq)
{
    const struct tenant *t = tenant_of(s, seq);
    struct owner *o = owner_of(s, t);
    s->virtual_us = max_of(s->virtual_us, o->service_us);
    o->virtual_us = max_of(o->virtual_us, t->service_us);
    if (seq->state == SEQUENCE_RUNNING) {
        leave_chain(s, seq);
        return true;
    }
    if (!admit(s, plan, seq)) {
        refuse(s, seq);
        return false;
    }
    count_bypass(s);
    return true;
}

static bool has_room(const struct scheduler *s, const struct plan *plan)
{
    struct room room = room_of(s, plan, plan->us_left);
    return room.num_tokens > 0 && room.num_rows > 0 && num_keys_left(&room) > 0 &&
           plan->num_logits < s->options.max_num_logits && (room.us > 0 || plan->num_prefill_runs == 0);
}

/* More than the step has left for it. What is replayed takes as many of a step's rows as there are, and is not. */
static bool is_long(const struct scheduler *s, const struct plan *plan, struct sequence *seq)
{
    struct room room = room_of(s, plan, plan->us_left);
    struct plan_run whole = next_run(s, seq), run;
    struct answer_run ahead = seq->run;
    int32_t position = seq->num_computed;
    do {
        run = (struct plan_run){num_in_rows(s, &room, whole), whole.decodes};
        room_take(s, &room, position, run);
        if (room.num_tokens < 0 || room.us < 0) return true;
        position += run.num_tokens;
        if (run.num_tokens < whole.num_tokens) break;
        whole = run_at(s, seq, position, &ahead);
    } while (mixes_runs(s, seq) && whole.num_tokens > 0);
    return false;
}

/* So are all prompts of its request together. */
static bool request_is_long(const struct scheduler *s, const struct plan *plan, const struct sequence *seq)
{
    struct room room = room_of(s, plan, plan->us_left);
    double us = left_us(s, seq) + (double)seq->num_beside * step_prices_prompt_us(&s->prices, 0, 1);
    return seq->num_beside > 0 && (sequence_num_left(seq) > room.num_tokens || us > room.us);
}

static void plan_shorter(struct scheduler *s, struct plan *plan, const struct sequence *first)
{
    double us_kept = plan->us_left * (1 - SHORT_SHARE);
    struct sequence *seq;
    while (plan->us_left > us_kept && has_room(s, plan) && (seq = shortest_beside(s, first)))
        if (take(s, plan, seq)) plan_prompt(s, plan, seq, plan->us_left - us_kept);
}

/* Before a long one, or the first of many: once in a step for each tenant. Who is alone has *us_alone more. */
static void let_shorter_pass(struct scheduler *s, struct plan *plan, const struct sequence *first,
                             double *us_alone)
{
    struct tenant *t = tenant_of(s, first);
    if (t->passed_plan == s->num_plans) return;
    t->passed_plan = s->num_plans;
    if (plan->num_prefill_runs > 0 || first->num_beside > 0 || shortest_beside(s, first)) {
        plan->us_left -= *us_alone;
        *us_alone = 0;
    }
    if (plan->us_left > 0) plan_shorter(s, plan, first);
}

/* A long prompt ends the plan: it takes what is left, but for us_alone when it is not alone. */
static void plan_prompts(struct scheduler *s, struct plan *plan, double us_alone)
{
    struct sequence *first;
    bool any_long = false;
    while (!any_long && has_room(s, plan) && (first = next_prompt(s))) {
        if (!take(s, plan, first)) continue;
        any_long = !s->options.whole_prompts && is_long(s, plan, first);
        if (any_long || request_is_long(s, plan, first)) let_shorter_pass(s, plan, first, &us_alone);
        if (has_room(s, plan)) plan_prompt(s, plan, first, plan->us_left);
    }
}

/* Time for prompts: what decoding leaves of the target. On a machine that cannot keep it, since that is less than what a step
 * costs in any case, enough that this is not most of the step; when nobody waits for a token, nearly nothing of it. */
static double us_for_prompts(const struct scheduler *s, const struct plan *plan, bool somebody_waits)
{
    const struct step_prices *p = &s->prices;
    double target = s->options.target_us - fmin(p->doubt, s->options.target_us * DOUBTS_SHARE);
    if (s->options.target_us <= 0) return INFINITY;
    if (!somebody_waits) return fmax(2 * target, STEPS_WORTH_ALONE * p->prompt_step);
    double spent = p->prompt_step + step_prices_us(p, &plan->work) - p->decode_step;
    double least = target - spent < p->prompt_step ? STEPS_WORTH * p->prompt_step : 0;
    return fmax(target - spent, fmax(target * PROMPTS_SHARE, least));
}

/* What the step takes in any case, on top of what each entry has been billed for and in proportion to it. */
static void bill_step(struct scheduler *s, const struct plan *plan)
{
    double step_us = plan->num_prefill_runs > 0 ? s->prices.prompt_step : s->prices.decode_step;
    double more = plan->us > step_us ? step_us / (plan->us - step_us) : 0;
    for (int32_t i = 0; i < plan_num_entries(plan); i++) {
        const struct plan_entry *e = plan_get_entry(plan, i);
        bill(s, &s->sequences[e->seq_id], more * entry_us(s, plan, e));
    }
}

static void plan_clear(struct plan *plan)
{
    plan->num_prefills = plan->num_decodes = plan->num_runs = plan->num_prefill_runs = 0;
    plan->num_prefill_keys = 0;
    plan->num_tokens = plan->num_prefill_tokens = plan->num_logits = plan->num_drafted = 0;
    plan->work = (struct step_work){0};
    plan->us = plan->us_left = 0;
    plan->num_preemptions = plan->saves.count = plan->loads.count = plan->num_state_copies = 0;
}

enum schedule_result scheduler_plan(struct scheduler *s, struct plan *plan)
{
    plan_clear(plan);
    s->num_plans++;
    s->num_refused = 0;
    if (!make_room(s, plan)) return SCHEDULE_DRAIN;
    collect_prompts(s);
    if (!scheduler_displace(s, plan)) return SCHEDULE_DRAIN;
    if (plan->num_preemptions > 0) collect_prompts(s);
    plan_decodes(s, plan);
    plan->us_left = us_for_prompts(s, plan, plan->num_decodes > 0);
    plan_prompts(s, plan, s->options.target_us > 0 ? plan->us_left - us_for_prompts(s, plan, true) : 0);
    if (plan->num_tokens == 0) return SCHEDULE_IDLE;
    plan->us = step_prices_us(&s->prices, &plan->work);
    bill_step(s, plan);
    s->planned_us += plan->us;
    s->num_steps_in_flight++;
    return SCHEDULE_STEP;
}
