#include "text/grammar/symbol_dfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/grammar/code_points.h"
#include "text/grammar/dfa.h"
#include "text/grammar/minimal.h"
#include "text/grammar/nfa.h"
#include "text/grammar/subsets.h"
#include "text/grammar/tuple_set.h"

enum { CUTS_MAX = 1 << 16, MINIMIZED_FROM = 500, MINIMIZED_EDGES_MAX = 1 << 20 };

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

static uint8_t *make_set_table(const struct regex_tree *tree, const struct symbol_dfa *d)
{
    uint8_t *table = calloc((size_t)tree->sets.count * d->num_symbols + 1, 1);
    for (uint32_t s = 0; table && s < tree->sets.count; s++)
        for (uint32_t i = 0; i < d->num_cuts; i++)
            if (code_points_has(pool_items(struct pool, &tree->sets) + s, d->cuts[i]))
                table[s * d->num_symbols + d->symbols[i]] = 1;
    return table;
}

/* What no text that matches passes through, or passes through twice, would be spelled out in bytes for nothing. */
static int trim(struct symbol_dfa *d)
{
    struct dfa view = {.num_classes = d->num_symbols,
                       .num_states = d->num_states,
                       .start = d->start,
                       .next = d->next,
                       .labels = d->accepts};
    int status = dfa_trim(&view);
    bool is_large = view.num_states > MINIMIZED_FROM &&
                    (uint64_t)view.num_states * view.num_classes <= MINIMIZED_EDGES_MAX;
    if (status == 0 && is_large) status = dfa_minimize(&view);
    d->num_states = view.num_states;
    d->start = view.start;
    return status;
}

int symbol_dfa_make(const struct regex_tree *tree, uint32_t node, bool whole, uint32_t *work_left,
                    struct symbol_dfa *out)
{
    struct nfa nfa;
    uint8_t *set_has = NULL;
    *out = (struct symbol_dfa){0};
    int status = nfa_make(tree, node, whole, &nfa);
    if (status == 0) status = find_cuts(tree, out);
    if (status == 0) status = find_symbols(tree, out);
    if (status == 0) set_has = make_set_table(tree, out);
    if (status == 0) status = set_has ? subsets_explore(&nfa, set_has, work_left, out) : STATUS_NO_MEMORY;
    free(set_has);
    nfa_deinit(&nfa);
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
