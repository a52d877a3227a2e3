#include "text/grammar/builder.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/grammar/byte_group.h"
#include "text/grammar/plain_text.h"
#include "text/grammar/step.h"

enum { EDGES_MAX = 1 << 21, LOOPS_MAX = UINT16_MAX, CLASSES_MAX = 1 << 12, TABLES_MAX = 1 << 20 };

static struct pool *pools_of(struct builder *b, int i)
{
    struct pool *const pools[] = {&b->states,  &b->edges,   &b->calls, &b->loops, &b->classes,
                                  &b->entries, &b->objects, &b->keys,  &b->rules, &b->spaces};
    return i < (int)array_length(pools) ? pools[i] : NULL;
}

void builder_init(struct builder *b, uint32_t max_spaces)
{
    *b = (struct builder){.regex_work = BUILDER_REGEX_WORK_MAX, .schema_work = BUILDER_SCHEMA_WORK_MAX};
    pool_init(&b->states, sizeof(struct state), GRAMMAR_STATES_MAX);
    pool_init(&b->edges, sizeof(struct byte_edge), EDGES_MAX);
    pool_init(&b->calls, sizeof(struct rule_call), EDGES_MAX);
    pool_init(&b->loops, sizeof(struct char_loop), LOOPS_MAX);
    pool_init(&b->classes, sizeof(struct char_class), CLASSES_MAX);
    pool_init(&b->entries, sizeof(struct entry), TABLES_MAX);
    pool_init(&b->objects, sizeof(struct key_table), TABLES_MAX);
    pool_init(&b->keys, sizeof(uint32_t), TABLES_MAX);
    pool_init(&b->rules, sizeof(struct rule), GRAMMAR_RULES_MAX);
    pool_init(&b->spaces, sizeof(struct space_state), SPACE_STATES_MAX);
    spaces_up_to(&b->spaces, max_spaces);
    (void)builder_state(b, 0);                            /* STATE_DEAD */
    (void)builder_state(b, STATE_FINAL);                  /* BUILDER_FINAL */
    (void)builder_rule(b);                                /* RULE_NEVER */
    builder_set_start(b, builder_rule(b), BUILDER_FINAL); /* RULE_EMPTY */
    memset(pool_push(&b->loops, 1) ?: &(struct char_loop){0}, 0, sizeof(struct char_loop));
    memset(pool_push(&b->entries, 1) ?: &(struct entry){0}, 0, sizeof(struct entry));
}

int builder_init_for(struct builder *b, const struct grammar_options *options, struct error *err)
{
    builder_init(b, (uint32_t)max_of(options->max_spaces, 0));
    b->closes_objects = options->closes_objects;
    if (!options->whitespace_pattern) return 0;
    b->spaces.count = 0;
    return spaces_of_pattern(&b->spaces, options->whitespace_pattern, err);
}

void builder_deinit(struct builder *b)
{
    for (int i = 0; pools_of(b, i); i++) pool_deinit(pools_of(b, i));
}

int builder_status(const struct builder *b)
{
    for (int i = 0; pools_of((struct builder *)b, i); i++)
        if (pools_of((struct builder *)b, i)->status) return pools_of((struct builder *)b, i)->status;
    return 0;
}

/* ---- states ---- */

uint32_t builder_state(struct builder *b, unsigned flags)
{
    struct state *s = pool_push(&b->states, 1);
    if (!s) return STATE_DEAD;
    *s = (struct state){.flags = (uint8_t)flags};
    return b->states.count - 1;
}

struct state *builder_at(struct builder *b, uint32_t state)
{
    return pool_items(struct state, &b->states) + state;
}

void builder_set_edges(struct builder *b, uint32_t state, const struct byte_edge *edges, uint32_t n)
{
    uint32_t begin = b->edges.count;
    struct byte_edge *own = pool_push(&b->edges, n);
    if (!own || state == STATE_DEAD) return;
    memcpy(own, edges, n * sizeof *edges);
    builder_at(b, state)->edges = begin;
    builder_at(b, state)->num_edges = (uint16_t)n;
}

