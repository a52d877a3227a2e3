/* policy.c - each plan against what scheduler.h promises, reckoned anew: who goes first, how long a step may take,
 * which way of two a preemption goes. */
#include <math.h>

#include "scheduler/scheduler_internal.h"
#include "sim/device.h"
#include "sim/watch.h"
#include "sim/wraps.h"

enum { SEQUENCES_MAX = 1024 };

bool policy_is_due_before(const struct sequence *a, const struct sequence *b)
{
    return a->due_us < b->due_us || (a->due_us == b->due_us && a->arrival < b->arrival);
}

static int64_t num_of_request(const struct sequence *seq)
{
    return seq->num_tokens + watch_slot(seq->slot_idx)->input.num_tokens_beside;
}

/* S9, counted by the simulator itself: among one tenant's, who is due later comes in first only if it is
 * shorter, or if there were no blocks; and that not for ever. */
static void count_passing(const struct scheduler *s, const struct sequence *admitted)
{
    if (admitted->num_bypassed >= BYPASS_MAX) return;
    const struct tenant *t = &s->tenants[admitted->tenant];
    int32_t id = t->waiting.head;
    for (int n = 0; n < BYPASS_LOOK_AHEAD && id != NO_SEQUENCE; n++, id = s->sequences[id].next) {
        const struct sequence *seq = &s->sequences[id];
        if (!policy_is_due_before(seq, admitted)) break;
        struct watch *w = &watches[seq->slot_idx];
        bool was_refused = seq->refused_plan == s->num_plans;
        expect(was_refused || num_of_request(admitted) <= num_of_request(seq),
               "%s: one that is due later and not shorter came in first", w->request->id);
        w->num_passed += was_refused;
        expect(w->num_passed <= BYPASS_MAX + s->options.max_num_seqs, "%s: %d came in first", w->request->id,
               w->num_passed);
    }
}

/* The part of a prompt may end where its state is to be kept, however much were left of the step. */
static bool may_end_for_state(const struct plan_entry *e)
{
    return world.num_states > 0 && (e->position + e->num_tokens) % STATE_STRIDE == 0;
}

/* It leaves some of the sequence's known tokens, and not for a state's sake. */
static bool cuts_short(const struct plan_entry *e, const struct sequence *seq)
{
    return e->position + e->num_tokens < seq->num_tokens && !may_end_for_state(e);
}

/* Somebody decodes, or has a prompt beside a long one. */
static bool somebody_waits(const struct scheduler *s, const struct plan *plan)
{
    const struct plan_entry *last = &plan->prefills[plan->num_prefills - 1];
    const struct sequence *seq = &s->sequences[last->seq_id];
    bool is_long = cuts_short(last, seq) && !seq->prompt_logprobs && !seq->pooling;
    return plan->num_decodes > 0 || (plan->num_prefills > 1 && is_long);
}

/* A step is no longer than it may be, by the prices that it was planned with. What is computed again a token at
 * a time stands among the decodes and makes it somebody's prompt all the same. */
static void check_time(const struct scheduler *s, const struct plan *plan)
{
    const struct step_prices *p = &s->prices;
    double target = s->options.target_us - min_of(p->doubt, 0.2 * s->options.target_us);
    if (s->options.target_us <= 0 || plan->num_prefills == 0 || !somebody_waits(s, plan) ||
        has(FEATURE_unequal_halves))
        return;
    double decode = p->prompt_step + p->decode_token * plan->work.decode_tokens +
                    p->decode_pair * plan->work.decode_pairs;
    double prompts = p->prompt_token * plan->work.prompt_tokens + p->prompt_pair * plan->work.prompt_pairs;
    double left = target - decode, least = left < p->prompt_step ? 4 * p->prompt_step : 0;
    double most = max_of(left, max_of(target / 4, least));
    double a_token_each = plan->num_prefills * (p->prompt_token + p->prompt_pair * MODEL_LEN);
    expect(prompts <= most * 1.000001 + a_token_each, "prompts take %.0f us of a step that has %.0f for them",
           prompts, most);
    if (decode + p->prompt_token * (plan->work.prompt_tokens + 1) > target) mark(MARK_cut_to_time);
}

/* Microseconds of a tenant's decoding rows in the plan. */
static double decodes_us(const struct scheduler *s, const struct plan *plan, int32_t tenant)
{
    double us = 0;
    for (int32_t i = 0; i < plan->num_decodes; i++)
        if (s->sequences[plan->decodes[i].seq_id].tenant == tenant)
            us += step_prices_decode_us(&s->prices, plan->decodes[i].position, plan->decodes[i].num_tokens);
    return us;
}

