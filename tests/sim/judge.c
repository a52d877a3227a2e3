/* judge.c - what the server must make of its engine's deaths, counted anew from what was launched.
 *
 * recovery.c reads what the engine wrote into the slots; here it is known from the launches themselves who
 * was on board. So: nobody who is under suspicion runs with others, nobody else is tried alone, the third
 * death fails the request and nothing else does, and the process ends with the death that is one too many. */
#include "sim/watch.h"

#include <string.h>

#include "engine/engine_internal.h"
#include "scheduler/scheduler_internal.h"
#include "server/recovery.h"
#include "sim/wraps.h"

enum { STEPS_MAX = 2 };

/* A part of a slot's tokens. */
struct part {
    int32_t slot_idx, begin, end;
    uint64_t serial;
};

static struct launch {
    int num_parts;
    struct part parts[SLOTS_MAX];
} launches[STEPS_MAX];
static uint64_t num_launched, num_ended, begun_before; /* by the engine that runs, before it */
static int num_entries_ended;                          /* of the oldest launch that has not ended */
static int32_t alone = -1;                             /* the slot that is tried */
static int num_on_board;                               /* of the last death */
static bool last_accuses;
static int64_t num_deaths; /* that the server was told of */

/* By now; the watch looks once a turn. */
static int32_t num_published(int32_t slot_idx)
{
    return atomic_load(&watch_slot(slot_idx)->num_published);
}

static bool is_suspect(int32_t slot_idx)
{
    const struct watch *w = &watches[slot_idx];
    return watch_is_unfinished(slot_idx) && w->num_deaths >= 2 &&
           num_published(slot_idx) == w->death_published;
}

/* But for those that were tried before it, and got through. */
static bool runs_alone(int32_t slot_idx)
{
    for (int32_t i = 0; i < SLOTS_MAX; i++)
        if (i != slot_idx && watch_is_unfinished(i) && watch_slot(i)->with_engine && !watches[i].was_tried)
            return false;
    return true;
}

/* ---- launches ---- */

void judge_engine(const struct engine *e)
{
    num_launched = num_ended = 0;
    num_entries_ended = 0;
    for (int32_t i = 0; i < SLOTS_MAX; i++) watches[i].was_tried = false;
    begun_before = atomic_load(&e->counters->num_steps_begun);
}

static void add_parts(struct launch *l, const struct engine *e, const struct plan_entry *entries, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t slot_idx = e->scheduler->sequences[entries[i].seq_id].slot_idx;
        l->parts[l->num_parts++] = (struct part){.slot_idx = slot_idx,
                                                 .begin = entries[i].position,
                                                 .end = entries[i].position + entries[i].num_tokens,
                                                 .serial = watch_slot(slot_idx)->serial};
    }
}

void judge_launch(const struct engine *e, const struct plan *plan)
{
    struct launch *l = &launches[num_launched++ % STEPS_MAX];
    l->num_parts = 0;
    add_parts(l, e, plan->prefills, plan->num_prefills);
    add_parts(l, e, plan->decodes, plan->num_decodes);
    for (int i = 0; i < l->num_parts; i++) {
        int32_t slot_idx = l->parts[i].slot_idx;
        expect(!is_suspect(slot_idx) || (alone == slot_idx && runs_alone(slot_idx)),
               "%s was on board of %d deaths and runs with others", watches[slot_idx].request->id,
               watches[slot_idx].num_deaths);
    }
}

/* A step is over when all that it brought is published. */
void judge_published(void)
{
    if (++num_entries_ended < launches[num_ended % STEPS_MAX].num_parts) return;
    num_entries_ended = 0;
    num_ended++;
}

/* ---- deaths ---- */

/* A step that was begun and never launched: who is noted is on board. */
static void add_noted(const struct engine *e, struct launch *out)
{
    int newest = (e->oldest_flight + e->num_in_flight - 1) % e->limits.num_steps_in_flight;
    const struct plan *plan = &e->flights[newest].plan;
    uint64_t step = atomic_load(&e->counters->num_steps_begun);
    struct launch all = {0};
    add_parts(&all, e, plan->prefills, plan->num_prefills);
    add_parts(&all, e, plan->decodes, plan->num_decodes);
    for (int i = 0; i < all.num_parts; i++)
        if (atomic_load(&watch_slot(all.parts[i].slot_idx)->parts[step % STEPS_MAX].step) == step)
            out->parts[out->num_parts++] = all.parts[i];
}

static void count_death(const struct part *p)
{
    struct watch *w = &watches[p->slot_idx];
    int32_t published = num_published(p->slot_idx);
    bool same = w->num_deaths > 0 && w->death_published == published && p->begin < w->death_end &&
                w->death_begin < p->end;
    w->num_deaths = same ? w->num_deaths + 1 : 1;
    w->death_published = published;
    w->death_begin = p->begin;
    w->death_end = p->end;
    say("on board: %s, tokens %d to %d, %d of it published: %d in a row", w->request->id, p->begin, p->end,
        published, w->num_deaths);
}

