#include "text/grammar/counted_text.h"

#include <stdlib.h>

#include "base/check.h"

/* Passes over the states until distances are final; what is longer than need be refuses texts near the limit. */
enum { PASSES_MAX = 64, FAR = 1 << 30 };

/* Where a state stands; behind IN_UTF8 and IN_HEX so many further bytes less one. */
enum phase { UNKNOWN, BETWEEN, IN_ESCAPE, IN_UTF8, IN_HEX = IN_UTF8 + 3 };

struct counted {
    struct builder *b;
    const struct dfa *d;
    uint8_t *phases;     /* of the automaton's states */
    uint32_t *distances; /* the fewest characters to an accepting state that begin behind this one; within a
                            character that one, too */
    uint32_t *work;
    uint32_t min, max, farthest;
};

static uint8_t phase_behind(uint8_t phase, uint8_t byte)
{
    if (phase == IN_ESCAPE) return byte == 'u' ? IN_HEX + 3 : BETWEEN;
    if (phase == IN_UTF8 || phase == IN_HEX) return BETWEEN;
    if (phase != BETWEEN) return phase - 1;
    if (byte == '\\') return IN_ESCAPE;
    if (byte < 0x80) return BETWEEN;
    return byte < 0xE0 ? IN_UTF8 : byte < 0xF0 ? IN_UTF8 + 1 : IN_UTF8 + 2;
}

/* False: a state stands in two places. */
static bool find_phases(struct counted *k)
{
    uint32_t num_work = 0;
    k->phases[k->d->start] = BETWEEN;
    k->work[num_work++] = k->d->start;
    while (num_work > 0) {
        uint32_t from = k->work[--num_work];
        for (unsigned byte = 0; byte < 256; byte++) {
            uint32_t target = dfa_step(k->d, from, (uint8_t)byte);
            uint8_t phase = phase_behind(k->phases[from], (uint8_t)byte);
            if (target == DFA_DEAD || k->phases[target] == phase) continue;
            if (k->phases[target] != UNKNOWN) return false;
            k->phases[target] = phase;
            k->work[num_work++] = target;
        }
    }
    return true;
}

static uint32_t distance_behind(const struct counted *k, uint32_t state)
{
    const uint32_t *row = k->d->next + (size_t)state * k->d->num_classes;
    uint32_t least = k->distances[state];
    for (uint32_t c = 0; c < k->d->num_classes; c++) {
        bool ends_character = k->phases[row[c]] == BETWEEN;
        if (row[c] != DFA_DEAD) least = min_of(least, k->distances[row[c]] + ends_character);
    }
    return least;
}

static void find_distances(struct counted *k)
{
    bool changed = true;
    for (uint32_t s = 0; s < k->d->num_states; s++) k->distances[s] = k->d->labels[s] ? 0 : FAR;
    for (int pass = 0; changed && pass < PASSES_MAX; pass++) {
        changed = false;
        for (uint32_t s = k->d->num_states; s-- > 1;) {
            uint32_t least = distance_behind(k, s);
            changed |= least != k->distances[s];
            k->distances[s] = least;
        }
    }
    for (uint32_t s = 1; s < k->d->num_states; s++) k->farthest = max_of(k->farthest, k->distances[s]);
}

/* Whether each state is followed by some: all can end a text, so none runs into a dead end. */
static bool are_endless(const struct counted *k)
{
    for (uint32_t s = 1; s < k->d->num_states; s++) {
        const uint32_t *row = k->d->next + (size_t)s * k->d->num_classes;
        uint32_t c = 0;
        while (c < k->d->num_classes && row[c] == DFA_DEAD) c++;
        if (c == k->d->num_classes) return false;
    }
    return true;
}

/* Whether whatever is shorter than min can go on to min to max characters. From any state of an endless automaton a circle is
 * reached, and the end from there, within two characters a state; each time round adds one a state at most. */
static bool reaches_min(const struct counted *k)
{
    uint32_t num_between = 0;
    for (uint32_t s = 1; s < k->d->num_states; s++) num_between += k->phases[s] == BETWEEN;
    return are_endless(k) && (k->max == NO_LIMIT || (k->max >= k->min && k->max - k->min >= 2 * num_between));
}

/* The counter has the characters that are whole: behind one it has that one, too. */
static struct entry entry_of(const struct counted *k, uint32_t state)
{
    uint32_t room = k->max - min_of(k->max, k->distances[state]), free = k->max - min_of(k->max, k->farthest);
    bool fits = k->distances[state] <= k->max;
    if (k->phases[state] == BETWEEN)
        return (struct entry){.kind = ENTRY_CHARACTER, .a = room, .b = free, .end = k->min};
    room = min_of(room, NO_LIMIT - 1);
    return (struct entry){.kind = ENTRY_WITHIN, .a = fits ? room + 1 : 0, .b = free, .end = k->min};
}

static uint32_t add_states(struct counted *k)
{
    const struct entry enough = {.kind = ENTRY_AT_LEAST, .a = k->min};
    const uint32_t exits[] = {STATE_DEAD, k->min > 0 ? builder_final_if(k->b, enough) : BUILDER_FINAL};
    uint32_t first = builder_dfa(k->b, k->d, '"', exits, 2), start = builder_state(k->b, 0);
    if (builder_status(k->b)) return STATE_DEAD;
    uint32_t base = first - k->d->start;
    builder_at(k->b, start)->edges = builder_at(k->b, first)->edges;
    builder_at(k->b, start)->num_edges = builder_at(k->b, first)->num_edges;
    for (uint32_t s = 1; s < k->d->num_states; s++) builder_set_entry(k->b, base + s, entry_of(k, s));
    return start;
}

bool counted_text_state(struct builder *b, const struct dfa *d, uint32_t min, uint32_t max, uint32_t *state)
{
    struct counted k = {.b = b,
                        .d = d,
                        .phases = calloc(d->num_states, 1),
                        .distances = calloc(d->num_states, sizeof *k.distances),
                        .work = calloc(d->num_states, sizeof *k.work),
                        .min = min,
                        .max = max};
    bool ok = true;
    *state = STATE_DEAD;
    if (!k.phases || !k.distances || !k.work) {
        b->states.status = STATUS_NO_MEMORY;
    } else if (d->start != DFA_DEAD) {
        ok = find_phases(&k) && (min == 0 || reaches_min(&k));
        if (ok) find_distances(&k);
        if (ok && k.distances[d->start] <= max) *state = add_states(&k);
    }
    free(k.phases);
    free(k.distances);
    free(k.work);
    return ok;
}
