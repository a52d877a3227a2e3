/* tenants.c - what one tenant's flood leaves to others, reckoned anew for each plan: places to run in, and time to decode. */
#include <math.h>

#include "scheduler/scheduler_internal.h"
#include "sim/watch.h"

enum { SEQUENCES_MAX = 1024 };

/* Before the plan, by sequence. */
static bool waited[SEQUENCES_MAX], decoded[SEQUENCES_MAX];
static double row_us[SEQUENCES_MAX];
static double prompt_us[SEQUENCES_MAX]; /* what is left of its prompt, running or waiting */

/* Plans in a row that had no time for the sequence's next token. */
static int32_t num_left_out[SEQUENCES_MAX];

/* What an owner's running sequences had before the plan, and that would be left of it: places and blocks. */
static struct holding {
    double places, blocks;
} held[SEQUENCES_MAX];
static double blocks_held[SEQUENCES_MAX]; /* by sequence */

void tenants_forget(void)
{
    memset(num_left_out, 0, sizeof num_left_out);
}

int32_t tenants_places_left_free(const struct scheduler *s, int32_t tenant, int32_t num_new)
{
    const struct tenant *t = &s->tenants[tenant];
    int32_t num_tenants = -num_new, num_owners = -num_new,
            most = (s->options.max_num_seqs + PLACES_PER_FREE - 1) / PLACES_PER_FREE;
    if (s->options.max_num_seqs < PLACES_SHARED_FROM) return 0;
    for (int32_t id = s->running.head; id != NO_SEQUENCE; id = s->sequences[id].next) {
        num_tenants += s->sequences[id].tenant == tenant;
        num_owners += s->tenants[s->sequences[id].tenant].owner == t->owner;
    }
    return (t->leaves_places ? min_of(num_tenants, most) : 0) +
           (t->owner_leaves_places ? min_of(num_owners, most) : 0);
}

void tenants_before_plan(const struct scheduler *s)
{
    expect(s->num_sequences <= SEQUENCES_MAX, "%d sequences", s->num_sequences);
    memset(held, 0, sizeof held);
    for (int32_t id = 0; id < s->num_sequences; id++) {
        const struct sequence *seq = &s->sequences[id];
        waited[id] = seq->state == SEQUENCE_WAITING;
        decoded[id] = seq->state == SEQUENCE_RUNNING && sequence_is_decoding(seq) && sequence_wants_step(seq);
        bool has_prompt = waited[id] || (seq->state == SEQUENCE_RUNNING && !sequence_is_decoding(seq) &&
                                         sequence_num_uncomputed(seq) > 0 && sequence_wants_step(seq));
        if (seq->state == SEQUENCE_RUNNING) {
            struct holding *h = &held[s->tenants[seq->tenant].owner];
            blocks_held[id] = kv_tables_num_held(s->tables, seq->batch_slot);
            h->places++;
            h->blocks += blocks_held[id];
        }
        row_us[id] = decoded[id] ? step_prices_decode_us(&s->prices, seq->num_computed, 1) : 0;
        prompt_us[id] =
            has_prompt ? step_prices_prompt_us(&s->prices, seq->num_computed, sequence_num_uncomputed(seq))
                       : 0;
    }
}

/* ---- places ---- */

/* Where one tenant's alone came in, it has left the places that it owes to others. */
static void check_places_left(const struct scheduler *s, const struct plan *plan)
{
    int32_t tenant = -1;
    for (int32_t id = s->running.head; id != NO_SEQUENCE; id = s->sequences[id].next) {
        const struct sequence *seq = &s->sequences[id];
        if (!waited[id]) continue;
        if (seq->num_bypassed >= BYPASS_MAX || (tenant >= 0 && seq->tenant != tenant)) return;
        tenant = seq->tenant;
    }
    if (tenant < 0 || plan->num_preemptions > 0) return;
    int32_t owed = tenants_places_left_free(s, tenant, 1);
    if (owed > 0) mark(MARK_places_owed);
    expect(s->running.count - 1 + owed < s->options.max_num_seqs,
           "a tenant comes in as one of %d and leaves too few of %d places", s->running.count,
           s->options.max_num_seqs);
}

