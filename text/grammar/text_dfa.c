#include "text/grammar/text_dfa.h"

#include <stdlib.h>
#include <string.h>

#include "text/grammar/pool.h"
#include "text/grammar/tuple_set.h"

/* Class 0 is what leads nowhere; then one for each byte of the alphabet. */
static void set_classes(struct dfa *d, const char *alphabet)
{
    d->num_classes = 1;
    for (const char *c = alphabet; *c; c++) d->class_of[(unsigned char)*c] = (uint8_t)d->num_classes++;
}

static int finish(struct dfa *out, struct pool *next, struct pool *labels, int status)
{
    if (status == 0) status = next->status ? next->status : labels->status;
    out->num_states = labels->count;
    out->next = next->items;
    out->labels = labels->items;
    if (status == 0) status = dfa_trim(out);
    if (status) dfa_deinit(out);
    return status;
}

int text_dfa_make(const struct text_automaton *a, struct dfa *out)
{
    struct tuple_set states;
    struct pool next, labels;
    *out = (struct dfa){0};
    set_classes(out, a->alphabet);
    tuple_set_init(&states, DFA_STATES_MAX);
    pool_init(&next, sizeof(uint32_t), DFA_STATES_MAX * 256);
    pool_init(&labels, sizeof(uint32_t), DFA_STATES_MAX);
    (void)tuple_set_add(&states, NULL, 0);
    out->start = tuple_set_add(&states, a->start, TEXT_STATE_NUMBERS);
    for (uint32_t s = 0; s < states.count && !states.status; s++) {
        uint32_t *row = pool_push(&next, out->num_classes), *label = pool_push(&labels, 1);
        uint32_t from[TEXT_STATE_NUMBERS] = {0}, to[TEXT_STATE_NUMBERS] = {0};
        if (!row || !label) break;
        memset(row, 0, out->num_classes * sizeof *row);
        *label = 0;
        if (s == 0) continue;
        memcpy(from, tuple_set_at(&states, s), sizeof from);
        *label = a->label(a->context, from);
        for (uint32_t i = 1; i < out->num_classes; i++)
            if (a->step(a->context, from, (uint8_t)a->alphabet[i - 1], to))
                row[i] = tuple_set_add(&states, to, TEXT_STATE_NUMBERS);
    }
    int status = states.status;
    tuple_set_deinit(&states);
    return finish(out, &next, &labels, status);
}

static uint32_t add_state(struct pool *next, struct pool *labels, uint32_t num_classes)
{
    uint32_t *row = pool_push(next, num_classes), *label = pool_push(labels, 1);
    if (!row || !label) return 0;
    memset(row, 0, num_classes * sizeof *row);
    *label = 0;
    return labels->count - 1;
}

/* A class for each byte that occurs. */
static void set_classes_of(struct dfa *d, const char *const *texts, const size_t *num_bytes, int num_texts)
{
    d->num_classes = 1;
    for (int i = 0; i < num_texts; i++)
        for (size_t at = 0; at < num_bytes[i]; at++) {
            uint8_t *class_of = &d->class_of[(unsigned char)texts[i][at]];
            if (*class_of == 0 && d->num_classes < 256) *class_of = (uint8_t)d->num_classes++;
        }
}

int text_dfa_of(const char *const *texts, const size_t *num_bytes, int num_texts, struct dfa *out)
{
    struct pool next, labels;
    *out = (struct dfa){0};
    set_classes_of(out, texts, num_bytes, num_texts);
    pool_init(&next, sizeof(uint32_t), DFA_STATES_MAX * 256);
    pool_init(&labels, sizeof(uint32_t), DFA_STATES_MAX);
    (void)add_state(&next, &labels, out->num_classes);
    out->start = add_state(&next, &labels, out->num_classes);
    for (int i = 0; i < num_texts && !next.status && !labels.status; i++) {
        uint32_t state = out->start;
        for (size_t at = 0; at < num_bytes[i]; at++) {
            uint32_t place = state * out->num_classes + out->class_of[(unsigned char)texts[i][at]];
            if (pool_items(uint32_t, &next)[place] == 0) {
                uint32_t added = add_state(&next, &labels, out->num_classes);
                if (added == 0) break;
                pool_items(uint32_t, &next)[place] = added;
            }
            state = pool_items(uint32_t, &next)[place];
        }
        if (!labels.status && !next.status && !pool_items(uint32_t, &labels)[state])
            pool_items(uint32_t, &labels)[state] = (uint32_t)i + 1;
    }
    return finish(out, &next, &labels, 0);
}