void builder_set_calls(struct builder *b, uint32_t state, const struct rule_call *calls, uint32_t n)
{
    uint32_t begin = b->calls.count;
    if (n > UINT16_MAX) b->calls.status = STATUS_LIMIT;
    struct rule_call *own = pool_push(&b->calls, n);
    if (!own || state == STATE_DEAD) return;
    memcpy(own, calls, n * sizeof *calls);
    builder_at(b, state)->calls = begin;
    builder_at(b, state)->num_calls = (uint16_t)n;
}

void builder_set_edge(struct builder *b, uint32_t state, uint8_t byte, uint32_t target)
{
    builder_set_edges(b, state, &(struct byte_edge){byte, byte, target}, 1);
}

void builder_set_call(struct builder *b, uint32_t state, uint32_t rule, uint32_t back)
{
    builder_set_calls(b, state, &(struct rule_call){rule, back}, 1);
}

void builder_set_loop(struct builder *b, uint32_t state, struct char_loop loop)
{
    struct char_loop *own = pool_push(&b->loops, 1);
    if (!own || state == STATE_DEAD) return;
    *own = loop;
    builder_at(b, state)->loop = (uint16_t)(b->loops.count - 1);
}

void builder_set_entry(struct builder *b, uint32_t state, struct entry entry)
{
    struct entry *own = pool_push(&b->entries, 1);
    if (!own || state == STATE_DEAD) return;
    *own = entry;
    builder_at(b, state)->entry = b->entries.count - 1;
}

uint32_t builder_final_if(struct builder *b, struct entry entry)
{
    uint32_t s = builder_state(b, STATE_FINAL);
    builder_set_entry(b, s, entry);
    return s;
}

uint32_t builder_rule(struct builder *b)
{
    struct rule *r = pool_push(&b->rules, 1);
    if (!r) return RULE_NEVER;
    *r = (struct rule){.start = STATE_DEAD};
    return b->rules.count - 1;
}

void builder_set_start(struct builder *b, uint32_t rule, uint32_t start)
{
    if (rule != RULE_NEVER) pool_items(struct rule, &b->rules)[rule].start = start;
}

uint32_t builder_text(struct builder *b, const char *text, size_t n, uint32_t next)
{
    while (n-- > 0) {
        uint32_t s = builder_state(b, 0);
        builder_set_edge(b, s, (uint8_t)text[n], next);
        next = s;
    }
    return next;
}

/* ---- automata ---- */

/* Bytes of one class beside each other. */
struct byte_run {
    uint8_t lo, hi, class_;
};

/* The closing byte (-1: none) is a run of its own. */
static int find_runs(const struct dfa *d, int closing, struct byte_run runs[256])
{
    int n = 0;
    for (int byte = 0; byte < 256; byte++) {
        uint8_t own = d->class_of[byte];
        bool goes_on = n > 0 && runs[n - 1].class_ == own && byte != closing && byte - 1 != closing;
        if (goes_on)
            runs[n - 1].hi = (uint8_t)byte;
        else
            runs[n++] = (struct byte_run){(uint8_t)byte, (uint8_t)byte, own};
    }
    return n;
}

/* The runs of a state as edges; the closing byte leads to closed, if that is a state. */
static uint32_t collect_edges(const uint32_t *row, const struct byte_run *runs, int num_runs, uint32_t base,
                              int closing, uint32_t closed, struct byte_edge *edges)
{
    uint32_t n = 0;
    for (int i = 0; i < num_runs; i++) {
        uint32_t target = row[runs[i].class_];
        if (target != DFA_DEAD) target += base;
        if (runs[i].lo == closing && closed) target = closed;
        if (target == STATE_DEAD) continue;
        if (n > 0 && edges[n - 1].target == target && edges[n - 1].hi + 1 == runs[i].lo)
            edges[n - 1].hi = runs[i].hi;
        else
            edges[n++] = (struct byte_edge){runs[i].lo, runs[i].hi, target};
    }
    return n;
}

