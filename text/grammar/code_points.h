/* code_points.h - sets of code points as sorted, disjoint ranges. */
#ifndef TEXT_GRAMMAR_CODE_POINTS_H
#define TEXT_GRAMMAR_CODE_POINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/grammar/pool.h"

enum { CODE_POINT_MAX = 0x10FFFF, CODE_POINT_RANGES_MAX = 1 << 16 };

struct code_point_range {
    uint32_t lo, hi; /* both belong to it */
};

/* A pool of struct code_point_range: pool_init with it, or code_points_init. */
void code_points_init(struct pool *set);
void code_points_add(struct pool *set, uint32_t lo, uint32_t hi);
void code_points_add_all(struct pool *set, const struct pool *other);
void code_points_normalize(struct pool *set); /* sorts and joins */
void code_points_complement(struct pool *set);
bool code_points_has(const struct pool *set, uint32_t code_point); /* of a normalized set */

/* d, w and s as in \d, \w and \s; '.' for everything but line ends. */
void code_points_add_escape(struct pool *set, char name);

/* Unicode's general category ("L", "Lu", ...), Extended_Pictographic or Emoji_Component (which zod's patterns of emoji have); false
 * where the name is none of these. */
bool code_points_add_property(struct pool *set, const char *name, size_t num_bytes);

/* Reads one code point of UTF-8; returns its length, 0 when it is none. */
int code_point_read(const char *text, size_t num_bytes, uint32_t *out);
/* Writes it; returns its length. */
int code_point_write(uint32_t code_point, char out[4]);

#endif
