/* subsets.h - the subset construction: an automaton's states are sets of threads through an expression's.
 *
 * A thread is a state and what it owes: each look-ahead that it passed is a set of threads of its own from there on, which
 * has to match (or must not) what is left of the text. What the text so far ends with is told by a set of threads
 * for each look-behind, beside the others. So look-arounds may stand anywhere and within each other, and cost states only where they tell texts apart.
 * Thread: a pure function. Bounds: SUBSETS_STATES_MAX states, many of which may be alike (minimal.h), and the work. */
#ifndef TEXT_GRAMMAR_SUBSETS_H
#define TEXT_GRAMMAR_SUBSETS_H

#include "base/status.h"
#include "text/grammar/nfa.h"
#include "text/grammar/symbol_dfa.h"

enum { SUBSETS_STATES_MAX = 1 << 14 };

/* Fills next, accepts, num_states and start of d, whose symbols are known; the caller owns them also after a failure.
 * set_has: sets of the expression x symbols. work_left: what several may do together, which is counted down; NULL: it is alone. */
int subsets_explore(const struct nfa *n, const uint8_t *set_has, uint32_t *work_left,
                    struct symbol_dfa *d) must_check;

#endif
