#include "text/grammar/symbol_dfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/grammar/code_points.h"
#include "text/grammar/dfa.h"
#include "text/grammar/tuple_set.h"

enum { NFA_STATES_MAX = 1 << 18, CUTS_MAX = 1 << 16 };

/* ---- symbols ---- */

static int compare_numbers(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static int find_cuts(const struct regex_tree *tree, struct symbol_dfa *d)
{
    struct pool cuts;
    pool_init(&cuts, sizeof(uint32_t), CUTS_MAX);
    uint32_t *zero = pool_push(&cuts, 1);
    if (zero) *zero = 0;
    for (uint32_t s = 0; s < tree->sets.count; s++) {
        const struct pool *set = pool_items(struct pool, &tree->sets) + s;
        for (uint32_t i = 0; i < set->count; i++) {
            uint32_t *pair = pool_push(&cuts, 2);
            if (!pair) break;
            pair[0] = pool_items(struct code_point_range, set)[i].lo;
            pair[1] = pool_items(struct code_point_range, set)[i].hi + 1;
        }
    }
    d->cuts = cuts.items;
    if (cuts.status) return cuts.status;
    qsort(d->cuts, cuts.count, sizeof *d->cuts, compare_numbers);
    for (uint32_t i = 0; i < cuts.count; i++)
        if ((i == 0 || d->cuts[i] != d->cuts[d->num_cuts - 1]) && d->cuts[i] <= CODE_POINT_MAX)
            d->cuts[d->num_cuts++] = d->cuts[i];
    return 0;
}

/* Splits every symbol that a set divides. twin[s]: the new symbol of those members of s that the set has. */
static int find_symbols(const struct regex_tree *tree, struct symbol_dfa *d)
{
    d->symbols = calloc(d->num_cuts, sizeof *d->symbols);
    uint32_t *memory = calloc((size_t)d->num_cuts * 3 + 3, sizeof *memory);
    if (!d->symbols || !memory) {
        free(memory);
        return STATUS_NO_MEMORY;
    }
    uint32_t *twin = memory, *total = twin + d->num_cuts + 1, *inside = total + d->num_cuts + 1;
    d->num_symbols = 1;
    total[0] = d->num_cuts;
    for (uint32_t s = 0; s < tree->sets.count; s++) {
        const struct pool *set = pool_items(struct pool, &tree->sets) + s;
        memset(inside, 0, d->num_symbols * sizeof *inside);
        memset(twin, 0, d->num_symbols * sizeof *twin);
        for (uint32_t i = 0; i < d->num_cuts; i++)
            if (code_points_has(set, d->cuts[i])) inside[d->symbols[i]]++;
        uint32_t old = d->num_symbols;
        for (uint32_t i = 0; i < d->num_cuts; i++) {
            uint32_t symbol = d->symbols[i];
            if (symbol >= old || inside[symbol] == total[symbol] || !code_points_has(set, d->cuts[i]))
                continue;
            if (!twin[symbol]) {
                twin[symbol] = d->num_symbols;
                total[d->num_symbols++] = 0;
            }
            d->symbols[i] = twin[symbol];
        }
        for (uint32_t symbol = 0; symbol < old; symbol++) {
            if (!twin[symbol]) continue;
            total[twin[symbol]] = inside[symbol];
            total[symbol] -= inside[symbol];
        }
    }
    free(memory);
    return 0;
}

uint32_t symbol_dfa_find(const struct symbol_dfa *d, uint32_t code_point)
{
    uint32_t lo = 0, hi = d->num_cuts;
    while (hi - lo > 1) {
        uint32_t middle = lo + (hi - lo) / 2;
        if (d->cuts[middle] <= code_point)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

/* ---- Thompson's construction ---- */

enum nfa_kind { NFA_MATCH, NFA_SET, NFA_ANY, NFA_SPLIT, NFA_BEGIN, NFA_END };

struct nfa_state {
    enum nfa_kind kind;
    uint32_t set;  /* NFA_SET */
    uint32_t a, b; /* next; NFA_SPLIT has two */
};

struct builder {
    const struct regex_tree *tree;
    struct pool nfa;
    struct symbol_dfa *d;
    uint8_t *set_has; /* sets x symbols */
    uint32_t *marks, mark, *stack;
    struct pool closure;
    struct tuple_set subsets;
    int status;
};

static uint32_t add_state(struct builder *b, enum nfa_kind kind, uint32_t set, uint32_t next, uint32_t other)
{
    struct nfa_state *s = pool_push(&b->nfa, 1);
    if (!s) {
        b->status = b->nfa.status;
        return 0;
    }
    *s = (struct nfa_state){kind, set, next, other};
    return b->nfa.count - 1;
}

static uint32_t build(struct builder *b, uint32_t node, uint32_t next);

static uint32_t build_repeat(struct builder *b, const struct regex_node *n, uint32_t next)
{
    uint32_t tail = next;
    if (n->max == REGEX_UNBOUNDED) {
        uint32_t loop = add_state(b, NFA_SPLIT, 0, next, next);
        uint32_t body = build(b, n->a, loop);
        if (b->status) return 0;
        pool_items(struct nfa_state, &b->nfa)[loop].a = body;
        tail = loop;
    } else {
        for (int32_t i = n->min; i < n->max && !b->status; i++)
            tail = add_state(b, NFA_SPLIT, 0, build(b, n->a, tail), next);
    }
    for (int32_t i = 0; i < n->min && !b->status; i++) tail = build(b, n->a, tail);
    return tail;
}

/* Depth: groups are nested REGEX_DEPTH_MAX deep at most, but a sequence is a chain to the left. */
static uint32_t build(struct builder *b, uint32_t node, uint32_t next)
{
    const struct regex_node *nodes = b->tree->nodes.items;
    while (!b->status && nodes[node].kind == REGEX_CONCAT) {
        next = build(b, nodes[node].b, next);
        node = nodes[node].a;
    }
    if (b->status) return 0;
    const struct regex_node *n = &nodes[node];
    switch (n->kind) {
    case REGEX_SET:
        return add_state(b, NFA_SET, n->a, next, 0);
    case REGEX_REPEAT:
        return build_repeat(b, n, next);
    case REGEX_BEGIN:
        return add_state(b, NFA_BEGIN, 0, next, 0);
    case REGEX_END:
        return add_state(b, NFA_END, 0, next, 0);
    case REGEX_ALTERNATE: {
        uint32_t second = build(b, n->b, next), tail = second;
        for (node = n->a; nodes[node].kind == REGEX_ALTERNATE && !b->status; node = nodes[node].a)
            tail = add_state(b, NFA_SPLIT, 0, build(b, nodes[node].b, next), tail);
        return add_state(b, NFA_SPLIT, 0, build(b, node, next), tail);
    }
    default:
        return next;
    }
}

/* ---- subsets ---- */

static void push_mark(struct builder *b, uint32_t state, uint32_t *n)
{
    if (b->marks[state] == b->mark) return;
    b->marks[state] = b->mark;
    b->stack[(*n)++] = state;
}

/* Follows what takes no character from the n states on the stack. Keeps in closure what a subset is made of:
 * the states that take one, those that wait for the end, and the match. */
static bool close_subset(struct builder *b, uint32_t n, bool at_begin, bool at_end)
{
    const struct nfa_state *nfa = b->nfa.items;
    bool matched = false;
    b->closure.count = 0;
    while (n > 0) {
        uint32_t s = b->stack[--n];
        if (nfa[s].kind == NFA_SPLIT) {
            push_mark(b, nfa[s].a, &n);
            push_mark(b, nfa[s].b, &n);
        } else if (nfa[s].kind == NFA_BEGIN) {
            if (at_begin) push_mark(b, nfa[s].a, &n);
        } else if (nfa[s].kind == NFA_END && at_end) {
            push_mark(b, nfa[s].a, &n);
        } else {
            matched |= nfa[s].kind == NFA_MATCH;
            uint32_t *kept = pool_push(&b->closure, 1);
            if (kept) *kept = s;
        }
    }
    return matched;
}

/* The dense number of the subset that the closure holds. A match behind which anything may stand is one
 * state. */
static uint32_t add_subset(struct builder *b, bool matched, uint32_t match)
{
    uint32_t *states = b->closure.items;
    if (b->closure.count == 0) return DFA_DEAD;
    if (matched) {
        states[0] = match;
        b->closure.count = 1;
    }
    qsort(states, b->closure.count, sizeof *states, compare_numbers);
    return tuple_set_add(&b->subsets, states, (int)b->closure.count);
}

static bool takes(const struct builder *b, const struct nfa_state *s, uint32_t symbol)
{
    if (s->kind == NFA_SET) return b->set_has[s->set * b->d->num_symbols + symbol];
    return s->kind == NFA_ANY || s->kind == NFA_MATCH;
}

static uint32_t step_subset(struct builder *b, uint32_t subset, uint32_t symbol, uint32_t match)
{
    const struct nfa_state *nfa = b->nfa.items;
    const uint32_t *states = tuple_set_at(&b->subsets, subset);
    int num_states = tuple_set_length(&b->subsets, subset);
    uint32_t n = 0;
    b->mark++;
    for (int i = 0; i < num_states; i++) {
        const struct nfa_state *s = &nfa[states[i]];
        if (takes(b, s, symbol)) push_mark(b, s->kind == NFA_MATCH ? states[i] : s->a, &n);
    }
    bool matched = close_subset(b, n, false, false);
    return add_subset(b, matched, match);
}

static bool accepts(struct builder *b, uint32_t subset)
{
    const uint32_t *states = tuple_set_at(&b->subsets, subset);
    int num_states = tuple_set_length(&b->subsets, subset);
    uint32_t n = 0;
    b->mark++;
    for (int i = 0; i < num_states; i++) push_mark(b, states[i], &n);
    return close_subset(b, n, false, true);
}

static int make_set_table(struct builder *b)
{
    const struct symbol_dfa *d = b->d;
    b->set_has = calloc((size_t)b->tree->sets.count * d->num_symbols + 1, 1);
    if (!b->set_has) return STATUS_NO_MEMORY;
    for (uint32_t s = 0; s < b->tree->sets.count; s++)
        for (uint32_t i = 0; i < d->num_cuts; i++)
            if (code_points_has(pool_items(struct pool, &b->tree->sets) + s, d->cuts[i]))
                b->set_has[s * d->num_symbols + d->symbols[i]] = 1;
    return 0;
}

static uint32_t first_subset(struct builder *b, uint32_t start, uint32_t match)
{
    uint32_t n = 0;
    b->mark++;
    push_mark(b, start, &n);
    bool matched = close_subset(b, n, true, false);
    return add_subset(b, matched, match);
}

static int explore(struct builder *b, uint32_t start, uint32_t match)
{
    struct symbol_dfa *d = b->d;
    struct pool next, labels;
    pool_init(&next, sizeof(uint32_t), 1u << 22);
    pool_init(&labels, sizeof(uint32_t), DFA_STATES_MAX);
    tuple_set_init(&b->subsets, DFA_STATES_MAX);
    (void)tuple_set_add(&b->subsets, NULL, 0); /* the dead state */
    d->start = first_subset(b, start, match);
    for (uint32_t s = 0; s < b->subsets.count && !b->subsets.status; s++) {
        uint32_t *row = pool_push(&next, d->num_symbols);
        uint32_t *label = pool_push(&labels, 1);
        if (!row || !label) break;
        *label = accepts(b, s);
        for (uint32_t symbol = 0; symbol < d->num_symbols; symbol++)
            row[symbol] = step_subset(b, s, symbol, match);
    }
    d->num_states = b->subsets.count;
    d->next = next.items;
    d->accepts = labels.items;
    return next.status ? next.status : labels.status ? labels.status : b->subsets.status;
}

static int make_scratch(struct builder *b)
{
    b->marks = calloc(b->nfa.count, sizeof *b->marks);
    b->stack = malloc((size_t)b->nfa.count * sizeof *b->stack);
    return b->marks && b->stack ? make_set_table(b) : STATUS_NO_MEMORY;
}

static int make_automaton(struct builder *b, uint32_t node, bool whole)
{
    uint32_t match = add_state(b, NFA_MATCH, 0, 0, 0), start;
    if (whole) {
        start = build(b, node, add_state(b, NFA_END, 0, match, 0));
        start = add_state(b, NFA_BEGIN, 0, start, 0);
    } else {
        start = add_state(b, NFA_SPLIT, 0, 0, build(b, node, match));
        uint32_t any = add_state(b, NFA_ANY, 0, start, 0);
        if (!b->status) pool_items(struct nfa_state, &b->nfa)[start].a = any;
    }
    if (b->status) return b->status;
    int status = make_scratch(b);
    return status ? status : explore(b, start, match);
}

static void free_builder(struct builder *b)
{
    pool_deinit(&b->nfa);
    pool_deinit(&b->closure);
    tuple_set_deinit(&b->subsets);
    free(b->set_has);
    free(b->marks);
    free(b->stack);
}

/* What no text that matches passes through would be spelled out in bytes for nothing. */
static int trim(struct symbol_dfa *d)
{
    struct dfa view = {.num_classes = d->num_symbols,
                       .num_states = d->num_states,
                       .start = d->start,
                       .next = d->next,
                       .labels = d->accepts};
    int status = dfa_trim(&view);
    d->num_states = view.num_states;
    d->start = view.start;
    return status;
}

int symbol_dfa_make(const struct regex_tree *tree, uint32_t node, bool whole, struct symbol_dfa *out)
{
    *out = (struct symbol_dfa){0};
    struct builder b = {.tree = tree, .d = out};
    pool_init(&b.nfa, sizeof(struct nfa_state), NFA_STATES_MAX);
    pool_init(&b.closure, sizeof(uint32_t), NFA_STATES_MAX);
    int status = find_cuts(tree, out);
    if (status == 0) status = find_symbols(tree, out);
    if (status == 0) status = make_automaton(&b, node, whole);
    if (b.closure.status) status = b.closure.status;
    free_builder(&b);
    return status ? status : trim(out);
}

/* ---- lengths ---- */

struct counted {
    const struct symbol_dfa *d;
    uint32_t min, max;
    struct tuple_set states; /* state and symbols read; without a max no more than min are counted */
    struct pool next, accepts;
};

static uint32_t counted_step(struct counted *k, const uint32_t from[2], uint32_t symbol)
{
    const uint32_t to[2] = {k->d->next[from[0] * k->d->num_symbols + symbol],
                            k->max == UINT32_MAX ? min_of(from[1] + 1, k->min) : from[1] + 1};
    return to[0] == DFA_DEAD || from[1] == k->max ? DFA_DEAD : tuple_set_add(&k->states, to, 2);
}

static void expand_counted(struct counted *k, uint32_t number)
{
    uint32_t from[2] = {DFA_DEAD}, *row = pool_push(&k->next, k->d->num_symbols);
    uint32_t *accepts = pool_push(&k->accepts, 1);
    if (!row || !accepts) return;
    if (number != DFA_DEAD) memcpy(from, tuple_set_at(&k->states, number), sizeof from);
    *accepts = k->d->accepts[from[0]] && from[1] >= k->min;
    for (uint32_t symbol = 0; symbol < k->d->num_symbols; symbol++)
        row[symbol] = from[0] == DFA_DEAD ? DFA_DEAD : counted_step(k, from, symbol);
}

int symbol_dfa_limit(struct symbol_dfa *d, uint32_t min, uint32_t max)
{
    struct counted k = {.d = d, .min = min, .max = max};
    uint32_t start = DFA_DEAD;
    tuple_set_init(&k.states, DFA_STATES_MAX);
    pool_init(&k.next, sizeof(uint32_t), 1u << 22);
    pool_init(&k.accepts, sizeof(uint32_t), DFA_STATES_MAX);
    (void)tuple_set_add(&k.states, NULL, 0); /* the dead state */
    if (d->start != DFA_DEAD) start = tuple_set_add(&k.states, (const uint32_t[]){d->start, 0}, 2);
    for (uint32_t s = 0; s < k.states.count && !k.states.status && !k.next.status; s++) expand_counted(&k, s);
    int status = k.states.status ? k.states.status : k.next.status ? k.next.status : k.accepts.status;
    free(d->next);
    free(d->accepts);
    d->start = start;
    d->num_states = k.states.count;
    d->next = k.next.items;
    d->accepts = k.accepts.items;
    tuple_set_deinit(&k.states);
    return status ? status : trim(d);
}

void symbol_dfa_deinit(struct symbol_dfa *d)
{
    free(d->cuts);
    free(d->symbols);
    free(d->next);
    free(d->accepts);
    *d = (struct symbol_dfa){0};
}
