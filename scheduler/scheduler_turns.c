/* scheduler_turns.c - who decodes in a step that has not the time for all that is wanted of it: tenants by weight, and within a
 * tenant by turns. What a tenant's prompts want counts as its rows do, so that another's many streams make room for them. */
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
    return t->weight / max_of(owner_of(s, t)->num_sharing, 1);
}

static double wanted_us(const struct tenant *t)
{
    return t->decode_us + t->prompt_us;
}

static void collect_decodes(struct scheduler *s)
{
    for (int32_t id = s->running.head; id != NO_SEQUENCE; id = s->sequences[id].next) {
        const struct sequence *seq = &s->sequences[id];
        if (decodes(seq)) tenant_of(s, seq)->decode_us += us_of(s, seq);
    }
}

struct wanted {
    double decode_us, prompt_us;
    int32_t num_tenants;
};

/* What each tenant wants of the step; returns what all do. */
static struct wanted collect(struct scheduler *s)
{
    struct wanted all = {0};
    for (int32_t i = 0; i < s->num_active; i++) {
        struct tenant *t = &s->tenants[s->active[i]];
        t->decode_us = 0;
        t->prompt_us = scheduler_prompts_us(s, t);
        owner_of(s, t)->num_sharing = 0;
    }
    collect_decodes(s);
    for (int32_t i = 0; i < s->num_active; i++) {
        const struct tenant *t = &s->tenants[s->active[i]];
        bool wants = wanted_us(t) > 0;
        all.decode_us += t->decode_us;
        all.prompt_us += t->prompt_us;
        all.num_tenants += wants;
        owner_of(s, t)->num_sharing += wants;
    }
    return all;
}

/* Those that want no more than their share get all; what they leave is shared by the others. */
static void share(struct scheduler *s, double us)
{
    bool any_left = true;
    double each = 0;
    for (int32_t i = 0; i < s->num_active; i++) s->tenants[s->active[i]].us_granted = 0;
    while (any_left) {
        double weights = 0;
        for (int32_t i = 0; i < s->num_active; i++) {
            const struct tenant *t = &s->tenants[s->active[i]];
            if (wanted_us(t) > 0 && t->us_granted <= 0) weights += weight_of(s, t);
        }
        any_left = false;
        each = us / weights;
        for (int32_t i = 0; i < s->num_active; i++) {
            struct tenant *t = &s->tenants[s->active[i]];
            if (t->us_granted > 0 || wanted_us(t) <= 0 || wanted_us(t) > each * weight_of(s, t)) continue;
            t->us_granted = INFINITY;
            us -= wanted_us(t);
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

/* Of a step, for rows and prompts. */
static double us_to_share(const struct scheduler *s, bool has_prompts)
{
    const struct step_prices *p = &s->prices;
    double step_us = has_prompts ? p->prompt_step : p->decode_step;
    return fmax(s->options.target_us - step_us, STEPS_WORTH * step_us);
}

void scheduler_take_turns(struct scheduler *s)
{
    if (s->options.target_us <= 0) return;
    struct wanted all = collect(s);
    double us = us_to_share(s, all.prompt_us > 0);
    if (all.num_tenants < 2 || all.decode_us + all.prompt_us <= us) return;
    share(s, us);
    for (int32_t i = 0; i < s->num_active; i++) s->tenants[s->active[i]].next_turn = 0;
    take(s, false);
    take(s, true);
    for (int32_t i = 0; i < s->num_active; i++)
        s->tenants[s->active[i]].turn = s->tenants[s->active[i]].next_turn;
}
