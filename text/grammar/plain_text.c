#include "text/grammar/plain_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Passes over the states until values are final, or (what a state may be followed by for ever) given up. */
enum { PASSES_MAX = 64, TARGETS_MAX = 1 << 18 };

struct marker {
    const struct state *states;
    const struct byte_edge *edges;
    uint32_t base, num_states;
    struct pool targets; /* numbers of states (from base on) that one plain character leads to */
    uint32_t *first; /* num_states + 1: where the targets of each begin; none: some character leads nowhere */
    uint8_t *left;   /* plain_left */
};

static void add_target(struct marker *m, uint32_t begin, uint32_t target)
{
    const uint32_t *known = m->targets.items;
    for (uint32_t i = begin; i < m->targets.count; i++)
        if (known[i] == target) return;
    uint32_t *own = pool_push(&m->targets, 1);
    if (own) *own = target;
}

/* The characters of plain text, as ranges of their bytes. */
struct byte_ranges {
    uint8_t bytes[4][2];
    int length;
};

static const struct byte_ranges plain_ranges[] = {
    {{{0x20, 0x21}}, 1},
    {{{0x23, 0x5B}}, 1},
    {{{0x5D, 0x7E}}, 1},
    {{{0xC2, 0xDF}, {0x80, 0xBF}}, 2},
    {{{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}}, 3},
    {{{0xE1, 0xE1}, {0x80, 0xBF}, {0x80, 0xBF}}, 3},
    {{{0xE2, 0xE2}, {0x80, 0x80}, {0x80, 0xA7}}, 3}, /* no line separators */
    {{{0xE2, 0xE2}, {0x80, 0x80}, {0xAA, 0xBF}}, 3},
    {{{0xE2, 0xE2}, {0x81, 0xBF}, {0x80, 0xBF}}, 3},
    {{{0xE3, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}}, 3},
    {{{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}}, 3},
    {{{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}}, 3},
    {{{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}, 4},
    {{{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}, 4},
    {{{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}}, 4},
};

/* Whether all characters of the ranges, one for each byte, lead from a state into some of the automaton: these are added
 * behind begin. */
static bool add_range(struct marker *m, uint32_t begin, uint32_t from, const uint8_t (*range)[2], int length)
{
    const struct state *s = &m->states[from];
    uint8_t first = (*range)[0], last = (*range)[1];
    int next = first;
    for (uint32_t k = 0; k < s->num_edges; k++) {
        const struct byte_edge *e = &m->edges[s->edges + k];
        if (e->hi < first || e->lo > last) continue;
        if (e->lo > next || e->target < m->base || e->target >= m->base + m->num_states) return false;
        next = e->hi + 1;
        if (length == 1)
            add_target(m, begin, e->target - m->base);
        else if (!add_range(m, begin, e->target, range + 1, length - 1))
            return false;
    }
    return next > last;
}

static bool add_targets(struct marker *m, uint32_t state)
{
    uint32_t begin = m->targets.count;
    for (size_t i = 0; i < array_length(plain_ranges); i++)
        if (!add_range(m, begin, m->base + state, plain_ranges[i].bytes, plain_ranges[i].length))
            return false;
    return true;
}

static void find_targets(struct marker *m)
{
    for (uint32_t s = 0; s < m->num_states; s++) {
        m->first[s] = m->targets.count;
        if (!add_targets(m, s)) m->targets.count = m->first[s];
    }
    m->first[m->num_states] = m->targets.count;
}

/* What a state may be followed by, given what is known of its targets. */
static uint8_t left_behind(const struct marker *m, uint32_t state)
{
    const uint32_t *targets = m->targets.items;
    uint8_t least = PLAIN_ANY;
    for (uint32_t i = m->first[state]; i < m->first[state + 1]; i++)
        least = min_of(least, m->left[targets[i]]);
    if (m->first[state] == m->first[state + 1]) return 0;
    return least >= PLAIN_ANY - 1 ? least : (uint8_t)(least + 1);
}

/* Assumes any number of all and takes back what is not so, from the end, where the successors are. */
static void find_endless(struct marker *m)
{
    bool changed = true;
    for (uint32_t s = 0; s < m->num_states; s++) m->left[s] = m->first[s] < m->first[s + 1] ? PLAIN_ANY : 0;
    for (int pass = 0; changed && pass < PASSES_MAX; pass++) {
        changed = false;
        for (uint32_t s = m->num_states; s-- > 0;) {
            if (m->left[s] == 0 || left_behind(m, s) == PLAIN_ANY) continue;
            m->left[s] = 0;
            changed = true;
        }
    }
    if (changed) memset(m->left, 0, m->num_states);
}

/* The others from none upwards, so that it may be left at any time. */
static void find_numbers(struct marker *m)
{
    bool changed = true;
    for (int pass = 0; changed && pass < PASSES_MAX; pass++) {
        changed = false;
        for (uint32_t s = m->num_states; s-- > 0;) {
            uint8_t left = m->left[s] == PLAIN_ANY ? PLAIN_ANY : left_behind(m, s);
            changed |= left != m->left[s];
            m->left[s] = left;
        }
    }
}

void plain_text_mark(struct builder *b, uint32_t base, uint32_t end)
{
    uint32_t n = end - base;
    struct marker m = {.states = b->states.items,
                       .edges = b->edges.items,
                       .base = base,
                       .num_states = n,
                       .first = malloc((n + 1) * sizeof *m.first),
                       .left = malloc(n)};
    pool_init(&m.targets, sizeof(uint32_t), TARGETS_MAX);
    if (m.first && m.left) find_targets(&m);
    if (m.first && m.left && !m.targets.status) {
        find_endless(&m);
        find_numbers(&m);
        for (uint32_t s = 0; s < n; s++) builder_at(b, base + s)->plain_left = m.left[s];
    }
    free(m.first);
    free(m.left);
    pool_deinit(&m.targets);
}
