/* bpe_units.h - the tokens of a piece before any merge, as many at a time as there is room for. Thread: any. */
#ifndef TEXT_TOKENIZER_BPE_UNITS_H
#define TEXT_TOKENIZER_BPE_UNITS_H

#include "text/tokenizer/bpe.h"

enum { UNITS_AT_ONCE_MAX = 5 }; /* an unknown token that was put off, and four bytes */

struct unit_cursor {
    const struct bpe *b;
    const struct vocab *v;
    const unsigned char *at, *end;
    bool unknown_pending;
};

struct unit_cursor unit_cursor_start(const struct bpe *b, const struct vocab *v, const char *piece,
                                     size_t num_bytes);

/* Of all units there are at most one more than bytes. */
static inline bool unit_cursor_has_more(const struct unit_cursor *c)
{
    return c->at < c->end || c->unknown_pending;
}

/* Writes the next units, all that are left or more than room - UNITS_AT_ONCE_MAX; returns their number. */
int32_t unit_cursor_fill(struct unit_cursor *c, int32_t *ids, int32_t room);

#endif
