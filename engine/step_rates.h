/* step_rates.h - how fast the machine is, from the steps it has made: a token of a prompt, and a decode step.
 *
 * Both are means over the last seconds of work of their kind, so that an idle hour changes nothing. A step
 * without prompt tokens is a decode step. Of a mixed one the decode step's usual time is taken off, and the
 * rest is the prompt tokens'; as long as no decode step was seen alone, time is shared out by tokens. Thread:
 * its owner's. */
#ifndef ENGINE_STEP_RATES_H
#define ENGINE_STEP_RATES_H

#include <stdint.h>

struct step_rates {
    double prefill_seconds, prefill_tokens; /* both fade, their quotient stays */
    double decode_seconds, decode_steps;
    double mixed_decode_seconds, mixed_decode_steps; /* while no decode step was seen alone */
};

void step_rates_add(struct step_rates *r, double seconds, int32_t num_prefill_tokens, int32_t num_decodes);

/* 0: not known yet. */
double step_rates_prefill_seconds_per_token(const struct step_rates *r);
double step_rates_decode_seconds_per_step(const struct step_rates *r);

#endif
