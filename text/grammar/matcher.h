/* matcher.h - one answer on its way through a grammar.
 *
 * A matcher takes the bytes of tokens and knows what may come next. A copy goes its own way. Rejected bytes
 * change nothing. Owner: one request; it refers to the grammar, which must live longer. Memory: one or two thousand
 * bytes and 16 for each level of nesting; at most what step.h allows; the text where elements of arrays differ. Thread: one user at a time. */
#ifndef TEXT_GRAMMAR_MATCHER_H
#define TEXT_GRAMMAR_MATCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "text/grammar/grammar.h"

enum { MATCHER_ROLLBACK_MAX = 32 };

struct matcher;

int matcher_new(const struct grammar *g, struct matcher **out) must_check;
int matcher_copy(const struct matcher *m, struct matcher **out) must_check;
void matcher_free(struct matcher *m);
const struct grammar *matcher_grammar(const struct matcher *m);

/* The bytes of one token. STATUS_INVALID when the grammar does not allow them, STATUS_LIMIT when the text can
 * be read in more ways at once than are followed, STATUS_NO_MEMORY: then nothing has changed. */
int matcher_accept(struct matcher *m, const char *bytes, size_t num_bytes) must_check;

/* Takes back the last tokens; at most MATCHER_ROLLBACK_MAX and not more than were accepted, otherwise
 * STATUS_INVALID. */
int matcher_rollback(struct matcher *m, int num_tokens) must_check;

/* Whether the text so far is whole. */
bool matcher_can_end(const struct matcher *m);

#endif
