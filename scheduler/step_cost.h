/* step_cost.h - what a step will take, learned from the steps that were made.
 *
 *   microseconds = per token * tokens + per pair * (query, key) pairs + per step
 *
 * Pairs are the mean of all layers: where some see a window alone, what is behind it counts for the others. Attention takes a
 * prompt's queries a tile at a time, and what is left for the last tile costs a whole one: its pairs are counted.
 *
 * Decoding rows and prompts have terms of their own: a decoding row's pairs are bytes of K and V to be read, a
 * prompt's are products to be computed. Rows of one sequence that are read together count as one. A step without prompts teaches the terms of decoding; of a step with
 * prompts the decoding rows' part is taken off, and the rest teaches the prompts' terms.
 *
 * A step with prompts may take longer than these say: kernels take rows in tiles, and tiles in rounds. By how much the
 * latest of them did, at worst, is told beside the prices, for whoever has promised something.
 *
 * Each of the two fits is a Kalman filter over three coefficients: a recursive least squares whose
 * uncertainty grows a little with each step, so that it follows a machine that gets slower, and never beyond
 * the coefficients' own size, so that an hour of equal steps unlearns nothing. A step that took absurdly long
 * (somebody else had the machine) moves it no further than a likely one. What it takes to copy a K/V block
 * between device and host is a mean of the newest copies. Bounded memory; the same steps give the same
 * numbers. Thread: its owner's. */
#ifndef SCHEDULER_STEP_COST_H
#define SCHEDULER_STEP_COST_H

#include <stdint.h>

/* What was, or is to be, in a step. */
struct step_work {
    double prompt_tokens, prompt_pairs, decode_tokens, decode_pairs;
};

/* Microseconds. All zero: not known. */
struct step_prices {
    double prompt_token, prompt_pair, prompt_step; /* prompt_step: of a step with prompts */
    double decode_token, decode_pair, decode_step; /* decode_step: of a step without */
    double block_copy;                             /* of a K/V block, to the host or back */
    double windowed; /* not a price: the share of layers whose queries see the last window keys alone */
    int32_t window;
    int32_t tile;   /* nor this: queries of a prompt that are worked on together; 0 is 1 */
    int32_t bundle; /* nor this: decoding rows of one sequence that are; 0 is 1 */
    double doubt;   /* microseconds that a step with prompts may take longer */
};

enum { COST_TERMS = 3 };

struct cost_fit {
    double us[COST_TERMS];    /* a token, a pair, a step */
    double scale[COST_TERMS]; /* of the uncertainty, should a coefficient come to be zero */
    double covariance[COST_TERMS][COST_TERMS];
};

struct step_cost {
    struct cost_fit prompt, decode;
    double block_copy, windowed, doubt;
    int32_t window, tile, bundle;
};

/* start: a guess that may be wrong by a factor of a few. */
void step_cost_init(struct step_cost *c, const struct step_prices *start);
void step_cost_learn(struct step_cost *c, const struct step_work *work, double us);
/* num_blocks were copied to the host, or back, while the device did nothing else. Of a start without a price
 * nothing is learned, as of steps. */
void step_cost_learn_copy(struct step_cost *c, int32_t num_blocks, double us);
/* A sequence's blocks were not copied, since that was the dearer way: a price from a bad moment becomes lower with each, until
 * it is tried and learned again. */
void step_cost_hope_copy(struct step_cost *c);
/* A lone sequence was not given a second row, behind so many keys, since that was too dear: steps of one row never say what a row more
 * takes, so a step's price has a little more of what one takes with each, until one is tried and learned. */
void step_cost_hope_rows(struct step_cost *c, double num_keys);
struct step_prices step_cost_prices(const struct step_cost *c);

/* Prices from two measured steps of one sequence, of num_tokens tokens and of one, and from the ratio of the
 * work that a pair and a token are. */
struct step_prices step_prices_guess(double prompt_us, int32_t num_tokens, double token_us,
                                     double pair_per_token);

/* Of num_tokens more tokens of a prompt behind position tokens: without what a step costs in any case. */
double step_prices_prompt_us(const struct step_prices *p, int32_t position, int32_t num_tokens);
/* The most such tokens for us microseconds, at most max_tokens, at least 0. */
int32_t step_prices_num_tokens(const struct step_prices *p, int32_t position, double us, int32_t max_tokens);
/* Of num_tokens decoding rows of one sequence behind position tokens. */
double step_prices_decode_us(const struct step_prices *p, int32_t position, int32_t num_tokens);
/* Prices by which a prompt costs what its tokens would as decoding rows. */
struct step_prices step_prices_of_decoding(const struct step_prices *p);
double step_prices_us(const struct step_prices *p, const struct step_work *work);

/* (query, key) pairs of num_tokens tokens behind position others, of a prompt or one by one as decoding computes them: the
 * mean of all layers. */
double step_num_pairs(const struct step_prices *p, int32_t position, int32_t num_tokens);
double step_num_decode_pairs(const struct step_prices *p, int32_t position, int32_t num_tokens);

#endif
