/* state_classes.h - states of a grammar behind which the same short texts may stand.
 *
 * {20,4000} of something is thousands of states in a row, and of one that is far from both ends the next token tells nothing: a mask
 * made for one of them is that of all. Bounded bisimulation: states are alike to depth 0 by themselves, to depth n + 1 where they
 * also lead to states alike to depth n. Owner: the caller frees *out. Thread: a pure function. */
#ifndef TEXT_GRAMMAR_STATE_CLASSES_H
#define TEXT_GRAMMAR_STATE_CLASSES_H

#include "base/status.h"
#include "text/grammar/program.h"

/* States looked at, in all rounds, and so many again that only look alike by their hashes, as a client may choose them: some 0.1 s. */
enum { STATE_CLASSES_WORK_MAX = 1 << 21 };

/* out[num_states]: states of one number take the same texts of at most num_bytes, in the same way. NULL: there are too few
 * states to be worth it, or too many for the work. STATUS_NO_MEMORY. */
int state_classes_new(const struct grammar *g, uint32_t num_bytes, uint32_t **out) must_check;

#endif
