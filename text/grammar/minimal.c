#include "text/grammar/minimal.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Blocks of states that nothing has told apart yet: each is a range of states[], its marked ones first. */
struct partition {
    const struct dfa *d;
    uint32_t *states, *places; /* places[s]: where s stands in states */
    uint32_t *blocks;          /* by state */
    uint32_t *begins, *ends, *num_marked;
    uint32_t num_blocks;
    uint32_t *first, *sources; /* by class and target: the states that lead there */
    uint32_t *waiting, num_waiting, *touched, num_touched, *splitter;
};

static void find_sources(struct partition *p)
{
    const uint32_t n = p->d->num_states, k = p->d->num_classes, num_edges = n * k;
    for (uint32_t e = 0; e < num_edges; e++) p->first[e % k * n + p->d->next[e] + 1]++;
    for (uint32_t i = 0; i < num_edges; i++) p->first[i + 1] += p->first[i];
    for (uint32_t e = num_edges; e-- > 0;) p->sources[--p->first[e % k * n + p->d->next[e] + 1]] = e / k;
    /* Each first[i + 1] now is where the list of i begins. */
    memmove(p->first, p->first + 1, num_edges * sizeof *p->first);
    p->first[num_edges] = num_edges;
}

static void add_block(struct partition *p, uint32_t begin, uint32_t end)
{
    const uint32_t block = p->num_blocks++;
    p->begins[block] = begin;
    p->ends[block] = end;
    p->num_marked[block] = 0;
    for (uint32_t i = begin; i < end; i++) p->blocks[p->states[i]] = block;
    p->waiting[p->num_waiting++] = block;
}

/* What accepts, and what does not. */
static void begin_partition(struct partition *p)
{
    uint32_t at = 0, num_accepting = 0;
    for (int label = 1; label >= 0; label--) {
        for (uint32_t s = 0; s < p->d->num_states; s++) {
            if ((p->d->labels[s] != 0) != label) continue;
            p->places[s] = at;
            p->states[at++] = s;
        }
        if (label) num_accepting = at;
    }
    if (num_accepting > 0) add_block(p, 0, num_accepting);
    add_block(p, num_accepting, at);
}

static void swap_places(struct partition *p, uint32_t a, uint32_t b)
{
    const uint32_t s = p->states[a], t = p->states[b];
    p->states[a] = t;
    p->states[b] = s;
    p->places[s] = b;
    p->places[t] = a;
}

static void mark(struct partition *p, uint32_t state)
{
    const uint32_t block = p->blocks[state], border = p->begins[block] + p->num_marked[block];
    if (p->places[state] < border) return;
    if (p->num_marked[block]++ == 0) p->touched[p->num_touched++] = block;
    swap_places(p, p->places[state], border);
}

/* The smaller part becomes a block of its own. */
static void split(struct partition *p, uint32_t block)
{
    const uint32_t begin = p->begins[block], end = p->ends[block], border = begin + p->num_marked[block];
    p->num_marked[block] = 0;
    if (border == end) return;
    if (border - begin <= end - border) {
        p->begins[block] = border;
        add_block(p, begin, border);
    } else {
        p->ends[block] = border;
        add_block(p, border, end);
    }
}

static void refine(struct partition *p)
{
    while (p->num_waiting > 0) {
        const uint32_t block = p->waiting[--p->num_waiting], size = p->ends[block] - p->begins[block];
        memcpy(p->splitter, p->states + p->begins[block], size * sizeof *p->splitter);
        for (uint32_t c = 0; c < p->d->num_classes; c++) {
            const uint32_t *first = p->first + (size_t)c * p->d->num_states;
            p->num_touched = 0;
            for (uint32_t i = 0; i < size; i++)
                for (uint32_t k = first[p->splitter[i]]; k < first[p->splitter[i] + 1]; k++)
                    mark(p, p->sources[k]);
            for (uint32_t i = 0; i < p->num_touched; i++) split(p, p->touched[i]);
        }
    }
}

/* A block becomes its first state; the dead one is its own. */
static void join(const struct partition *p, struct dfa *d)
{
    uint32_t *number = p->touched, count = 0; /* by block, + 1 */
    memset(number, 0, d->num_states * sizeof *number);
    for (uint32_t s = 0; s < d->num_states; s++)
        if (number[p->blocks[s]] == 0) number[p->blocks[s]] = ++count;
    count = 0;
    for (uint32_t s = 0; s < d->num_states; s++) {
        if (number[p->blocks[s]] != count + 1) continue;
        for (uint32_t c = 0; c < d->num_classes; c++)
            d->next[(size_t)count * d->num_classes + c] =
                number[p->blocks[d->next[(size_t)s * d->num_classes + c]]] - 1;
        d->labels[count++] = d->labels[s];
    }
    d->start = number[p->blocks[d->start]] - 1;
    d->num_states = count;
}

int dfa_minimize(struct dfa *d)
{
    const size_t n = d->num_states, num_edges = n * d->num_classes;
    uint32_t *memory = calloc(10 * n + 2 * num_edges + 1, sizeof *memory);
    if (!memory) return STATUS_NO_MEMORY;
    struct partition p = {.d = d, .states = memory};
    p.places = p.states + n;
    p.blocks = p.places + n;
    p.begins = p.blocks + n;
    p.ends = p.begins + n;
    p.num_marked = p.ends + n;
    p.waiting = p.num_marked + n;
    p.touched = p.waiting + n;
    p.splitter = p.touched + n;
    p.sources = p.splitter + n;
    p.first = p.sources + num_edges;
    find_sources(&p);
    begin_partition(&p);
    refine(&p);
    join(&p, d);
    free(memory);
    return 0;
}
