/* tuple_set.h - gives lists of numbers dense ids: the states of a subset or product construction.
 *
 * The same list gets the same id; ids count up from 0. Failures are sticky, as in pool.h. */
#ifndef TEXT_GRAMMAR_TUPLE_SET_H
#define TEXT_GRAMMAR_TUPLE_SET_H

#include <stddef.h>
#include <stdint.h>

#include "text/grammar/pool.h"

struct tuple_set {
    struct pool numbers; /* all lists, one behind the other */
    struct pool begins;  /* where each begins; one more than there are lists */
    uint32_t *slots;     /* ids + 1; 0: empty */
    uint32_t slot_mask, count, max;
    int status;
};

void tuple_set_init(struct tuple_set *s, uint32_t max);
void tuple_set_deinit(struct tuple_set *s);

/* The id of the list; 0 on failure. */
uint32_t tuple_set_add(struct tuple_set *s, const uint32_t *numbers, int n);

/* Valid until the next addition. */
const uint32_t *tuple_set_at(const struct tuple_set *s, uint32_t id);
int tuple_set_length(const struct tuple_set *s, uint32_t id);

#endif
