/* dfa.h - deterministic automata over bytes, and what is made of several of them.
 *
 * Every state of a finished automaton can still reach an accepting one (state 0, DFA_DEAD, is the only one
 * that cannot), so whoever follows it never runs into a dead end. Bytes that no state tells apart share a
 * class. Owner: whoever asked for it frees it with dfa_deinit. Bounds: DFA_STATES_MAX states; work is bounded
 * by it too. Thread: immutable once made. */
#ifndef TEXT_GRAMMAR_DFA_H
#define TEXT_GRAMMAR_DFA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { DFA_DEAD = 0, DFA_STATES_MAX = 6000, DFA_PARTS_MAX = 24 };

struct dfa {
    uint8_t class_of[256];
    uint32_t num_classes, num_states, start; /* start is DFA_DEAD when nothing is accepted */
    uint32_t *next;                          /* num_states x num_classes */
    uint32_t *labels;                        /* num_states; 0: does not accept */
};

void dfa_deinit(struct dfa *d);

static inline uint32_t dfa_step(const struct dfa *d, uint32_t state, uint8_t byte)
{
    return d->next[state * d->num_classes + d->class_of[byte]];
}

/* The label of a text, 0 when it is not accepted. */
uint32_t dfa_run(const struct dfa *d, const char *text, size_t num_bytes);

/* What a state of a product accepts, given the labels of its parts (0 where a part does not accept). */
typedef uint32_t dfa_label(const uint32_t *labels, int num_parts, const void *context);

/* Runs the parts beside each other. Part 0 bounds the language: where it is dead, so is the product. */
int dfa_product(const struct dfa *const *parts, int num_parts, dfa_label *label, const void *context,
                struct dfa *out, struct error *err) must_check;

/* Takes away the states that reach no label; the order of the others stays. */
int dfa_trim(struct dfa *d) must_check;

#endif
