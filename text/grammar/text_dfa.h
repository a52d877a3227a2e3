/* text_dfa.h - small automata that are easier to say as a function than as a pattern. */
#ifndef TEXT_GRAMMAR_TEXT_DFA_H
#define TEXT_GRAMMAR_TEXT_DFA_H

#include "text/grammar/dfa.h"

enum { TEXT_STATE_NUMBERS = 4 };

/* A state is four numbers. step writes what follows a byte and says whether there is anything; label is what
 * the state accepts. */
struct text_automaton {
    const char *alphabet; /* the bytes that lead anywhere */
    uint32_t start[TEXT_STATE_NUMBERS];
    bool (*step)(const void *context, const uint32_t *from, uint8_t byte, uint32_t *to);
    uint32_t (*label)(const void *context, const uint32_t *state);
    const void *context;
};

int text_dfa_make(const struct text_automaton *a, struct dfa *out) must_check;

/* Exactly the texts; text i has label i + 1 (the first of equal ones). */
int text_dfa_of(const char *const *texts, const size_t *num_bytes, int num_texts, struct dfa *out) must_check;

#endif
