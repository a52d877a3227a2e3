/* token_limits.h - which tokens an answer may have, whatever its form: allowed_token_ids and bad_words.
 *
 * A word is a sequence of ids: its last one is forbidden where the answer so far ends with the others. Immutable
 * once it is made, and shared by the choices of a request and the mask threads that follow them; whoever holds it
 * last frees it. Thread: any. */
#ifndef SERVER_TOKEN_LIMITS_H
#define SERVER_TOKEN_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { WORD_TOKENS_MAX = 256 };

struct token_limits;

/* num_ids: the logits' width. One holder. */
int token_limits_new(int32_t num_ids, struct token_limits **out) must_check;
const struct token_limits *token_limits_hold(const struct token_limits *l); /* NULL: nothing */
void token_limits_release(const struct token_limits *l);                    /* NULL: nothing */

/* While it is made. The first id that is allowed forbids all that never are. */
int token_limits_allow(struct token_limits *l, int32_t id) must_check;
/* A copy of 1 to WORD_TOKENS_MAX ids. */
int token_limits_forbid(struct token_limits *l, const int32_t *ids, int32_t num_ids) must_check;

/* How many tokens of the answer's end decide what is forbidden. */
int32_t token_limits_reach(const struct token_limits *l);
/* Whether the id may follow; as token_limits_apply. */
bool token_limits_let(const struct token_limits *l, const int32_t *last, int32_t num_last, int32_t id);
/* Takes out of words, a mask of the logits' width, what may not follow: last is the answer's end, of num_last
 * tokens, token_limits_reach or more where there are as many. */
void token_limits_apply(const struct token_limits *l, const int32_t *last, int32_t num_last, uint64_t *words);

#endif