uint32_t builder_dfa(struct builder *b, const struct dfa *d, int closing, const uint32_t *by_label,
                     uint32_t num_labels)
{
    struct byte_edge edges[256];
    struct byte_run runs[256];
    if (d->start == DFA_DEAD || d->num_states > GRAMMAR_STATES_MAX - b->states.count) {
        if (d->start != DFA_DEAD) b->states.status = STATUS_LIMIT;
        return STATE_DEAD;
    }
    uint32_t base = b->states.count - 1; /* state 1 of the automaton is the first new one */
    int num_runs = find_runs(d, closing, runs);
    for (uint32_t s = 1; s < d->num_states; s++) (void)builder_state(b, 0);
    for (uint32_t s = 1; s < d->num_states && !builder_status(b); s++) {
        uint32_t label = d->labels[s], closed = STATE_DEAD;
        const uint32_t *row = d->next + (size_t)s * d->num_classes;
        if (closing >= 0 && label && label < num_labels) closed = by_label[label];
        if (closing < 0 && label) builder_at(b, base + s)->flags |= STATE_FINAL;
        builder_set_edges(b, base + s, edges,
                          collect_edges(row, runs, num_runs, base, closing, closed, edges));
    }
    if (!builder_status(b)) plain_text_mark(b, base + 1, base + d->num_states);
    return base + d->start;
}

/* ---- finishing: what is derived from the states ---- */

struct finisher {
    struct builder *b;
    struct state *states;
    const struct byte_edge *edges;
    struct rule_call *calls;
    struct rule *rules;
    uint8_t *visits;      /* of rules: 1 being walked, 2 done */
    uint32_t *walked_for; /* of states: the last rule they were walked for, + 1 */
    uint32_t rule;        /* that is being walked */
    uint64_t num_looks;   /* at all states, until nothing changes */
    int depth;
    int status;
};

enum { FINISH_DEPTH_MAX = 4000, FINISH_WORK_MAX = 1 << 27 /* half a second */ };

/* All states are looked at once more; false: rules are nested so deeply that it would take too long. */
static bool look_again(struct finisher *f)
{
    f->num_looks++;
    if (f->num_looks * f->b->states.count > FINISH_WORK_MAX && !f->status) f->status = STATUS_LIMIT;
    return !f->status;
}

/* The k-th state of such a look, from 1 on: once from the last one, once from the first, since what a state waits for may stand on either side. */
static uint32_t looked_at(const struct finisher *f, uint32_t k)
{
    return f->num_looks % 2 ? f->b->states.count - k : k;
}

static int too_deep(const struct finisher *f, struct error *err)
{
    return error_set(err, f->status, "rules are nested too deeply");
}

/* Whether every byte of the range leads on; at the last one, back to self. next: the range behind the first
 * byte. */
static bool range_loops(const struct finisher *f, uint32_t from, uint8_t lo, uint8_t hi, int missing,
                        uint32_t self, uint8_t next_lo, uint8_t next_hi)
{
    const struct state *s = &f->states[from];
    int next = lo;
    for (uint32_t i = 0; i < s->num_edges; i++) {
        const struct byte_edge *e = &f->edges[s->edges + i];
        if (e->hi < lo || e->lo > hi) continue;
        if (e->lo > next) return false;
        next = e->hi + 1;
        if (missing == 0 ? e->target != self
                         : !range_loops(f, e->target, next_lo, next_hi, missing - 1, self, 0x80, 0xBF))
            return false;
    }
    return next > hi;
}

static bool utf8_loops(const struct finisher *f, uint32_t s)
{
    static const struct {
        uint8_t lo, hi, next_lo, next_hi;
        int missing;
    } leads[] = {{0xC2, 0xDF, 0x80, 0xBF, 1}, {0xE0, 0xE0, 0xA0, 0xBF, 2}, {0xE1, 0xEC, 0x80, 0xBF, 2},
                 {0xED, 0xED, 0x80, 0x9F, 2}, {0xEE, 0xEF, 0x80, 0xBF, 2}, {0xF0, 0xF0, 0x90, 0xBF, 3},
                 {0xF1, 0xF3, 0x80, 0xBF, 3}, {0xF4, 0xF4, 0x80, 0x8F, 3}};
    for (size_t i = 0; i < array_length(leads); i++)
        if (!range_loops(f, s, leads[i].lo, leads[i].hi, leads[i].missing, s, leads[i].next_lo,
                         leads[i].next_hi))
            return false;
    return true;
}

