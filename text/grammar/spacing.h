/* spacing.h - where an answer in JSON puts white space: behind what opens, a comma and a colon, and before what closes. It is
 * learned from the text as it comes; at first one space is expected behind a comma and a colon, and of a line two for each level.
 *
 * For guesses alone: of a text that is no JSON it says what does not come true. Plain data. Thread: one user at a time. */
#ifndef TEXT_GRAMMAR_SPACING_H
#define TEXT_GRAMMAR_SPACING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum space_place { BEHIND_OPENING, BEHIND_COMMA, BEHIND_COLON, BEFORE_CLOSING, SPACE_PLACES };

/* A line's end and as much as the depth asks for, or so many spaces. */
struct space_habit {
    bool breaks;
    int32_t num_spaces;
};

struct spacing {
    struct space_habit habits[SPACE_PLACES];
    int32_t width; /* spaces of a line's begin, for each level of depth */
    int32_t depth;
    bool in_string, is_escaped;
    uint8_t last; /* the last byte that is no white space, */
    bool broken;  /* and what has stood behind it: a line's end, */
    int32_t num_spaces;
};

void spacing_init(struct spacing *s);
void spacing_take(struct spacing *s, const char *bytes, size_t num_bytes);

/* The white space that is expected to come next, where next may come instead; 0: none is. next: the only byte that may, 0
 * where there are several. */
uint8_t spacing_next(const struct spacing *s, uint8_t next);

#endif
