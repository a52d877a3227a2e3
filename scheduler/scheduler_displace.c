/* scheduler_displace.c - a place, or blocks, for an owner that waits, of whoever has most beyond its part. */
#include <string.h>

#include "base/check.h"
#include "scheduler/scheduler_internal.h"

/* Of all time, copies for this take one in so many at most. */
static const double TIME_PER_COPIES = 8;

/* What who is first of those who wait finds too little of, and by how much. */
struct shortage {
    struct sequence *first;
    int32_t num_missing[NUM_GOODS];
};

/* Whose turn it is, whatever there is no room for. */
static struct sequence *first_waiting(struct scheduler *s)
{
    struct sequence *first = NULL;
    for (int32_t i = 0; i < s->num_active; i++) {
        int32_t id = s->tenants[s->active[i]].waiting.head;
        if (id == NO_SEQUENCE) continue;
        if (!first || scheduler_goes_before(s, &s->sequences[id], first)) first = &s->sequences[id];
    }
    return first;
}

static bool is_short(const struct shortage *shortage)
{
    return shortage->num_missing[PLACES] > 0 || shortage->num_missing[BLOCKS] > 0;
}

/* Where no place is, nobody knows yet whether there would be blocks. */
static struct shortage find_shortage(struct scheduler *s)
{
    struct shortage found = {.first = first_waiting(s)};
    if (!found.first || !scheduler_passes_urgent(s, tenant_of(s, found.first))) return found;
    found.num_missing[PLACES] = s->running.count + 1 + scheduler_num_left_free(s, tenant_of(s, found.first)) -
                                s->options.max_num_seqs;
    if (found.num_missing[PLACES] > 0 || !scheduler_has_hope(s, found.first))
        found.num_missing[BLOCKS] = scheduler_num_blocks_missing(s, found.first);
    return found;
}

static int32_t num_held(const struct scheduler *s, const struct sequence *seq, enum goods goods)
{
    return goods == BLOCKS ? kv_tables_num_held(s->tables, seq->batch_slot) : 1;
}

static void count_held(struct scheduler *s)
{
    for (int32_t i = 0; i < s->num_active; i++)
        memset(owner_of(s, &s->tenants[s->active[i]])->num_held, 0, sizeof s->owners[0].num_held);
    for (int32_t id = s->running.head; id != NO_SEQUENCE; id = s->sequences[id].next) {
        const struct sequence *seq = &s->sequences[id];
        for (int g = 0; g < NUM_GOODS; g++)
            owner_of(s, tenant_of(s, seq))->num_held[g] += num_held(s, seq, (enum goods)g);
    }
}

/* Whether without it its owner has still as much by weight as the other one will have, or, where that has nothing running, anything. */
static bool can_spare(const struct scheduler *s, const struct sequence *seq, const struct owner *other,
                      enum goods goods, double part)
{
    const struct tenant *t = &s->tenants[seq->tenant];
    const struct owner *o = &s->owners[t->owner];
    if (other->num_held[PLACES] == 0 && o->num_held[PLACES] > 1) return true;
    return (o->num_held[goods] - num_held(s, seq, goods)) / t->weight >= part;
}

/* The youngest of the owner that has most by weight and can spare it. It would come back at once if its owner had received less
 * than that of who waits. */
static struct sequence *next_victim(struct scheduler *s, const struct sequence *first, enum goods goods,
                                    double part)
{
    struct sequence *victim = NULL;
    double most = 0;
    const struct owner *mine = owner_of(s, tenant_of(s, first));
    for (int32_t id = s->running.tail; id != NO_SEQUENCE; id = s->sequences[id].prev) {
        struct sequence *seq = &s->sequences[id];
        const struct owner *o = owner_of(s, tenant_of(s, seq));
        double held = o->num_held[goods] / tenant_of(s, seq)->weight;
        if (o == mine || seq->displaced_plan == s->num_plans || held <= most) continue;
        if (!can_spare(s, seq, mine, goods, part) || !scheduler_goes_before(s, first, seq)) continue;
        victim = seq;
        most = held;
    }
    return victim;
}

/* Marks those who make up for what is missing. False: too few, or what they have computed would not be saved. */
static bool choose(struct scheduler *s, struct shortage shortage, double *copy_us)
{
    const struct tenant *t = tenant_of(s, shortage.first);
    const int32_t num_wanted[] = {1, max_of(shortage.num_missing[BLOCKS], 1)};
    struct saved saved = {0};
    count_held(s);
    *copy_us = 0;
    while (is_short(&shortage)) {
        enum goods goods = shortage.num_missing[PLACES] > 0 ? PLACES : BLOCKS;
        double part = (owner_of(s, t)->num_held[goods] + num_wanted[goods]) / t->weight;
        struct sequence *victim = next_victim(s, shortage.first, goods, part);
        if (!victim) return false;
        struct preemption p = scheduler_weigh_preemption(s, victim, &saved);
        if (!p.saved) return false;
        saved.num_blocks += kv_groups_num_seen(&s->options.kv_groups, victim->num_computed);
        saved.num_states++;
        *copy_us += p.restore_us;
        victim->displaced_plan = s->num_plans;
        for (int g = 0; g < NUM_GOODS; g++) {
            int32_t num = num_held(s, victim, (enum goods)g);
            owner_of(s, tenant_of(s, victim))->num_held[g] -= num;
            shortage.num_missing[g] -= num;
        }
    }
    return true;
}

bool scheduler_displace(struct scheduler *s, struct plan *plan)
{
    double copy_us;
    if (s->planned_us < s->displace_from_us) return true;
    struct shortage shortage = find_shortage(s);
    if (!is_short(&shortage) || !choose(s, shortage, &copy_us)) return true;
    if (s->num_steps_in_flight > 0) return false;
    s->displace_from_us = s->planned_us + TIME_PER_COPIES * copy_us;
    for (int32_t id = s->running.head, next; id != NO_SEQUENCE; id = next) {
        next = s->sequences[id].next;
        if (s->sequences[id].displaced_plan == s->num_plans)
            scheduler_displace_one(s, plan, &s->sequences[id]);
    }
    return true;
}
