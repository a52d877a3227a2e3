/* program.h - the compiled form of a grammar: a pushdown automaton over bytes.
 *
 * A rule is a set of states; a state takes bytes by its edges, white space and characters by its loop, calls
 * other rules, and may be final, that is return to whoever called its rule. Within a rule a counter goes
 * along: how many characters or elements there were, or which property of an object may come next. An entry
 * is a condition on that counter, and a change of it, on the way into a state; where it does not hold, the
 * state is not entered. So a state is passed only where the text can still be finished.
 *
 * State 0 is dead: an edge to it forbids a byte that the loop would take. Immutable once built. */
#ifndef TEXT_GRAMMAR_PROGRAM_H
#define TEXT_GRAMMAR_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "text/grammar/byte_set.h"
#include "text/grammar/spaces.h"
#include "text/grammar/grammar.h"

enum { STATE_DEAD = 0, NO_LOOP = 0, NO_ENTRY = 0, NO_OBJECT = UINT32_MAX, NO_LIMIT = UINT32_MAX };

enum state_flags {
    STATE_FINAL = 1,
    STATE_BARE_FINAL = 2, /* final and nothing else: left at once */
    STATE_SPACES = 4,     /* white space may stand here */
    STATE_LITERAL = 8,    /* one edge with one byte, and nothing else */
    STATE_RETURNS = 16,   /* final, or what it calls may be empty and then it is */
    STATE_UNIQUE_STRINGS =
        32, /* around an element of an array whose elements, strings and null alone, differ */
    STATE_UNIQUE_INTEGERS = 64,
    STATE_UNIQUE = STATE_UNIQUE_STRINGS | STATE_UNIQUE_INTEGERS, /* both: any but arrays and objects */
    STATE_NUMBER = 128,                                          /* of any number, or any integer */
};

enum { PLAIN_ANY = UINT8_MAX };

struct byte_edge {
    uint8_t lo, hi;
    uint32_t target;
};

struct rule_call {
    uint32_t rule;
    uint32_t back; /* the state to go on with */
};

struct state {
    uint32_t edges, calls; /* where they begin; edges ascend and do not overlap */
    uint16_t num_edges, num_calls;
    uint8_t flags;
    uint8_t
        plain_left; /* so many characters of plain text (byte_group.h) may follow; PLAIN_ANY: any number */
    uint16_t loop;  /* index of a character loop */
    uint32_t entry; /* index of an entry */
    uint32_t
        self_groups; /* byte groups (byte_group.h) all of whose bytes lead back here and change nothing */
};

/* Characters of a class, each leading to target (as a rule the state itself). */
struct char_loop {
    uint16_t char_class;
    bool counts; /* adds 1 to the counter, which stays at or below max; from min on it may be left */
    uint32_t target, max, min;
};

/* A character is a single byte, or begins with a lead byte and goes on in the state more. */
struct char_class {
    struct byte_set single, lead;
    uint32_t more;
    uint32_t groups; /* those that lie wholly in single, and GROUP_UTF8 when all of UTF-8 belongs to it */
};
enum { CLASS_ANY = 0, CLASS_CANONICAL = 1 }; /* any JSON string; without needless escapes */

/* Conditions on the counter. Objects keep the index of the next property in its low half and the number of
 * properties so far in its high half; where keys come in any order, the counter is the set of those that came. */
enum entry_kind {
    ENTRY_NONE,
    ENTRY_AT_LEAST,  /* counter >= a */
    ENTRY_BELOW,     /* counter < a */
    ENTRY_COUNT,     /* counter < a, then one more (b: the counter stops there) */
    ENTRY_RESET,     /* counter = 0 */
    ENTRY_CHARACTER, /* counter < a, then one more: behind a character of a text of limited length */
    ENTRY_WITHIN,    /* counter < a: within such a character. Neither fails before the counter is above b, and
                        the text ends at a counter of end or more */
    ENTRY_LISTED,    /* some key of keys[a .. b - 1] of the object may come next */
    ENTRY_KEYS,      /* the same, or one that is not listed */
    ENTRY_KEY,       /* key a of the object may come next, then it was the last one */
    ENTRY_EXTRA,     /* a key that is not listed may come next */
    ENTRY_EXTRA_KEY, /* the same, then there was one */
    ENTRY_CLOSE,     /* the object may end */
};

struct entry {
    enum entry_kind kind;
    uint32_t object;
    uint32_t a, b, end;
};

/* The properties of an object in their order, or the values of an array whose elements differ. */
struct key_table {
    uint32_t num_keys;
    uint32_t required; /* keys[required + i]: the first required property at or behind i, num_keys if none;
                          num_keys + 1 of them */
    uint32_t num_required;       /* keys[num_required + i]: required ones at or behind i; num_keys + 1 */
    uint32_t values, num_values; /* keys[values ..]: the rules of required properties' values */
    uint32_t min, max;           /* properties in all; max NO_LIMIT */
    bool has_extra;              /* keys that are not listed may follow them */
    bool counts;                 /* min and max matter */
    bool any_order;              /* at most 32 keys, none required, no others */
};

struct rule {
    uint32_t start;
    bool nullable;
    bool is_walked; /* first and nullable are known */
    struct byte_set first;
};

struct grammar {
    struct state *states;
    struct byte_edge *edges;
    struct rule_call *calls;
    struct char_loop *loops;
    struct char_class *classes;
    struct entry *entries;
    struct key_table *objects;
    uint32_t *keys;
    struct rule *rules;
    uint32_t num_states, num_rules;
    uint32_t start;  /* a state */
    bool has_unique; /* elements of some array are compared, so matchers keep the text (unique_text.h) */
    struct space_state *spaces; /* what STATE_SPACES stands for */
    size_t num_bytes;
};

#endif
