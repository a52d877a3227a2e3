/* names.h - numbers for names, in the order in which they come.
 *
 * A tree that is balanced whatever the names are: they are a client's, who may choose them to meet in a table's hash. The texts
 * are the caller's and stay as long as this. Owner: names_deinit frees. Thread: none of its own. Source: tsearch of libc. */
#ifndef TEXT_GRAMMAR_NAMES_H
#define TEXT_GRAMMAR_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

struct names {
    void *tree;
    struct arena arena;
};

enum { NAME_BYTES = 64 }; /* that a name takes here, at most */

#define NAMES_FULL UINT32_MAX

/* At most num_max names. */
void names_init(struct names *n, uint32_t num_max);
void names_deinit(struct names *n);

/* The number of a name; one that is new gets the number next. NAMES_FULL: there is no memory. */
uint32_t names_find(struct names *n, const char *name, size_t num_bytes, uint32_t next);

#endif
