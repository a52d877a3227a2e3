/* tenants.c - what one tenant's flood leaves to others, reckoned anew for each plan: places to run in, and time to decode. */
#include <math.h>

#include "scheduler/scheduler_internal.h"
#include "sim/watch.h"

enum { SEQUENCES_MAX = 1024 };

/* Before the plan, by sequence. */
static bool waited[SEQUENCES_MAX], decoded[SEQUENCES_MAX];
static double row_us[SEQUENCES_MAX];

/* Plans in a row that had no time for the sequence's next token. */
static int32_t num_left_out[SEQUENCES_MAX];

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
    for (int32_t id = 0; id < s->num_sequences; id++) {
        const struct sequence *seq = &s->sequences[id];
        waited[id] = seq->state == SEQUENCE_WAITING;
        decoded[id] = seq->state == SEQUENCE_RUNNING && sequence_is_decoding(seq) && sequence_wants_step(seq);
        if (decoded[id]) row_us[id] = step_prices_decode_us(&s->prices, seq->num_computed, 1);
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

/* ---- turns ---- */

/* A tenant's decoding rows, and those of them that the plan leaves out. */
struct rows {
    double us;
    int32_t count, num_left_out;
};

static struct rows rows_of(const struct scheduler *s, int32_t tenant)
{
    struct rows rows = {0};
    for (int32_t id = 0; id < s->num_sequences; id++) {
        if (!decoded[id] || s->sequences[id].tenant != tenant) continue;
        rows.us += row_us[id];
        rows.count++;
        rows.num_left_out += s->sequences[id].plan_left_out == s->num_plans;
    }
    return rows;
}

/* Time for decoding rows where there is none for all; INFINITY: one tenant's alone, or no target. */
static double us_for_rows(const struct scheduler *s)
{
    int32_t num_tenants = 0;
    for (int32_t i = 0; i < s->num_active; i++) num_tenants += rows_of(s, s->active[i]).count > 0;
    double step = s->prices.decode_step;
    if (num_tenants < 2 || s->options.target_us <= 0) return INFINITY;
    return fmax(s->options.target_us - step, 4 * step);
}

/* Who asks for no more than its part by weight gets all; all together get no more than there is, and a row each. */
static void check_shares(const struct scheduler *s, double us)
{
    double weights = 0, taken_us = 0, longest_us = 0;
    int32_t num_left_out_now = 0;
    for (int32_t i = 0; i < s->num_active; i++)
        if (rows_of(s, s->active[i]).count > 0) weights += s->tenants[s->active[i]].weight;
    for (int32_t i = 0; i < s->num_active; i++) {
        struct rows rows = rows_of(s, s->active[i]);
        double part_us = us * s->tenants[s->active[i]].weight / weights;
        num_left_out_now += rows.num_left_out;
        expect(rows.num_left_out == 0 || rows.us > part_us * (1 - 1e-9),
               "a tenant whose tokens take %.0f us of its %.0f is left out", rows.us, part_us);
        expect(rows.count == 0 || rows.num_left_out < rows.count, "a tenant gets no token at all");
    }
    for (int32_t id = 0; id < s->num_sequences; id++) {
        if (!decoded[id] || s->sequences[id].plan_left_out == s->num_plans) continue;
        taken_us += row_us[id];
        longest_us = fmax(longest_us, row_us[id]);
    }
    if (num_left_out_now > 0) mark(MARK_tenants_decoded_by_turns);
    expect(taken_us <= us * (1 + 1e-9) + s->num_active * longest_us,
           "tokens of several tenants take %.0f us of %.0f", taken_us, us);
}

/* Within a tenant they go round. */
static void count_left_out(const struct scheduler *s)
{
    for (int32_t id = 0; id < s->num_sequences; id++) {
        if (!decoded[id] || s->sequences[id].plan_left_out != s->num_plans) {
            num_left_out[id] = 0;
            continue;
        }
        int32_t count = rows_of(s, s->sequences[id].tenant).count;
        expect(++num_left_out[id] <= 2 * s->options.max_num_seqs, "one of %d is left out %d times in a row",
               count, num_left_out[id]);
    }
}

void tenants_after_plan(const struct scheduler *s, const struct plan *plan)
{
    check_places_left(s, plan);
    if (plan->num_preemptions > 0) return; /* one that decoded does no longer */
    check_shares(s, us_for_rows(s));
    count_left_out(s);
}
