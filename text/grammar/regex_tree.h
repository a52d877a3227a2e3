/* regex_tree.h - a parsed regular expression.
 *
 * Nodes refer to each other by index; sets of code points are shared by index as well. Owner: whoever called
 * regex_parse frees it with regex_tree_deinit, also after a failure. */
#ifndef TEXT_GRAMMAR_REGEX_TREE_H
#define TEXT_GRAMMAR_REGEX_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "text/grammar/pool.h"

enum { REGEX_LOOKS_MAX = 32, REGEX_LOOK_DEPTH_MAX = 4, REGEX_UNBOUNDED = -1 };

enum regex_kind {
    REGEX_EMPTY,
    REGEX_SET,    /* a: index of the set */
    REGEX_CONCAT, /* a, b */
    REGEX_ALTERNATE,
    REGEX_REPEAT, /* a, min, max */
    REGEX_BEGIN,
    REGEX_END,
    REGEX_AHEAD, /* a: what the text goes on with (min 1: does not go on with) */
    REGEX_BEHIND, /* a: what the text so far ends with (min 1: does not end with); holds no REGEX_AHEAD, no REGEX_END */
};

struct regex_node {
    enum regex_kind kind;
    uint32_t a, b;
    int32_t min, max;
};

struct regex_tree {
    struct pool nodes;
    struct pool sets; /* of struct pool: normalized code points */
    uint32_t root;
    uint32_t leading[REGEX_LOOKS_MAX]; /* look-aheads right behind a leading ^, which every match passes */
    int num_leading;
    int num_looks; /* bodies of look-arounds, REGEX_LOOKS_MAX at most; word boundaries share one */
};

int regex_parse(const char *pattern, size_t num_bytes, struct regex_tree *out, struct error *err) must_check;
void regex_tree_deinit(struct regex_tree *t);

#endif
