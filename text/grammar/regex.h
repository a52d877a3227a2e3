/* regex.h - regular expressions in ECMA-262's syntax, as automata over bytes.
 *
 * Code points are the letters. A pattern is searched for, as JSON Schema's `pattern` is, or must match the
 * whole text. Texts are UTF-8, or the inside of a JSON string in canonical form: what can stand raw stands
 * raw,
 * ", \ and control characters are escaped with the short escape where there is one.
 *
 * Look-ahead, look-behind and word boundaries may stand anywhere, but a look-behind holds no look-ahead, \b or $.
 * Refused with a sentence: back references, flags. Bounds: REGEX_NODES_MAX parts of a pattern, REGEX_DEPTH_MAX nested groups,
 * REGEX_LOOKS_MAX look-arounds, REGEX_LOOK_DEPTH_MAX of them in each other, and what dfa.h says. Thread: pure functions. */
#ifndef TEXT_GRAMMAR_REGEX_H
#define TEXT_GRAMMAR_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "text/grammar/dfa.h"

enum { REGEX_NODES_MAX = 1 << 16, REGEX_DEPTH_MAX = 64, REGEX_REPEAT_MAX = 20000 };

#define REGEX_ANY UINT32_MAX

enum regex_text {
    REGEX_UTF8,        /* any valid UTF-8 */
    REGEX_JSON_STRING, /* what stands between the quotes of a JSON string */
};

struct symbol_dfa;
struct regex_options {
    enum regex_text text;
    bool whole;                      /* matches the whole text; otherwise anywhere in it */
    bool has_lengths;                /* the whole text has min_length to max_length characters, too */
    uint32_t min_length, max_length; /* max_length REGEX_ANY: any number */
    uint32_t *work_left;             /* what several may take together (subsets.h); NULL: it is alone */
    bool drops_look_lengths;         /* regex_look_lengths are left out */
    /* Unless NULL: where nearly all states of a large automaton would be bytes within characters, regex_compile returns
     * STATUS_LIMIT and leaves here what symbol_states_make takes instead; the caller's. Else it is left empty. For
     * automata that are too large without it: it is not known of such states how much plain text may follow. */
    struct symbol_dfa *tails;
};

/* Whether look-aheads right behind a leading ^ say how many characters the text has, (?=.{1,253}$), and how many. */
bool regex_look_lengths(const char *pattern, size_t num_bytes, uint32_t *min, uint32_t *max);

/* Label 1 is what matches. */
int regex_compile(const char *pattern, size_t num_bytes, const struct regex_options *options, struct dfa *out,
                  struct error *err) must_check;
/* Spells an automaton over code points out in bytes. */
int regex_spell_out(const struct symbol_dfa *symbols, enum regex_text text, struct dfa *out) must_check;

/* Whether the pattern is one set of characters, repeated: ^[set]{min,max}$ (max REGEX_ANY: any number), whole: also without
 * ^ and $. Then out matches one character of it, and tells whether everything behind ASCII belongs to it, and all plain
 * text (byte_group.h). */
struct regex_repetition {
    struct dfa one;
    uint32_t min, max;
    bool has_all_utf8, has_all_plain;
};
bool regex_is_repetition(const char *pattern, size_t num_bytes, enum regex_text text, bool whole,
                         struct regex_repetition *out);

#endif
