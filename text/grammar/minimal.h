/* minimal.h - the smallest automaton that accepts the same texts: states that none tells apart become one (Hopcroft's
 * algorithm). */
#ifndef TEXT_GRAMMAR_MINIMAL_H
#define TEXT_GRAMMAR_MINIMAL_H

#include "text/grammar/dfa.h"

/* d is trimmed (dfa_trim) and its labels are 0 and 1; the order of the states that stay does not change. Time: states times
 * classes times the logarithm of states. STATUS_NO_MEMORY: d is as it was. */
int dfa_minimize(struct dfa *d) must_check;

#endif