/* Microseconds of a tenant's prompts in the plan. *has_urgent: one of them waited for nobody's turn. */
static double prompts_us(const struct scheduler *s, const struct plan *plan, int32_t tenant, bool *has_urgent)
{
    double us = 0;
    for (int32_t i = 0; i < plan->num_prefills; i++) {
        const struct plan_entry *e = &plan->prefills[i];
        const struct sequence *seq = &s->sequences[e->seq_id];
        if (seq->tenant != tenant) continue;
        us += step_prices_prompt_us(&s->prices, e->position, e->num_tokens);
        *has_urgent |= seq->num_bypassed >= BYPASS_MAX;
    }
    return us;
}

/* Whether a prompt of the tenant's could have gone on in this plan: it runs, and no step but this names it. */
static bool is_left_out(const struct scheduler *s, const struct plan *plan, int32_t tenant)
{
    bool has_urgent = false;
    if (prompts_us(s, plan, tenant, &has_urgent) > 0) return false;
    for (int32_t id = s->running.head; id != NO_SEQUENCE; id = s->sequences[id].next) {
        const struct sequence *seq = &s->sequences[id];
        if (seq->tenant == tenant && seq->num_computed < seq->num_prompt) return true;
    }
    return false;
}

/* What a tenant has received by weight since the plan came to prompts: its part of this step without its decoding rows. */
static double received_since(const struct scheduler *s, const struct plan *plan, int32_t tenant)
{
    bool has_urgent = false;
    double prompts = prompts_us(s, plan, tenant, &has_urgent), decodes = decodes_us(s, plan, tenant);
    double own_us = plan->us - (plan->num_prefills > 0 ? s->prices.prompt_step : s->prices.decode_step);
    return ((prompts + decodes) / own_us * plan->us - decodes) / s->tenants[tenant].weight;
}

/* What it had received then, among its owner's. */
static double tenant_before_prompts(const struct scheduler *s, const struct plan *plan, int32_t tenant)
{
    return s->tenants[tenant].service_us - received_since(s, plan, tenant);
}

/* What an owner had. */
static double owner_before_prompts(const struct scheduler *s, const struct plan *plan, int32_t owner)
{
    double us = s->owners[owner].service_us;
    for (int32_t i = 0; i < s->num_active; i++)
        if (s->tenants[s->active[i]].owner == owner) us -= received_since(s, plan, s->active[i]);
    return us;
}

static bool owner_has_prompts(const struct scheduler *s, const struct plan *plan, int32_t owner)
{
    for (int32_t i = 0; i < plan->num_prefills; i++)
        if (s->tenants[s->sequences[plan->prefills[i].seq_id].tenant].owner == owner) return true;
    return false;
}

/* One tenant's prompts are computed, and the other's are left lying. */
static void check_turn(const struct scheduler *s, const struct plan *plan, int32_t one, int32_t other)
{
    int32_t owner = s->tenants[one].owner, other_owner = s->tenants[other].owner;
    if (owner != other_owner && owner_has_prompts(s, plan, other_owner)) return;
    bool same = owner == other_owner;
    double served = same ? tenant_before_prompts(s, plan, one) : owner_before_prompts(s, plan, owner);
    double left = same ? tenant_before_prompts(s, plan, other) : owner_before_prompts(s, plan, other_owner);
    mark(MARK_tenants_took_turns);
    expect(served <= left + fabs(left) * 1e-9 + 1e-3,
           "a tenant that has received %.0f us is left out for one with %.0f", left, served);
}

/* Nobody's prompts are computed while another owner's, or another tenant's of the same, that has received less by weight, are
 * left lying. What is computed again a token at a time is not told from decoding here. */
static void check_turns(const struct scheduler *s, const struct plan *plan)
{
    if (has(FEATURE_unequal_halves) || s->prices.prompt_token <= 0) return;
    for (int32_t i = 0; i < s->num_active; i++) {
        bool has_urgent = false;
        if (prompts_us(s, plan, s->active[i], &has_urgent) == 0 || has_urgent) continue;
        for (int32_t k = 0; k < s->num_active; k++)
            if (is_left_out(s, plan, s->active[k])) check_turn(s, plan, s->active[i], s->active[k]);
    }
}

/* Token by token, what the sequence has computed; a prompt's pairs a tile at a time. A step replays one of its tokens, or as
 * many as others leave room for. */
