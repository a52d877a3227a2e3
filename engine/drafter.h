/* drafter.h - what a sequence may say next, found in what was said: where its newest tokens have stood before, it may go on
 * as it did then (prompt lookup). Answers that quote, edit or sum up what they were given do, and so do loops. Before that, what
 * its client has predicted of the answer: it goes on there as long as that comes true, and looks for the newest tokens from there
 * on when it does not. Or what it is told, of an answer that must have a form: by whoever knows that form, each time that there are new tokens; that may be what it
 * has found itself.
 *
 * A drafter that follows its sequence's tokens compares what it expected with what came, whether or not that was drafted, so
 * that it knows how often it is right without costing the device anything. It may be told of many tokens at once. Bounded work
 * for each token. No effect on what is drawn: drafts are verified (scheduler/scheduler.h). Thread: its owner's. */
#ifndef ENGINE_DRAFTER_H
#define ENGINE_DRAFTER_H

#include <stdbool.h>
#include <stdint.h>

#include "link/request_slots.h"

enum drafter_source { DRAFTER_OFF /* it never expects anything */, DRAFTER_LOOKS_UP, DRAFTER_IS_TOLD };

/* The client's guess at the answer. */
struct prediction {
    const int32_t *tokens;          /* [num_tokens], whoever's they are */
    int32_t num_tokens, num_prompt; /* the answer begins behind so many of the sequence's tokens */
    int32_t next;                   /* tokens[next] is expected, if it is there; -1: nothing is, */
    int32_t from; /* and the newest tokens are looked for from here on: behind what came true last */
    double hope;  /* as the drafter's */
};

struct drafter {
    enum drafter_source source;
    int32_t num_seen; /* tokens that it knows */
    int32_t next;     /* the token that stands here is expected to follow them; 0: none is */
    double hope;      /* share of these expectations that came true, the newest count most */
    struct prediction prediction;
    int32_t num_predicted; /* first tokens of what was written last that were predicted, too */
    /* told */
    bool is_told; /* since the last token */
    int32_t told[GUESS_TOKENS_MAX], num_told;
    bool told_own;    /* what it has found itself */
    double told_hope; /* as hope, of all else */
    int32_t num_true; /* since it was told last */
    double gain;      /* tokens that came true each time, the newest count most */
};

void drafter_init(struct drafter *d, enum drafter_source source);
/* Before it knows any token: predicted, [num_predicted], stays where it is, and is what follows the first num_prompt. */
void drafter_predict(struct drafter *d, const int32_t *predicted, int32_t num_predicted, int32_t num_prompt);

/* tokens: [num_tokens], those that it knows and more. */
void drafter_follow(struct drafter *d, const int32_t *tokens, int32_t num_tokens);

/* What follows the tokens that it knows, as far as somebody knows: 0 <= num <= GUESS_TOKENS_MAX. Only where it is told. is_own: it
 * is what it has found itself. */
void drafter_tell(struct drafter *d, const int32_t *ids, int32_t num, bool is_own);

/* What it has found, as far as that is likely; tokens as they were followed. Returns how many, at most max. */
int32_t drafter_found(const struct drafter *d, const int32_t *tokens, int32_t *ids, int32_t max);

/* Something is expected to follow the tokens that it knows. */
bool drafter_expects(const struct drafter *d);

/* Writes what is expected to follow the tokens that it knows behind them: tokens[num_seen, + num), 0 <= num <= max. Returns num. */
int32_t drafter_write(struct drafter *d, int32_t *tokens, int32_t max);

/* How many tokens of a draft are worth it: each takes cost_us of a step, whoever is right saves saved_us. At most max; where
 * neither is known (0) max. */
int32_t drafter_num_worth(const struct drafter *d, double saved_us, double cost_us, int32_t max);

/* Of a draft of num tokens, those that come true. */
double drafter_num_expected(const struct drafter *d, int32_t num);

#endif
