#include "model/warm_up.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"

/* Fills in what a step of one sequence leaves open. */
static int run_step(struct model *m, struct step step, double *us, struct error *err)
{
    struct sample_params greedy = {.score_token_id = -1,
                                   .sampling.top_p = 1,
                                   .sampling.repetition_penalty = 1,
                                   .sampling.num_logprobs = -1};
    struct sample_result result;
    int32_t last_token = step.num_tokens - 1, cu_seqlens_q[] = {0, step.num_tokens},
            seqlen_k = step.positions[last_token] + 1;
    step.num_seqs = step.num_logits = 1;
    step.sample = &greedy;
    step.logit_rows = &last_token;
    step.cu_seqlens_q = cu_seqlens_q;
    step.seqlens_k = &seqlen_k;
    uint64_t begin_ns = clock_monotonic_ns();
    model_step_begin(m, &step);
    model_step_sample(m);
    int status = model_step_end(m, &result, err);
    *us = (double)(clock_monotonic_ns() - begin_ns) * 1e-3;
    return status;
}

int model_warm_up(struct model *m, int32_t num_tokens, struct warm_up_times *times, struct error *err)
{
    assert_always(num_tokens > 0);
    size_t num_positions = (size_t)num_tokens + 1;
    int32_t *positions = calloc(3 * num_positions, sizeof *positions);
    if (!positions) return error_set(err, STATUS_NO_MEMORY, "no memory for the first step");
    int32_t *token_ids = positions + num_positions, *blocks = token_ids + num_positions;
    for (int32_t i = 0; i <= num_tokens; i++) positions[i] = blocks[i] = i;
    struct step prompt = {.num_tokens = num_tokens,
                          .num_prefill_tokens = num_tokens,
                          .num_prefill_seqs = 1,
                          .token_ids = token_ids,
                          .positions = positions,
                          .slot_mapping = positions, /* block i holds tokens from 16 i on */
                          .block_tables = blocks,
                          .block_table_stride = (int32_t)num_positions};
    struct step next = {.num_tokens = 1,
                        .token_ids = token_ids,
                        .positions = positions + num_tokens,
                        .slot_mapping = positions + num_tokens,
                        .block_tables = blocks,
                        .block_table_stride = (int32_t)num_positions};
    int status = run_step(m, prompt, &times->prompt_us, err);
    if (!status) status = run_step(m, next, &times->token_us, err);
    free(positions);
    return status;
}