static double again_us(const struct scheduler *s, const struct preemption *p, int32_t num_running)
{
    const struct step_prices *prices = &s->prices;
    int32_t num_prompt = watches[p->slot_idx].expected.input.num_prompt_tokens;
    int32_t num_chunked = has(FEATURE_unequal_halves) ? min_of(num_prompt, p->num_tokens) : p->num_tokens;
    double us = num_chunked * prices->prompt_token;
    for (int32_t i = 0; i < num_chunked; i += prices->tile)
        us += prices->prompt_pair * prices->tile * min_of(i + prices->tile, num_chunked);
    int32_t run = s->options.decode_runs ? s->options.max_num_rows - num_running + 1 : 1;
    for (int32_t i = num_chunked; i < p->num_tokens; i++) {
        us += prices->decode_token + prices->decode_pair * (i + 1);
        if ((i - num_chunked) % run == 0) us += prices->decode_step / num_running;
    }
    return us;
}

static int32_t num_available_states(const struct scheduler *s)
{
    return block_manager_num_free_states(s->blocks) + block_manager_num_cached_states(s->blocks);
}

/* What is saved is not dearer to bring back than to compute; what is computed again is, or finds no room, be it for its
 * state. */
static void check_preemptions(const struct scheduler *s, const struct plan *plan, int32_t num_running,
                              int32_t num_free_host_blocks, int32_t num_states)
{
    for (int32_t i = 0; i < plan->num_preemptions; i++, num_running--) {
        const struct preemption *p = &plan->preemptions[i];
        int32_t num_blocks = kv_groups_num_seen(&s->options.kv_groups, p->num_tokens);
        double again = again_us(s, p, num_running), back = 2 * s->prices.block_copy * num_blocks;
        bool fits = num_blocks > 0 && num_blocks <= num_free_host_blocks && p->has_state;
        expect(p->has_state || (world.num_states > 0 && num_states <= 0), "there are %d places for a state",
               num_states);
        if (!p->has_state) mark(MARK_states_without_room);
        if (p->saved)
            expect(fits && back <= again * 1.000001, "%d blocks are saved: %.1f us, again %.1f us",
                   num_blocks, back, again);
        else
            expect(!fits || back * 1.000001 >= again, "%d blocks are not saved: %.1f us, again %.1f us",
                   num_blocks, back, again);
        mark(p->saved ? MARK_work_saved : fits ? MARK_work_cheaper_again : MARK_work_without_room);
        if (p->saved) num_free_host_blocks -= num_blocks;
        num_states -= p->saved;
    }
}

/* Of the same tenant those that are due later than the long one that ends the plan pass it, within their quarter. */
static void check_passing_share(const struct scheduler *s, const struct plan *plan)
{
    if (s->options.target_us <= 0 || plan->num_prefills < 2 || has(FEATURE_unequal_halves)) return;
    const struct plan_entry *last = &plan->prefills[plan->num_prefills - 1];
    const struct sequence *slow = &s->sequences[last->seq_id];
    double passing_us = 0, all_us = plan->us_left, slack_us = 0;
    if (!cuts_short(last, slow)) return;
    for (int32_t i = 0; i < plan->num_prefills; i++) {
        const struct plan_entry *e = &plan->prefills[i];
        const struct sequence *seq = &s->sequences[e->seq_id];
        double us = step_prices_prompt_us(&s->prices, e->position, e->num_tokens);
        if (passing_us > 0) all_us += us;
        if (e == last || seq->tenant != slow->tenant || seq->num_bypassed >= BYPASS_MAX ||
            policy_is_due_before(seq, slow))
            continue;
        if (passing_us <= 0) all_us += us;
        passing_us += us;
        slack_us += step_prices_prompt_us(&s->prices, e->position, 1);
    }
    if (passing_us > 0) mark(MARK_short_ones_passed);
    expect(passing_us <= fmax(all_us, 0) / 4 + slack_us + 1e-3,
           "short ones take %.0f us of %.0f before a long one", passing_us, all_us);
}

/* ---- who comes ---- */

/* It is due four times what its prompt, and those of its request beside it, take after it has come, ten seconds a step of
 * priority earlier or later, and no later than its deadline. */
static void check_due(const struct scheduler *s, const struct sequence *seq)
{
    const struct watch *w = &watches[seq->slot_idx];
    const struct request_slot_input *input = &watch_slot(seq->slot_idx)->input;
    double us =
        (double)(input->arrival_ns / 1000) + 1e7 * w->request->priority +
        (input->num_tokens_beside == 0 ? 4 * step_prices_prompt_us(&s->prices, 0, input->num_prompt_tokens)
                                       : 4 * (double)(input->num_prompt_tokens + input->num_tokens_beside) *
                                             step_prices_prompt_us(&s->prices, 0, 1));
    if (us < 0) us = 0;
    if (input->deadline_ns > 0) us = fmin(us, (double)(input->deadline_ns / 1000));
    expect(fabs((double)seq->due_us - us) < 2, "%s is due at %.0f us instead of %.0f", w->request->id,
           (double)seq->due_us, us);
}

