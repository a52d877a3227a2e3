/* closest.h - what somebody who mistyped a word may have meant. */
#ifndef CONFIG_CLOSEST_H
#define CONFIG_CLOSEST_H

#include <stddef.h>

/* The word of count (NULL ones are skipped) that is fewest slips of the keyboard away from n bytes of typed,
 * or that begins with them; NULL: none is near. */
const char *closest_word(const char *typed, size_t n, const char *const *words, size_t count);

#endif
