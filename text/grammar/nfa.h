/* nfa.h - a regular expression's states, by Thompson's construction.
 *
 * They refer to each other by index. Bodies of look-arounds end in match or found and are built once, however often they
 * are repeated. Owner: the caller, nfa_deinit also after a failure. Bounds: NFA_STATES_MAX states, and nodes nested as deeply as
 * regex_parse lets them. */
#ifndef TEXT_GRAMMAR_NFA_H
#define TEXT_GRAMMAR_NFA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "text/grammar/regex_tree.h"

enum { NFA_STATES_MAX = 1 << 18 };

enum nfa_kind {
    NFA_MATCH, /* whatever follows */
    NFA_FOUND, /* a look-behind's body ends here */
    NFA_SET,   /* one of set, then a */
    NFA_ANY,
    NFA_SPLIT, /* a or b */
    NFA_BEGIN, /* a where the text begins */
    NFA_END,
    NFA_AHEAD,  /* a where what follows matches from b on */
    NFA_BEHIND, /* a where what came ends with look-behind b */
};

struct nfa_state {
    enum nfa_kind kind;
    bool negative; /* of looks */
    uint32_t set, a, b;
};

struct nfa_look {
    uint32_t node; /* the body in the tree */
    bool is_behind;
    uint32_t number; /* its first state, of one behind: the look-behind's number */
};

struct nfa {
    struct pool states;
    uint32_t start, match, found;
    struct nfa_look looks[2 * REGEX_LOOKS_MAX];
    int num_looks;
    uint32_t behinds[REGEX_LOOKS_MAX]; /* first states; a body has looks at earlier ones alone */
    int num_behinds;
    int status;
};

/* Searches for node anywhere in a text, or (whole) lets it match all of it. */
int nfa_make(const struct regex_tree *tree, uint32_t node, bool whole, struct nfa *out) must_check;
void nfa_deinit(struct nfa *n);

#endif