static double served_us; /* what those had received whose prompts were computed, at most */

void policy_forget(void)
{
    served_us = 0;
}

static void note_served(const struct scheduler *s, const struct plan *plan)
{
    for (int32_t i = 0; i < plan->num_prefills && s->prices.prompt_token > 0; i++) {
        const struct tenant *t = &s->tenants[s->sequences[plan->prefills[i].seq_id].tenant];
        served_us = fmax(served_us, owner_before_prompts(s, plan, t->owner));
    }
}

int __wrap_scheduler_add(struct scheduler *s, const struct sequence_input *input, int32_t *seq_id)
{
    int status = __real_scheduler_add(s, input, seq_id);
    if (status != 0) return status;
    const struct sequence *seq = &s->sequences[*seq_id];
    const struct tenant *t = &s->tenants[seq->tenant];
    check_due(s, seq);
    if (s->owners[t->owner].num_waiting > 1 || has(FEATURE_unequal_halves)) return 0;
    mark(MARK_tenants_came_back);
    double service_us = s->owners[t->owner].service_us;
    expect(service_us >= served_us - fabs(served_us) * 1e-9 - 1e-3,
           "a tenant comes back with %.0f us where others have %.0f", service_us, served_us);
    return 0;
}

/* ---- a plan ---- */

/* One may be admitted in one plan and have its first entry in a later one. */
static bool waited[SEQUENCES_MAX];
static bool urgent_was_passed;

bool policy_urgent_was_passed(void)
{
    return urgent_was_passed;
}

static void note_waiting(const struct scheduler *s)
{
    expect(s->num_sequences <= SEQUENCES_MAX, "%d sequences", s->num_sequences);
    for (int32_t id = 0; id < s->num_sequences; id++) waited[id] = s->sequences[id].state == SEQUENCE_WAITING;
}

/* Who was preempted and is the only one to come in leaves room for all that run to grow. */
static void check_room(const struct scheduler *s)
{
    int32_t num_admitted = 0, num_back = 0, room = 0;
    for (int32_t id = 0; id < s->num_sequences; id++) {
        bool is_new = waited[id] && s->sequences[id].state == SEQUENCE_RUNNING;
        num_admitted += is_new;
        num_back += is_new && s->sequences[id].num_preemptions > 0;
    }
    if (num_admitted != 1 || num_back != 1) return;
    for (int32_t id = s->running.head; id != NO_SEQUENCE; id = s->sequences[id].next) {
        const struct sequence *seq = &s->sequences[id];
        int32_t num_places = sequence_num_places_max(seq->num_prompt, seq->max_tokens);
        for (int32_t g = 0; g < world.kv_groups.count; g++) {
            int32_t end = kv_tables_get(s->tables, seq->batch_slot, g)->end;
            int32_t growth = kv_group_num_blocks_max(&world.kv_groups, g, num_places) -
                             kv_group_num_blocks_max(&world.kv_groups, g, end * BLOCK_SIZE);
            room += min_of(growth, (int32_t)ROOM_BLOCKS);
        }
    }
    mark(MARK_came_back);
    expect(block_manager_num_available(s->blocks) >= room, "one comes back with %d blocks left of %d",
           block_manager_num_available(s->blocks), room);
}

enum schedule_result __wrap_scheduler_plan(struct scheduler *s, struct plan *plan)
{
    int32_t urgent = s->urgent.head, num_running = s->running.count,
            num_free_host_blocks = host_blocks_num_free(s->host_blocks), num_states = num_available_states(s);
    note_waiting(s);
    tenants_before_plan(s);
    pace_check_arrivals(world.engine);
    enum schedule_result result = __real_scheduler_plan(s, plan);
    if (result == SCHEDULE_DRAIN) mark(MARK_device_drained);
    if (result != SCHEDULE_STEP) {
        expect(plan->num_preemptions == 0 && plan->loads.count == 0, "copies without a step");
        return result;
    }
    urgent_was_passed = false;
    for (int32_t i = 0; i < plan->num_prefills; i++) {
        if (!waited[plan->prefills[i].seq_id]) continue;
        const struct sequence *seq = &s->sequences[plan->prefills[i].seq_id];
        count_passing(s, seq);
        if (urgent == NO_SEQUENCE || s->urgent.head != urgent) continue;
        expect(tenants_may_pass_urgent(s, seq), "somebody came in before an urgent one");
        urgent_was_passed = true;
    }
    check_time(s, plan);
    check_turns(s, plan);
    check_passing_share(s, plan);
    note_served(s, plan);
    check_preemptions(s, plan, num_running, num_free_host_blocks, num_states);
    check_room(s);
    tenants_after_plan(s, plan);
    return result;
}
