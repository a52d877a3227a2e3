/* repetition.h - a set of characters so and so many times, [set]{min,max}, as states: one that counts, whatever max is. */
#ifndef TEXT_GRAMMAR_REPETITION_H
#define TEXT_GRAMMAR_REPETITION_H

#include "text/grammar/builder.h"
#include "text/grammar/regex.h"

/* The class of the characters. */
uint16_t repetition_class(struct builder *b, const struct regex_repetition *r);

/* The states of a text that is nothing else; the state in which it begins. STATE_DEAD: no text. */
uint32_t repetition_state(struct builder *b, const struct regex_repetition *r);

#endif
