#include "text/grammar/dfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/grammar/pool.h"
#include "text/grammar/tuple_set.h"

void dfa_deinit(struct dfa *d)
{
    free(d->next);
    free(d->labels);
    *d = (struct dfa){0};
}

uint32_t dfa_run(const struct dfa *d, const char *text, size_t num_bytes)
{
    uint32_t state = d->start;
    for (size_t i = 0; i < num_bytes && state; i++) state = dfa_step(d, state, (uint8_t)text[i]);
    return d->labels[state];
}

/* ---- trimming ---- */

/* Marks what reaches a label, over the reversed edges (first and rest are a list of sources by target). */
static void mark_live(const struct dfa *d, const uint32_t *first, const uint32_t *sources, uint8_t *live,
                      uint32_t *work)
{
    uint32_t num_work = 0;
    for (uint32_t s = 1; s < d->num_states; s++) {
        if (!d->labels[s]) continue;
        live[s] = 1;
        work[num_work++] = s;
    }
    while (num_work > 0) {
        uint32_t s = work[--num_work];
        for (uint32_t i = first[s]; i < first[s + 1]; i++) {
            if (live[sources[i]]) continue;
            live[sources[i]] = 1;
            work[num_work++] = sources[i];
        }
    }
}

static void reverse_edges(const struct dfa *d, uint32_t *first, uint32_t *sources)
{
    uint32_t num_edges = d->num_states * d->num_classes;
    for (uint32_t e = 0; e < num_edges; e++) first[d->next[e] + 1]++;
    for (uint32_t s = 0; s < d->num_states; s++) first[s + 1] += first[s];
    for (uint32_t e = num_edges; e-- > 0;) sources[--first[d->next[e] + 1]] = e / d->num_classes;
    /* Each first[s + 1] now is where the list of s begins. */
    memmove(first, first + 1, d->num_states * sizeof *first);
    first[d->num_states] = num_edges;
}

static void renumber(struct dfa *d, const uint8_t *live, uint32_t *number)
{
    uint32_t num_live = 1;
    for (uint32_t s = 1; s < d->num_states; s++) number[s] = live[s] ? num_live++ : DFA_DEAD;
    for (uint32_t s = 1; s < d->num_states; s++) {
        if (!live[s]) continue;
        const uint32_t *from = d->next + (size_t)s * d->num_classes;
        uint32_t *to = d->next + (size_t)number[s] * d->num_classes;
        for (uint32_t c = 0; c < d->num_classes; c++) to[c] = number[from[c]];
        d->labels[number[s]] = d->labels[s];
    }
    d->start = number[d->start];
    d->num_states = num_live;
}

int dfa_trim(struct dfa *d)
{
    size_t num_edges = (size_t)d->num_states * d->num_classes;
    uint32_t *memory = calloc(num_edges + (size_t)d->num_states * 3 + 1, sizeof *memory);
    uint8_t *live = calloc(d->num_states, 1);
    if (!memory || !live) {
        free(memory);
        free(live);
        return STATUS_NO_MEMORY;
    }
    uint32_t *first = memory, *work = first + d->num_states + 1, *number = work + d->num_states;
    uint32_t *sources = number + d->num_states;
    reverse_edges(d, first, sources);
    mark_live(d, first, sources, live, work);
    renumber(d, live, number);
    free(memory);
    free(live);
    return 0;
}

/* ---- product ---- */

/* The coarsest classes that are in no part coarser; each has one byte that stands for it. */
static uint32_t join_classes(const struct dfa *const *parts, int num_parts, uint8_t class_of[256],
                             uint8_t representative[256])
{
    uint32_t num_classes = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t c = 0;
        for (; c < num_classes; c++) {
            int p = 0;
            while (p < num_parts && parts[p]->class_of[byte] == parts[p]->class_of[representative[c]]) p++;
            if (p == num_parts) break;
        }
        if (c == num_classes) representative[num_classes++] = (uint8_t)byte;
        class_of[byte] = (uint8_t)c;
    }
    return num_classes;
}

struct product {
    const struct dfa *const *parts;
    int num_parts;
    struct tuple_set tuples; /* the states of the parts, by the product's state */
    struct pool next, labels;
    uint8_t representative[256];
};

static void expand_product(struct product *p, struct dfa *out, uint32_t state, dfa_label *label,
                           const void *context)
{
    uint32_t from[DFA_PARTS_MAX] = {0}, to[DFA_PARTS_MAX] = {0}, labels[DFA_PARTS_MAX];
    uint32_t last = DFA_DEAD; /* where the class before led, as state and as tuple; many go the same way */
    if (state != DFA_DEAD) memcpy(from, tuple_set_at(&p->tuples, state), (size_t)p->num_parts * sizeof *from);
    for (int i = 0; i < p->num_parts; i++) labels[i] = p->parts[i]->labels[from[i]];
    uint32_t *own = pool_push(&p->labels, 1), *next = pool_push(&p->next, out->num_classes);
    if (!own || !next) return;
    *own = state == DFA_DEAD ? 0 : label(labels, p->num_parts, context);
    for (uint32_t c = 0; c < out->num_classes; c++) {
        bool is_same = c > 0;
        for (int i = 0; i < p->num_parts; i++) {
            uint32_t target = dfa_step(p->parts[i], from[i], p->representative[c]);
            is_same = is_same && target == to[i];
            to[i] = target;
        }
        if (!is_same)
            last = state == DFA_DEAD || to[0] == DFA_DEAD ? DFA_DEAD
                                                          : tuple_set_add(&p->tuples, to, p->num_parts);
        next[c] = last;
    }
}

static int finish_product(struct product *p, struct dfa *out, struct error *err)
{
    int status = p->next.status ? p->next.status : p->labels.status ? p->labels.status : p->tuples.status;
    if (status == 0) {
        out->num_states = p->labels.count;
        out->next = p->next.items;
        out->labels = p->labels.items;
        p->next.items = p->labels.items = NULL;
        status = dfa_trim(out);
    }
    pool_deinit(&p->next);
    pool_deinit(&p->labels);
    tuple_set_deinit(&p->tuples);
    if (status == 0) return 0;
    dfa_deinit(out);
    return error_set(err, status, "the patterns of one value need more than %d states together",
                     DFA_STATES_MAX);
}

int dfa_product(const struct dfa *const *parts, int num_parts, dfa_label *label, const void *context,
                struct dfa *out, struct error *err)
{
    *out = (struct dfa){0};
    if (num_parts > DFA_PARTS_MAX)
        return error_set(err, STATUS_LIMIT, "one value has %d patterns; at most %d are supported", num_parts,
                         DFA_PARTS_MAX);
    struct product p = {.parts = parts, .num_parts = num_parts};
    uint32_t start[DFA_PARTS_MAX] = {0};
    out->num_classes = join_classes(parts, num_parts, out->class_of, p.representative);
    tuple_set_init(&p.tuples, DFA_STATES_MAX);
    pool_init(&p.next, sizeof(uint32_t), DFA_STATES_MAX * out->num_classes);
    pool_init(&p.labels, sizeof(uint32_t), DFA_STATES_MAX);
    (void)tuple_set_add(&p.tuples, start, 0); /* the dead state: no tuple that a step gives has no parts */
    for (int i = 0; i < num_parts; i++) start[i] = parts[i]->start;
    if (start[0] != DFA_DEAD) out->start = tuple_set_add(&p.tuples, start, num_parts);
    for (uint32_t s = 0; s < p.tuples.count && !p.tuples.status; s++)
        expand_product(&p, out, s, label, context);
    return finish_product(&p, out, err);
}
