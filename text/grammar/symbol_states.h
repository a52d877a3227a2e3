/* symbol_states.h - an automaton over classes of code points as states of a program: where it goes on in another one behind
 * some characters, these are a class (program.h), and places that have the same characters share it. Over bytes each place
 * would have some 340 states for the letters of all languages. */
#ifndef TEXT_GRAMMAR_SYMBOL_STATES_H
#define TEXT_GRAMMAR_SYMBOL_STATES_H

#include "text/grammar/builder.h"
#include "text/grammar/regex.h"

/* What accepts goes on in end behind the closing byte, or (closing -1) is final itself. *state: in which a text begins,
 * STATE_DEAD where there is none. STATUS_LIMIT: too many classes. */
int symbol_states_make(struct builder *b, const struct symbol_dfa *d, enum regex_text text, int closing,
                       uint32_t end, uint32_t *state) must_check;

/* The states of a pattern: over bytes, or so where those are too many. */
int symbol_states_of_pattern(struct builder *b, const char *pattern, size_t num_bytes,
                             const struct regex_options *options, int closing, uint32_t end, uint32_t *state,
                             struct error *err) must_check;

#endif
