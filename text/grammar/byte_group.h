/* byte_group.h - bytes in 32 groups, so that what occurs in many texts fits a word. */
#ifndef TEXT_GRAMMAR_BYTE_GROUP_H
#define TEXT_GRAMMAR_BYTE_GROUP_H

#include <stdint.h>

#include "text/grammar/byte_set.h"

enum {
    GROUP_SPACE = 5,
    GROUP_LINE = 6, /* tab, line feed, carriage return; the last byte of U+2028 and U+2029 */
    GROUP_QUOTE = 7,
    GROUP_BACKSLASH = 8,
    GROUP_CONTROL = 29,
    GROUP_UTF8 = 30,    /* a character of several bytes, or its begin, in valid UTF-8 */
    GROUP_INVALID = 31, /* other bytes above 127 */
};

/* Plain text: valid UTF-8 without control characters, line separators (which . of a pattern does not match), quotes and
 * backslashes, as all but these groups. */
#define GROUPS_NOT_PLAIN                                                                                     \
    (1u << GROUP_LINE | 1u << GROUP_QUOTE | 1u << GROUP_BACKSLASH | 1u << GROUP_CONTROL | 1u << GROUP_INVALID)

/* The group of a byte below 128. */
uint32_t byte_group(uint8_t byte);

/* The groups, as bits, that lie wholly in a set of bytes below 128. */
uint32_t byte_groups_inside(const struct byte_set *set);

#endif
