/* repeats.h - what a mask lets in of an array whose elements differ: masks do not look at texts, so this takes away the tokens
 * that would end an element which was there before.
 *
 * Taken away, too: tokens that hold a whole element between others, and those behind which nothing but such an end could come.
 * Thread: one user of the frames at a time. */
#ifndef TEXT_GRAMMAR_REPEATS_H
#define TEXT_GRAMMAR_REPEATS_H

#include "text/grammar/matcher_state.h"
#include "text/grammar/vocabulary_parts.h"

/* frames: scratch. STATUS_NO_MEMORY; STATUS_LIMIT: nothing is left, all that an element could go on with has been there. */
int repeats_remove(const struct vocabulary *v, const struct matcher *m, struct frames *frames,
                   uint64_t *words) must_check;

#endif