bool tenants_may_pass_urgent(const struct scheduler *s, const struct sequence *seq)
{
    const struct sequence *urgent = &s->sequences[s->urgent.head];
    if (held[s->tenants[seq->tenant].owner].places <= 0 &&
        held[s->tenants[urgent->tenant].owner].places > 0) {
        mark(MARK_urgent_passed);
        return true;
    }
    return false;
}

/* Somebody's who waited, of an owner that has less by weight than the displaced one's has left, even with one more; or nothing,
 * where the displaced one's has something left. */
static bool is_for_somebody(const struct scheduler *s, const struct tenant *of, bool of_blocks)
{
    const struct holding *left = &held[of->owner];
    int32_t num_blocks =
        left->blocks +
        left->places * s->options.kv_groups.count; /* each may have got one for its next token */
    for (int32_t id = 0; id < s->num_sequences; id++) {
        const struct sequence *seq = &s->sequences[id];
        const struct tenant *t = &s->tenants[seq->tenant];
        if (!waited[id] || t->owner == of->owner) continue;
        if (held[t->owner].places <= 0 && left->places > 0) return true;
        if (!of_blocks && left->places / of->weight >= (held[t->owner].places + 1) / t->weight) return true;
        if (of_blocks && num_blocks / of->weight >= (held[t->owner].blocks + 1) / t->weight) return true;
    }
    return false;
}

/* Who is displaced is saved, and its owner has no less than its part without it. */
static void check_displaced(const struct scheduler *s, const struct plan *plan)
{
    const struct tenant *owners[SEQUENCES_MAX];
    int32_t num = 0;
    for (int32_t i = 0; i < plan->num_preemptions; i++) {
        const struct preemption *p = &plan->preemptions[i];
        watches[p->slot_idx].is_displaced = p->displaced;
        for (int32_t id = 0; id < s->num_sequences; id++) {
            const struct sequence *seq = &s->sequences[id];
            if (seq->state == SEQUENCE_FREE || seq->state == SEQUENCE_CLOSING || seq->slot_idx != p->slot_idx)
                continue;
            held[s->tenants[seq->tenant].owner].places--;
            held[s->tenants[seq->tenant].owner].blocks -= blocks_held[id];
            if (p->displaced) owners[num++] = &s->tenants[seq->tenant];
        }
        if (!p->displaced) continue;
        expect(p->saved, "one is displaced whose work is lost");
        mark(MARK_sequences_displaced);
    }
    for (int32_t i = 0; i < num; i++) {
        bool for_place = is_for_somebody(s, owners[i], false),
             for_blocks = is_for_somebody(s, owners[i], true);
        expect(for_place || for_blocks, "one is displaced whose owner has no more than who waits");
        if (!for_place) mark(MARK_blocks_taken_away);
    }
}

/* ---- turns ---- */

/* A tenant's decoding rows, those of them that the plan leaves out, and its prompts. */
struct wish {
    double rows_us, running_us, waiting_us;
    int32_t num_rows, num_left_out;
};

static struct wish wish_of(const struct scheduler *s, int32_t tenant)
{
    struct wish wish = {0};
    for (int32_t id = 0; id < s->num_sequences; id++) {
        const struct sequence *seq = &s->sequences[id];
        if (seq->state == SEQUENCE_FREE || seq->tenant != tenant) continue;
        *(waited[id] ? &wish.waiting_us : &wish.running_us) += prompt_us[id];
        if (!decoded[id]) continue;
        wish.rows_us += row_us[id];
        wish.num_rows++;
        wish.num_left_out += seq->plan_left_out == s->num_plans;
    }
    return wish;
}