/* A slot may have a part in each of two steps. */
static void count_parts(const struct launch *parts, int n)
{
    struct part of_slot[SLOTS_MAX] = {0};
    for (int k = 0; k < n; k++)
        for (int i = 0; i < parts[k].num_parts; i++) {
            const struct part *p = &parts[k].parts[i];
            struct part *u = &of_slot[p->slot_idx];
            if (!watch_is_unfinished(p->slot_idx) || watch_slot(p->slot_idx)->serial != p->serial) continue;
            *u = u->serial == 0 ? *p
                                : (struct part){p->slot_idx, min_of(u->begin, p->begin),
                                                max_of(u->end, p->end), p->serial};
        }
    for (int32_t i = 0; i < SLOTS_MAX; i++) {
        if (!of_slot[i].serial) continue;
        if (last_accuses) count_death(&of_slot[i]);
        num_on_board++;
    }
}

void judge_death(const struct engine *e, bool accuses)
{
    static struct launch on_board[STEPS_MAX + 1];
    int n = 0;
    num_on_board = 0;
    last_accuses = accuses;
    if (!e) return;
    if (alone >= 0) mark(MARK_engine_died_alone);
    uint64_t num_begun = atomic_load(&e->counters->num_steps_begun) - begun_before;
    for (uint64_t k = num_ended; k < num_launched; k++) on_board[n++] = launches[k % STEPS_MAX];
    if (num_begun > num_launched) {
        on_board[n].num_parts = 0;
        add_noted(e, &on_board[n++]);
    }
    count_parts(on_board, n);
    num_launched = num_ended = 0;
}

/* ---- what the server does about it ---- */

bool __wrap_recovery_on_death(struct recovery *r, bool accuses, uint64_t ns)
{
    int64_t most = world.config.max_engine_deaths;
    int32_t tried = alone;
    bool must_fail = last_accuses && num_on_board == 1 && tried >= 0 && is_suspect(tried) &&
                     watches[tried].num_deaths >= 3;
    expect(accuses == last_accuses, "a death %s", last_accuses ? "accuses nobody" : "accuses somebody");
    alone = -1;
    num_deaths++;
    if (must_fail) watches[tried].failed_by_recovery = true;
    bool goes_on = __real_recovery_on_death(r, accuses, ns);
    last_accuses = false; /* a start that fails is a death, too */
    if (must_fail)
        expect(!watch_is_unfinished(tried), "%s killed alone and does not fail", watches[tried].request->id);
    expect(goes_on == (most == 0 || num_deaths < most), "death %lld of %lld: the server %s",
           (long long)num_deaths, (long long)most, goes_on ? "goes on" : "gives up");
    if (!goes_on) {
        mark(MARK_exits_70_by_deaths);
        world.exit_code = 70;
    }
    return goes_on;
}

void __wrap_link_finish_waiting(struct link *l, int32_t slot_idx, enum finish_reason reason,
                                const char *error_text)
{
    struct watch *w = &watches[slot_idx];
    if (reason == FINISH_ERROR) {
        expect(w->failed_by_recovery, "%s fails for deaths that are not its own", w->request->id);
        expect(w->request->is_poison || has(FEATURE_engine_deaths) || world.device_may_fail,
               "%s has killed nobody", w->request->id);
        if (w->request->is_poison) mark(MARK_poison_failed);
        w->request->failed_by_recovery = true;
    }
    __real_link_finish_waiting(l, slot_idx, reason, error_text);
}

/* Recovery calls it for one that is tried alone, and for nobody else. */
void __wrap_link_hand_over(struct link *l, int32_t slot_idx)
{
    expect(is_suspect(slot_idx), "%s is tried alone for no reason", watches[slot_idx].request->id);
    expect(runs_alone(slot_idx), "%s is tried alone, but others run", watches[slot_idx].request->id);
    say("%s is tried alone", watches[slot_idx].request->id);
    mark(MARK_tried_alone);
    alone = slot_idx;
    watches[slot_idx].was_tried = true;
    __real_link_hand_over(l, slot_idx);
}

void __wrap_link_let_through(struct link *l)
{
    for (int32_t i = 0; i < SLOTS_MAX; i++) {
        if (!watch_is_unfinished(i) || watch_slot(i)->with_engine) continue;
        expect(!is_suspect(i), "%s goes to the engine with others", watches[i].request->id);
        mark(MARK_handed_over);
    }
    alone = -1;
    __real_link_let_through(l);
}