static uint32_t find_self_groups(const struct finisher *f, uint32_t number)
{
    const struct state *s = &f->states[number];
    const struct char_loop *loop = pool_items(struct char_loop, &f->b->loops) + s->loop;
    struct byte_set own = {0};
    bool any = false;
    enum entry_kind kind = pool_items(struct entry, &f->b->entries)[s->entry].kind;
    if (kind != ENTRY_NONE && kind != ENTRY_EXTRA && kind != ENTRY_CHARACTER) return 0;
    if (s->loop != NO_LOOP && loop->target == number && s->num_edges <= 1) {
        const struct char_class *c = pool_items(struct char_class, &f->b->classes) + loop->char_class;
        uint32_t groups = c->groups;
        for (uint32_t i = 0; i < s->num_edges; i++) /* edges come before the loop */
            if (f->edges[s->edges].lo < 0x80) groups &= ~(1u << byte_group(f->edges[s->edges].lo));
        return groups;
    }
    for (uint32_t i = 0; i < s->num_edges; i++) {
        const struct byte_edge *e = &f->edges[s->edges + i];
        if (e->target != number || e->lo >= 0x80) continue;
        byte_set_add_range(&own, e->lo, min_of(e->hi, (uint8_t)0x7F));
        any = true;
    }
    if (!any) return 0;
    return byte_groups_inside(&own) | (utf8_loops(f, number) ? 1u << GROUP_UTF8 : 0);
}

static void set_derived_flags(struct finisher *f, uint32_t number)
{
    struct state *s = &f->states[number];
    bool is_bare = s->num_calls == 0 && s->loop == NO_LOOP && !(s->flags & STATE_SPACES);
    if (is_bare && s->num_edges == 0 && s->flags & STATE_FINAL) s->flags |= STATE_BARE_FINAL;
    if (is_bare && s->num_edges == 1 && !(s->flags & STATE_FINAL) &&
        f->edges[s->edges].lo == f->edges[s->edges].hi)
        s->flags |= STATE_LITERAL;
    if (s->num_edges > 0 || s->loop != NO_LOOP) s->self_groups = find_self_groups(f, number);
}

static void walk_rule(struct finisher *f, uint32_t rule);

/* Adds what a text may begin with in a state; returns whether it may also be empty. */
static bool walk_state(struct finisher *f, uint32_t number, struct byte_set *first)
{
    const struct state *s = &f->states[number];
    bool nullable = s->flags & STATE_FINAL;
    if (f->walked_for[number] == f->rule + 1) return false; /* counted already */
    f->walked_for[number] = f->rule + 1;
    if (f->status || ++f->depth > FINISH_DEPTH_MAX) {
        if (!f->status) f->status = STATUS_LIMIT;
        return false;
    }
    for (uint32_t i = 0; i < s->num_edges; i++) {
        const struct byte_edge *e = &f->edges[s->edges + i];
        if (e->target != STATE_DEAD) byte_set_add_range(first, e->lo, e->hi);
    }
    if (s->loop != NO_LOOP) {
        const struct char_class *c = pool_items(struct char_class, &f->b->classes) +
                                     pool_items(struct char_loop, &f->b->loops)[s->loop].char_class;
        byte_set_add_all(first, &c->single);
        byte_set_add_all(first, &c->lead);
    }
    if (s->flags & STATE_SPACES) spaces_add_first(pool_items(struct space_state, &f->b->spaces), first);
    for (uint32_t i = 0; i < s->num_calls && !f->status; i++) {
        const struct rule_call *call = &f->calls[s->calls + i];
        walk_rule(f, call->rule);
        byte_set_add_all(first, &f->rules[call->rule].first);
        if (f->rules[call->rule].nullable && walk_state(f, call->back, first)) nullable = true;
    }
    f->depth--;
    return nullable;
}

static void walk_rule(struct finisher *f, uint32_t number)
{
    struct rule *r = &f->rules[number];
    if (f->visits[number] == 2) return;
    if (f->visits[number] == 1) { /* it reaches itself before it takes a byte */
        if (!f->status) f->status = STATUS_INVALID;
        return;
    }
    uint32_t outer = f->rule;
    f->rule = number;
    f->visits[number] = 1;
    r->nullable = walk_state(f, r->start, &r->first);
    f->visits[number] = 2;
    f->rule = outer;
}

/* ---- finishing: only what can be finished may be begun ---- */

