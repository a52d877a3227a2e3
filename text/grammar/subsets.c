#include "text/grammar/subsets.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/grammar/dfa.h"
#include "text/grammar/tuple_set.h"

enum {
    SETS_MAX = 1 << 16,
    THREADS_MAX = 1 << 16, /* that owe something */
    OWED_MAX = 32,         /* by one thread */
    LEVELS = REGEX_LOOK_DEPTH_MAX + 2,
    WORK_MAX = 1 << 23, /* threads followed: 0.3 s */
    NOBODY = -1,        /* no thread */
    TUPLE_MAX = 2 + REGEX_LOOKS_MAX,
};

/* The first sets: of no thread, which matches nothing, and of one that has matched whatever follows. */
enum { SET_NEVER, SET_ALWAYS };

/* Where in the text: what takes no character may depend on it. */
struct position {
    bool is_begin, is_end;
    uint32_t behind; /* bit i: the text so far ends with look-behind i */
};

/* A set in the making; that of a look-ahead is made while the one that passes it is. */
struct level {
    struct pool marks; /* by thread: the mark of the set that has it */
    uint32_t mark;
    struct pool stack, kept;
};

struct explorer {
    const struct nfa *nfa;
    const uint8_t *set_has;
    struct symbol_dfa *d;
    /* Threads that owe something: state, then twice the number of each set owed, and 1 where it must not match.
     * Those that owe nothing have the numbers of their states, which come first. */
    struct tuple_set threads;
    struct tuple_set sets;   /* of threads, in order */
    struct tuple_set states; /* the set of the search, then those of look-behinds */
    struct level levels[LEVELS];
    struct pool stepped; /* by set: where it goes in this step, see struct stepped */
    uint32_t step, symbol, work, work_max;
    int status;
};

struct stepped {
    uint32_t step, target;
};

static void fail(struct explorer *e, int status)
{
    if (e->status == 0) e->status = status;
}

