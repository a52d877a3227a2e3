/* backlog.h - when there will be room: the sequences in flight, computed ahead at the speed of the machine.
 *
 * Sequences begin in their order as places become free. A step draws a token for every one that decodes, and
 * computes prompts in their order, as many tokens as fit into a step. So an end comes so many steps after its
 * prompt was computed, and until then pass the steps and the prompt tokens that were in them. Pure. */
#ifndef SERVER_API_BACKLOG_H
#define SERVER_API_BACKLOG_H

#include <stdbool.h>
#include <stdint.h>

/* One sequence: what is still to be computed. */
struct backlog_sequence {
    double num_prompt_tokens, num_answer_tokens;
    bool is_other; /* it takes a place and time, but its end is not one of those that are waited for */
};

struct backlog {
    const struct backlog_sequence *sequences; /* those that run, then those that wait, the oldest first */
    int num_running, num_sequences;
    int num_places;         /* that may run at once, >= 1 */
    double num_step_tokens; /* of prompts in a step, > 0 */
    double prefill_seconds_per_token, decode_seconds_per_step;
};

/* Until num_ends sequences have ended and waiting ones with num_tokens prompt tokens have begun. 0: nothing
 * is missing. It gives up past limit_seconds and returns that; also when it finds no memory. */
double backlog_seconds(const struct backlog *b, int num_ends, double num_tokens, double limit_seconds);

#endif
