/* step.c - a step's way in, and its results' way out. */
#include "kernels/cpu/device.h"

#include <string.h>

#include "base/check.h"

static bool is_token_known(const struct cpu_device *c, int32_t id)
{
    return id >= 0 ? id < c->vocab_size : ~id < c->history.num_slots;
}

/* A token's place in its sequence, and that its K and V go where the block table will look for them. */
static bool is_in_place(const struct cpu_device *c, const struct step *s, int32_t seq_idx, int32_t token)
{
    int32_t position = s->positions[token] % c->limits.max_model_len;
    bool in_place = position == s->seqlens_k[seq_idx] - (s->cu_seqlens_q[seq_idx + 1] - token);
    for (int32_t g = 0; g < step_num_kv_groups(s) && in_place; g++) {
        const int32_t *blocks = step_block_tables(s, g) + (int64_t)seq_idx * s->block_table_stride;
        in_place = step_slot_mapping(s, g)[token] ==
                   blocks[position / BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE;
    }
    return in_place;
}

static void check_seq(const struct cpu_device *c, const struct step *s, int32_t seq_idx)
{
    int32_t begin = s->cu_seqlens_q[seq_idx], end = s->cu_seqlens_q[seq_idx + 1];
    assert_debug(begin < end && (seq_idx < s->num_prefill_seqs || end - begin == 1));
    assert_debug(s->seqlens_k[seq_idx] <= c->limits.max_model_len);
    for (int32_t token = begin; token < end; token++)
        assert_debug(is_token_known(c, s->token_ids[token]) && is_in_place(c, s, seq_idx, token));
}

static void check_logit_row(const struct cpu_device *c, const struct step *s, int32_t row)
{
    const struct sample_params *p = &s->sample[row];
    assert_debug(s->logit_rows[row] < s->num_tokens);
    assert_debug(s->logit_rows[row] > (row > 0 ? s->logit_rows[row - 1] : -1));
    assert_debug(p->batch_slot >= 0 && p->batch_slot < c->history.num_slots);
    assert_debug(p->num_drafted >= 0 && p->num_drafted <= s->logit_rows[row]);
    assert_debug(p->score_token_id < c->vocab_size);
    for (int32_t i = 0; i < p->num_logit_bias; i++)
        assert_debug(p->logit_bias[i].token_id >= 0 && p->logit_bias[i].token_id < c->vocab_size);
    for (int32_t i = 0; i < p->num_banned; i++)
        assert_debug(p->banned[i] >= 0 && p->banned[i] < c->vocab_size);
    assert_debug(p->num_row_logits >= 0 && p->num_row_logits <= ROW_LOGITS_MAX);
    for (int32_t i = 0; i < p->num_row_logits; i++)
        assert_debug(p->row_logits[i] >= 0 && p->row_logits[i] < c->vocab_size);
    assert_debug(p->num_logprob_ids >= 0 && p->num_logprob_ids <= TOP_LOGPROBS_MAX);
    for (int32_t i = 0; i < p->num_logprob_ids; i++)
        assert_debug(p->logprob_ids[i] >= 0 && p->logprob_ids[i] < c->vocab_size);
    assert_debug(!sample_pools(p) || (p->position > p->pool_begin && p->position <= p->pool_end));
    assert_debug(p->constrained ? p->score_token_id < 0 : !p->allowed && !p->withheld);
}

/* What kernels/step.h promises: everything that an operation indexes by. */
static void check_step(const struct cpu_device *c, const struct step *s)
{
    assert_always(!c->in_step);
    assert_always(s->num_tokens <= c->limits.num_tokens && s->num_seqs <= c->limits.num_seqs &&
                  s->num_logits <= c->limits.num_logits);
    assert_debug(s->cu_seqlens_q[0] == 0 && s->cu_seqlens_q[s->num_seqs] == s->num_tokens);
    assert_debug(s->cu_seqlens_q[s->num_prefill_seqs] == s->num_prefill_tokens);
    for (int32_t i = 0; i < s->num_seqs; i++) check_seq(c, s, i);
    int32_t num_pooled = 0;
    for (int32_t row = 0; row < s->num_logits; row++) {
        check_logit_row(c, s, row);
        num_pooled += sample_pools(&s->sample[row]);
    }
    assert_always(num_pooled == s->num_pooled);
}

/* Of each token. */
static void spread_loras(const struct step *s, int32_t *loras)
{
    for (int32_t i = 0; i < s->num_seqs; i++)
        for (int32_t t = s->cu_seqlens_q[i]; t < s->cu_seqlens_q[i + 1]; t++) loras[t] = s->loras[i];
}

struct batch *cpu_step_begin(struct device *d, const struct step *step)
{
    struct cpu_device *c = cpu_device_of(d);
    struct batch *b = &c->batch;
    check_step(c, step);
    c->in_step = true;
    b->step = step;
    for (int32_t t = 0; t < step->num_tokens; t++) {
        int32_t id = step->token_ids[t];
        b->token_ids[t] = id >= 0 ? id : c->history.slots[~id].last_token;
    }
    if (step->loras) spread_loras(step, b->loras);
    b->num_state_runs = state_runs_find(step, b->state_runs);
    attention_plan(&c->attention, step, &b->attention);
    return b;
}

int cpu_step_end(struct device *d, struct sample_result *results, struct error *err)
{
    (void)err;
    struct cpu_device *c = cpu_device_of(d);
    assert_always(c->in_step);
    c->in_step = false;
    if (c->batch.step->num_logits > 0)
        memcpy(results, c->results, (size_t)c->batch.step->num_logits * sizeof *results);
    return STATUS_OK;
}

/* What is to be computed is computed as it is asked for. */
bool cpu_step_has_ended(struct device *d)
{
    return cpu_device_of(d)->in_step;
}
