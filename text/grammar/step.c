#include "text/grammar/step.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/status.h"
#include "text/grammar/unique_text.h"

enum { WORK_MAX = THREADS_MAX };
/* Up to so many threads each is compared with all; of more they are found by a hash. */
enum { THREADS_FEW = 16, SEEN_SLOTS = 4 * THREADS_MAX };

#define HASH_FACTOR 2654435761u /* Knuth's; the upper bits of a product are used */

bool frames_reserve(struct frames *f, uint32_t capacity)
{
    if (capacity <= f->capacity) return true;
    uint32_t more = min_of(max_of(capacity, f->capacity * 2), (uint32_t)FRAMES_MAX);
    struct frame *items = capacity <= FRAMES_MAX ? realloc(f->items, more * sizeof *items) : NULL;
    if (!items) {
        f->status = capacity <= FRAMES_MAX ? STATUS_NO_MEMORY : STATUS_LIMIT;
        return false;
    }
    f->items = items;
    f->capacity = more;
    return true;
}

bool frames_init(struct frames *f)
{
    *f = (struct frames){0};
    if (!frames_reserve(f, 16)) return false;
    f->items[0] = (struct frame){0};
    f->count = 1;
    return true;
}

void frames_deinit(struct frames *f)
{
    free(f->items);
    *f = (struct frames){0};
}

bool step_same_stack(const struct frames *f, uint32_t a, uint32_t b)
{
    while (a != b) {
        const struct frame *x = &f->items[a], *y = &f->items[b];
        if (x->depth != y->depth || x->state != y->state || x->count != y->count) return false;
        a = x->parent;
        b = y->parent;
    }
    return true;
}

static inline const struct frame *read_frame(struct frames *f, uint32_t index)
{
    const struct frame *frame = &f->items[index];
    if (frame->depth < f->touched) f->touched = frame->depth;
    return frame;
}

/* ---- entries ---- */

static uint32_t key_index(uint32_t count)
{
    return count & 0xFFFF;
}

static uint32_t num_taken(uint32_t set)
{
    return (uint32_t)__builtin_popcount(set);
}

static bool may_take_extra(const struct grammar *g, const struct key_table *t, uint32_t count)
{
    if (!t->has_extra || g->keys[t->num_required + key_index(count)] > 0) return false;
    return !t->counts || (count >> 16) < t->max;
}

/* Key (at or behind the index in count) as the next one: no required one is passed over, and enough but not
 * too many can follow. */
static bool may_take_key(const struct grammar *g, const struct key_table *t, uint32_t count, uint32_t key)
{
    uint32_t index = key_index(count), made = (count >> 16) + 1;
    if (t->any_order) return !(count >> key & 1) && num_taken(count) < t->max;
    if (key < index || key > g->keys[t->required + index]) return false;
    if (!t->counts) return true;
    if (t->max != NO_LIMIT && made + g->keys[t->num_required + key + 1] > t->max) return false;
    return t->has_extra || made + (t->num_keys - key - 1) >= t->min;
}

static bool may_take_some(const struct grammar *g, const struct entry *e, uint32_t count)
{
    const struct key_table *t = &g->objects[e->object];
    if (e->kind == ENTRY_KEYS && may_take_extra(g, t, count)) return true;
    for (uint32_t i = e->a; i < e->b; i++)
        if (may_take_key(g, t, count, g->keys[i])) return true;
    return false;
}

static uint32_t count_property(const struct key_table *t, uint32_t count, uint32_t next_index)
{
    uint32_t made = count >> 16;
    if (t->counts && made < 0xFFFF && (t->max != NO_LIMIT || made < t->min)) made++;
    return made << 16 | next_index;
}

static bool may_close(const struct grammar *g, const struct key_table *t, uint32_t count)
{
    if (t->any_order) return num_taken(count) >= t->min;
    return g->keys[t->num_required + key_index(count)] == 0 && (!t->counts || count >> 16 >= t->min);
}

