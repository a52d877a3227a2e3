/* symbol_dfa.h - a regular expression as a deterministic automaton over classes of code points.
 *
 * Code points that no set of the expression tells apart are one symbol. symbols[i] is that of the code points
 * from cuts[i] to cuts[i + 1] - 1. As in dfa.h every state but the dead one can reach one that accepts. Owner: the caller, symbol_dfa_deinit also after a failure. */
#ifndef TEXT_GRAMMAR_SYMBOL_DFA_H
#define TEXT_GRAMMAR_SYMBOL_DFA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "text/grammar/regex_tree.h"

struct symbol_dfa {
    uint32_t *cuts; /* num_cuts, the first is 0; what lies behind the last goes to its end */
    uint32_t *symbols;
    uint32_t num_cuts, num_symbols;
    uint32_t num_states, start; /* state 0 is dead */
    uint32_t *next;             /* num_states x num_symbols */
    uint32_t *accepts;          /* num_states */
};

/* Searches for node anywhere in a text, or (whole) lets it match all of it. work_left: subsets.h. */
int symbol_dfa_make(const struct regex_tree *tree, uint32_t node, bool whole, uint32_t *work_left,
                    struct symbol_dfa *out) must_check;
/* Lets only texts of min to max symbols through (max UINT32_MAX: any number); states that are told apart by
 * the number of symbols read so far become several. */
int symbol_dfa_limit(struct symbol_dfa *d, uint32_t min, uint32_t max) must_check;
void symbol_dfa_deinit(struct symbol_dfa *d);

/* The index of the cut that holds a code point. */
uint32_t symbol_dfa_find(const struct symbol_dfa *d, uint32_t code_point);

#endif