static int compare_numbers(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t *push(struct explorer *e, struct pool *p)
{
    uint32_t *place = pool_push(p, 1);
    if (!place) fail(e, p->status);
    return place;
}

/* ---- threads ---- */

static bool owes(const struct explorer *e, uint32_t thread)
{
    return thread >= e->nfa->states.count;
}

/* What a thread owes, copied: the list moves. */
static int owed_by(const struct explorer *e, uint32_t thread, uint32_t out[OWED_MAX])
{
    if (!owes(e, thread)) return 0;
    uint32_t id = thread - e->nfa->states.count;
    int n = tuple_set_length(&e->threads, id) - 1;
    memcpy(out, tuple_set_at(&e->threads, id) + 1, (size_t)n * sizeof *out);
    return n;
}

static uint32_t state_of(const struct explorer *e, uint32_t thread)
{
    return owes(e, thread) ? *tuple_set_at(&e->threads, thread - e->nfa->states.count) : thread;
}

static uint32_t make_thread(struct explorer *e, uint32_t state, uint32_t *owed, int n)
{
    uint32_t list[1 + OWED_MAX] = {state};
    int length = 1;
    if (n == 0) return state;
    qsort(owed, (size_t)n, sizeof *owed, compare_numbers);
    for (int i = 0; i < n; i++)
        if (i == 0 || owed[i] != owed[i - 1]) list[length++] = owed[i];
    uint32_t id = tuple_set_add(&e->threads, list, length);
    fail(e, e->threads.status);
    return e->nfa->states.count + id;
}

static uint32_t move_thread(struct explorer *e, uint32_t thread, uint32_t state)
{
    uint32_t owed[OWED_MAX];
    return owes(e, thread) ? make_thread(e, state, owed, owed_by(e, thread, owed)) : state;
}

/* ---- sets ---- */

static bool has_mark(const struct level *l, uint32_t thread)
{
    return thread < l->marks.count && pool_items(uint32_t, &l->marks)[thread] == l->mark;
}

static void begin_set(struct level *l)
{
    l->mark++;
    l->stack.count = l->kept.count = 0;
}

static void add_thread(struct explorer *e, struct level *l, uint32_t thread)
{
    while (l->marks.count <= thread && !e->status) {
        uint32_t *place = push(e, &l->marks);
        if (place) *place = 0;
    }
    if (e->status || has_mark(l, thread)) return;
    pool_items(uint32_t, &l->marks)[thread] = l->mark;
    uint32_t *place = push(e, &l->stack);
    if (place) *place = thread;
    if (++e->work > e->work_max) fail(e, STATUS_LIMIT);
}

/* The set of the threads added, and of those that they lead to without a character. */
static uint32_t close_set(struct explorer *e, int depth, struct position at);

static void pass_look_ahead(struct explorer *e, int depth, uint32_t thread, struct position at)
{
    const struct nfa_state *s = pool_items(struct nfa_state, &e->nfa->states) + state_of(e, thread);
    uint32_t owed[OWED_MAX];
    struct level *inner = &e->levels[depth + 1];
    begin_set(inner);
    add_thread(e, inner, s->b);
    uint32_t set = close_set(e, depth + 1, at);
    if (e->status || set == (s->negative ? SET_ALWAYS : SET_NEVER)) return;
    int n = owed_by(e, thread, owed);
    if (n == OWED_MAX) {
        fail(e, STATUS_LIMIT);
        return;
    }
    if (set != SET_NEVER && set != SET_ALWAYS) owed[n++] = 2 * set + s->negative;
    add_thread(e, &e->levels[depth], make_thread(e, s->a, owed, n));
}

/* Follows a thread that takes no character here. False: it takes one, waits for the end, or has matched. */
static bool follow(struct explorer *e, int depth, uint32_t thread, struct position at)
{
    const struct nfa_state *s = pool_items(struct nfa_state, &e->nfa->states) + state_of(e, thread);
    struct level *l = &e->levels[depth];
    switch (s->kind) {
    case NFA_SPLIT:
        add_thread(e, l, move_thread(e, thread, s->a));
        add_thread(e, l, move_thread(e, thread, s->b));
        return true;
    case NFA_BEGIN:
        if (at.is_begin) add_thread(e, l, move_thread(e, thread, s->a));
        return true;
    case NFA_BEHIND:
        if ((at.behind >> s->b & 1) != s->negative) add_thread(e, l, move_thread(e, thread, s->a));
        return true;
    case NFA_AHEAD:
        pass_look_ahead(e, depth, thread, at);
        return true;
    case NFA_END:
        if (at.is_end) add_thread(e, l, move_thread(e, thread, s->a));
        return at.is_end;
    default:
        return false;
    }
}

/* A thread that owes something is none beside one in its state that owes nothing. */
static void drop_debtors(struct explorer *e, struct level *l)
{
    uint32_t *kept = l->kept.items, n = 0;
    for (uint32_t i = 0; i < l->kept.count; i++)
        if (!owes(e, kept[i]) || !has_mark(l, state_of(e, kept[i]))) kept[n++] = kept[i];
    l->kept.count = n;
}

/* Follows the threads added as far as no character is taken. True: one of them has matched. */
static bool follow_all(struct explorer *e, int depth, struct position at)
{
    struct level *l = &e->levels[depth];
    while (l->stack.count > 0 && !e->status) {
        uint32_t thread = pool_items(uint32_t, &l->stack)[--l->stack.count];
        if (thread == e->nfa->match) return true;
        if (follow(e, depth, thread, at)) continue;
        uint32_t *place = push(e, &l->kept);
        if (place) *place = thread;
    }
    return false;
}

static uint32_t close_set(struct explorer *e, int depth, struct position at)
{
    struct level *l = &e->levels[depth];
    if (follow_all(e, depth, at)) return SET_ALWAYS;
    if (e->threads.count > 0) drop_debtors(e, l);
    if (l->kept.count == 0 || e->status) return SET_NEVER;
    qsort(l->kept.items, l->kept.count, sizeof(uint32_t), compare_numbers);
    uint32_t set = tuple_set_add(&e->sets, l->kept.items, (int)l->kept.count);
    fail(e, e->sets.status);
    return set;
}

/* ---- steps ---- */

static uint32_t step_set(struct explorer *e, uint32_t set, int depth, struct position at);

static uint32_t step_owed(struct explorer *e, uint32_t set, int depth, struct position at)
{
    while (e->stepped.count < e->sets.count && !e->status) {
        struct stepped *fresh = pool_push(&e->stepped, 1);
        if (fresh)
            *fresh = (struct stepped){0};
        else
            fail(e, e->stepped.status);
    }
    if (e->status) return SET_NEVER;
    struct stepped known = pool_items(struct stepped, &e->stepped)[set];
    if (known.step == e->step) return known.target;
    uint32_t target = step_set(e, set, depth, at);
    pool_items(struct stepped, &e->stepped)[set] = (struct stepped){e->step, target};
    return target;
}

/* NOBODY: the thread does not go on. */
static int64_t step_thread(struct explorer *e, uint32_t thread, int depth, struct position at)
{
    const struct nfa_state *s = pool_items(struct nfa_state, &e->nfa->states) + state_of(e, thread);
    uint32_t owed[OWED_MAX], state = s->kind == NFA_MATCH ? state_of(e, thread) : s->a;
    bool takes = s->kind == NFA_ANY || s->kind == NFA_MATCH ||
                 (s->kind == NFA_SET && e->set_has[s->set * e->d->num_symbols + e->symbol]);
    if (!takes) return NOBODY;
    int n = owed_by(e, thread, owed), num_left = 0;
    for (int i = 0; i < n; i++) {
        bool negative = owed[i] & 1;
        uint32_t set = step_owed(e, owed[i] / 2, depth + 1, at);
        if (set == (negative ? SET_ALWAYS : SET_NEVER)) return NOBODY;
        if (set != SET_NEVER && set != SET_ALWAYS) owed[num_left++] = 2 * set + negative;
    }
    return make_thread(e, state, owed, num_left);
}

static void step_threads(struct explorer *e, uint32_t set, int depth, struct position at)
{
    begin_set(&e->levels[depth]);
    for (int i = 0; i < tuple_set_length(&e->sets, set) && !e->status; i++) {
        int64_t thread = step_thread(e, tuple_set_at(&e->sets, set)[i], depth, at);
        if (thread != NOBODY) add_thread(e, &e->levels[depth], (uint32_t)thread);
    }
}

static uint32_t step_set(struct explorer *e, uint32_t set, int depth, struct position at)
{
    if (set <= SET_ALWAYS) return set;
    step_threads(e, set, depth, at);
    return close_set(e, depth, at);
}

/* ---- the automaton ---- */

/* Look-behinds begin at each character anew. from: their sets so far; those of the text's begin are of nobody. */
static void step_behinds(struct explorer *e, const uint32_t *from, uint32_t *to, struct position *at)
{
    for (int i = 0; i < e->nfa->num_behinds; i++) {
        step_threads(e, from[i], 0, *at);
        add_thread(e, &e->levels[0], e->nfa->behinds[i]);
        to[i] = close_set(e, 0, *at);
        if (has_mark(&e->levels[0], e->nfa->found)) at->behind |= 1u << i;
    }
}

static uint32_t behind_bits(const struct explorer *e, const uint32_t *behinds)
{
    uint32_t bits = 0;
    for (int i = 0; i < e->nfa->num_behinds; i++) {
        const uint32_t *threads = tuple_set_at(&e->sets, behinds[i]);
        int n = tuple_set_length(&e->sets, behinds[i]);
        for (int k = 0; k < n; k++)
            if (threads[k] == e->nfa->found) bits |= 1u << i;
    }
    return bits;
}

/* tuple: the set of the search, then those of look-behinds, which no longer matter where that is decided. */
static uint32_t add_state(struct explorer *e, const uint32_t *tuple, int length)
{
    bool is_decided = tuple[0] <= SET_ALWAYS;
    uint32_t state = tuple_set_add(&e->states, tuple, is_decided ? 1 : length);
    fail(e, e->states.status);
    return state;
}

/* Whether the text may end with a set: some thread has matched, and what it owes has turned out as it must. */
static bool ends(struct explorer *e, uint32_t set, int depth, struct position at)
{
    struct level *l = &e->levels[depth];
    uint32_t owed[OWED_MAX];
    if (set <= SET_ALWAYS) return set == SET_ALWAYS;
    begin_set(l);
    for (int i = 0; i < tuple_set_length(&e->sets, set); i++)
        add_thread(e, l, tuple_set_at(&e->sets, set)[i]);
    if (follow_all(e, depth, at)) return true;
    for (uint32_t i = 0; i < l->kept.count && !e->status; i++) {
        uint32_t thread = pool_items(uint32_t, &l->kept)[i];
        bool ok = state_of(e, thread) == e->nfa->match;
        int n = ok ? owed_by(e, thread, owed) : 0;
        for (int k = 0; k < n && ok; k++) ok = ends(e, owed[k] / 2, depth + 1, at) != (owed[k] & 1);
        if (ok) return true;
    }
    return false;
}

/* A state of its own, told by a number more, where it matters that the empty text's end is its begin, too: "$^". */
static uint32_t first_state(struct explorer *e)
{
    uint32_t nothing[REGEX_LOOKS_MAX] = {0}, tuple[TUPLE_MAX] = {0};
    int length = 1 + e->nfa->num_behinds;
    struct position at = {.is_begin = true};
    step_behinds(e, nothing, tuple + 1, &at);
    begin_set(&e->levels[0]);
    add_thread(e, &e->levels[0], e->nfa->start);
    tuple[0] = close_set(e, 0, at);
    const struct position end = {.is_end = true, .behind = at.behind},
                          both = {.is_begin = true, .is_end = true, .behind = at.behind};
    bool matters = ends(e, tuple[0], 0, both) != ends(e, tuple[0], 0, end);
    return add_state(e, tuple, length + matters);
}

static uint32_t step_state(struct explorer *e, const uint32_t *from, uint32_t symbol)
{
    uint32_t tuple[TUPLE_MAX];
    struct position at = {0};
    e->step++;
    e->symbol = symbol;
    step_behinds(e, from + 1, tuple + 1, &at);
    tuple[0] = step_set(e, from[0], 0, at);
    return add_state(e, tuple, 1 + e->nfa->num_behinds);
}

static void expand(struct explorer *e, uint32_t number, struct pool *next, struct pool *labels)
{
    uint32_t from[TUPLE_MAX], *row = pool_push(next, e->d->num_symbols), *label = push(e, labels);
    if (!row || !label) {
        fail(e, next->status);
        return;
    }
    int length = tuple_set_length(&e->states, number);
    memcpy(from, tuple_set_at(&e->states, number), (size_t)length * sizeof *from);
    bool is_decided = from[0] <= SET_ALWAYS;
    const struct position at = {.is_begin = length > 1 + e->nfa->num_behinds,
                                .is_end = true,
                                .behind = is_decided ? 0 : behind_bits(e, from + 1)};
    *label = ends(e, from[0], 0, at);
    for (uint32_t symbol = 0; symbol < e->d->num_symbols && !e->status; symbol++)
        row[symbol] = is_decided ? number : step_state(e, from, symbol);
}

static void explore(struct explorer *e)
{
    struct symbol_dfa *d = e->d;
    struct pool next, labels;
    pool_init(&next, sizeof(uint32_t), 1u << 22);
    pool_init(&labels, sizeof(uint32_t), SUBSETS_STATES_MAX);
    (void)tuple_set_add(&e->sets, NULL, 0);
    (void)tuple_set_add(&e->sets, &e->nfa->match, 1);
    (void)tuple_set_add(&e->states, (const uint32_t[]){SET_NEVER}, 1);
    fail(e, e->sets.status ? e->sets.status : e->states.status);
    if (!e->status) d->start = first_state(e);
    for (uint32_t s = 0; s < e->states.count && !e->status; s++) expand(e, s, &next, &labels);
    d->num_states = e->states.count;
    d->next = next.items;
    d->accepts = labels.items;
}

int subsets_explore(const struct nfa *n, const uint8_t *set_has, uint32_t *work_left, struct symbol_dfa *d)
{
    struct explorer e = {.nfa = n, .set_has = set_has, .d = d, .work_max = WORK_MAX};
    if (work_left) e.work_max = min_of(*work_left, e.work_max);
    tuple_set_init(&e.threads, THREADS_MAX);
    tuple_set_init(&e.sets, SETS_MAX);
    tuple_set_init(&e.states, SUBSETS_STATES_MAX);
    pool_init(&e.stepped, sizeof(struct stepped), SETS_MAX);
    for (int i = 0; i < LEVELS; i++) {
        pool_init(&e.levels[i].marks, sizeof(uint32_t), NFA_STATES_MAX + THREADS_MAX);
        pool_init(&e.levels[i].stack, sizeof(uint32_t), NFA_STATES_MAX + THREADS_MAX);
        pool_init(&e.levels[i].kept, sizeof(uint32_t), NFA_STATES_MAX + THREADS_MAX);
    }
    explore(&e);
    if (work_left) *work_left -= min_of(e.work, *work_left);
    for (int i = 0; i < LEVELS; i++) {
        pool_deinit(&e.levels[i].marks);
        pool_deinit(&e.levels[i].stack);
        pool_deinit(&e.levels[i].kept);
    }
    pool_deinit(&e.stepped);
    tuple_set_deinit(&e.states);
    tuple_set_deinit(&e.sets);
    tuple_set_deinit(&e.threads);
    return e.status;
}
