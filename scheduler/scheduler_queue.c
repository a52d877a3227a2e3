/* scheduler_queue.c - tenants, and who waits in which order. */
#include "base/check.h"
#include "scheduler/scheduler_internal.h"

/* ---- tenants ---- */

/* The entry of an id in a table whose entries, of so many bytes, begin with a party: its own, a new one, or one that nobody uses.
 * There are as many as sequences. *is_new: it had another id, if any. */
static int32_t find_entry(const struct scheduler *s, const void *table, size_t entry_bytes, int32_t *count,
                          uint64_t id, bool *is_new)
{
    int32_t unused = -1;
    for (int32_t i = 0; i < *count; i++) {
        const struct party *p = (const struct party *)((const char *)table + (size_t)i * entry_bytes);
        *is_new = p->id != id;
        if (!*is_new) return i;
        if (p->num_members == 0) unused = i;
    }
    *is_new = true;
    if (*count < s->num_sequences) unused = (*count)++;
    assert_always(unused >= 0);
    return unused;
}

static int32_t find_tenant(struct scheduler *s, uint64_t id)
{
    bool is_new;
    int32_t i = find_entry(s, s->tenants, sizeof *s->tenants, &s->num_tenants, id, &is_new);
    if (is_new)
        s->tenants[i] =
            (struct tenant){.party.id = id, .waiting = {NO_SEQUENCE, NO_SEQUENCE, 0}, .prompts = NO_SEQUENCE};
    return i;
}

static int32_t find_owner(struct scheduler *s, uint64_t id)
{
    bool is_new;
    int32_t i = find_entry(s, s->owners, sizeof *s->owners, &s->num_owners, id, &is_new);
    if (is_new) s->owners[i] = (struct owner){.party.id = id};
    return i;
}

/* Whoever comes back has saved nothing up: neither an owner among others, nor a tenant among its owner's. */
static void come_in(struct scheduler *s, struct tenant *t)
{
    struct owner *o = owner_of(s, t);
    bool is_alone = o->party.num_members == (t->party.num_members > 0);
    if (o->num_waiting == 0) o->service_us = max_of(o->service_us, s->virtual_us);
    if (t->waiting.count == 0)
        t->service_us = max_of(t->service_us, is_alone ? o->service_us : o->virtual_us);
}

void scheduler_join_tenant(struct scheduler *s, struct sequence *seq, const struct sequence_input *input)
{
    seq->tenant = find_tenant(s, input->tenant_id);
    struct tenant *t = tenant_of(s, seq);
    t->owner = find_owner(s, input->owner_id ? input->owner_id : input->tenant_id);
    t->weight = input->weight > 0 ? input->weight : 1;
    t->leaves_places = input->leaves_places;
    t->owner_leaves_places = input->owner_leaves_places;
    come_in(s, t);
    if (t->party.num_members++ > 0) return;
    s->active[s->num_active++] = seq->tenant;
    owner_of(s, t)->party.num_members++;
}

void scheduler_leave_tenant(struct scheduler *s, struct sequence *seq)
{
    if (--tenant_of(s, seq)->party.num_members > 0) return;
    owner_of(s, tenant_of(s, seq))->party.num_members--;
    int32_t i = 0;
    while (s->active[i] != seq->tenant) i++;
    s->active[i] = s->active[--s->num_active];
}

/* ---- who waits ---- */

void scheduler_enqueue(struct scheduler *s, struct sequence *seq)
{
    struct sequence_list *list = &tenant_of(s, seq)->waiting;
    int32_t before = list->tail;
    while (before != NO_SEQUENCE && sequence_is_due_before(seq, &s->sequences[before]))
        before = s->sequences[before].prev;
    sequence_list_insert(s, list, id_of(s, seq), before);
    owner_of(s, tenant_of(s, seq))->num_waiting++;
    s->num_waiting++;
}

void scheduler_dequeue(struct scheduler *s, struct sequence *seq)
{
    struct sequence_list *list = sequence_is_urgent(seq) ? &s->urgent : &tenant_of(s, seq)->waiting;
    sequence_list_remove(s, list, id_of(s, seq));
    owner_of(s, tenant_of(s, seq))->num_waiting -= list != &s->urgent;
    s->num_waiting--;
}

void scheduler_make_urgent(struct scheduler *s, struct sequence *seq)
{
    scheduler_dequeue(s, seq);
    seq->num_bypassed = BYPASS_MAX;
    sequence_list_insert(s, &s->urgent, id_of(s, seq), s->urgent.tail);
    s->num_waiting++;
}
