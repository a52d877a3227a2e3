#include "model/warm_up.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"

static struct sample_params greedy_of(int32_t batch_slot)
{
    return (struct sample_params){.batch_slot = batch_slot,
                                  .score_token_id = -1,
                                  .sampling.top_p = 1,
                                  .sampling.repetition_penalty = 1,
                                  .sampling.num_logprobs = -1};
}

static int run(struct model *m, const struct step *step, struct sample_result *results, struct error *err)
{
    model_step_begin(m, step);
    model_step_sample(m);
    return model_step_end(m, results, err);
}

/* Fills in what a step of one sequence leaves open. */
static int run_step(struct model *m, struct step step, double *us, struct error *err)
{
    struct sample_params greedy = greedy_of(0);
    struct sample_result result;
    int32_t last_token = step.num_tokens - 1, cu_seqlens_q[] = {0, step.num_tokens},
            seqlen_k = step.positions[last_token] + 1, batch_slot = 0;
    step.num_seqs = step.num_logits = 1;
    step.sample = &greedy;
    step.logit_rows = &last_token;
    step.cu_seqlens_q = cu_seqlens_q;
    step.batch_slots = &batch_slot;
    step.seqlens_k = &seqlen_k;
    uint64_t begin_ns = clock_monotonic_ns();
    int status = run(m, &step, &result, err);
    *us = (double)(clock_monotonic_ns() - begin_ns) * 1e-3;
    return status;
}

int model_warm_up(struct model *m, int32_t num_tokens, struct warm_up_times *times, struct error *err)
{
    assert_always(num_tokens > 0);
    size_t num_positions = (size_t)num_tokens + 1, num_groups = (size_t)model_num_kv_groups(m);
    int32_t *positions = calloc((2 + 2 * num_groups) * num_positions, sizeof *positions);
    if (!positions) return error_set(err, STATUS_NO_MEMORY, "no memory for the first step");
    int32_t *token_ids = positions + num_positions, *blocks = token_ids + num_positions,
            *slots = blocks + num_groups * num_positions;
    for (int32_t i = 0; i <= num_tokens; i++) positions[i] = i;
    /* Block i holds tokens from 16 i on, of every group: what they compute is nobody's. */
    for (size_t g = 0; g < num_groups; g++)
        for (int32_t i = 0; i <= num_tokens; i++) blocks[g * num_positions + (size_t)i] = i;
    for (size_t g = 0; g < num_groups; g++)
        for (int32_t i = 0; i < num_tokens; i++) slots[g * (size_t)num_tokens + (size_t)i] = i;
    struct step prompt = {.num_tokens = num_tokens,
                          .num_prefill_tokens = num_tokens,
                          .num_prefill_seqs = 1,
                          .token_ids = token_ids,
                          .positions = positions,
                          .num_kv_groups = (int32_t)num_groups,
                          .slot_mapping = slots,
                          .block_tables = blocks,
                          .block_table_stride = (int32_t)num_positions};
    struct step next = {.num_tokens = 1,
                        .num_kv_groups = (int32_t)num_groups,
                        .token_ids = token_ids,
                        .positions = positions + num_tokens,
                        .slot_mapping = slots,
                        .block_tables = blocks,
                        .block_table_stride = (int32_t)num_positions};
    int status = run_step(m, prompt, &times->prompt_us, err);
    for (size_t g = 0; g < num_groups; g++) slots[g] = num_tokens;
    if (!status) status = run_step(m, next, &times->token_us, err);
    free(positions);
    return status;
}

/* ---- graphs ---- */

/* What steps of so many sequences' first tokens are made of, each in a block of its own, the same of every group. */
struct firsts {
    int32_t num_groups;
    int32_t *zeros, *ones, *ascending; /* 0 0 0, 1 1 1, 0 1 2 */
    int32_t *blocks, *block_begins;    /* of each group: 0 1 2, 0 16 32 */
    struct sample_params *greedy;
    struct sample_result *results;
};

static void firsts_destroy(struct firsts *f)
{
    free(f->zeros);
    free(f->ones);
    free(f->ascending);
    free(f->blocks);
    free(f->block_begins);
    free(f->greedy);
    free(f->results);
}

static bool firsts_create(struct firsts *f, int32_t num_seqs, int32_t num_groups)
{
    size_t count = (size_t)num_seqs + 1, of_groups = (size_t)num_groups * count;
    *f = (struct firsts){.num_groups = num_groups,
                         .zeros = calloc(count, sizeof *f->zeros),
                         .ones = calloc(count, sizeof *f->ones),
                         .ascending = calloc(count, sizeof *f->ascending),
                         .blocks = calloc(of_groups, sizeof *f->blocks),
                         .block_begins = calloc(of_groups, sizeof *f->block_begins),
                         .greedy = calloc(count, sizeof *f->greedy),
                         .results = calloc(count, sizeof *f->results)};
    if (!f->zeros || !f->ones || !f->ascending || !f->blocks || !f->block_begins || !f->greedy || !f->results)
        return false;
    for (int32_t i = 0; i <= num_seqs; i++) {
        f->ones[i] = 1;
        f->ascending[i] = i;
        f->greedy[i] = greedy_of(i);
    }
    return true;
}

/* As many times as there may be steps in flight: each has arrays of its own, which graphs point to. */
static int record(struct model *m, const struct firsts *f, int32_t num_seqs, struct error *err)
{
    for (int32_t i = 0; i < f->num_groups * num_seqs; i++) {
        f->blocks[i] = i % num_seqs;
        f->block_begins[i] = i % num_seqs * BLOCK_SIZE;
    }
    const struct step step = {.num_tokens = num_seqs,
                              .num_seqs = num_seqs,
                              .num_logits = num_seqs,
                              .num_kv_groups = f->num_groups,
                              .token_ids = f->zeros,
                              .positions = f->zeros,
                              .slot_mapping = f->block_begins,
                              .cu_seqlens_q = f->ascending,
                              .batch_slots = f->ascending,
                              .seqlens_k = f->ones,
                              .block_tables = f->blocks,
                              .block_table_stride = 1,
                              .logit_rows = f->ascending,
                              .sample = f->greedy};
    int status = 0;
    for (int i = 0; i < model_device(m)->num_steps_in_flight_max && !status; i++)
        status = run(m, &step, f->results, err);
    return status;
}

int model_record_graphs(struct model *m, int32_t num_seqs, struct error *err)
{
    struct device *d = model_device(m);
    struct firsts f;
    int status = 0;
    if (!d->ops->graph_size) return 0;
    if (!firsts_create(&f, num_seqs, model_num_kv_groups(m)))
        status = error_set(err, STATUS_NO_MEMORY, "no memory for the first steps");
    d->ops->rehearse(d, true);
    for (int32_t n = 0; n < num_seqs && !status;) {
        n = min_of(d->ops->graph_size(d, n + 1), num_seqs);
        status = record(m, &f, n, err);
    }
    d->ops->rehearse(d, false);
    firsts_destroy(&f);
    return status;
}
