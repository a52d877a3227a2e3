/* spaces.h - the white space that may stand between two tokens of JSON, as a small automaton.
 *
 * Every state accepts: a text may go on with what is no white space at any time. State 0 is where nothing has been
 * read. Bounds: SPACE_STATES_MAX states. Thread: immutable once made. */
#ifndef TEXT_GRAMMAR_SPACES_H
#define TEXT_GRAMMAR_SPACES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "text/grammar/byte_set.h"

struct pool;

enum { SPACE_KINDS = 4, SPACE_STATES_MAX = 1 << 13, SPACE_NONE = UINT16_MAX, SPACES_LEFT_MAX = 255 };

struct space_state {
    uint16_t next[SPACE_KINDS]; /* by space_kind; SPACE_NONE: not allowed */
    uint16_t left;              /* so many more, of whatever kind, may follow; SPACES_LEFT_MAX also if more */
};

static inline bool is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

static inline unsigned space_kind(uint8_t byte)
{
    return byte == ' ' ? 0 : byte == '\n' ? 1 : byte == '\t' ? 2 : 3;
}

/* Adds the bytes that lead on from a state. */
static inline void spaces_add_first(const struct space_state *s, struct byte_set *out)
{
    static const uint8_t bytes[SPACE_KINDS] = {' ', '\n', '\t', '\r'};
    for (int k = 0; k < SPACE_KINDS; k++)
        if (s->next[k] != SPACE_NONE) byte_set_add(out, bytes[k]);
}

/* Adds states to a pool of struct space_state, whose status tells of failures: at most max of any kind in a row; what
 * a regular expression (regex.h) of the whole white space allows. That must be white space, and with a text
 * allow each of its beginnings, otherwise STATUS_UNSUPPORTED. */
void spaces_up_to(struct pool *states, uint32_t max);
int spaces_of_pattern(struct pool *states, const char *pattern, struct error *err) must_check;

#endif
