/* constrained_answer.h - one constrained answer on its way (masks.h): takes its tokens, and says which may come next.
 *
 * Where its form leaves little choice it guesses what will (text/grammar/forecast.h), elsewhere what it is offered, and goes
 * ahead: masks behind tokens that have not come are those that are due when they come. When others do it goes back.
 *
 * Owner: masks.c. Thread: one user at a time; what it refers to is only read. */
#ifndef SERVER_CONSTRAINED_ANSWER_H
#define SERVER_CONSTRAINED_ANSWER_H

#include "link/request_slots.h"
#include "server/grammars.h"
#include "server/masks.h"
#include "text/grammar/spacing.h"

struct mask_maker;
struct matcher;

/* What all answers have in common. */
struct mask_language {
    struct grammars *grammars;
    const int32_t *end_ids;
    int32_t num_end_ids;
    size_t num_words; /* of a mask */
};

/* One thread's scratch. */
struct mask_scratch {
    struct mask_maker *maker; /* NULL: no mask was made yet */
    uint64_t *words;          /* [num_words] */
};

/* Where the text is, beside the matcher. */
struct answer_place {
    size_t matched_bytes; /* of the trigger; all: the grammar has begun */
    int32_t num_accepted; /* tokens that the matcher has taken */
    struct spacing spacing;
};

struct constrained_answer {
    const struct shared_grammar *shared; /* NULL: the answer has no form, */
    const struct token_limits *limits;   /* NULL: all tokens may be in it; not both */
    int32_t *last;                       /* generated tokens, as far as the limits reach, then those ahead */
    int32_t num_last;                    /* without those ahead */
    struct matcher *matcher;             /* NULL: nothing was asked yet */
    int32_t num_taken;                   /* generated tokens */
    int32_t guess[GUESS_TOKENS_MAX], num_guessed; /* what is expected to follow them, */
    int32_t num_ahead;                            /* of which the first are gone ahead of */
    struct answer_place place;                    /* behind these */
    struct answer_place before[GUESS_TOKENS_MAX]; /* each of them */
    bool is_offered;                              /* somebody else has expected it */
    bool has_mask;                                /* of the next token: it was made ahead */
    uint64_t work, last_work;                     /* that its masks took, and the last one (mask.h) */
    int32_t min_tokens;
    bool ignore_eos, must_begin;
    int32_t num_stop_token_ids;
    int32_t stop_token_ids[STOP_TOKEN_IDS_MAX];
    size_t trigger_bytes;
    char trigger[TRIGGER_BYTES_MAX];
};

/* STATUS_NO_MEMORY: nothing is held. */
int constrained_answer_init(struct constrained_answer *a, const struct mask_language *l,
                            const struct request_slot_input *input,
                            const struct mask_rules *rules) must_check;
void constrained_answer_deinit(struct constrained_answer *a, const struct mask_language *l);

/* Takes the answer's next tokens. What was guessed and did not come is forgotten. */
int constrained_answer_take(struct constrained_answer *a, const struct mask_language *l, const int32_t *ids,
                            int32_t num_ids) must_check;
/* What somebody expects who does not know the form. */
struct answer_offer {
    int32_t num, ids[GUESS_TOKENS_MAX];
};

/* Guesses at most max_tokens ids, unless something is guessed: 0 <= max_tokens <= GUESS_TOKENS_MAX. Where the form leaves a choice
 * what is offered is guessed. */
void constrained_answer_guess(struct constrained_answer *a, const struct mask_language *l, int32_t max_tokens,
                              const struct answer_offer *offer);
/* The mask of the next token: scratch->words, and *state is MASK_ENDED or, with k tokens taken, k + 1. STATUS_NOT_FOUND: no token goes on
 * with a form that has not ended. */
int constrained_answer_make(struct constrained_answer *a, const struct mask_language *l,
                            struct mask_scratch *scratch, int32_t *state) must_check;
/* Takes one more guessed token and makes the mask behind it: scratch->words. False: that is not possible, and the guess is
 * shorter now. */
bool constrained_answer_go_ahead(struct constrained_answer *a, const struct mask_language *l,
                                 struct mask_scratch *scratch) must_check;

#endif
