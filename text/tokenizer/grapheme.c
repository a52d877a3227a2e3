/* All that the rules look back at stands in the cluster itself, so a walk forward from its start keeps it. */
#include "text/tokenizer/grapheme.h"

#include <stdbool.h>
#include <stdint.h>

#include "base/utf8.h"

#include "text/tokenizer/grapheme_table.h"

enum { BLOCK_POINTS = sizeof grapheme_blocks[0], CLASS = 15, JOINS_CONSONANTS = 16, LINKS_CONSONANTS = 32 };

/* As make_grapheme_table.py numbers them. */
enum {
    OTHER,
    CR,
    LF,
    CONTROL,
    EXTEND,
    ZWJ,
    REGIONAL,
    PREPEND,
    SPACING,
    L,
    V,
    T,
    LV,
    LVT,
    PICTURE,
    CONSONANT
};

static unsigned properties_of(uint32_t point)
{
    const uint32_t block = point / BLOCK_POINTS;
    return block < sizeof grapheme_index ? grapheme_blocks[grapheme_index[block]][point % BLOCK_POINTS] : 0;
}

static unsigned properties_at(const unsigned char *p, const unsigned char *end, int *num_bytes)
{
    return properties_of(utf8_decode(p, end, num_bytes));
}

bool grapheme_is_picture(uint32_t code_point)
{
    return (properties_of(code_point) & CLASS) == PICTURE;
}

struct cluster {
    unsigned last;          /* class */
    bool picture;           /* and extending characters behind it, up to here */
    bool picture_joins;     /* the same, and then the joiner that stands last */
    bool consonant, linked; /* and what extends it behind it, with a linker among that */
    bool odd_regional;
};

static bool is_control(unsigned class)
{
    return class == CR || class == LF || class == CONTROL;
}

static bool joins_syllable(unsigned last, unsigned class)
{
    if (last == L) return class == L || class == V || class == LV || class == LVT;
    if (last == LV || last == V) return class == V || class == T;
    return (last == LVT || last == T) && class == T;
}

static bool joins(const struct cluster *c, unsigned class)
{
    if (c->last == CR && class == LF) return true;
    if (is_control(c->last) || is_control(class)) return false;
    if (class == EXTEND || class == ZWJ || class == SPACING || c->last == PREPEND) return true;
    if (class == CONSONANT) return c->consonant && c->linked;
    if (class == PICTURE) return c->picture_joins;
    if (class == REGIONAL) return c->last == REGIONAL && c->odd_regional;
    return joins_syllable(c->last, class);
}

static void take(struct cluster *c, unsigned properties)
{
    const unsigned class = properties & CLASS;
    c->picture_joins = class == ZWJ && c->picture;
    c->picture = class == PICTURE || (class == EXTEND && c->picture);
    if (class == CONSONANT) {
        c->consonant = true;
        c->linked = false;
    } else if (properties & LINKS_CONSONANTS) {
        c->linked = true;
    } else if (!(properties & JOINS_CONSONANTS)) {
        c->consonant = false;
    }
    c->odd_regional = class == REGIONAL && !(c->last == REGIONAL && c->odd_regional);
    c->last = class;
}

const unsigned char *grapheme_end(const unsigned char *p, const unsigned char *end)
{
    struct cluster c = {0};
    int num_bytes;
    take(&c, properties_at(p, end, &num_bytes));
    for (p += num_bytes; p < end; p += num_bytes) {
        const unsigned properties = properties_at(p, end, &num_bytes);
        if (!joins(&c, properties & CLASS)) break;
        take(&c, properties);
    }
    return p;
}
