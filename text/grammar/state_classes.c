#include "text/grammar/state_classes.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { STATES_FEW = 64 };

struct refinement {
    const struct grammar *g;
    uint32_t *known, *deeper; /* [num_states] */
    uint32_t *table;          /* the first state of a class, or NONE; its size is a power of two */
    uint32_t table_mask, num_classes, work;
};

enum { NONE = STATE_DEAD }; /* which needs no class */

static uint64_t mixed(uint64_t h, uint64_t value)
{
    return (h ^ value) * 0x9E3779B97F4A7C15u ^ h >> 29;
}

/* Where a call goes on. Behind a rule that may be empty without a byte, so that being alike to a lesser depth is too little. */
static uint64_t class_behind(const struct refinement *r, const struct rule_call *call)
{
    return r->g->rules[call->rule].nullable ? call->back : (uint64_t)1 << 32 | r->known[call->back];
}

static uint64_t hash_of(const struct refinement *r, uint32_t state)
{
    const struct state *s = &r->g->states[state];
    const struct char_loop *loop = &r->g->loops[s->loop];
    uint64_t h = mixed(r->known[state], (uint64_t)loop->char_class << 32 | s->entry);
    if (s->loop != NO_LOOP) h = mixed(mixed(h, r->known[loop->target]), loop->max);
    for (uint32_t i = 0; i < s->num_edges; i++) {
        const struct byte_edge *e = &r->g->edges[s->edges + i];
        h = mixed(h, (uint64_t)r->known[e->target] << 16 | (uint64_t)e->lo << 8 | e->hi);
    }
    for (uint32_t i = 0; i < s->num_calls; i++) {
        const struct rule_call *call = &r->g->calls[s->calls + i];
        h = mixed(mixed(h, call->rule), class_behind(r, call));
    }
    return h;
}

static bool loops_are_alike(const struct refinement *r, uint16_t a, uint16_t b)
{
    const struct char_loop *x = &r->g->loops[a], *y = &r->g->loops[b];
    if (a == b || a == NO_LOOP || b == NO_LOOP) return a == b;
    return x->char_class == y->char_class && x->counts == y->counts && x->max == y->max && x->min == y->min &&
           r->known[x->target] == r->known[y->target];
}

static bool are_alike(const struct refinement *r, uint32_t a, uint32_t b)
{
    const struct state *s = &r->g->states[a], *t = &r->g->states[b];
    if (r->known[a] != r->known[b] || !loops_are_alike(r, s->loop, t->loop) || s->entry != t->entry ||
        s->flags != t->flags || s->num_edges != t->num_edges || s->num_calls != t->num_calls)
        return false;
    for (uint32_t i = 0; i < s->num_edges; i++) {
        const struct byte_edge *e = &r->g->edges[s->edges + i], *f = &r->g->edges[t->edges + i];
        if (e->lo != f->lo || e->hi != f->hi || r->known[e->target] != r->known[f->target]) return false;
    }
    for (uint32_t i = 0; i < s->num_calls; i++) {
        const struct rule_call *c = &r->g->calls[s->calls + i], *d = &r->g->calls[t->calls + i];
        if (c->rule != d->rule || class_behind(r, c) != class_behind(r, d)) return false;
    }
    return true;
}

/* One byte deeper: a class is named by its first state. Returns whether some class fell apart. */
static bool refine(struct refinement *r)
{
    const uint32_t before = r->num_classes;
    memset(r->table, 0, ((size_t)r->table_mask + 1) * sizeof *r->table);
    r->num_classes = 0;
    for (uint32_t s = 1; s < r->g->num_states; s++) {
        uint32_t at = (uint32_t)(hash_of(r, s) >> 32) & r->table_mask;
        for (; r->table[at] != NONE && !are_alike(r, r->table[at], s); at = (at + 1) & r->table_mask)
            if (++r->work > STATE_CLASSES_WORK_MAX) return false;
        if (r->table[at] == NONE) {
            r->table[at] = s;
            r->num_classes++;
        }
        r->deeper[s] = r->table[at];
    }
    uint32_t *const last = r->known;
    r->known = r->deeper;
    r->deeper = last;
    return r->num_classes != before;
}

int state_classes_new(const struct grammar *g, uint32_t num_bytes, uint32_t **out)
{
    const uint32_t n = g->num_states;
    *out = NULL;
    if (n < STATES_FEW || (uint64_t)n * (num_bytes + 1) > STATE_CLASSES_WORK_MAX) return STATUS_OK;
    struct refinement r = {.g = g, .table_mask = 1};
    while (r.table_mask < 2 * n) r.table_mask = 2 * r.table_mask + 1;
    r.known = calloc(n, sizeof *r.known);
    r.deeper = calloc(n, sizeof *r.deeper);
    r.table = malloc(((size_t)r.table_mask + 1) * sizeof *r.table);
    const bool has_memory = r.known && r.deeper && r.table;
    for (uint32_t depth = 0; has_memory && depth <= num_bytes && refine(&r);) depth++;
    if (has_memory && r.work <= STATE_CLASSES_WORK_MAX)
        *out = r.known;
    else
        free(r.known);
    free(r.deeper);
    free(r.table);
    return has_memory ? STATUS_OK : STATUS_NO_MEMORY;
}
