/* char_run.h - a regular expression that is one set of characters, alone or repeated, as tokenizers cut texts by:
 *
 *   [\r\n]   \p{N}{1,3}   [一-龥]+   \s?\p{P}+   \s?[A-Za-zµÀ-Ö]+    ?[^(\s|[.,!?])]+
 *
 * Sets are literal characters, also behind a backslash, ranges of them, \s, \p{L}, \p{M}, \p{N}, \p{P}, \p{S} and sets
 * within; all that is not in one with ^. Thread: any. */
#ifndef TEXT_TOKENIZER_CHAR_RUN_H
#define TEXT_TOKENIZER_CHAR_RUN_H

#include <stdbool.h>
#include <stdint.h>

enum { CHAR_RANGES_MAX = 96 };

struct char_range {
    uint32_t first, last;
};

struct char_run {
    bool may_follow_space; /* \s? in front */
    bool may_follow_blank; /* a space and ? in front */
    bool is_negated;       /* characters that are not in the set */
    int num_max;           /* characters of the set, INT32_MAX for any number */
    unsigned categories;   /* of the set: 1 << enum unicode_category */
    unsigned properties;   /* UNICODE_PUNCTUATION, UNICODE_SYMBOL */
    int num_ranges;        /* ascending, apart from each other */
    struct char_range ranges[CHAR_RANGES_MAX];
};

/* False when the expression is no such. It must be UTF-8 with a NUL behind it. */
bool char_run_parse(const char *regex, struct char_run *run);

bool char_run_has(const struct char_run *run, uint32_t code_point);

/* The end of the match that begins at p; NULL when none does. */
const unsigned char *char_run_match(const struct char_run *run, const unsigned char *p,
                                    const unsigned char *end);

#endif
