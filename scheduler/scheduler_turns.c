/* scheduler_turns.c - who decodes in a step that has not the time for all: tenants by weight, and within a tenant by turns. */
#include <math.h>

#include "base/check.h"
#include "scheduler/scheduler_internal.h"

/* What decoding gets of a step, at least, in what a step costs in any case. */
static const double STEPS_WORTH = 4;

static bool decodes(const struct sequence *seq)
{
    return sequence_is_decoding(seq) && sequence_wants_step(seq);
}

static double us_of(const struct scheduler *s, const struct sequence *seq)
{
    return step_prices_decode_us(&s->prices, seq->num_computed, 1);
}

/* A tenant's part of its owner's weight. */
static double weight_of(struct scheduler *s, const struct tenant *t)
{
    return t->weight / max_of(owner_of(s, t)->num_decoding, 1);
}

/* What each tenant's rows take; returns what all do, or 0: of one tenant alone. */
static double collect(struct scheduler *s)
{
    double all = 0;
    int32_t num_tenants = 0;
    for (int32_t i = 0; i < s->num_active; i++) {
        struct tenant *t = &s->tenants[s->active[i]];
        t->decode_us = 0;
        owner_of(s, t)->num_decoding = 0;
    }
    for (int32_t id = s->running.head; id != NO_SEQUENCE; id = s->sequences[id].next) {
        struct sequence *seq = &s->sequences[id];
        if (!decodes(seq)) continue;
        double us = us_of(s, seq);
        struct tenant *t = tenant_of(s, seq);
        bool is_first = t->decode_us <= 0;
        num_tenants += is_first;
        owner_of(s, t)->num_decoding += is_first;
        t->decode_us += us;
        all += us;
    }
    return num_tenants > 1 ? all : 0;
}

/* Those whose rows take no more than their share get all; what they leave is shared by the others. */
static void share(struct scheduler *s, double us)
{
    bool any_left = true;
    double each = 0;
    for (int32_t i = 0; i < s->num_active; i++) s->tenants[s->active[i]].us_granted = 0;
    while (any_left) {
        double weights = 0;
        for (int32_t i = 0; i < s->num_active; i++) {
            const struct tenant *t = &s->tenants[s->active[i]];
            if (t->decode_us > 0 && t->us_granted <= 0) weights += weight_of(s, t);
        }
        any_left = false;
        each = us / weights;
        for (int32_t i = 0; i < s->num_active; i++) {
            struct tenant *t = &s->tenants[s->active[i]];
            if (t->us_granted > 0 || t->decode_us <= 0 || t->decode_us > each * weight_of(s, t)) continue;
            t->us_granted = INFINITY;
            us -= t->decode_us;
            any_left = true;
        }
    }
    for (int32_t i = 0; i < s->num_active; i++) {
        struct tenant *t = &s->tenants[s->active[i]];
        if (t->us_granted <= 0) t->us_granted = each * weight_of(s, t);
    }
}

/* Of each tenant those from its turn on, or those before. */
static void take(struct scheduler *s, bool before)
{
    for (int32_t id = s->running.head; id != NO_SEQUENCE; id = s->sequences[id].next) {
        struct sequence *seq = &s->sequences[id];
        struct tenant *t = tenant_of(s, seq);
        if (!decodes(seq) || (seq->arrival < t->turn) != before) continue;
        if (t->us_granted > 0) {
            t->us_granted -= us_of(s, seq);
            continue;
        }
        seq->plan_left_out = s->num_plans;
        if (t->next_turn == 0) t->next_turn = seq->arrival;
    }
}

void scheduler_take_turns(struct scheduler *s)
{
    const struct step_prices *p = &s->prices;
    double us = fmax(s->options.target_us - p->decode_step, STEPS_WORTH * p->decode_step);
    if (s->options.target_us <= 0 || collect(s) <= us) return;
    share(s, us);
    for (int32_t i = 0; i < s->num_active; i++) s->tenants[s->active[i]].next_turn = 0;
    take(s, false);
    take(s, true);
    for (int32_t i = 0; i < s->num_active; i++)
        s->tenants[s->active[i]].turn = s->tenants[s->active[i]].next_turn;
}
