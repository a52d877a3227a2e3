/* plain_text.h - how much plain text (byte_group.h) may follow in the states of an automaton.
 *
 * Sets plain_left of the states base .. end - 1, which have edges alone: so many characters, whatever they are, lead
 * to one of them again. It may be less than is true, never more. Memory that is missing only costs speed. */
#ifndef TEXT_GRAMMAR_PLAIN_TEXT_H
#define TEXT_GRAMMAR_PLAIN_TEXT_H

#include "text/grammar/builder.h"

void plain_text_mark(struct builder *b, uint32_t base, uint32_t end);

#endif
