/* counted_text.h - an automaton over the inside of a JSON string whose texts have a limited length, with a counter.
 *
 * A product with all lengths has as many states as both together. Here a state is passed while the counter of its rule leaves
 * room for the fewest characters that a text may still need, so that whatever is begun can be finished. The automaton is one of
 * regex.h's for JSON strings, or a product of such: its states stand between two characters, or within one.
 * Thread: a pure function. */
#ifndef TEXT_GRAMMAR_COUNTED_TEXT_H
#define TEXT_GRAMMAR_COUNTED_TEXT_H

#include "text/grammar/builder.h"

/* Of min to max characters (NO_LIMIT: any number), the closing quote behind them. The counter is 0 where the text begins.
 * state: STATE_DEAD where there is none, or as builder_status says. False: the automaton has texts that are too short and cannot
 * go on, or a state of it stands in two places. */
bool counted_text_state(struct builder *b, const struct dfa *d, uint32_t min, uint32_t max,
                        uint32_t *state) must_check;

#endif