/* Time that tenants share where there is none for all; INFINITY: no target. */
static double us_to_share(const struct scheduler *s, bool has_prompts)
{
    double step = has_prompts ? s->prices.prompt_step : s->prices.decode_step;
    return s->options.target_us > 0 ? fmax(s->options.target_us - step, 4 * step) : INFINITY;
}

/* Who asks for no more than its part by weight gets all, prompts counted; all rows together get no more than there is less
 * what the running prompts of others want of their parts, and each tenant has one. */
static void check_shares(const struct scheduler *s)
{
    double weights = 0, rows_us = 0, taken_us = 0, longest_us = 0, running_us = 0, waiting_us = 0,
           owed_us = 0;
    int32_t num_left_out_now = 0, num_tenants = 0, num_with_prompts = 0;
    for (int32_t i = 0; i < s->num_active; i++) {
        struct wish wish = wish_of(s, s->active[i]);
        if (wish.rows_us + wish.running_us + wish.waiting_us > 0) weights += s->tenants[s->active[i]].weight;
        num_tenants += wish.rows_us + wish.running_us > 0;
        rows_us += wish.rows_us;
        running_us += wish.running_us;
        waiting_us += wish.waiting_us;
    }
    /* Whether the waiting ones' turn may come is not known here. */
    double us = us_to_share(s, running_us > 0), other_us = us_to_share(s, running_us + waiting_us > 0),
           least_us = fmin(us, other_us);
    us = fmax(us, other_us);
    for (int32_t i = 0; i < s->num_active; i++) {
        struct wish wish = wish_of(s, s->active[i]);
        double part_us = least_us * s->tenants[s->active[i]].weight / weights;
        num_left_out_now += wish.num_left_out;
        expect(wish.num_left_out == 0 ||
                   wish.rows_us + wish.running_us + wish.waiting_us > part_us * (1 - 1e-9),
               "a tenant that wants %.0f us of its %.0f is left out",
               wish.rows_us + wish.running_us + wish.waiting_us, part_us);
        expect(wish.num_rows == 0 || wish.num_left_out < wish.num_rows, "a tenant gets no token at all");
        if (wish.num_rows > 0) continue;
        owed_us += fmin(wish.running_us, part_us);
        num_with_prompts += wish.running_us > 0;
    }
    for (int32_t id = 0; id < s->num_sequences; id++) {
        if (!decoded[id] || s->sequences[id].plan_left_out == s->num_plans) continue;
        taken_us += row_us[id];
        longest_us = fmax(longest_us, row_us[id]);
    }
    if (num_left_out_now > 0) mark(MARK_tenants_decoded_by_turns);
    if (num_left_out_now > 0 && num_with_prompts > 0 && rows_us <= us) mark(MARK_rows_made_room);
    if (num_tenants < 2) return;
    expect(taken_us + owed_us <= us * (1 + 1e-9) + s->num_active * longest_us,
           "tokens of several tenants take %.0f us of %.0f, of which prompts of others want %.0f", taken_us,
           us, owed_us);
}

/* Within a tenant they go round. */
static void count_left_out(const struct scheduler *s)
{
    for (int32_t id = 0; id < s->num_sequences; id++) {
        if (!decoded[id] || s->sequences[id].plan_left_out != s->num_plans) {
            num_left_out[id] = 0;
            continue;
        }
        int32_t count = wish_of(s, s->sequences[id].tenant).num_rows;
        expect(++num_left_out[id] <= 2 * s->options.max_num_seqs, "one of %d is left out %d times in a row",
               count, num_left_out[id]);
    }
}

void tenants_after_plan(const struct scheduler *s, const struct plan *plan)
{
    check_places_left(s, plan);
    check_displaced(s, plan);
    if (plan->num_preemptions > 0) return; /* one that decoded does no longer */
    check_shares(s);
    count_left_out(s);
}
