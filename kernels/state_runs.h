/* state_runs.h - which of a step's tokens go through a state one after the other (device.h: delta).
 *
 * A sequence of the step is such a run. So are several decoding ones that follow each other with the same batch_slot: a token
 * and a draft behind it. How many of these count is known when the step has ended, so the state stays where it was before the
 * first of them, and the run's projections are kept: what the next step shows to have counted is taken in before that step's own tokens.
 *
 *   bytes that a token of a draft leaves, where its state would be num_v_heads k_dim v_dim values: 2 num_k_heads k_dim + num_v_heads v_dim
 *   values, and some for each head: of Qwen3.5 4B 1 of 64 */
#ifndef KERNELS_STATE_RUNS_H
#define KERNELS_STATE_RUNS_H

#include "kernels/step.h"

struct state_run {
    int32_t begin, end; /* tokens of the step */
    int32_t batch_slot;
    int32_t position; /* of the first */
    bool has_draft; /* behind the first: the next step may begin with any of them again, or behind the last */
};

/* Whether a decoding sequence of the step belongs to the one before. */
static inline bool state_run_goes_on(const struct step *s, int32_t seq)
{
    return seq > s->num_prefill_seqs && s->batch_slots[seq] == s->batch_slots[seq - 1];
}

/* Writes the step's runs, in the order of their tokens, num_seqs at most, and returns how many there are. */
static inline int32_t state_runs_find(const struct step *s, struct state_run *runs)
{
    int32_t count = 0;
    for (int32_t seq = 0; s->batch_slots && seq < s->num_seqs; seq++) {
        const int32_t begin = s->cu_seqlens_q[seq], end = s->cu_seqlens_q[seq + 1];
        if (state_run_goes_on(s, seq)) {
            runs[count - 1].end = end;
            runs[count - 1].has_draft = true;
        } else {
            runs[count++] = (struct state_run){begin, end, s->batch_slots[seq], s->positions[begin], false};
        }
    }
    return count;
}

#endif