bool step_enter(const struct grammar *g, uint32_t entry, uint32_t *count)
{
    const struct entry *e = &g->entries[entry];
    const struct key_table *t = &g->objects[e->object];
    switch (e->kind) {
    case ENTRY_NONE:
        return true;
    case ENTRY_AT_LEAST:
        return *count >= e->a;
    case ENTRY_BELOW:
        return *count < e->a;
    case ENTRY_COUNT:
        if (*count >= e->a) return false;
        if (*count < e->b) ++*count;
        return true;
    case ENTRY_RESET:
        *count = 0;
        return true;
    case ENTRY_CHARACTER:
        return (*count)++ < e->a;
    case ENTRY_WITHIN:
        return *count < e->a;
    case ENTRY_LISTED:
    case ENTRY_KEYS:
        return may_take_some(g, e, *count);
    case ENTRY_KEY:
        if (!may_take_key(g, t, *count, e->a)) return false;
        *count = t->any_order ? *count | 1u << e->a : count_property(t, *count, e->a + 1);
        return true;
    case ENTRY_EXTRA:
        return may_take_extra(g, t, *count);
    case ENTRY_EXTRA_KEY:
        if (!may_take_extra(g, t, *count)) return false;
        *count = count_property(t, *count, t->num_keys);
        return true;
    case ENTRY_CLOSE:
        return may_close(g, t, *count);
    }
    return false;
}

/* ---- one byte ---- */

struct stepper {
    const struct grammar *g;
    struct frames *frames;
    struct thread *out;
    int n;
    struct thread work[WORK_MAX];
    int num_work;
    bool failed, has_seen;
    uint16_t seen[SEEN_SLOTS]; /* once has_seen: the numbers of out, from 1 on, by what they hold */
};

/* One that holds the same serves as well: of many readings most come back to the same place. */
static uint32_t push_frame(struct stepper *s, uint32_t state, uint32_t count, uint32_t parent)
{
    struct frames *f = s->frames;
    const uint32_t hash = (state + count * 31 + parent * 1009) * HASH_FACTOR;
    uint16_t *recent = &f->recent[(hash >> 16) % RECENT_FRAMES];
    const struct frame *same = &f->items[*recent];
    if (*recent < f->count && same->state == state && same->count == count && same->parent == parent &&
        *recent != STACK_BOTTOM)
        return *recent;
    if (f->count == f->capacity && !frames_reserve(f, f->count + 1)) {
        s->failed = true;
        return STACK_BOTTOM;
    }
    f->items[f->count] = (struct frame){state, count, parent, f->items[parent].depth + 1};
    *recent = (uint16_t)f->count;
    return f->count++;
}

/* Whether the element that ends at end may, when a frame of this state is returned to. */
static bool may_return(const struct stepper *s, uint32_t state, size_t num_behind)
{
    const struct frames *f = s->frames;
    if (!f->text || !(s->g->states[state].flags & STATE_UNIQUE)) return true;
    size_t end = f->text_bytes - num_behind;
    if (num_behind > 0 && unique_text_in_number(f->text[end])) return true; /* leads nowhere */
    return unique_text_is_new(f->text, end);
}

/* ---- threads that are there already ---- */

static bool is_same(const struct stepper *s, const struct thread *a, const struct thread *b)
{
    return a->state == b->state && a->count == b->count && a->spaces == b->spaces &&
           step_same_stack(s->frames, a->stack, b->stack);
}

/* Equal threads may stand on equal frames in different places. */
static uint32_t seen_slot(const struct stepper *s, const struct thread *t)
{
    const struct frame *top = &s->frames->items[t->stack];
    uint32_t hash = t->state * 31 + t->count;
    hash = (hash * 31 + t->spaces) * 31 + top->state;
    hash = (hash * 31 + top->count) * 31 + top->depth;
    return (hash * HASH_FACTOR >> 16) % SEEN_SLOTS;
}

static void keep_seen(struct stepper *s, int number)
{
    uint32_t slot = seen_slot(s, &s->out[number]);
    while (s->seen[slot]) slot = (slot + 1) % SEEN_SLOTS;
    s->seen[slot] = (uint16_t)(number + 1);
}

static bool is_among_few(struct stepper *s, const struct thread *t)
{
    s->frames->work += (uint64_t)s->n + 1;
    for (int i = 0; i < s->n; i++)
        if (is_same(s, &s->out[i], t)) return true;
    return false;
}

static bool is_among_many(struct stepper *s, const struct thread *t)
{
    s->frames->work += THREADS_FEW;
    for (uint32_t slot = seen_slot(s, t); s->seen[slot]; slot = (slot + 1) % SEEN_SLOTS)
        if (is_same(s, &s->out[s->seen[slot] - 1], t)) return true;
    return false;
}

static bool is_there(struct stepper *s, const struct thread *t)
{
    if (s->n < THREADS_FEW) return is_among_few(s, t);
    if (s->n == THREADS_FEW && !s->has_seen) {
        s->has_seen = true;
        memset(s->seen, 0, sizeof s->seen);
        for (int i = 0; i < s->n; i++) keep_seen(s, i);
    }
    return is_among_many(s, t);
}

