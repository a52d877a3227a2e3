/* byte_set.h - a set of bytes as 256 bits. */
#ifndef TEXT_GRAMMAR_BYTE_SET_H
#define TEXT_GRAMMAR_BYTE_SET_H

#include <stdbool.h>
#include <stdint.h>

struct byte_set {
    uint64_t words[4];
};

static inline bool byte_set_has(const struct byte_set *s, unsigned byte)
{
    return s->words[byte >> 6] >> (byte & 63) & 1;
}

static inline void byte_set_add(struct byte_set *s, unsigned byte)
{
    s->words[byte >> 6] |= (uint64_t)1 << (byte & 63);
}

/* Both ends belong to the range. */
static inline void byte_set_add_range(struct byte_set *s, unsigned lo, unsigned hi)
{
    for (unsigned i = lo >> 6; i <= hi >> 6; i++) {
        unsigned from = i == lo >> 6 ? lo & 63 : 0, to = i == hi >> 6 ? hi & 63 : 63;
        s->words[i] |= ~(uint64_t)0 << from & ~(uint64_t)0 >> (63 - to);
    }
}

static inline void byte_set_add_all(struct byte_set *s, const struct byte_set *other)
{
    for (int i = 0; i < 4; i++) s->words[i] |= other->words[i];
}

#endif
