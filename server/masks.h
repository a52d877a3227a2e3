/* masks.h - which tokens a constrained answer may go on with, made beside the engine's steps.
 *
 *   loop    masks_begin(slot)  ->  link_submit
 *   engine  publishes token k of the slot, link_want_mask
 *   mask thread  follows the slot's published tokens through its grammar, writes the mask of token k + 1 into
 *           the slot, mask_state = k + 2 (release), link_say_mask_is_made
 *   engine  draws token k + 1 from what the mask allows
 *   loop    masks_end(slot)  ->  request_slots_release
 *
 * What follows a slot lives here, in the front: an engine's death changes nothing, and an answer that another process
 * began is followed from its first token when it is asked for. In a mask are the tokens
 * whose bytes the grammar allows; where the answer may end there are also the ids that end it (unless
 * ignore_eos), and the request's stop tokens; before min_tokens neither. A mask in which nothing is left is
 * MASK_ENDED. Control tokens are in no mask. The bits of a mask depend on the slot's tokens alone.
 *
 * An answer may be free until a trigger's text stands in it: until then its masks allow everything, and the grammar
 * begins with the byte behind it.
 *
 * Where the engine wants to know what an answer probably goes on with (struct slot_guess), and its form leaves little choice, or
 * form and limits let through what the engine offers, a guess is told before the mask. The masks behind its tokens are made when no other is asked for, and count when the tokens come;
 * when others do they are made anew.
 *
 * Answers whose masks take long, and new ones of tenants whose masks have lately, wait among themselves, for all threads but one, and
 * take turns (mask_turns.h): they keep no other answer waiting.
 *
 * Limits of tokens (token_limits.h) come on top; an answer without a form has them alone, and its masks are those and
 * nothing else: it ends as any other does.
 *
 * Failures (no memory; a token that the grammar does not take; too many readings; no token that goes on) are the slot's alone:
 * MASK_FAILED, and of the first two, which no form brings about, a log line. Thread: the loop's, except where said; the threads touch nothing of a slot after masks_end. */
#ifndef SERVER_MASKS_H
#define SERVER_MASKS_H

#include "link/link.h"
#include "server/grammars.h"
#include "server/token_limits.h"

enum { TRIGGER_BYTES_MAX = 64 };

struct masks;

/* Starts the threads. */
int masks_create(struct link *link, struct grammars *grammars, struct masks **out,
                 struct error *err) must_check;
/* No slot is followed any more. */
void masks_destroy(struct masks *m);

/* What an answer is held to. */
struct mask_rules {
    const struct shared_grammar *grammar; /* NULL: it has no form */
    const char *trigger;                  /* what it is free until; NULL: nothing */
    bool must_begin;                      /* the model does not end the answer before the trigger */
    const struct token_limits *limits;    /* NULL: none */
};

/* The slot is filled in, constrained, and not submitted yet. */
void masks_begin(struct masks *m, int32_t slot_idx, const struct mask_rules *rules);
void masks_end(struct masks *m, int32_t slot_idx);
/* Why the slot's state is MASK_FAILED, before masks_end: STATUS_LIMIT when the form went past a limit of text/grammar,
 * STATUS_NOT_FOUND when no token that the limits leave goes on with it; both would happen again. */
int masks_failure(struct masks *m, int32_t slot_idx) must_check;

uint64_t masks_num_made(const struct masks *m); /* any thread */

#endif