/* A thread that has passed the entry of its state. */
static void add_entered(struct stepper *s, struct thread t)
{
    const struct state *states = s->g->states;
    while (states[t.state].flags & STATE_BARE_FINAL && t.stack != STACK_BOTTOM) {
        const struct frame *f = read_frame(s->frames, t.stack);
        if (!may_return(s, f->state, 0)) return;
        t = (struct thread){f->state, f->count, f->parent, 0};
    }
    if (states[t.state].flags & STATE_BARE_FINAL) {
        t.count = 0;
        s->frames->touched = 0;
    }
    if (is_there(s, &t)) return;
    if (s->n == THREADS_MAX) {
        s->failed = true;
        return;
    }
    s->out[s->n++] = t;
    if (s->has_seen) keep_seen(s, s->n - 1);
}

static void add_thread(struct stepper *s, struct thread t)
{
    uint32_t entry = s->g->states[t.state].entry;
    if (entry == NO_ENTRY || step_enter(s->g, entry, &t.count)) add_entered(s, t);
}

static void add_work(struct stepper *s, struct thread t)
{
    s->frames->work += (uint64_t)s->num_work + 1;
    for (int i = 0; i < s->num_work; i++) {
        const struct thread *o = &s->work[i];
        if (o->state == t.state && o->count == t.count && step_same_stack(s->frames, o->stack, t.stack))
            return;
    }
    if (s->num_work == WORK_MAX) {
        s->failed = true;
        return;
    }
    s->work[s->num_work++] = t;
}

static const struct byte_edge *find_edge(const struct grammar *g, const struct state *s, uint8_t byte)
{
    const struct byte_edge *e = g->edges + s->edges;
    uint32_t lo = 0, hi = s->num_edges;
    while (hi - lo > 4) {
        uint32_t middle = (lo + hi) / 2;
        if (e[middle].lo <= byte)
            lo = middle;
        else
            hi = middle;
    }
    for (; lo < hi; lo++)
        if (byte >= e[lo].lo && byte <= e[lo].hi) return &e[lo];
    return NULL;
}

static void take_character(struct stepper *s, struct thread t, const struct char_loop *loop, uint8_t byte)
{
    const struct char_class *c = &s->g->classes[loop->char_class];
    if (loop->counts && t.count++ >= loop->max) return;
    if (byte_set_has(&c->single, byte)) {
        add_thread(s, (struct thread){loop->target, t.count, t.stack, 0});
    } else if (byte_set_has(&c->lead, byte)) {
        uint32_t entry = s->g->states[loop->target].entry, count = t.count;
        if (entry != NO_ENTRY && !step_enter(s->g, entry, &count)) return;
        add_work(s, (struct thread){c->more, 0, push_frame(s, loop->target, t.count, t.stack), 0});
    }
}

static void call_rules(struct stepper *s, struct thread t, const struct state *state, uint8_t byte)
{
    for (uint32_t i = 0; i < state->num_calls; i++) {
        const struct rule_call *call = &s->g->calls[state->calls + i];
        const struct rule *rule = &s->g->rules[call->rule];
        if (byte_set_has(&rule->first, byte)) {
            bool is_tail =
                s->g->states[call->back].flags & STATE_BARE_FINAL && !s->g->states[call->back].entry;
            if (!is_tail && s->frames->items[t.stack].depth >= STACK_DEPTH_MAX) continue;
            uint32_t stack = is_tail ? t.stack : push_frame(s, call->back, t.count, t.stack);
            add_work(s, (struct thread){rule->start, 0, stack, 0});
        }
        if (rule->nullable) {
            uint32_t count = t.count, entry = s->g->states[call->back].entry;
            if (entry == NO_ENTRY || step_enter(s->g, entry, &count))
                add_work(s, (struct thread){call->back, count, t.stack, 0});
        }
    }
}

static void step_thread(struct stepper *s, struct thread t, uint8_t byte)
{
    s->num_work = 0;
    s->work[s->num_work++] = t;
    for (int i = 0; i < s->num_work && !s->failed; i++) {
        t = s->work[i];
        const struct state *state = &s->g->states[t.state];
        if (state->flags & STATE_SPACES && is_space(byte)) {
            uint16_t next = s->g->spaces[t.spaces].next[space_kind(byte)];
            if (next != SPACE_NONE) add_entered(s, (struct thread){t.state, t.count, t.stack, next});
            continue;
        }
        const struct byte_edge *e = find_edge(s->g, state, byte);
        if (e) {
            if (e->target != STATE_DEAD) add_thread(s, (struct thread){e->target, t.count, t.stack, 0});
        } else if (state->loop != NO_LOOP) {
            take_character(s, t, &s->g->loops[state->loop], byte);
        }
        if (state->num_calls > 0) call_rules(s, t, state, byte);
        if (state->flags & STATE_FINAL && t.stack == STACK_BOTTOM) {
            s->frames->touched = 0;
        } else if (state->flags & STATE_FINAL) {
            const struct frame *f = read_frame(s->frames, t.stack);
            if (may_return(s, f->state, 1)) add_work(s, (struct thread){f->state, f->count, f->parent, 0});
        }
    }
}

