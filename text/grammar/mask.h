/* mask.h - which tokens may come next.
 *
 * A mask maker holds the scratch of one worker thread. What it computes depends on the matcher alone: a token
 * is in the mask exactly when matcher_accept of its bytes would succeed (and an id that ends the answer, when
 * matcher_can_end). Owner: the worker. Thread: one user at a time; vocabulary and matcher are only read. */
#ifndef TEXT_GRAMMAR_MASK_H
#define TEXT_GRAMMAR_MASK_H

#include <stdint.h>

#include "base/status.h"
#include "text/grammar/mask_cache.h"
#include "text/grammar/matcher.h"
#include "text/grammar/vocabulary.h"

struct mask_maker;

int mask_maker_new(const struct vocabulary *v, struct mask_maker **out) must_check;
void mask_maker_free(struct mask_maker *w);

/* Writes vocabulary_num_words words. cache: of the matcher's grammar, or NULL. STATUS_LIMIT when some token
 * leads to more readings than are followed, or all of them are too much work (what was not looked at is left out),
 * STATUS_NO_MEMORY. */
int mask_fill(struct mask_maker *w, const struct matcher *m, struct mask_cache *cache,
              uint64_t *words) must_check;
/* What the last one took: threads (step.h) that were looked at, some 1 to 5 ns each. */
uint64_t mask_maker_work(const struct mask_maker *w);

#endif