static bool is_live(const struct finisher *f, const uint8_t *live, const struct state *s)
{
    const struct entry *entry = pool_items(struct entry, &f->b->entries) + s->entry;
    if (entry->kind == ENTRY_CLOSE) { /* what an object requires must be possible */
        const struct key_table *t = pool_items(struct key_table, &f->b->objects) + entry->object;
        const uint32_t *values = pool_items(uint32_t, &f->b->keys) + t->values;
        for (uint32_t i = 0; i < t->num_values; i++)
            if (!live[f->rules[values[i]].start]) return false;
    }
    if (s->flags & STATE_FINAL) return true;
    for (uint32_t i = 0; i < s->num_edges; i++)
        if (live[f->edges[s->edges + i].target]) return true;
    for (uint32_t i = 0; i < s->num_calls; i++) {
        const struct rule_call *call = &f->calls[s->calls + i];
        if (live[f->rules[call->rule].start] && live[call->back]) return true;
    }
    return s->loop != NO_LOOP && live[pool_items(struct char_loop, &f->b->loops)[s->loop].target];
}

static bool find_live(struct finisher *f, uint8_t *live)
{
    uint32_t num_states = f->b->states.count, num_live = 1; /* the dead state is not counted as missing */
    for (bool changed = true; changed && look_again(f);) {
        changed = false;
        for (uint32_t k = 1; k < num_states; k++) {
            /* The states of a rule stand side by side: what has just been looked at may have waited for this one. */
            for (uint32_t back = k; back > 0; back--) {
                const uint32_t i = looked_at(f, back);
                if (live[i] || !is_live(f, live, &f->states[i])) break;
                live[i] = 1;
                num_live++;
                changed = true;
            }
        }
    }
    return num_live == num_states;
}

static void prune(struct finisher *f, const uint8_t *live)
{
    struct byte_edge *edges = f->b->edges.items;
    for (uint32_t i = 0; i < f->b->edges.count; i++)
        if (!live[edges[i].target]) edges[i].target = STATE_DEAD;
    for (uint32_t i = 0; i < f->b->calls.count; i++)
        if (!live[f->rules[f->calls[i].rule].start] || !live[f->calls[i].back]) f->calls[i].rule = RULE_NEVER;
}

static int check_live(struct finisher *f, uint32_t start_rule, bool prunes, struct error *err)
{
    uint8_t *live = calloc(f->b->states.count, 1);
    if (!live) return error_set(err, STATUS_NO_MEMORY, "no memory for a grammar");
    bool all = find_live(f, live);
    if (!all && prunes && !f->status) prune(f, live);
    bool start = live[f->rules[start_rule].start];
    free(live);
    if (f->status) return too_deep(f, err);
    if (start && (all || prunes)) return 0;
    return error_set(err, STATUS_INVALID,
                     start ? "a part of the schema needs itself and can never be finished"
                           : "nothing can match the grammar: it never comes to an end");
}

/* Marks the states that a rule may return from without another byte. */
static void mark_returns(struct finisher *f)
{
    for (bool changed = true; changed && look_again(f);) {
        changed = false;
        for (uint32_t n = 1; n < f->b->states.count; n++) {
            struct state *s = &f->states[looked_at(f, n)];
            bool returns = s->flags & STATE_FINAL;
            for (uint32_t k = 0; k < s->num_calls && !returns; k++) {
                const struct rule_call *call = &f->calls[s->calls + k];
                unsigned behind = f->states[call->back].flags;
                returns = f->rules[call->rule].nullable && behind & (STATE_RETURNS | STATE_FINAL);
            }
            if (!returns || s->flags & STATE_RETURNS) continue;
            s->flags |= STATE_RETURNS;
            changed = changed || !(s->flags & STATE_FINAL);
        }
    }
}

static int derive(struct finisher *f, struct error *err)
{
    for (uint32_t i = 1; i < f->b->states.count; i++) set_derived_flags(f, i);
    for (uint32_t i = 0; i < f->b->rules.count && !f->status; i++) {
        f->depth = 0;
        walk_rule(f, i);
    }
    mark_returns(f);
    if (f->status == STATUS_INVALID)
        return error_set(err, STATUS_INVALID,
                         "a rule is left-recursive: it refers to itself before any text");
    return f->status ? too_deep(f, err) : 0;
}