/* One thread whose state has edges and characters only: most bytes of most texts. False: not so simple. */
static inline bool step_simply(const struct grammar *g, const struct thread *t, uint8_t byte,
                               struct thread *out, int *n)
{
    const struct state *s = &g->states[t->state];
    uint32_t target;
    if (s->num_calls > 0 || s->flags & (STATE_FINAL | STATE_SPACES)) return false;
    const struct byte_edge *e = find_edge(g, s, byte);
    *n = 0;
    *out = (struct thread){0, t->count, t->stack, 0};
    if (e) {
        target = e->target;
    } else if (s->loop != NO_LOOP) {
        const struct char_loop *loop = &g->loops[s->loop];
        if (!byte_set_has(&g->classes[loop->char_class].single, byte)) return false;
        if (loop->counts && out->count++ >= loop->max) return true;
        target = loop->target;
    } else {
        return true;
    }
    if (target == STATE_DEAD) return true;
    if (g->states[target].flags & STATE_BARE_FINAL) return false;
    if (g->states[target].entry != NO_ENTRY && !step_enter(g, g->states[target].entry, &out->count))
        return true;
    out->state = target;
    *n = 1;
    return true;
}

int step_threads(const struct grammar *g, struct frames *f, const struct thread *from, int n, uint8_t byte,
                 struct thread *out)
{
    struct stepper s;
    int num_out;
    if (n == 1 && step_simply(g, from, byte, out, &num_out)) return num_out;
    s.g = g;
    s.frames = f;
    s.out = out;
    s.n = 0;
    s.failed = s.has_seen = false;
    for (int i = 0; i < n && !s.failed; i++) step_thread(&s, from[i], byte);
    return s.failed ? -1 : s.n;
}

/* ---- what is possible ---- */

static void add_first(const struct grammar *g, struct frames *f, struct thread t, struct byte_set *out,
                      int depth)
{
    for (;;) {
        const struct state *s = &g->states[t.state];
        for (uint32_t i = 0; i < s->num_edges; i++) {
            const struct byte_edge *e = &g->edges[s->edges + i];
            if (e->target != STATE_DEAD) byte_set_add_range(out, e->lo, e->hi);
        }
        if (s->loop != NO_LOOP) {
            byte_set_add_all(out, &g->classes[g->loops[s->loop].char_class].single);
            byte_set_add_all(out, &g->classes[g->loops[s->loop].char_class].lead);
        }
        if (s->flags & STATE_SPACES) spaces_add_first(&g->spaces[t.spaces], out);
        for (uint32_t i = 0; i < s->num_calls; i++) {
            const struct rule_call *call = &g->calls[s->calls + i];
            byte_set_add_all(out, &g->rules[call->rule].first);
            if (!g->rules[call->rule].nullable) continue;
            if (depth == 0) {
                byte_set_add_range(out, 0, 255);
                return;
            }
            add_first(g, f, (struct thread){call->back, t.count, t.stack, 0}, out, depth - 1);
        }
        if (!(s->flags & STATE_FINAL)) return;
        if (t.stack == STACK_BOTTOM) {
            f->touched = 0;
            return;
        }
        const struct frame *frame = read_frame(f, t.stack);
        t = (struct thread){frame->state, frame->count, frame->parent, 0};
    }
}

void step_first_bytes(const struct grammar *g, struct frames *f, const struct thread *from, int n,
                      struct byte_set *out)
{
    enum { NULLABLE_CALLS = 8 };
    for (int i = 0; i < n; i++) add_first(g, f, from[i], out, NULLABLE_CALLS);
}

bool step_can_end(const struct grammar *g, const struct frames *f, const struct thread *from, int n)
{
    for (int i = 0; i < n; i++) {
        uint32_t state = from[i].state, stack = from[i].stack;
        while (g->states[state].flags & STATE_RETURNS) {
            if (stack == STACK_BOTTOM) return true;
            state = f->items[stack].state;
            stack = f->items[stack].parent;
        }
    }
    return false;
}