/* ---- finishing: no more alternatives than are followed ---- */

/* The byte that most calls of a state may begin with. */
static uint8_t commonest_first(const struct grammar *g, const struct state *s)
{
    uint32_t counts[256] = {0};
    int most = 0;
    for (uint32_t i = 0; i < s->num_calls; i++)
        for (int byte = 0; byte < 256; byte++)
            counts[byte] += byte_set_has(&g->rules[g->calls[s->calls + i].rule].first, (unsigned)byte);
    for (int byte = 1; byte < 256; byte++)
        if (counts[byte] > counts[most]) most = byte;
    return (uint8_t)most;
}

/* Looks at the first states with many calls alone: what others lead to shows when an answer comes there. */
static int check_alternatives(const struct grammar *g, struct error *err)
{
    enum { CALLS_MANY = THREADS_MAX / 4, CALLS_LOOKED_AT = 16384 };
    struct frames frames;
    uint32_t num_calls = 0;
    bool fits = true;
    if (!frames_init(&frames)) return error_set(err, STATUS_NO_MEMORY, "no memory for a grammar");
    for (uint32_t i = 1; i < g->num_states && fits && num_calls < CALLS_LOOKED_AT; i++) {
        const struct state *s = &g->states[i];
        struct thread from = {.state = i, .stack = STACK_BOTTOM}, out[THREADS_MAX];
        if (s->num_calls < CALLS_MANY) continue;
        num_calls += s->num_calls;
        frames.count = 1;
        fits = step_threads(g, &frames, &from, 1, commonest_first(g, s), out) >= 0;
    }
    frames_deinit(&frames);
    if (fits) return 0;
    return error_set(err, STATUS_LIMIT, "more than %d alternatives begin alike", (int)THREADS_MAX);
}

static void *take(struct pool *p)
{
    void *items = p->items;
    *p = (struct pool){.item_bytes = p->item_bytes, .max = p->max};
    return items;
}

static struct grammar *hand_over(struct builder *b, uint32_t start_rule)
{
    struct grammar *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->num_bytes = sizeof *g;
    for (int i = 0; pools_of(b, i); i++)
        g->num_bytes += (size_t)pools_of(b, i)->capacity * pools_of(b, i)->item_bytes;
    g->num_states = b->states.count;
    g->num_rules = b->rules.count;
    g->start = pool_items(struct rule, &b->rules)[start_rule].start;
    g->states = take(&b->states);
    g->edges = take(&b->edges);
    g->calls = take(&b->calls);
    g->loops = take(&b->loops);
    g->classes = take(&b->classes);
    g->entries = take(&b->entries);
    g->objects = take(&b->objects);
    g->keys = take(&b->keys);
    g->rules = take(&b->rules);
    g->spaces = take(&b->spaces);
    for (uint32_t i = 0; i < g->num_states; i++) g->has_unique |= (g->states[i].flags & STATE_UNIQUE) != 0;
    return g;
}

int builder_finish(struct builder *b, uint32_t start_rule, bool prunes, struct grammar **out,
                   struct error *err)
{
    int status = builder_status(b);
    if (status)
        return error_set(err, status,
                         status == STATUS_LIMIT ? "the grammar is too large" : "no memory for a grammar");
    struct finisher f = {.b = b,
                         .states = b->states.items,
                         .edges = b->edges.items,
                         .calls = b->calls.items,
                         .rules = b->rules.items,
                         .visits = calloc(b->rules.count, 1),
                         .walked_for = calloc(b->states.count, sizeof *f.walked_for)};
    if (!f.visits || !f.walked_for) {
        status = error_set(err, STATUS_NO_MEMORY, "no memory for a grammar");
    } else {
        if (b->is_recursive) status = check_live(&f, start_rule, prunes, err);
        if (status == 0) status = derive(&f, err);
    }
    free(f.visits);
    free(f.walked_for);
    if (status) return status;
    *out = hand_over(b, start_rule);
    if (!*out) return error_set(err, STATUS_NO_MEMORY, "no memory for a grammar");
    status = check_alternatives(*out, err);
    if (status == 0) return 0;
    grammar_free(*out);
    *out = NULL;
    return status;
}
